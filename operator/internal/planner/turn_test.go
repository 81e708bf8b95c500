package planner_test

import (
	"context"
	"fmt"
	"testing"

	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

func (w *world) turnState() facts.TurnState {
	turn := w.store.Status.Turn
	if turn == nil {
		return facts.TurnUnknown
	}
	pod := w.pods[turn.Pod]
	if pod == nil || pod.Terminating() || pod.UID != turn.PodUID || pod.ResourceVersion != turn.PodResourceVersion {
		return facts.TurnVoid
	}
	return facts.TurnStands
}

// checkTurn: what ends is on record, in the state that it is in.
func (w *world) checkTurn(ref facts.PodRef) {
	turn := w.store.Status.Turn
	if w.turnState() != facts.TurnStands || turn.PodUID != ref.UID || turn.PodResourceVersion != ref.ResourceVersion {
		panic(fmt.Sprintf("%+v is ended, and on record is %+v", ref, turn))
	}
}

// inTurn is what is planned once it is on record which process ends next.
func (w *world) inTurn(change func(facts.Observed) facts.Observed) planner.Plan {
	w.store.Status.Turn = w.tried(change).Turn
	return w.tried(change)
}

// tried is what is planned once the API server was asked about all pods that it is to be asked about.
func (w *world) tried(change func(facts.Observed) facts.Observed) planner.Plan {
	plan := planner.Make(change(w.observe()))
	asked := false
	for try := range steps.Of[steps.TryPod](plan.Steps) {
		asked = true
		if err := try.Do(context.Background(), &hands{w: w}); err != nil {
			panic(err)
		}
	}
	if asked {
		return planner.Make(change(w.observe()))
	}
	return plan
}

func asSeen(o facts.Observed) facts.Observed { return o }

func TestWhatEndsIsOnRecordFirst(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Image = "store:2"
	plan, _ := w.visit(false)
	turn := w.store.Status.Turn
	if len(plan.Steps) != countOf[steps.TryPod](plan) || turn == nil || turn.Member != "box-master-0" {
		t.Fatalf("on record is %+v, steps:\n%s", turn, describe(plan.Steps))
	}
	o := w.observe()
	for name, test := range map[string]struct {
		change           func(*facts.Observed)
		restarts, recall int
		stays            bool
	}{
		"it stands":    {func(*facts.Observed) {}, 1, 0, true},
		"nobody knows": {func(o *facts.Observed) { o.Turn = facts.TurnUnknown }, 0, 0, true},
		"its pod has changed": {func(o *facts.Observed) {
			o.Turn = facts.TurnVoid
			for i := range o.Pods {
				o.Pods[i].ResourceVersion += "1"
			}
		}, 0, 0, false},
		"the spec is taken back": {func(o *facts.Observed) { o.Store.Spec.Image = "store:1" }, 0, 1, true},
		"it is taken back, and the coordinator is mute": {func(o *facts.Observed) {
			o.Store.Spec.Image, o.Cluster = "store:1", nil
		}, 0, 0, true},
		"the Store is paused": {func(o *facts.Observed) { o.Store.Spec.Paused = true }, 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			o.Store = o.Store.DeepCopy()
			test.change(&o)
			plan := planner.Make(o)
			if countOf[steps.RestartMember](plan) != test.restarts || countOf[steps.RecallTurn](plan) != test.recall {
				t.Errorf("steps:\n%s", describe(plan.Steps))
			}
			if stays := plan.Turn != nil && *plan.Turn == *turn; stays != test.stays {
				t.Errorf("on record is %+v, then %+v", turn, plan.Turn)
			}
		})
	}
}

// A turn that is taken back is forgotten once its pod has changed, and not before; then somebody else's begins.
func TestTurnIsRecalled(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Image = "store:2"
	w.visit(false)
	w.store.Spec.Image = "store:1"
	w.order("now", "box-master-2")
	before := *w.store.Status.Turn
	for range 2 {
		if plan, _ := w.visit(false); countOf[steps.RestartMember](plan)+countOf[steps.DrillMember](plan) > 0 {
			t.Fatalf("steps:\n%s", describe(plan.Steps))
		}
	}
	if turn := w.store.Status.Turn; turn == nil || turn.Member != "box-master-2" ||
		w.pods[before.Pod].ResourceVersion == before.PodResourceVersion {
		t.Errorf("on record was %+v, and is %+v", before, turn)
	}
	w.visits(1)
	if len(w.drilled) != 1 || w.drilled[0] != "box-master-2" {
		t.Errorf("drilled %v", w.drilled)
	}
}
