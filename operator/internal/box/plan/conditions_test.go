package plan_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/model"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

func TestConditions(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *scene)
		says   map[string]string
	}{
		"as it should be": {func(*scene) {}, map[string]string{
			"Reachable": "True Answers", "PoweredOn": "True On: its BMC says", "NodeReady": "True Ready: node atom003",
			"Healthy":    "True WithinLimits",
			"AsRecorded": "True Accepted", "Fenceable": "True Provable: the BMC's server is node atom003",
			"Accepted": "True Accepted", "Available": "True AllAnswer", "ManagementReady": "True AllAnswer",
			"InventoryComplete": "True Complete",
			"Degraded":          "False AsExpected",
		}},
		"silent": {silent, map[string]string{
			"Reachable":       "False Silent: its BMC 192.168.5.3 has not answered since 2026",
			"PoweredOn":       "True On: the power reading of its slot",
			"ManagementReady": "False Silent: BMCs do not answer: atom003", "Available": "False Silent",
		}},
		"new password": {func(s *scene) {
			s.Servers[2].MMC.Err = &bmc.RefusedError{
				Reason: bmc.RefusedNewPassword,
				Detail: "BMCs of this model are not known to keep more than 16 bytes: write one of at most 16 bytes",
			}
		}, map[string]string{
			"Reachable": "False Refused: its BMC 192.168.5.3 refuses: it takes only the previous password, and cannot be given the new " +
				"one (BMCs of this model are not known to keep more than 16 bytes: write one of at most 16 bytes); correct Secret " +
				"mercury1-bmc, or annotate it if the password is right: each change allows one more login",
		}},
		"password": {func(s *scene) { s.Servers[2].MMC.Err = &bmc.RefusedError{Reason: bmc.RefusedCredentials} }, map[string]string{
			"Reachable": "False Refused: its BMC 192.168.5.3 refuses: user name or password is wrong; " +
				"correct Secret mercury1-bmc, or annotate it if the password is right: each change allows one more login",
			"Available": "False Refused: BMCs refuse the login: atom003; correct Secret mercury1-bmc, or annotate it",
		}},
		"swapped": {func(s *scene) { s.Servers[2].Identity.Serial = "S9" }, map[string]string{
			"AsRecorded": `False BladeSwapped: slot 3 holds the blade "S9" in place of "S3": ` +
				`if that is meant, set spec.acceptedSerial: "S9"`,
		}},
		"accepted": {func(s *scene) {
			s.Servers[2].Identity.Serial, s.Servers[2].Object.Spec.AcceptedSerial = "S9", "S9"
		}, map[string]string{
			"AsRecorded": "True Accepted",
		}},
		"MAC": {func(s *scene) { s.Servers[4].Identity.MACs = map[int]string{2: "02:00:00:00:00:02"} }, map[string]string{
			"AsRecorded": "False MACInTwoSlots: the MAC address 02:00:00:00:00:02 of slot 3 is that of atom005, too",
		}},
		"MAC elsewhere": {func(s *scene) { s.ElsewhereMACs = map[string]string{"02:00:00:00:00:02": "atom077"} }, map[string]string{
			"AsRecorded": "False MACInTwoSlots: the MAC address 02:00:00:00:00:02 of slot 3 is that of atom077, too",
		}},
		"GUID": {
			func(s *scene) { s.setGUID(2, s.Servers[4].Identity.SystemGUID) },
			map[string]string{"AsRecorded": "False GUIDTwice", "Fenceable": "False GUIDTwice: the BMCs of atom003 and atom005 report"},
		},
		"hot": {func(s *scene) {
			s.Servers[2].Sensors = []bmc.Sensor{{Name: "CPU Temp", Value: 97.4, Unit: "C", Beyond: true}}
		}, map[string]string{"Healthy": "False BeyondLimits: beyond their limits: CPU Temp"}},
		"unread": {
			func(s *scene) { s.Servers[2].Identity, s.Servers[2].Object.Status = nil, v1alpha1.ServerStatus{} },
			map[string]string{
				"AsRecorded":        "Unknown NotRead",
				"Fenceable":         "Unknown NotRead",
				"InventoryComplete": "False NotRead: the hardware in these slots was not read yet: atom003",
			},
		},
		"nobody": {func(s *scene) { s.Chassis.Spec.Fencing.Namespaces = nil }, map[string]string{"Fenceable": "False NobodyMay"}},
		"one manager": {
			func(s *scene) { s.Managers[1].AnsweredAt = time.Time{} },
			map[string]string{"Degraded": "True OneManager: only one of the chassis managers answers: 192.168.5.201"},
		},
		"no manager": {func(s *scene) { s.Managers[0].AnsweredAt, s.Managers[1].AnsweredAt = time.Time{}, time.Time{} }, map[string]string{
			"Degraded": "True NoManager", "ManagementReady": "False NoManager",
		}},
		"a manager refuses": {func(s *scene) {
			for i := range s.Managers {
				s.Managers[i].AnsweredAt, s.Managers[i].Err = time.Time{}, &bmc.RefusedError{Reason: bmc.RefusedCredentials}
			}
		}, map[string]string{
			"ManagementReady": "False Refused: chassis manager 192.168.5.201 refuses: user name or password is wrong; " +
				"correct Secret mercury1-bmc",
		}},
		"sensors that the Chassis names": {func(s *scene) {
			s.Chassis.Spec.Model = "MicroModularServer"
			s.Chassis.Spec.ModelOverrides = &v1alpha1.ModelOverrides{Manager: v1alpha1.ModelManager{
				InCharge:  "In Charge",
				SlotWatts: &v1alpha1.ModelSlotWatts{Sensor: "Slot %02d Power", EmptyBelow: 1, OffBelow: 4, OnFrom: 8},
				Fans:      &v1alpha1.ModelParts{Sensor: "Fan %d", Count: 4, WorksFrom: 5},
			}}
			s.Layout = layout.Of([]v1alpha1.Chassis{*s.Chassis})[s.Chassis.Name]
		}, map[string]string{
			"Fenceable": "True", "CoolingRedundant": "True AllWork: all 4 fans work",
			"PowerRedundant": "Unknown NotMeasured: model MicroModularServer names no sensors of power supplies",
		}},
		"sensors that nobody names": {func(s *scene) {
			s.Chassis.Spec.Model = "MicroModularServer"
			s.Layout = layout.Of([]v1alpha1.Chassis{*s.Chassis})[s.Chassis.Name]
		}, map[string]string{"Fenceable": "False NoProof"}},
		"slow records": {func(s *scene) { slowManager(s, &bmc.SlowError{What: bmc.SlowRecords, Done: 7, All: 110}) }, map[string]string{
			"ManagementReady": "False ManagerSlow: chassis manager 192.168.5.201 is slow, and the records of its sensors are still",
			"Degraded":        "True ManagerSlow", "PowerRedundant": "Unknown ManagerSlow",
		}},
		"slow sensors": {func(s *scene) { slowManager(s, fmt.Errorf("it: %w", context.DeadlineExceeded)) }, map[string]string{
			"ManagementReady": "False ManagerSlow: chassis manager 192.168.5.201 is too slow: reading its sensors takes longer than",
		}},
		"fan": {func(s *scene) {
			s.Managers[0].Sensors = append(s.Managers[0].Sensors, bmc.Sensor{Name: "Fan 3", Beyond: true})
		}, map[string]string{"Degraded": "True BeyondLimits: sensors of the chassis are beyond their limits: Fan 3"}},
		"power supply": {func(s *scene) { s.sensor("PSU 2", 0) }, map[string]string{
			"PowerRedundant": "False Failed: 1 of 2 power supplies do not work or are not there: PSU 2; replace them while the " +
				"chassis runs",
			"CoolingRedundant": "True AllWork: all 4 fans work",
			"Degraded":         "True PartsFailed: parts of the chassis do not work: PSU 2",
		}},
		"fan out": {func(s *scene) { s.sensor("Fan 1", -1) }, map[string]string{
			"CoolingRedundant": "False Failed: 1 of 4 fans", "PowerRedundant": "True AllWork: all 2 power supplies work",
		}},
		"no sensors of parts": {func(s *scene) {
			changed := *s.Layout.Model
			changed.Manager.PowerSupplies, changed.Manager.Fans, changed.Manager.SlotWatts = nil, nil, nil
			s.Layout.Model = &changed
		}, map[string]string{
			"PowerRedundant": "Unknown NotMeasured: model EmulatedRack names no sensors of power supplies",
			"SlotsFilled":    "Unknown NotMeasured", "Degraded": "False AsExpected",
		}},
		"links": {func(s *scene) { boards(s) }, map[string]string{
			"LinksUp": "True AllUp", "Degraded": "False AsExpected",
		}},
		"links, and no uplinks": {func(s *scene) { boards(s); s.Chassis.Spec.Chain = nil }, map[string]string{"LinksUp": "True AllUp"}},
		"no boards": {func(*scene) {}, map[string]string{
			"LinksUp": "Unknown NoBoards: spec.management.ons names no switch board",
		}},
		"boards of an unknown model": {func(s *scene) {
			boards(s)
			changed := *s.Layout.Model
			changed.SwitchBoards.UplinkLink, changed.SwitchBoards.ServerLink = nil, nil
			s.Layout.Model = &changed
		}, map[string]string{"LinksUp": "Unknown NotMeasured: model EmulatedRack names no sensors of links"}},
		"board not asked": {func(s *scene) {
			boards(s)[1].Contact, s.Chassis.Status = plan.Contact{}, v1alpha1.ChassisStatus{}
		}, map[string]string{"LinksUp": "Unknown NotAsked"}},
		"board not read": {func(s *scene) {
			boards(s)[1].SensorsAt, s.Chassis.Status = time.Time{}, v1alpha1.ChassisStatus{}
		}, map[string]string{"LinksUp": "Unknown NotRead: the sensors of switch board mercury1ons"}},
		"board silent": {func(s *scene) { boards(s)[1].AnsweredAt = s.now.Add(-time.Minute) }, map[string]string{
			"LinksUp":  "False Silent: controllers of switch boards do not answer: mercury1ons (192.168.5.204)",
			"Degraded": "True LinksSilent",
		}},
		"uplink down": {func(s *scene) { boards(s)[0].Sensors[0].Value = 0 }, map[string]string{
			"LinksUp":  "False Down: links that are down: QSFP 1 at mercury1onm, to mercury2",
			"Degraded": "True LinksDown: links that are down: QSFP 1",
		}},
		"uplink that no board has": {func(s *scene) { boards(s)[0].Sensors[0].Name = "QSFP 9 Link" }, map[string]string{
			"LinksUp": "False Down: links that are down: QSFP 1 at no switch board, to mercury2",
		}},
		"server's link down": {func(s *scene) { boards(s)[1].Sensors[3].Value = 0 }, map[string]string{
			"LinksUp": "False Down: links that are down: atom003 (slot 3) at mercury1ons",
		}},
		"link of a server that is off": {func(s *scene) {
			boards(s)[1].Sensors[3].Value = 0
			s.see(2, bmc.PowerOff, bmc.PowerOff)
		}, map[string]string{"LinksUp": "True AllUp"}},
		"link of a server that has just started": {func(s *scene) {
			boards(s)[1].Sensors[3].Value = 0
			s.Servers[2].Object.Status.Power.Since = new(metav1.NewTime(s.now))
		}, map[string]string{"LinksUp": "True AllUp"}},
		"empty": {func(s *scene) { silent(s); s.sensor("Slot 03 Power", 0) }, map[string]string{
			"SlotsFilled": "False Empty: no blade is in the slots of atom003 (3)",
			"AsRecorded":  "False SlotEmpty: slot 3 has no blade",
		}},
		"silent and not empty": {func(s *scene) { silent(s); s.sensor("Slot 03 Power", 2) }, map[string]string{
			"SlotsFilled": "True Filled", "AsRecorded": "True Accepted",
		}},
		"wrong": {
			func(s *scene) { s.Layout.Problems = []layout.Problem{{Field: "spec.slots", Text: "names slot 47"}} },
			map[string]string{"Accepted": "False Contradiction: spec.slots: names slot 47", "Available": "False NotAccepted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			test.change(s)
			s.plan()
			for condition, says := range test.says {
				var got string
				if meta.FindStatusCondition(s.Servers[2].Object.Status.Conditions, condition) != nil {
					got = s.condition(condition)
				} else {
					got = s.chassisCondition(condition)
				}
				expect(t, got, says)
			}
		})
	}
}

