package planner_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
)

// newFencingWorld fences nodes that are not ready for 20 s; members move after 10.
func newFencingWorld(t *testing.T) *world {
	t.Helper()
	w := newLocalWorld(t)
	w.store.Spec.Recovery.Fencing = v1alpha1.FencingSpec{Type: v1alpha1.FencingOutOfServiceTaint, After: "20s"}
	return w
}

// fenceOf is what is on record of a node.
func (w *world) fenceOf(node string) *v1alpha1.FenceStatus {
	for i := range w.store.Status.Fences {
		if w.store.Status.Fences[i].Node == node {
			return &w.store.Status.Fences[i]
		}
	}
	return nil
}

// The node is fenced when it is due, though the member has moved before, and released when it is back.
func TestLostNodeIsFenced(t *testing.T) {
	w := newFencingWorld(t)
	node := w.podOf("box-master-1").Node
	w.killNode(node)
	fenced := runFor[planner.FenceNode](w, 25)
	if len(fenced) != 1 {
		t.Fatalf("fenced %+v", fenced)
	}
	for second, step := range fenced {
		want := "fence node " + node + " (OutOfServiceTaint): it is not ready, and box-master-1 was lost with it and is proven dead"
		if second < 20 || second > 22 || step.Describe() != want {
			t.Errorf("after %d s: %s", second, step.Describe())
		}
	}
	w.visit(false)
	if fence := w.fenceOf(node); fence == nil || fence.RequestedAt == nil || !fence.Done || fence.Member != "box-master-1" {
		t.Errorf("on record: %+v", fence)
	}
	if w.podOf("box-master-1").Node == node {
		t.Error("the member has not moved")
	}
	w.reviveNode(node)
	if released := runFor[planner.UnfenceNode](w, 5); len(released) != 1 || w.fenceOf(node) != nil || w.fenced[node] {
		t.Errorf("released %+v, on record %+v", released, w.fenceOf(node))
	}
}

func TestNodesThatAreNotFenced(t *testing.T) {
	for name, test := range map[string]struct {
		disturb func(*world, string)
		want    string
	}{
		"none": {func(w *world, _ string) { w.store.Spec.Recovery.Fencing.Type = v1alpha1.FencingNone }, ""},
		"dry run": {
			func(w *world, _ string) { w.store.Spec.Recovery.DryRun = true },
			"nothing: it would be fenced now, but recovery.dryRun is set",
		},
		"paused": {func(w *world, _ string) { w.store.Spec.Paused = true }, "spec.paused to be taken back"},
		"more nodes than copies": {
			func(w *world, _ string) { w.killNode(w.podOf("box-master-2").Node) },
			"2 failure domains are lost, more than the 1 that copies make up for: nodes have to come back",
		},
		"somebody else has": {
			func(w *world, node string) { w.foreign = node }, "somebody else, who is at it or has done it: it has the taint",
		},
		"it was back in time": {
			func(w *world, node string) { runFor[planner.FenceNode](w, 5); w.reviveNode(node) }, "",
		},
	} {
		w := newFencingWorld(t)
		node := w.podOf("box-master-1").Node
		w.killNode(node)
		test.disturb(w, node)
		fenced := runFor[planner.FenceNode](w, 60)
		fence := w.fenceOf(node)
		if fence == nil {
			fence = w.fenceOf(w.podOf("box-master-2").Node)
		}
		if len(fenced) > 0 || (fence != nil) != (test.want != "") || fence != nil && fence.Message != test.want {
			t.Errorf("%s: fenced %+v, on record: %+v", name, fenced, fence)
		}
	}
}

// Until it is due the condition says so, beside what the move waits for.
func TestFencingIsSaid(t *testing.T) {
	w := newFencingWorld(t)
	w.store.Spec.Recovery.RescheduleAfter = "0s"
	w.killNode(w.podOf("box-master-1").Node)
	runFor[planner.FenceNode](w, 5)
	degraded := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDegraded)
	if !strings.Contains(degraded.Message, "by themselves, fencing (OutOfServiceTaint) waits for the node to come back, until 00:00:") {
		t.Error(degraded.Message)
	}
	runFor[planner.FenceNode](w, 25)
	degraded = meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDegraded)
	if !strings.Contains(degraded.Message, ", fencing (OutOfServiceTaint) is done") {
		t.Error(degraded.Message)
	}
}

// A Store that is deleted, or whose policy is taken back, leaves no node fenced.
func TestFencesAreTakenBack(t *testing.T) {
	for name, end := range map[string]func(*world){
		"another policy": func(w *world) { w.store.Spec.Recovery.Fencing.Type = v1alpha1.FencingNone },
		"deleted":        func(w *world) { w.store.DeletionTimestamp = &w.store.Status.Fences[0].Since },
	} {
		w := newFencingWorld(t)
		node := w.podOf("box-master-1").Node
		w.killNode(node)
		runFor[planner.FenceNode](w, 25)
		if !w.fenced[node] {
			t.Fatalf("%s: it is not fenced", name)
		}
		end(w)
		if runFor[planner.UnfenceNode](w, 60); w.fenced[node] {
			t.Errorf("%s: it is fenced still", name)
		}
	}
}

// A node that is back, and that this Store itself has put out of service, is none to move away from.
func TestNobodyMovesFromAFencedNodeThatIsBack(t *testing.T) {
	w := newFencingWorld(t)
	w.store.Spec.Recovery.RescheduleAfter = "30s"
	node := w.podOf("box-master-1").Node
	w.killNode(node)
	if fenced := runFor[planner.FenceNode](w, 29); len(fenced) != 1 {
		t.Fatalf("fenced %+v", fenced)
	}
	w.now = w.now.Add(5 * time.Second)
	for _, isOwn := range []bool{true, false} {
		o := w.observe()
		o.Nodes[node] = planner.Node{Ready: true, OutOfService: true}
		o.Fences[node] = planner.FenceState{Requested: isOwn, Done: true}
		if moves := steps[planner.MoveMember](planner.Make(o)); moves == 1 == isOwn {
			t.Errorf("with the Store's own taint: %v, %d moves", isOwn, moves)
		}
	}
}
