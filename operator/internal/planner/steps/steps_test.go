package steps_test

import (
	"reflect"
	"testing"

	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// Each kind has a row of its own: a text, and an event that no other kind has.
func TestRows(t *testing.T) {
	executor := reflect.TypeFor[steps.Executor]()
	kindOf := map[string]string{}
	for method := range executor.Methods() {
		kind := method.Type.In(1)
		if kind.Name() != method.Name {
			t.Errorf("%s carries out %s", method.Name, kind.Name())
		}
		step, isStep := reflect.TypeAssert[steps.Step](reflect.Zero(kind))
		if !isStep {
			t.Fatalf("%s is no step", kind.Name())
		}
		row := steps.RowOf(step)
		if other, isTaken := kindOf[row.Event]; isTaken && row.Event != "" || row.Text == "" {
			t.Errorf("%s has the row %+v, and the event of %q", kind.Name(), row, other)
		}
		kindOf[row.Event] = kind.Name()
	}
	if len(kindOf) < 2 {
		t.Error("no kinds were found")
	}
}

// What ends a process that serves, or gives up a volume, is planned once more right before.
func TestIrrevocableStepsAreLookedAtAgain(t *testing.T) {
	for _, step := range []steps.Step{
		steps.RestartMember{},
		steps.DrillMember{},
		steps.MoveMember{},
		steps.DropVolume{},
		steps.IsolateNode{},
		steps.FenceNode{},
		steps.SetSettings{},
		steps.DeletePod{UnderLock: true},
	} {
		if row := steps.RowOf(step); row.Look != steps.Everything {
			t.Errorf("%T has the row %+v", step, row)
		}
	}
}

func TestOf(t *testing.T) {
	all := []steps.Step{steps.DrainMember{Member: "a"}, steps.UndrainMember{Member: "b"}, steps.DrainMember{Member: "c"}}
	var members []string
	for drain := range steps.Of[steps.DrainMember](all) {
		members = append(members, drain.Member)
	}
	if !reflect.DeepEqual(members, []string{"a", "c"}) {
		t.Errorf("the drained ones are %v", members)
	}
}
