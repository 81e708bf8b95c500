package planner_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// says is what a StoreOperation of a name says of itself.
func (w *world) says(name string) string {
	is := w.operation(name)
	complete := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionOperationComplete)
	if complete == nil {
		return "nothing"
	}
	return string(is.Phase) + " " + complete.Reason + ": " + complete.Message
}

// An upgrade is finalized when every process reads the format, and not before.
func TestUpgradeIsFinalizedByOrder(t *testing.T) {
	w := newHoldingWorld(t)
	w.format = facts.Format{Active: 1, Newest: 1}
	w.order("upgrade", "").Spec = v1alpha1.StoreOperationSpec{
		StoreRef: v1alpha1.StoreReference{Name: w.store.Name}, Type: v1alpha1.OperationFinalize,
		Finalize: &v1alpha1.FinalizeOperation{Format: 2},
	}
	for _, step := range []struct {
		format facts.Format
		says   string
		active int64
	}{
		{
			facts.Format{Active: 1, Newest: 1}, "Pending Waits: the coordinator reads formats up to 1: set spec.image of the Store to a newer " +
				"version, or delete this StoreOperation", 1,
		},
		{
			facts.Format{Active: 1, Newest: 2, Hindrances: []string{"member m reads format 1"}},
			"Pending Waits: not every process reads the format: member m reads format 1", 1,
		},
		{facts.Format{Active: 1, Newest: 3}, "Succeeded Done: format 2 is in force", 2},
	} {
		w.format = step.format
		w.visits(2)
		if got := w.says("upgrade"); got != step.says || w.format.Active != step.active {
			t.Errorf("%+v: %s, format %d is in force", step.format, got, w.format.Active)
		}
	}
}
