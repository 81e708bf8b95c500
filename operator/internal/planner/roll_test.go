package planner_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// newHoldingWorld is replicated and settled, and all its masters hold something.
func newHoldingWorld(t *testing.T) *world {
	t.Helper()
	w := newReplicatedWorld(3)
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	for _, member := range w.cluster.members {
		member.tablets = 2
	}
	return w
}

// restarts are the members that are restarted while a Store settles, in order.
func (w *world) restarts(reconciles int) []string {
	var order []string
	for range reconciles {
		plan, _ := w.reconcile(false)
		for _, step := range plan.Steps {
			if restart, ok := step.(steps.RestartMember); ok {
				order = append(order, restart.Member)
			}
		}
		// Recovered, what one had is with another; so that all hold something.
		if w.cluster != nil {
			for _, member := range w.cluster.members {
				member.tablets = max(member.tablets, 1)
			}
		}
		w.tick()
	}
	return order
}

func TestChangedSpecRolls(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Image = "store:2"
	w.reconcile(false)
	plan, _ := w.reconcile(false)
	if len(plan.Steps) != 1 {
		t.Fatalf("steps %+v", plan.Steps)
	}
	want := "restart box-master-0: the spec has changed, and everything has its copies: image: store:1 -> store:2"
	if text := steps.Describe(plan.Steps[0]); text != want {
		t.Errorf("the step is %q", text)
	}
	progressing := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing.Status != metav1.ConditionTrue || progressing.Reason != v1alpha1.ReasonRolling ||
		progressing.Message != want+"; 4 pods left to restart, first box-master-0 (image: store:1 -> store:2)" {
		t.Errorf("Progressing is %+v", progressing)
	}
	w.tick()
	w.reconcile(false)
	progressing = meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionProgressing)
	if !strings.HasPrefix(progressing.Message, "3 pods left to restart, first box-master-1 (image: store:1 -> store:2); "+
		"the next one restarts when all copies are there: ") {
		t.Errorf("Progressing is %+v", progressing)
	}
	if order := w.restarts(60); !slices.Equal(order, []string{"box-master-1", "box-master-2", "box-coordinator"}) {
		t.Errorf("restarted %v", order)
	}
	for _, pod := range w.livePods() {
		if pod.Inputs.Image != "store:2" {
			t.Errorf("%s has image %s", pod.Name, pod.Inputs.Image)
		}
	}
}

// What does not come back with the new spec stops it: the others stay as they are.
func TestBrokenSpecStopsRolling(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Image = "store:broken"
	for range 60 {
		w.reconcile(false)
		for _, pod := range w.livePods() {
			if pod.Inputs.Image == "store:broken" {
				pod.deadNode = true // it never starts
			}
		}
		w.tick()
	}
	var old []string
	for _, pod := range w.livePods() {
		if pod.Inputs.Image == "store:1" {
			old = append(old, pod.Member)
		}
	}
	if slices.Sort(old); !slices.Equal(old, []string{"box-coordinator", "box-master-1", "box-master-2"}) {
		t.Errorf("with the former image: %v", old)
	}
	// Taking it back is enough.
	w.store.Spec.Image = "store:1"
	w.reconcile(false)
	for _, pod := range w.pods {
		pod.deadNode = false
	}
	if _, _, settled := w.settle(100); !settled || len(w.masters()) != 3 {
		t.Errorf("masters %v", w.masters())
	}
}

func TestWhatDoesNotRoll(t *testing.T) {
	for name, change := range map[string]func(*world){
		"on delete": func(w *world) { w.store.Spec.UpdateStrategy = v1alpha1.UpdateOnDelete },
		"copies only now": func(w *world) {
			for _, pod := range w.pods {
				pod.Inputs.Replication = nil
			}
			for name := range w.pods {
				if strings.Contains(name, "coordinator") {
					w.pods[name].Inputs.State = v1alpha1.StateMemory
				}
			}
		},
	} {
		w := newHoldingWorld(t)
		w.store.Spec.Image = "store:2"
		change(w)
		if order := w.restarts(30); len(order) > 0 {
			t.Errorf("%s: restarted %v", name, order)
		}
		progressing := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionProgressing)
		if progressing.Reason != v1alpha1.ReasonRestartPending {
			t.Errorf("%s: Progressing is %+v", name, progressing)
		}
	}
}

// A coordinator that is alone, of a store without copies: nobody restarts it but the user, and nothing else is said.
func TestLoneCoordinatorIsTheUsers(t *testing.T) {
	w := newStandbyWorld(1)
	w.settle(100)
	w.store.Spec.Image = "store:2"
	w.settle(100)
	progressing := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing.Reason != v1alpha1.ReasonRestartPending || !strings.Contains(progressing.Message, "box-coordinator") {
		t.Errorf("Progressing is %+v", progressing)
	}
}

func TestPausedStoreIsLeftAlone(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Paused = true
	w.store.Spec.Masters.Replicas = 4
	w.end(w.podOf("box-master-1"))
	for range 30 {
		if plan, _ := w.reconcile(false); len(plan.Steps) > 0 {
			t.Fatalf("steps %+v", plan.Steps)
		}
		w.tick()
	}
	progressing := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing.Status != metav1.ConditionFalse || progressing.Reason != v1alpha1.ReasonPaused ||
		!strings.HasPrefix(progressing.Message, "spec.paused is set; without it: create pod 2 of box-master-1: its pod is gone") {
		t.Errorf("Progressing is %+v", progressing)
	}
	w.store.Spec.Paused = false
	if _, _, settled := w.settle(100); !settled || len(w.masters()) != 4 {
		t.Errorf("masters %v", w.masters())
	}
	w.store.Spec.Paused = true
	w.reconcile(false)
	progressing = meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing.Message != "spec.paused is set; there is nothing to do" {
		t.Errorf("Progressing is %+v", progressing)
	}
}