// sensor changes what the chassis managers show; less than 0: it has no reading.
func (s *scene) sensor(name string, value float64) {
	for i := range s.Managers {
		m := &s.Managers[i]
		m.Sensors = slices.DeleteFunc(slices.Clone(m.Sensors), func(one bmc.Sensor) bool { return one.Name == name })
		if value >= 0 {
			m.Sensors = append(m.Sensors, bmc.Sensor{Name: name, Value: value})
		}
	}
}

// What the chassis may draw, what is reserved of that, and what slots draw together, where nothing measures the whole.
func TestPowerOfSlots(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.Chassis.Spec.StorageSlots = "45,46"
	s.plan()
	status := s.Chassis.Status
	if status.BudgetWatts != 2000 || status.ReservedWatts != 5*22 || status.Watts == nil || *status.Watts != 110 {
		t.Errorf("%+v", status)
	}
	if want := (v1alpha1.SlotCounts{Server: 5, Storage: 2, Empty: 39}); status.Slots != want {
		t.Errorf("slots: %+v", status.Slots)
	}
	s.Chassis.Spec.Power.BudgetWatts = 300
	s.sensor("Slot 02 Power", -1)
	s.plan()
	if status := s.Chassis.Status; status.BudgetWatts != 300 || status.Watts != nil {
		t.Errorf("%+v", status)
	}
}

