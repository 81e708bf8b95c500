package planner_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/status"
)

// evacuationOf is what is on record of a member.
func (w *world) evacuationOf(member string) *v1alpha1.EvacuationStatus {
	for _, entry := range w.store.Status.Masters.Members {
		if entry.Name == member {
			return entry.Evacuation
		}
	}
	return nil
}

// cordon has no more pods go to the node of a member, and gives its name.
func (w *world) cordon(member string) string {
	node := w.podOf(member).Node
	w.cordoned[node] = true
	return node
}

func (w *world) condition(name string) *metav1.Condition {
	return meta.FindStatusCondition(w.store.Status.Conditions, name)
}

func TestMemberLeavesADrainedNode(t *testing.T) {
	w := newLocalWorld(t)
	before := w.podOf("box-master-1")
	node := w.cordon("box-master-1")
	w.reconcile(false)
	if leaves := w.evacuationOf("box-master-1"); leaves == nil || leaves.Node != node || leaves.Cause != v1alpha1.DrainCordoned ||
		leaves.MovedAt != nil || leaves.WaitsFor != "" {
		t.Fatalf("on record: %+v", leaves)
	}
	w.reconcile(false)
	w.reconcile(false)
	if got := w.condition(v1alpha1.ConditionProgressing); got.Reason != v1alpha1.ReasonEvacuating || got.Status != metav1.ConditionTrue ||
		!strings.HasPrefix(got.Message, "node "+node+" is drained (Cordoned), and box-master-1 leaves: 2 tablets, 3 copies left") {
		t.Errorf("Progressing is %+v", got)
	}
	moved := runFor[steps.MoveMember](w, 8)
	if len(moved) != 1 {
		t.Fatalf("moved %+v", moved)
	}
	for _, step := range moved {
		if !step.Drained || step.Claim != "box-master-1-copies-2" || step.Pod.Name != before.Name {
			t.Errorf("%+v", step)
		}
		if want := "move box-master-1 away from node " + node + ", with the new volume claim box-master-1-copies-2: the node is drained " +
			"(Cordoned), and the member holds nothing that is still needed"; steps.Describe(step) != want {
			t.Error(steps.Describe(step))
		}
	}
	if safe := w.condition(v1alpha1.ConditionDataSafe); safe.Status != metav1.ConditionTrue {
		t.Errorf("DataSafe is %+v", safe)
	}
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	after := w.podOf("box-master-1")
	if after == nil || after.Node == node || after.Claim != "box-master-1-copies-2" || w.evacuationOf("box-master-1") != nil {
		t.Errorf("it is %+v, on record: %+v", after, w.evacuationOf("box-master-1"))
	}
	if _, there := w.claims["box-master-1-copies"]; there {
		t.Error("the volume on the drained node is still there")
	}
	if w.cluster.members["box-master-1"].isDraining {
		t.Error("it is still drained")
	}
}

// Two nodes at once: one member after the other, and the second only when the first is up elsewhere.
func TestTwoDrainedNodes(t *testing.T) {
	w := newLocalWorld(t)
	nodes := []string{w.cordon("box-master-0"), w.cordon("box-master-1")}
	w.reconcile(false)
	w.reconcile(false)
	if leaves := w.evacuationOf("box-master-1"); leaves == nil || leaves.WaitsFor != "box-master-0, which leaves first" {
		t.Errorf("on record: %+v", leaves)
	}
	moved := runFor[steps.MoveMember](w, 60)
	if len(moved) != 2 {
		t.Fatalf("moved %+v", moved)
	}
	for _, member := range []string{"box-master-0", "box-master-1"} {
		if pod := w.podOf(member); pod == nil || slices.Contains(nodes, pod.Node) || w.evacuationOf(member) != nil {
			t.Errorf("%s is %+v", member, pod)
		}
	}
}

// A coordinator of a build without settings cannot tell processes of more copies, so that each is restarted for them. The one on a drained
// node cannot be restarted there: it gets the new number of copies where it goes.
func TestMemberLeavesADrainedNodeWhileOthersRestartForMoreCopies(t *testing.T) {
	w := newReplicatedWorld(4)
	w.isLocal = true
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	w.store.Spec.Replication.Factor = new(int32(2))
	node := w.cordon("box-master-1")
	if _, difference, settled := w.settle(200); !settled {
		t.Fatalf("does not settle: %s, Progressing is %+v", difference, w.condition(v1alpha1.ConditionProgressing))
	}
	for member := range w.cluster.members {
		if pod := w.podOf(member); pod.Node == node || pod.Inputs.Replication.Factor != 2 {
			t.Errorf("%s is on %s and keeps %d copies", member, pod.Node, pod.Inputs.Replication.Factor)
		}
	}
}

