package planner_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// newFailingWorld isolates a node where a master has failed three times; copies are many enough for one master less.
func newFailingWorld(t *testing.T) *world {
	t.Helper()
	w := newLocalWorld(t)
	w.store.Spec.Recovery.Isolation = v1alpha1.IsolationSpec{Crashes: 3, Window: "10m"}
	return w
}

// crash ends the process of a member so many times, and gives the steps that isolated a node meanwhile.
func (w *world) crash(member string, times int) []steps.IsolateNode {
	var taken []steps.IsolateNode
	for range times {
		if pod := w.podOf(member); pod != nil {
			w.stop(pod)
		}
		for _, step := range runFor[steps.IsolateNode](w, 8) {
			taken = append(taken, step)
		}
	}
	return taken
}

func TestFailingMemberLeavesItsNode(t *testing.T) {
	w := newFailingWorld(t)
	node := w.podOf("box-master-1").Node
	if taken := w.crash("box-master-1", 2); len(taken) > 0 {
		t.Fatalf("after two: %+v", taken)
	}
	taken := w.crash("box-master-1", 1)
	if len(taken) != 1 || taken[0].Node != node ||
		taken[0].Why != "box-master-1 failed there 3 times within 10m0s, and no other one anywhere" {
		t.Fatalf("after three: %+v", taken)
	}
	w.reconcile(false)
	degraded := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDegraded)
	if degraded.Status != metav1.ConditionTrue || degraded.Reason != v1alpha1.ReasonNodeIsolated ||
		!strings.HasSuffix(degraded.Message, "When it is repaired: kubectl rcbox isolate -n default box "+node+" --undo") {
		t.Errorf("Degraded is %+v", degraded)
	}
	if _, _, settled := w.settle(100); !settled || w.podOf("box-master-1").Node == node {
		t.Errorf("settled %v, it is %+v", settled, w.podOf("box-master-1"))
	}
	// One node at a time: another one that fails stays.
	if taken := w.crash("box-master-2", 5); len(taken) > 0 {
		t.Errorf("a second one: %+v", taken)
	}
	w.now = w.now.Add(time.Hour)
	w.isolate()
	w.reconcile(false)
	if len(w.store.Status.Isolations) > 0 {
		t.Errorf("taken back, and on record: %+v", w.store.Status.Isolations)
	}
}

func TestFailingMembersThatStay(t *testing.T) {
	for name, disturb := range map[string]func(*world){
		"never":              func(w *world) { w.store.Spec.Recovery.Isolation.Crashes = 0 },
		"dry run":            func(w *world) { w.store.Spec.Recovery.DryRun = true },
		"slowly":             func(w *world) { w.store.Spec.Recovery.Isolation.Window = "4s" },
		"another fails, too": func(w *world) { w.crash("box-master-2", 1) },
		"a new spec": func(w *world) {
			for _, member := range w.cluster.members {
				member.tablets = 2 // so that the others stay as they are
			}
			w.podOf("box-master-1").Inputs.Image = "store:broken"
			w.store.Spec.Image = "store:broken"
		},
	} {
		w := newFailingWorld(t)
		w.store.Spec.UpdateStrategy = v1alpha1.UpdateOnDelete
		disturb(w)
		if taken := w.crash("box-master-1", 4); len(taken) > 0 {
			t.Errorf("%s: %+v", name, taken)
		}
	}
}

// Another one less, and there would be no place for all copies.
func TestFailingMemberThatIsNeeded(t *testing.T) {
	w := newReplicatedWorld(2)
	w.isLocal = true
	w.store.Spec.Recovery.Isolation = v1alpha1.IsolationSpec{Crashes: 3, Window: "10m"}
	w.settle(100)
	if taken := w.crash("box-master-1", 4); len(taken) > 0 || w.store.Status.Masters.Members[1].Failures.Count != 4 {
		t.Errorf("%+v, on record %+v", taken, w.store.Status.Masters.Members[1].Failures)
	}
}

// A node that is lost again and again counts like a process that ends.
func TestFlappingNodeCounts(t *testing.T) {
	w := newFailingWorld(t)
	node := w.podOf("box-master-1").Node
	for range 3 {
		w.killNode(node)
		runFor[steps.IsolateNode](w, 3)
		w.reviveNode(node)
		runFor[steps.IsolateNode](w, 4)
	}
	if names := w.isolatedNodes(); len(names) != 1 || names[0] != node {
		t.Errorf("isolated: %v, on record: %+v", names, w.store.Status.Masters.Members[1].Failures)
	}
}