// Values that go to and fro are not written each time.
func TestSensorsThatFlicker(t *testing.T) {
	s := newScene(bmc.PowerOn)
	says := func(value float64, beyond bool) v1alpha1.SensorStatus {
		s.Servers[2].Sensors = []bmc.Sensor{
			{Name: "CPU Temp", Value: value, Unit: "C", Beyond: beyond},
			{Name: "Lid", Value: 3, Discrete: true},
		}
		s.plan()
		return s.Servers[2].Object.Status.Sensors[0]
	}
	for _, test := range []struct {
		value  float64
		beyond bool
		want   string
	}{
		{41.4, false, "41 C"},
		{44.2, false, "41 C"},
		{38, false, "41 C"},
		{45.6, false, "46 C"},
		{46, true, "46 C"},
		{-3.14159, false, "-3.1 C"},
		{0, false, "0 C"},
		{0, false, "0 C"},
		{12345, false, "12000 C"},
	} {
		if got := says(test.value, test.beyond); got.Value != test.want || got.Beyond != test.beyond {
			t.Errorf("%v: %+v, not %s", test.value, got, test.want)
		}
	}
	if got := s.Servers[2].Object.Status.Sensors[1].Value; got != "0x3" {
		t.Error(got)
	}
}

// What a chassis draws is shown in steps, and is more than what is reserved, if it is more.
func TestMeasuredPower(t *testing.T) {
	s := newScene(bmc.PowerOff)
	changed := *s.Layout.Model
	changed.Manager.ChassisWatts = "Chassis Power"
	s.Layout.Model = &changed
	for _, test := range []struct {
		watts float64
		want  int32
	}{{403, 400}, {409, 400}, {394, 400}, {411, 410}, {-1, 0}} {
		sensors := s.Managers[0].Sensors
		s.Managers[0].Sensors = append(slices.Clone(sensors), bmc.Sensor{Name: "Chassis Power", Value: test.watts, Unit: "W"})
		s.plan()
		s.Managers[0].Sensors = sensors
		if got := s.Chassis.Status.Watts; test.want == 0 && got != nil || test.want > 0 && (got == nil || *got != test.want) {
			t.Errorf("%v: %v, not %d", test.watts, got, test.want)
		}
	}
	s.Chassis.Spec.Power.BudgetWatts = 420
	s.Managers[0].Sensors = append(s.Managers[0].Sensors, bmc.Sensor{Name: "Chassis Power", Value: 399, Unit: "W"})
	s.order(2, v1alpha1.ActionOn)
	expect(t, steps(s.plan()), "")
	s.Chassis.Spec.Power.BudgetWatts = 421
	expect(t, steps(s.plan()), "On atom003")
}

