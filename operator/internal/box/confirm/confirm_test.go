package confirm_test

import (
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/confirm"
	"rcbox.dev/rcbox/operator/internal/box/model"
)

func findings(t *testing.T, name string, read confirm.Read) string {
	t.Helper()
	m, err := model.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range confirm.Of(m, read) {
		text.WriteString(string(f.State) + " " + f.Field + ": " + f.What + "\n")
	}
	return text.String()
}

func server(name, guid string, slot int32, macs ...string) *v1alpha1.Server {
	s := &v1alpha1.Server{}
	s.Name, s.Status.Slot, s.Status.MMC.SystemGUID = name, slot, guid
	for _, mac := range macs {
		s.Status.Ports = append(s.Status.Ports, v1alpha1.PortStatus{MAC: mac})
	}
	return s
}

// A chassis manager that takes longer for a round than the controller waits is no witness.
func TestSlowManager(t *testing.T) {
	read := confirm.Read{
		Sensors: []bmc.Sensor{{Name: "PSU 1"}}, First: 31 * time.Second, Round: 9994 * time.Millisecond, Limit: 10 * time.Second,
	}
	const round = "manager: reading all 1 sensors took 31s the first time, as after each login; those that the model names take "
	if text, says := findings(t, "EmulatedRack", read), "seen "+round+"9.99s a round, and the box"; !strings.Contains(text, says) {
		t.Errorf("%q is not in\n%s", says, text)
	}
	read.Round = 11 * time.Second
	says := "differs " + round + "11s a round, and the box controller waits 10s: it is no witness"
	if text := findings(t, "EmulatedRack", read); !strings.Contains(text, says) {
		t.Errorf("%q is not in\n%s", says, text)
	}
}

// Sensors that may answer a question are named beside it; every question of the model is asked.
func TestHardwareThatNobodyHasSeen(t *testing.T) {
	read := confirm.Read{
		Servers: []*v1alpha1.Server{
			server("atom001", "a", 1, "m1", "m2"), server("atom002", "a", 2, "m3"), server("atom003", "", 3, "m5", "m6"),
		},
		Others: []*v1alpha1.Server{server("atom045", "a", 1), server("atom046", "b", 2)},
		Sensors: []bmc.Sensor{
			{Name: "Blade 1 Pwr", Unit: "W", Value: 21},
			{Name: "Total Pwr", Unit: "W", Value: 403},
			{Name: "Slot 1", Discrete: true, Value: 2},
			{Name: "Master", Discrete: true, Value: 1},
			{Name: "PSU A", Value: 1},
			{Name: "Rear", Unit: "RPM", Value: 4200},
		},
	}
	text := findings(t, "MicroModularServer", read)
	for _, says := range []string{
		"differs system GUID: a is that of atom001, atom002, atom045: each server needs its own",
		"differs system GUID: the BMCs of atom003 report none",
		"differs server.nics.count: the model says 2, and the BMCs name fewer hardware addresses of atom002 (1) (spec." +
			"modelOverrides.server.nics.count)\n",
		`how much a server draws that is off; the chassis manager shows "Blade 1 Pwr" (21 W) (spec.modelOverrides.manager.slotWatts)`,
		"until then it is given 15 seconds (spec.modelOverrides.server.commandSeconds)\n",
		`shows what the chassis draws; the chassis manager shows "Total Pwr" (403 W)`,
		`; the chassis manager shows "Slot 1" (0x2)`, `; the chassis manager shows "Master" (0x1)`,
		`; the chassis manager shows "PSU A" (1)`,
		`; the chassis manager shows "Rear" (4200 RPM)`,
	} {
		if !strings.Contains(text, says) {
			t.Errorf("%q is not in\n%s", says, text)
		}
	}
	m, err := model.Get("MicroModularServer")
	if err != nil {
		t.Fatal(err)
	}
	if open := strings.Count(text, "open "); open < len(m.Confirm) {
		t.Errorf("%d of %d questions are asked", open, len(m.Confirm))
	}
	none := confirm.Read{Sensors: []bmc.Sensor{}}
	if text := findings(t, "MicroModularServer", none); !strings.Contains(text, "shows none that may be it") {
		t.Error(text)
	}
	says := "open rackUnits: its height (for information only: rcbox does not use this figure)"
	if text := findings(t, "XeonHighDensity", confirm.Read{}); !strings.Contains(text, says) {
		t.Errorf("%q is not in\n%s", says, text)
	}
	if text := findings(t, "MicroModularServer", confirm.Read{}); strings.Contains(text, "the chassis manager shows none") {
		t.Errorf("nobody was asked:\n%s", text)
	}
}
