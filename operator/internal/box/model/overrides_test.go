package model_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/model"
)

func overridden(overrides *v1alpha1.ModelOverrides) *v1alpha1.ChassisSpec {
	return &v1alpha1.ChassisSpec{Model: "MicroModularServer", ModelOverrides: overrides}
}

// A Chassis says what its hardware has shown: that is so from then on, is no open question any more, and changes no other chassis.
func TestOverrides(t *testing.T) {
	before, err := model.Get("MicroModularServer")
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Of(overridden(&v1alpha1.ModelOverrides{
		Server: v1alpha1.ModelServer{Watts: 21},
		Manager: v1alpha1.ModelManager{
			SlotWatts: &v1alpha1.ModelSlotWatts{Sensor: "Blade %d Pwr", OffBelow: 4, OnFrom: 9},
			Fans:      &v1alpha1.ModelParts{Sensor: "Fan %d", Count: 2, WorksFrom: 100}, InCharge: "Master",
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !m.HasSlotSensor() || *m.Manager.SlotWatts != (model.SlotWatts{Sensor: "Blade %d Pwr", OffBelow: 4, OnFrom: 9}) {
		t.Errorf("%+v", m.Manager.SlotWatts)
	}
	if m.ServerWatts() != 21 || m.MaxWatts != 2000 || m.Slots.Count != 46 || !m.SwitchesAll(v1alpha1.ActionOn) {
		t.Errorf("%+v", m)
	}
	names := []string{"Master", "Blade 3 Pwr", "Blade 7 Pwr", "Fan 1", "Fan 2"}
	if got := m.ManagerSensors([]int32{3, 7}); !slices.Equal(got, names) {
		t.Error(got)
	}
	var open []string
	for _, question := range m.Confirm {
		open = append(open, question.Field)
	}
	if len(open) != len(before.Confirm)-4 || slices.Contains(open, "manager.slotWatts") || slices.Contains(open, "server.watts") ||
		!slices.Contains(open, "server.startWatts") {
		t.Errorf("still open: %v", open)
	}
	if again, err := model.Get("MicroModularServer"); err != nil || again.HasSlotSensor() || again.Server.Watts != 0 ||
		!slices.ContainsFunc(again.Confirm, func(q model.Question) bool { return q.Field == "manager.slotWatts" }) {
		t.Errorf("the model itself was changed: %+v %v", again, err)
	}
}

// Part of a sensor's figures is read over the model's; what does not fit is refused, as in the file of a model.
func TestOverridesAreChecked(t *testing.T) {
	m, err := model.Of(&v1alpha1.ChassisSpec{Model: "EmulatedRack", ModelOverrides: &v1alpha1.ModelOverrides{
		Manager: v1alpha1.ModelManager{SlotWatts: &v1alpha1.ModelSlotWatts{OffBelow: 3}},
	}})
	if err != nil || *m.Manager.SlotWatts != (model.SlotWatts{Sensor: "Slot %02d Power", EmptyBelow: 1, OffBelow: 3, OnFrom: 8}) {
		t.Errorf("%+v %v", m, err)
	}
	for says, overrides := range map[string]*v1alpha1.ModelOverrides{
		"slots.rows add up to 46, and slots.count is 40": {Slots: v1alpha1.ModelSlots{Count: 40}},
		"manager.slotWatts needs 0 < offBelow <= onFrom; manager.slotWatts.sensor \"\" must have one %d or %02d": {
			Manager: v1alpha1.ModelManager{SlotWatts: &v1alpha1.ModelSlotWatts{OnFrom: 3}},
		},
		"manager.slotState has the same value for on and off": {
			Manager: v1alpha1.ModelManager{SlotState: &v1alpha1.ModelSlotState{Sensor: "Slot %d"}},
		},
		"manager.wholeChassis has Off: only On and Soft are ever given to all servers at once": {
			Manager: v1alpha1.ModelManager{WholeChassis: []v1alpha1.PowerAction{v1alpha1.ActionOff}},
		},
	} {
		m, err := model.Of(overridden(overrides))
		wrong, is := errors.AsType[*model.OverridesError](err)
		if !is || wrong.Error() != "with these figures, model MicroModularServer is wrong: "+says {
			t.Errorf("%+v: %v instead of %q", m, err, says)
		}
	}
	if _, err := model.Of(&v1alpha1.ChassisSpec{Model: "Micro", ModelOverrides: &v1alpha1.ModelOverrides{}}); err == nil {
		t.Error("there is no such model")
	}
}

// Each field that a Chassis can have is one of a model.
func TestFieldsOfOverrides(t *testing.T) {
	full := &v1alpha1.ModelOverrides{}
	fill(reflect.ValueOf(full).Elem())
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var m model.Model
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	back, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := errors.Join(json.Unmarshal(text, &want), json.Unmarshal(back, &got)); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"name", "description", "source", "protocol"} {
		delete(got, field)
	}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%v\nbecomes\n%v", want, got)
	}
}

// fill gives each field a value that is not its zero.
func fill(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem())
	case reflect.Struct:
		for _, field := range value.Fields() {
			fill(field)
		}
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fill(value.Index(0))
	case reflect.String:
		value.SetString("x")
	case reflect.Bool:
		value.SetBool(true)
	default:
		value.SetInt(7)
	}
}

// A Chassis has a field for each figure that the code depends on, so that each figure that kubectl rcbox scan --check asks for can be
// written.
func TestWhereFiguresAreWritten(t *testing.T) {
	// Only people read these.
	informative := []string{
		"name", "description", "source", "protocol", "confirm", "rackUnits", "server.cores", "server.memoryGigabytes",
		"server.storageGigabytes", "server.nics.megabitsPerSecond", "server.nics.virtualFunctions", "switchBoards.count",
		"switchBoards.uplinks", "switchBoards.uplinkModes", "manager.count",
	}
	found := map[string]bool{}
	fields("", reflect.ValueOf(model.Model{}), found)
	for field := range found {
		setting, want := model.Setting(field), "spec.modelOverrides."+field
		if slices.Contains(informative, field) {
			want = ""
		}
		if setting != want {
			t.Errorf("%s is written to %q, not to %q", field, setting, want)
		}
	}
	for _, field := range []string{"system GUID", "manager.", "manager.fans.count.x", "Manager"} {
		if setting := model.Setting(field); setting != "" {
			t.Errorf("%q is written to %q", field, setting)
		}
	}
	m, err := model.Of(overridden(&v1alpha1.ModelOverrides{
		Server:       v1alpha1.ModelServer{CommandSeconds: 7},
		SwitchBoards: v1alpha1.ModelSwitchBoards{ServerLink: &v1alpha1.ModelLink{Sensor: "Port %02d", UpFrom: 1}},
	}))
	if err != nil || m.CommandTime(time.Minute) != 7*time.Second || m.SwitchBoards.ServerLink.Name(3) != "Port 03" {
		t.Errorf("%+v, %v", m, err)
	}
}
