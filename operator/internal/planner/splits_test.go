package planner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/status"
)

// fakeTable has boundaries: as many parts of equal width as were asked for.
type fakeTable struct {
	parts []int32
	// refused is why it is not split now.
	refused string
	// mute: the coordinator carries orders out, and its answers are lost.
	mute bool
	// asked counts orders.
	asked int
}

// split is the coordinator's answer.
func (w *world) split(step steps.SplitTable) *status.Split {
	isIt := func(operation facts.Operation) bool { return operation.UID == step.Operation }
	if !slices.ContainsFunc(w.operations, isIt) {
		w.unordered++
	}
	table := w.tables[step.Table]
	if table == nil {
		return &status.Split{Refused: "there is no table", NoTable: true, ForGood: true}
	}
	table.asked++
	if table.refused != "" {
		return &status.Split{Refused: table.refused}
	}
	made := int64(0)
	if !slices.Contains(table.parts, step.Parts) {
		table.parts = append(table.parts, step.Parts)
		made = int64(step.Parts) - 1
	}
	if table.mute {
		return &status.Split{Unknown: true}
	}
	return &status.Split{Result: &v1alpha1.SplitResult{Tablets: int64(step.Parts), BoundariesMade: made}}
}

func (w *world) orderSplit(name, table string, parts int32) {
	w.order(name, "").Spec = v1alpha1.StoreOperationSpec{
		StoreRef: v1alpha1.StoreReference{Name: w.store.Name}, Type: v1alpha1.OperationSplit,
		Split: &v1alpha1.SplitOperation{Table: table, Parts: parts},
	}
}

// A split is ordered until the coordinator has said that the boundaries are on record, and once it has no more.
func TestTablesAreSplitByOrder(t *testing.T) {
	w := newHoldingWorld(t)
	fruit := &fakeTable{refused: "a server of it is dead"}
	w.tables = map[string]*fakeTable{"fruit": fruit}
	w.orderSplit("wide", "fruit", 16)
	w.orderSplit("nowhere", "vegetables", 2)
	w.reconciles(2)
	for name, says := range map[string]string{
		"wide":    "Pending Waits: the coordinator says: a server of it is dead",
		"nowhere": "Failed NoSuchTable: the coordinator says: there is no table",
	} {
		if got := w.says(name); got != says {
			t.Errorf("%s: %s", name, got)
		}
	}
	fruit.refused, fruit.mute = "", true
	w.reconcile(false)
	const unknown = "Running UnderWay: the coordinator has not answered, and may have split the table: the operator asks again"
	if got := w.says("wide"); got != unknown {
		t.Error(got)
	}
	fruit.mute = false
	w.reconcile(false)
	if got := w.says("wide"); got != `Succeeded Done: table "fruit" has 16 tablets, and had a boundary at each of the 16 parts already` {
		t.Error(got)
	}
	asked := fruit.asked
	w.reconciles(5)
	if fruit.asked != asked {
		t.Errorf("the split is ordered %d times more", fruit.asked-asked)
	}
}

// Each of several tables is split, however many there are; a Store that is paused is left alone.
func TestManySplits(t *testing.T) {
	w := newHoldingWorld(t)
	w.tables = map[string]*fakeTable{}
	const many = 40
	for i := range many {
		name := fmt.Sprintf("table-%d", i)
		w.tables[name] = &fakeTable{}
		w.orderSplit("split-"+name, name, 4)
	}
	w.store.Spec.Paused = true
	w.reconciles(2)
	if got := w.says("split-table-7"); got != "Pending Waits: the split waits for spec.paused: false" {
		t.Error(got)
	}
	w.store.Spec.Paused = false
	w.reconciles(4)
	for name, table := range w.tables {
		if !slices.Equal(table.parts, []int32{4}) || table.asked != 1 {
			t.Errorf("%s: %+v", name, table)
		}
	}
}

// withdrawnSplits are those that are ordered although nobody wants them any more.
func (w *world) withdrawnSplits() int {
	w.tables = map[string]*fakeTable{"fruit": {refused: "a server of it is dead"}}
	w.orderSplit("wide", "fruit", 16)
	w.reconciles(2)
	w.withdraw("wide")
	w.tables["fruit"].refused = ""
	w.reconciles(3)
	return w.unordered
}

// unsplit are orders that are said to be carried out and are not.
func (w *world) unsplit() (found int) {
	w.tables = map[string]*fakeTable{"fruit": {}}
	w.orderSplit("wide", "fruit", 16)
	w.reconciles(3)
	if strings.HasPrefix(w.says("wide"), "Succeeded") != slices.Contains(w.tables["fruit"].parts, 16) || w.tables["fruit"].asked == 0 {
		found++
	}
	return found
}

// The scenarios hold planners to this: what was withdrawn is not ordered, and what was ordered is.
func TestPlantedSplits(t *testing.T) {
	defer func() { makePlan = planner.Make }()
	var seen []facts.Operation
	for _, test := range []struct {
		bug      string
		plan     func(facts.Observed) planner.Plan
		scenario func(*world) int
	}{
		{"what was withdrawn is in a cache for ever", func(o facts.Observed) planner.Plan {
			if len(o.Operations) > 0 {
				seen = o.Operations
			}
			o.Operations = seen
			return planner.Make(o)
		}, (*world).withdrawnSplits},
		{"splits are not ordered", func(o facts.Observed) planner.Plan {
			plan := planner.Make(o)
			plan.Steps = slices.DeleteFunc(plan.Steps, func(step steps.Step) bool { _, isSplit := step.(steps.SplitTable); return isSplit })
			return plan
		}, (*world).unsplit},
		{"a table is split into half of the parts", func(o facts.Observed) planner.Plan {
			plan := planner.Make(o)
			for i, step := range plan.Steps {
				if split, isSplit := step.(steps.SplitTable); isSplit {
					split.Parts /= 2
					plan.Steps[i] = split
				}
			}
			return plan
		}, (*world).unsplit},
	} {
		makePlan = planner.Make
		if found := test.scenario(newHoldingWorld(t)); found != 0 {
			t.Errorf("%s: without the bug, %d are found", test.bug, found)
		}
		makePlan, seen = test.plan, nil
		if found := test.scenario(newHoldingWorld(t)); found == 0 {
			t.Errorf("%s: that is not found", test.bug)
		}
	}
}