// A node that is uncordoned half-way has its member back.
func TestUncordonedHalfWay(t *testing.T) {
	w := newLocalWorld(t)
	before := w.podOf("box-master-1")
	node := w.cordon("box-master-1")
	w.reconcile(false)
	w.reconcile(false)
	if !w.cluster.members["box-master-1"].isDraining {
		t.Fatal("it is not drained")
	}
	delete(w.cordoned, node)
	if moved := runFor[steps.MoveMember](w, 20); len(moved) > 0 {
		t.Errorf("moved %+v", moved)
	}
	if w.cluster.members["box-master-1"].isDraining || w.podOf("box-master-1").Name != before.Name {
		t.Errorf("it is %+v, and its pod %+v", w.cluster.members["box-master-1"], w.podOf("box-master-1"))
	}
}

// A pod that was evicted all the same is as one that was lost with its node: it moves when that is proven to cost nothing.
func TestEvictedFromADrainedNode(t *testing.T) {
	w := newLocalWorld(t)
	node := w.cordon("box-master-1")
	w.end(w.podOf("box-master-1"))
	moved := runFor[steps.MoveMember](w, 30)
	if len(moved) != 1 {
		t.Fatalf("moved %+v, on record %+v", moved, w.lostOf())
	}
	for second, step := range moved {
		if second < 10 || step.Drained || step.Node != node || step.Claim != "box-master-1-copies-2" {
			t.Errorf("after %d s: %+v", second, step)
		}
	}
}

// observedDrain is a Store whose member 1 is on a cordoned node, before anything was done about it.
func observedDrain(t *testing.T, change func(*world)) planner.Plan {
	t.Helper()
	w := newLocalWorld(t)
	w.cordon("box-master-1")
	change(w)
	return w.tried(asSeen)
}

func TestWhatKeepsAMemberOnADrainedNode(t *testing.T) {
	for want, change := range map[string]func(*world){
		"a user to delete its pod: recovery.drainedNodes is Wait": func(w *world) {
			w.store.Spec.Recovery.DrainedNodes = v1alpha1.DrainedWait
		},
		"recovery.dryRun: false":   func(w *world) { w.store.Spec.Recovery.DryRun = true },
		"spec.paused: false":       func(w *world) { w.store.Spec.Paused = true },
		"all copies to be there: ": func(w *world) { w.cluster.short = 3 },
		"box-master-2 to be up":    func(w *world) { w.stop(w.podOf("box-master-2")) },
		"a pod to end": func(w *world) {
			gone := *w.podOf("box-master-2")
			gone.Name, gone.EndsAt = "another", w.now.Add(time.Second)
			w.pods["another"] = &gone
		},
		"the drain of another master to be cancelled": func(w *world) { w.cluster.members["box-master-2"].isDraining = true },
		"the member to be up, or to move like one whose node is lost": func(w *world) {
			w.stop(w.podOf("box-master-1"))
		},
	} {
		plan := observedDrain(t, change)
		leaves := plan.Masters[1].Evacuation
		if leaves == nil || !strings.HasPrefix(leaves.WaitsFor, want) {
			t.Errorf("%s: %+v", want, leaves)
		}
		if countOf[steps.DrainMember](plan)+countOf[steps.MoveMember](plan) > 0 {
			t.Errorf("%s: %s", want, describe(plan.Steps))
		}
	}
	// Nobody knows that the node is drained.
	if plan := observedDrain(t, func(w *world) { clear(w.cordoned) }); plan.Masters[1].Evacuation != nil || len(plan.Steps) > 0 {
		t.Errorf("nothing is drained, and %+v", plan.Steps)
	}
}

