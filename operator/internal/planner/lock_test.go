package planner_test

import (
	"context"
	"fmt"
	"testing"

	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

func (w *world) lockState() facts.LockState {
	lock := w.store.Status.DisruptionLock
	if lock == nil {
		return facts.LockUnknown
	}
	pod := w.pods[lock.Pod]
	if pod == nil || pod.Terminating() || pod.UID != lock.PodUID || pod.ResourceVersion != lock.PodResourceVersion {
		return facts.LockVoid
	}
	return facts.LockStands
}

// checkLock: what ends is on record, in the state that it is in.
func (w *world) checkLock(ref facts.PodRef) {
	lock := w.store.Status.DisruptionLock
	if w.lockState() != facts.LockStands || lock.PodUID != ref.UID || lock.PodResourceVersion != ref.ResourceVersion {
		panic(fmt.Sprintf("%+v is ended, and on record is %+v", ref, lock))
	}
}

// underLock is what is planned once it is on record which process ends next.
func (w *world) underLock(change func(facts.Observed) facts.Observed) planner.Plan {
	w.store.Status.DisruptionLock = w.tried(change).Lock
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

func TestLockIsOnRecordBeforeAProcessEnds(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Image = "store:2"
	plan, _ := w.reconcile(false)
	lock := w.store.Status.DisruptionLock
	if len(plan.Steps) != countOf[steps.TryPod](plan) || lock == nil || lock.Member != "box-master-0" {
		t.Fatalf("on record is %+v, steps:\n%s", lock, describe(plan.Steps))
	}
	o := w.observe()
	for name, test := range map[string]struct {
		change           func(*facts.Observed)
		restarts, recall int
		stays            bool
	}{
		"it stands":    {func(*facts.Observed) {}, 1, 0, true},
		"nobody knows": {func(o *facts.Observed) { o.LockState = facts.LockUnknown }, 0, 0, true},
		"its pod has changed": {func(o *facts.Observed) {
			o.LockState = facts.LockVoid
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
			if countOf[steps.RestartMember](plan) != test.restarts || countOf[steps.CancelDisruption](plan) != test.recall {
				t.Errorf("steps:\n%s", describe(plan.Steps))
			}
			if stays := plan.Lock != nil && *plan.Lock == *lock; stays != test.stays {
				t.Errorf("on record is %+v, then %+v", lock, plan.Lock)
			}
		})
	}
}

// A turn that is taken back is forgotten once its pod has changed, and not before; then somebody else's begins.
func TestLockIsCancelled(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Image = "store:2"
	w.reconcile(false)
	w.store.Spec.Image = "store:1"
	w.order("now", "box-master-2")
	before := *w.store.Status.DisruptionLock
	for range 2 {
		if plan, _ := w.reconcile(false); countOf[steps.RestartMember](plan)+countOf[steps.DrillMember](plan) > 0 {
			t.Fatalf("steps:\n%s", describe(plan.Steps))
		}
	}
	if lock := w.store.Status.DisruptionLock; lock == nil || lock.Member != "box-master-2" ||
		w.pods[before.Pod].ResourceVersion == before.PodResourceVersion {
		t.Errorf("on record was %+v, and is %+v", before, lock)
	}
	w.reconciles(1)
	if len(w.drilled) != 1 || w.drilled[0] != "box-master-2" {
		t.Errorf("drilled %v", w.drilled)
	}
}
