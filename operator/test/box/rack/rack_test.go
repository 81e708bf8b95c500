package rack_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/test/box/rack"
)

const (
	username = "admin"
	password = "not-a-secret"
	// patience is far beyond what anything here takes.
	patience = 30 * time.Second
)

// mercury is a chassis with some of its blades.
func mercury(blades int) rack.Chassis {
	chassis := rack.Chassis{Name: "mercury1", Managers: []netip.Addr{
		netip.MustParseAddr("192.168.5.201"), netip.MustParseAddr("192.168.5.202"),
	}}
	for i := range blades {
		chassis.Slots = append(chassis.Slots, rack.Slot{
			Number: i + 1, Address: netip.MustParseAddr(fmt.Sprintf("192.168.5.%d", i+1)),
			Blade: rack.Blade{
				Serial: fmt.Sprintf("MMS%04d", i+1), GUID: fmt.Sprintf("a123456789abcdef0000%012d", i+1),
				MACs: []string{fmt.Sprintf("52:54:00:03:00:%02x", i+1), fmt.Sprintf("52:54:00:04:00:%02x", i+1)},
			},
		})
	}
	return chassis
}

// judge is what others say of the controllers: ipmitool and FreeIPMI.
type judge struct {
	*testing.T

	passwordFile, configFile string
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	dir := t.TempDir()
	j := &judge{T: t, passwordFile: filepath.Join(dir, "password"), configFile: filepath.Join(dir, "freeipmi.conf")}
	config := fmt.Sprintf("username %s\npassword %s\ndriver-type LAN_2_0\ncipher-suite-id 3\nprivilege-level ADMIN\n"+
		"workaround-flags opensesspriv\n", username, password)
	for path, text := range map[string]string{j.passwordFile: password, j.configFile: config} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

func (j *judge) run(program string, arguments ...string) string {
	j.Helper()
	output, err := exec.CommandContext(j.Context(), program, arguments...).CombinedOutput()
	if err != nil {
		j.Fatalf("%s %v: %v\n%s", program, arguments, err, output)
	}
	return string(output)
}

func (j *judge) ipmitool(host string, arguments ...string) string {
	j.Helper()
	access := []string{"-I", "lanplus", "-C", "3", "-U", username, "-f", j.passwordFile, "-H", host}
	return j.run("ipmitool", append(access, arguments...)...)
}

func (j *judge) freeipmi(program, host string, arguments ...string) string {
	j.Helper()
	return j.run(program, append([]string{"--config-file=" + j.configFile, "-h", host}, arguments...)...)
}

// eventually waits until a text has another in it.
func (j *judge) eventually(says string, text func() string) {
	j.Helper()
	var last string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(pause) {
		if last = text(); strings.Contains(last, says) {
			return
		}
	}
	j.Fatalf("after %s still no %q in %s", patience, says, last)
}

const pause = 100 * time.Millisecond

func start(t *testing.T, chassis ...rack.Chassis) *rack.Rack {
	t.Helper()
	if os.Getenv("RCBOX_BOX_NETWORK") == "" {
		t.Skip("SKIPPED: it needs a network namespace of its own, with ipmi_sim: hack/box.sh")
	}
	r, err := rack.Start(t.Context(), rack.Options{
		Dir: t.TempDir(), Username: username, Password: password, ShutdownTime: time.Second, Chassis: chassis,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// The emulated chassis is what it says, as ipmitool and FreeIPMI see it.
func TestRackIsWhatOthersSee(t *testing.T) {
	r, j := start(t, mercury(8)), newJudge(t)
	const blade, slot, manager, slave = "192.168.5.7", 7, "192.168.5.201", "192.168.5.202"
	state := func() string { return j.ipmitool(blade, "power", "status") }
	watts := func(of string) func() string {
		return func() string { return j.ipmitool(of, "sensor", "reading", "Slot 07 Power") }
	}
	j.eventually("is off", state)
	j.ipmitool(blade, "power", "on")
	j.eventually("is on", state)
	j.eventually("22", watts(manager))
	j.eventually("22", watts(slave))
	if text := j.freeipmi("ipmipower", blade, "--stat"); !strings.Contains(text, "on") {
		t.Errorf("FreeIPMI says: %s", text)
	}
	// An operating system takes its time to shut down.
	j.ipmitool(blade, "power", "soft")
	j.eventually("is off", state)
	j.eventually("| 2", watts(manager))
	// A controller that lies says yes, and the blade is as it was; what the slot draws is true.
	if err := r.Lie("mercury1", slot, rack.On); err != nil {
		t.Fatal(err)
	}
	j.eventually("is on", state)
	j.ipmitool(blade, "power", "off")
	j.eventually("is on", state)
	j.eventually("| 2", watts(manager))
	if err := r.Lie("mercury1", slot, ""); err != nil {
		t.Fatal(err)
	}
	// The whole chassis at once.
	j.ipmitool(manager, "power", "on")
	for _, host := range []string{"192.168.5.1", blade} {
		j.eventually("is on", func() string { return j.ipmitool(host, "power", "status") })
	}
	j.ipmitool(manager, "power", "soft")
	for _, host := range []string{"192.168.5.1", blade} {
		j.eventually("is off", func() string { return j.ipmitool(host, "power", "status") })
	}
	for controller, want := range map[rack.Controller][]string{
		rack.BladeIn(slot): {"power 1", "shutdown 1", "power 0"}, rack.Manager(1): {"power 1", "shutdown 1"}, rack.Manager(2): nil,
	} {
		if given, err := r.Given("mercury1", controller); err != nil || !slices.Equal(given, want) {
			t.Errorf("controller %s was given %q, not %q: %v", controller, given, want, err)
		}
	}
	for _, says := range []string{"MMS0007", "slot=7", "mac2=52:54:00:04:00:07"} {
		if text := j.ipmitool(blade, "fru", "print"); !strings.Contains(text, says) {
			t.Errorf("no %s in %s", says, text)
		}
	}
	if text := j.ipmitool(slave, "sensor", "reading", "In Charge"); !strings.Contains(text, "| 0") {
		t.Errorf("the second manager is in charge: %s", text)
	}
	j.ipmitool(blade, "chassis", "bootdev", "pxe")
	j.ipmitool(blade, "chassis", "identify", "15")
	if text := j.ipmitool(blade, "mc", "guid"); !strings.Contains(strings.ToLower(text), "a123456789abcdef") {
		t.Errorf("the GUID is %s", text)
	}
}