// To uncordon the node starts a member only where its pod is gone and its volume is on that node, which answers.
func TestAdviceToStartWhereItIs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		helps  bool
	}{
		"its pod is there, and its process has stopped": {func(w *world) { w.stop(w.podOf("box-master-1")) }, false},
		"its machine is dead":                           {func(w *world) { w.killNode(w.podOf("box-master-1").Node) }, false},
		"its pod was evicted":                           {func(w *world) { w.end(w.podOf("box-master-1")) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLocalWorld(t)
			node := w.cordon("box-master-1")
			test.change(w)
			w.reconcile(false)
			leaves := w.evacuationOf("box-master-1")
			const waits = "the member to be up, or to move like one whose node is lost"
			if leaves == nil || !strings.HasPrefix(leaves.WaitsFor, waits) {
				t.Fatalf("on record: %+v, lost: %+v", leaves, w.lostOf())
			}
			if advice := "; to start it where it is, uncordon " + node; strings.HasSuffix(leaves.WaitsFor, advice) != test.helps {
				t.Errorf("it waits for %q", leaves.WaitsFor)
			}
		})
	}
}

// That the API server does not say whether it admits the next pod is said after a minute of trials, however long the node is drained.
func TestUnansweredTrialOfAnEvacuation(t *testing.T) {
	const unanswered = "the API server has not said yet whether it admits the next pod of box-master-1"
	w := newLocalWorld(t)
	w.cluster.short, w.isMute = 3, true
	w.cordon("box-master-1")
	w.reconcile(false)
	w.now, w.cluster.short = w.now.Add(5*time.Minute), 0
	for second := range 80 {
		plan, _ := w.reconcile(false)
		want := ""
		if second > 60 {
			want = unanswered
		}
		if leaves := w.evacuationOf("box-master-1"); leaves == nil || leaves.WaitsFor != want || countOf[steps.TryPod](plan) != 1 {
			t.Fatalf("after %d s: %+v, steps:\n%s", second, leaves, describe(plan.Steps))
		}
		w.now = w.now.Add(time.Second)
	}
	// Where nobody asked for a while, the minute begins anew.
	w.cluster.short = 3
	w.reconcile(false)
	w.now, w.cluster.short = w.now.Add(5*time.Minute), 0
	w.reconciles(2)
	if leaves := w.evacuationOf("box-master-1"); leaves == nil || leaves.WaitsFor != "" {
		t.Errorf("on record: %+v", leaves)
	}
	w.isMute = false
	if moved := runFor[steps.MoveMember](w, 20); len(moved) != 1 {
		t.Errorf("once it answers: moved %+v", moved)
	}
}

// While the operator may not move members, a drain of a node does not end, for evictions are refused as well: that is said, with the node
// and what to do, as a condition and as an event.
func TestHeldOnADrainedNode(t *testing.T) {
	for field, hold := range map[string]func(*v1alpha1.StoreSpec){
		"spec.recovery.dryRun": func(s *v1alpha1.StoreSpec) { s.Recovery.DryRun = true },
		"spec.paused":          func(s *v1alpha1.StoreSpec) { s.Paused = true },
	} {
		w := newLocalWorld(t)
		hold(&w.store.Spec)
		w.reconcile(false)
		before := w.store.Status.DeepCopy()
		node := w.cordon("box-master-1")
		w.reconcile(false)
		want := "node " + node + " is drained (Cordoned), but " + field + ": true keeps box-master-1 there, and evictions of it are " +
			"refused: kubectl drain does not end. Set " + field + ": false, or uncordon " + node
		got := w.condition(v1alpha1.ConditionProgressing)
		if got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonEvacuationBlocked || got.Message != want {
			t.Errorf("%s: Progressing is %+v", field, got)
		}
		if got := w.condition(v1alpha1.ConditionStalled); got.Status != metav1.ConditionTrue {
			t.Errorf("%s: Stalled is %+v", field, got)
		}
		events := status.Events(before, &w.store.Status)
		if !slices.ContainsFunc(events, func(e status.Event) bool { return e.Type == "Warning" && e.Note == want }) {
			t.Errorf("%s: events are %+v", field, events)
		}
		// A second node tells of itself, though the condition's reason stays as it is.
		before = w.store.Status.DeepCopy()
		second := w.cordon("box-master-2")
		w.reconcile(false)
		isTold := func(e status.Event) bool { return e.Type == "Warning" && strings.Contains(e.Note, "node "+second+" ") }
		if events := status.Events(before, &w.store.Status); !slices.ContainsFunc(events, isTold) {
			t.Errorf("%s: events are %+v", field, events)
		}
		w.store.Spec.Paused, w.store.Spec.Recovery.DryRun = false, false
		if moved := runFor[steps.MoveMember](w, 30); len(moved) == 0 {
			t.Errorf("%s: nobody leaves afterwards", field)
		}
	}
}