// The other manager takes over: it is found out by what it says of itself.
func TestManagerTakesOver(t *testing.T) {
	s := newScene(bmc.PowerOn)
	for i := range s.Managers {
		s.Managers[i].Sensors[0].Value = float64(i)
	}
	s.plan()
	if got := s.Chassis.Status.Manager; got.Master != "192.168.5.202" || got.Slave != "192.168.5.201" {
		t.Errorf("%+v", got)
	}
}

// Whatever hardware says of itself fits into a status, and can be printed.
func TestForeignTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScene(bmc.PowerOn)
		text := func(name string) string { return rapid.StringN(0, 400, 900).Draw(t, name) }
		s.Servers[2].Identity = &bmc.Identity{
			SystemGUID: text("guid"), Serial: text("serial"), Product: text("product"), Firmware: text("firmware"),
			MACs: map[int]string{1: text("mac")},
		}
		s.Servers[2].Sensors = []bmc.Sensor{
			{Name: text("sensor"), Value: rapid.Float64().Draw(t, "value"), Unit: text("unit"), Beyond: true},
		}
		s.Members = map[string][]plan.Blocker{
			"atom003": {{Member: text("member"), Store: text("store"), Why: text("why"), Loses: text("loses")}},
		}
		s.Servers[2].MMC.Err = errors.New(text("error"))
		s.order(2, v1alpha1.ActionSoft)
		s.plan()
		status := s.Servers[2].Object.Status
		for _, field := range []struct {
			text string
			room int
		}{
			{status.MMC.SystemGUID, 36},
			{status.Hardware.Serial, 64},
			{status.Hardware.Product, 64},
			{status.MMC.Firmware, 64},
			{status.Order.Message, 512},
		} {
			if len(field.text) > field.room || strings.ContainsAny(field.text, "\n\x00\x7f") {
				t.Fatalf("%q", field.text)
			}
		}
		for _, sensor := range status.Sensors {
			if len(sensor.Name) > 32 || len(sensor.Value) > 32 {
				t.Fatalf("%+v", sensor)
			}
		}
		for _, c := range status.Conditions {
			if len(c.Message) > 300 || c.Message == "" {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// slowManager: no manager has said anything yet, and one is slow. The status has the newest events of a BMC's log. If the log was not read,
// they stay; if it was cleared, none are left.
func TestEvents(t *testing.T) {
	s := newScene(bmc.PowerOn)
	at := s.now.Add(-time.Hour)
	for n := range 12 {
		s.Servers[2].Log = append(s.Servers[2].Log, bmc.LogEntry{ID: n + 1, At: at, Sensor: "CPU", Text: "hot\x1b[31m", Asserted: n%2 == 0})
	}
	s.Servers[2].Log[11] = bmc.LogEntry{ID: 12, Text: strings.Repeat("x", 300), Asserted: true}
	events := s.plan().Servers["atom003"].Events
	if len(events) != 8 || events[0].ID != 5 || events[0].Ended || !events[1].Ended || !events[0].At.Time.Equal(at) ||
		events[0].Text != "hot[31m" || events[7].At != nil || len(events[7].Text) != 96 {
		t.Errorf("%+v", events)
	}
	s.Servers[2].Log = nil
	if events := s.plan().Servers["atom003"].Events; len(events) != 8 {
		t.Errorf("it was not read, and there are %d", len(events))
	}
	s.Servers[2].Log = []bmc.LogEntry{}
	if events := s.plan().Servers["atom003"].Events; len(events) != 0 {
		t.Errorf("it was cleared, and there are %d", len(events))
	}
}

func slowManager(s *scene, err error) {
	for i := range s.Managers {
		s.Managers[i].Sensors, s.Managers[i].SensorsAt, s.Managers[i].Err = nil, time.Time{}, bmc.ErrSilent
	}
	s.Managers[0].Err = err
}

// boards gives the chassis two switch boards, of which each has an uplink, and a link of each server.
func boards(s *scene) []plan.Manager {
	changed := *s.Layout.Model // the emulated boards show uplinks alone
	changed.SwitchBoards.ServerLink = &model.Link{Sensor: "Slot %02d Link", UpFrom: 1}
	s.Layout.Model = &changed
	s.Chassis.Spec.Chain = &v1alpha1.ChassisChain{Uplinks: []v1alpha1.ChassisUplink{{QSFP: 1, Peer: "mercury2"}, {QSFP: 2}}}
	for n, name := range []string{"mercury1onm", "mercury1ons"} {
		board := plan.Manager{
			Contact: plan.Contact{AskedAt: s.now, AnsweredAt: s.now}, SensorsAt: s.now,
			Name: name, Address: fmt.Sprintf("192.168.5.%d", 203+n),
			Sensors: []bmc.Sensor{{Name: fmt.Sprintf("QSFP %d Link", n+1), Value: 1}},
		}
		for i := range s.Servers {
			board.Sensors = append(board.Sensors, bmc.Sensor{Name: fmt.Sprintf("Slot %02d Link", i+1), Value: 1})
		}
		s.SwitchBoards = append(s.SwitchBoards, board)
	}
	return s.SwitchBoards
}
