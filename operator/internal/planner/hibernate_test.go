package planner_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

func (w *world) wantCondition(t *testing.T, kind string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	got := meta.FindStatusCondition(w.store.Status.Conditions, kind)
	if got == nil || got.Status != status || got.Reason != reason || !strings.Contains(got.Message, message) {
		t.Errorf("%s is %+v", kind, got)
	}
}

func TestStoreSleepsAndWakesUp(t *testing.T) {
	w := newHoldingWorld(t)
	before := w.store.Status.ClusterID
	w.store.Spec.Hibernated = true
	plan, _ := w.reconcile(false)
	if len(plan.Steps) > 0 || w.store.Status.HibernatedSince == nil {
		t.Fatalf("since %v, steps %+v: what is begun is on record first", w.store.Status.HibernatedSince, plan.Steps)
	}
	w.reconcile(false)
	w.wantCondition(t, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonHibernating, "still to end: 3 pods")
	if len(w.livePods()) != 1 {
		t.Errorf("the coordinator ends last, and there are %d pods", len(w.livePods()))
	}
	if _, _, settled := w.settle(60); !settled || len(w.livePods()) > 0 || len(w.claims) != 4 {
		t.Fatalf("settled %v, %d pods, claims %v", settled, len(w.livePods()), w.claims)
	}
	w.wantCondition(t, v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonHibernated, "the Store is hibernated")
	w.wantCondition(t, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonHibernated,
		"to wake the store, set spec.hibernated: false")
	w.wantCondition(t, v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected, "")
	w.wantCondition(t, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonHibernated, "")
	w.wantCondition(t, v1alpha1.ConditionRecovering, metav1.ConditionFalse, v1alpha1.ReasonHibernated, "")
	w.store.Spec.Hibernated = false
	if _, _, settled := w.settle(100); !settled || len(w.masters()) != 3 || w.store.Status.ClusterID != before {
		t.Fatalf("settled %v, masters %v, store %s, before %s", settled, w.masters(), w.store.Status.ClusterID, before)
	}
	w.wantCondition(t, v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonServing, "")
	if w.store.Status.HibernatedSince != nil || len(w.broken) > 0 {
		t.Errorf("since %v, broken %v", w.store.Status.HibernatedSince, w.broken)
	}
}

// A Store that is put to sleep again before it was on record that it had been woken up: this sleep has a record of its own, for pods that
// have the mark of the former one would not be changed when the Store is woken up once more, and a late operator could end them.
func TestStoreSleepsAgainBeforeItWasAwake(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Hibernated = true
	w.reconcile(false)
	since := *w.store.Status.HibernatedSince
	for _, pod := range w.pods {
		pod.EndCancelled = since.UTC().Format(time.RFC3339)
	}
	plan, _ := w.reconcile(false)
	if again := w.store.Status.HibernatedSince; len(plan.Steps) > 0 || again == nil || !since.Before(again) {
		t.Fatalf("hibernated since %v, and again since %v, steps %+v", since, again, plan.Steps)
	}
	w.wantCondition(t, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonHibernating, "still to end: 4 pods")
	w.store.Spec.Hibernated = false
	if plan := planner.Make(w.observe()); countOf[steps.CancelPodEnd](plan) != 4 {
		t.Errorf("woken up once more, %+v", plan.Steps)
	}
	w.store.Spec.Hibernated = true
	if _, _, settled := w.settle(60); !settled || len(w.livePods()) > 0 {
		t.Errorf("settled %v, %d pods", settled, len(w.livePods()))
	}
}

func TestStoreStaysAwakeWhileSomethingIsShort(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Hibernated = true
	w.cluster.short = 20
	w.reconcile(false)
	w.wantCondition(t, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonHibernating,
		"the Store is not hibernated yet: log segments with fewer copies than 1")
	if len(w.livePods()) != 4 || w.store.Status.HibernatedSince != nil {
		t.Errorf("%d pods, since %v", len(w.livePods()), w.store.Status.HibernatedSince)
	}
	// What ends meanwhile is made anew.
	w.end(w.podOf("box-master-1"))
	w.reconcile(false)
	if w.podOf("box-master-1") == nil {
		t.Error("a pod that ended was not made anew")
	}
	if _, _, settled := w.settle(100); !settled || len(w.livePods()) > 0 {
		t.Errorf("settled %v, %d pods", settled, len(w.livePods()))
	}
}

func TestStateInMemoryDoesNotSleep(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Coordinator.State.Type = v1alpha1.StateMemory
	w.store.Status.Coordinator.State = v1alpha1.StateMemory
	w.store.Spec.Hibernated = true
	w.settle(30)
	w.wantCondition(t, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonHibernating, "all tables would be lost")
	if len(w.livePods()) != 4 {
		t.Errorf("%d pods", len(w.livePods()))
	}
}
