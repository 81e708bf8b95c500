package model_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/model"
)

func all(t *testing.T) []model.Model {
	t.Helper()
	models, err := model.All()
	if err != nil {
		t.Fatal(err)
	}
	return models
}

// fields gives the path of each figure of a model, and whether it is there.
func fields(prefix string, value reflect.Value, found map[string]bool) {
	for i := range value.NumField() {
		tag, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		name, field := prefix+tag, value.Field(i)
		if field.Kind() == reflect.Struct {
			fields(name+".", field, found)
			continue
		}
		found[name] = !field.IsZero()
	}
}

// Every model says what it is; each of its figures is there, or is among those that real hardware must show.
func TestEveryModelIsComplete(t *testing.T) {
	for _, m := range all(t) {
		found := map[string]bool{}
		fields("", reflect.ValueOf(m), found)
		delete(found, "confirm")
		asked := map[string]bool{}
		for _, question := range m.Confirm {
			if _, isField := found[question.Field]; !isField || question.What == "" || asked[question.Field] {
				t.Errorf("%s: confirm asks %q about %q, which is no field or is asked twice", m.Name, question.What, question.Field)
			}
			asked[question.Field] = true
		}
		for field, isThere := range found {
			if !isThere && !asked[field] {
				t.Errorf("%s: %s is absent, and confirm does not say what real hardware must show", m.Name, field)
			}
		}
	}
}

// The figures that the makers and users of the hardware have published.
func TestMicroModularServer(t *testing.T) {
	m, err := model.Get("MicroModularServer")
	if err != nil {
		t.Fatal(err)
	}
	if m.Slots.Count != 46 || !slices.Equal(m.Slots.Rows, []int32{23, 23}) || m.MaxWatts != 2000 || m.RackUnits != 2 {
		t.Errorf("%+v", m)
	}
	if s := m.Server; s.MemoryGigabytes != 32 || s.StorageGigabytes != 128 || s.Cores != 8 || s.NICs.Count != 2 ||
		s.NICs.MegabitsPerSecond != 2500 || *s.NICs.VirtualFunctions != 0 || m.Protocol != v1alpha1.ManagementIPMI {
		t.Errorf("%+v", s)
	}
	if !m.SwitchesAll(v1alpha1.ActionOn) || !m.SwitchesAll(v1alpha1.ActionSoft) || m.SwitchesAll(v1alpha1.ActionOff) {
		t.Error(m.Manager.WholeChassis)
	}
	if m.HasSlotSensor() || m.ServerWatts() != 43 || m.StartWatts() != 43 || m.ServerWatts()*m.Slots.Count > m.MaxWatts {
		t.Errorf("what nobody has published is %+v", m)
	}
	if m.StartTime(time.Minute) != time.Minute {
		t.Error(m.StartTime(time.Minute))
	}
	if m.HasSlot(0) || !m.HasSlot(1) || !m.HasSlot(46) || m.HasSlot(47) {
		t.Error("slots")
	}
	for slot, want := range map[int32][2]int{1: {1, 1}, 23: {1, 23}, 24: {2, 1}, 46: {2, 23}, 47: {0, 0}} {
		if row, place := m.Row(slot); row != want[0] || place != want[1] {
			t.Errorf("slot %d is in row %d at %d", slot, row, place)
		}
	}
}

func TestGet(t *testing.T) {
	for _, name := range []string{"MicroModularServer", "XeonHighDensity", "Generic", "EmulatedRack"} {
		if m, err := model.Get(name); err != nil || m.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := model.Get("Micro")
	var unknown *model.UnknownError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "EmulatedRack, Generic, MicroModularServer, XeonHighDensity") {
		t.Error(err)
	}
	generic, err := model.Get("Generic")
	if err != nil || !generic.HasSlot(1000) || generic.StartWatts() != 0 {
		t.Errorf("%+v %v", generic, err)
	}
}

// A file is called as its model; what is misspelt or contradicts itself is refused.
func TestDecode(t *testing.T) {
	files, err := filepath.Glob("models/*.yaml")
	if err != nil || len(files) != len(all(t)) {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := model.Decode(text)
		if err != nil || strings.ToLower(m.Name)+".yaml" != filepath.Base(file) {
			t.Errorf("%s: %s %v", file, m.Name, err)
		}
		again, err := yaml.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := model.Decode(again); err != nil || !reflect.DeepEqual(m, back) {
			t.Errorf("%s: %v is written as %s (%v)", file, m, again, err)
		}
	}
	good := "name: A\ndescription: d\nsource: s\nprotocol: IPMI\n"
	for text, says := range map[string]string{
		"":                                "name",
		good + "maxWatt: 3":               "unknown field",
		good + "maxWatts: 3\nmaxWatts: 4": "already set",
		good + "maxWatts: -3":             "maxWatts is negative",
		good + "passwordBytes: 15":        "from 16 to 20",
		good + "passwordBytes: 21":        "from 16 to 20",
		good + "slots: {count: 46, rows: [23, 22]}":                                            "add up to 45",
		good + "slots: {count: 0, rows: [1, -1]}":                                              "a row of -1",
		good + "manager: {wholeChassis: [\"Off\"]}":                                            "only On and Soft",
		good + "manager: {slotState: {sensor: Slot, \"on\": 1, \"off\": 2}}":                   "one %d or %02d",
		good + "manager: {slotState: {sensor: Slot %d, \"on\": 1, \"off\": 1}}":                "the same value",
		good + "manager: {slotWatts: {sensor: \"%d %d\", offBelow: 4, onFrom: 8}}":             "one %d or %02d",
		good + "manager: {slotWatts: {sensor: \"%d\", offBelow: 9, onFrom: 8}}":                "offBelow <= onFrom",
		good + "manager: {slotWatts: {sensor: \"%d\", offBelow: 4, onFrom: 8, emptyBelow: 5}}": "emptyBelow <= offBelow",
		good + "manager: {fans: {sensor: Fan, count: 4, worksFrom: 1}}":                        "one %d or %02d",
		good + "manager: {fans: {sensor: Fan %d, count: 0, worksFrom: 1}}":                     "from 1 to 64",
		good + "manager: {powerSupplies: {sensor: PSU %d, count: 2}}":                          "worksFrom must be more than 0",
		good + "switchBoards: {serverLink: {sensor: Link, upFrom: 1}}":                         "one %d or %02d",
		good + "switchBoards: {uplinkLink: {sensor: QSFP %d Link}}":                            "upFrom must be more than 0",
		strings.Replace(good, "IPMI", "SNMP", 1):                                               "must be IPMI or Redfish",
		strings.Replace(good, "name: A", "name: a b", 1):                                       "letters and digits",
	} {
		if m, err := model.Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v %v, which does not say %q", text, m, err, says)
		}
	}
}