// Without a spare node its next pod has none: that is said, with what to do, and the next member waits.
func TestNoSpareNode(t *testing.T) {
	w := newLocalWorld(t)
	node := w.cordon("box-master-1")
	w.isFull = true
	if moved := runFor[steps.MoveMember](w, 10); len(moved) != 1 {
		t.Fatalf("moved %+v", moved)
	}
	w.cordon("box-master-2")
	plan, _ := w.reconcile(false)
	want := "a node for its next pod (Unschedulable: 0/3 nodes are available): add one with room for a master, or uncordon " + node
	if leaves := w.evacuationOf("box-master-1"); leaves == nil || leaves.MovedAt == nil || leaves.WaitsFor != want {
		t.Errorf("on record: %+v", leaves)
	}
	if leaves := w.evacuationOf("box-master-2"); leaves == nil || !strings.HasPrefix(leaves.WaitsFor, "box-master-1 to be up (") {
		t.Errorf("on record: %+v", leaves)
	}
	if len(plan.Steps) > 0 {
		t.Errorf("%+v", plan.Steps)
	}
	want = "a node for its next pod: add one with room for a master, or uncordon " + node
	if got := w.condition(v1alpha1.ConditionProgressing); got.Reason != v1alpha1.ReasonEvacuating || !strings.Contains(got.Message, want) {
		t.Errorf("Progressing is %+v", got)
	}
	w.isFull = false
	if moved := runFor[steps.MoveMember](w, 30); len(moved) != 1 {
		t.Errorf("with a node to spare: moved %+v", moved)
	}
}

// The coordinator refuses where too few would be left: then the drain waits, and it is said what to do.
func TestRefusedEvacuation(t *testing.T) {
	w := newLocalWorld(t)
	for _, member := range []string{"box-master-0", "box-master-2"} {
		w.cluster.members[member].isDraining = true
	}
	w.orderDrain("box-master-0", "box-master-2")
	node := w.podOf("box-master-1").Node
	w.reconcile(false)
	plan := w.tried(func(o facts.Observed) facts.Observed {
		o.Nodes[node] = facts.Node{Ready: true, Drained: v1alpha1.DrainKarpenter}
		return o
	})
	if len(plan.Steps) != 1 || steps.Describe(plan.Steps[0]) != "drain box-master-1: node "+node+" is drained (Karpenter)" {
		t.Fatalf("%+v", plan.Steps)
	}
}

// An isolated node is left whatever the policy for drained ones is, and taken back when it is not isolated any more.
func TestMemberLeavesAnIsolatedNode(t *testing.T) {
	w := newLocalWorld(t)
	w.store.Spec.Recovery.DrainedNodes = v1alpha1.DrainedWait
	node := w.podOf("box-master-1").Node
	w.isolate("elsewhere", node)
	w.reconcile(false)
	if leaves := w.evacuationOf("box-master-1"); leaves == nil || leaves.Cause != v1alpha1.DrainIsolated || leaves.WaitsFor != "" {
		t.Fatalf("on record: %+v", leaves)
	}
	w.isolate()
	if moved := runFor[steps.MoveMember](w, 20); len(moved) > 0 || w.cluster.members["box-master-1"].isDraining {
		t.Fatalf("moved %+v", moved)
	}
	w.isolate(node)
	w.isFull = true
	if moved := runFor[steps.MoveMember](w, 20); len(moved) != 1 {
		t.Fatalf("moved %+v", moved)
	}
	w.reconcile(false)
	want := "or delete the StoreOperation that isolates " + node
	if leaves := w.evacuationOf("box-master-1"); leaves == nil || !strings.HasSuffix(leaves.WaitsFor, want) {
		t.Errorf("on record: %+v", leaves)
	}
	w.isFull = false
	if _, _, settled := w.settle(100); !settled || w.podOf("box-master-1").Node == node {
		t.Errorf("settled %v, it is %+v", settled, w.podOf("box-master-1"))
	}
}
