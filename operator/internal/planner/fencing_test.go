package planner_test

import (
	"maps"
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
	fenced := runFor[steps.FenceNode](w, 25)
	if len(fenced) != 1 {
		t.Fatalf("fenced %+v", fenced)
	}
	for second, step := range fenced {
		want := "fence node " + node + " (OutOfServiceTaint): it is not ready, and box-master-1 was lost with it and is proven dead"
		if second < 20 || second > 22 || steps.Describe(step) != want {
			t.Errorf("after %d s: %s", second, steps.Describe(step))
		}
	}
	w.reconcile(false)
	if fence := w.fenceOf(node); fence == nil || fence.RequestedAt == nil || !fence.Done || fence.Member != "box-master-1" {
		t.Errorf("on record: %+v", fence)
	}
	if w.podOf("box-master-1").Node == node {
		t.Error("the member has not moved")
	}
	w.reviveNode(node)
	if released := runFor[steps.UnfenceNode](w, 5); len(released) != 1 || w.fenceOf(node) != nil || w.fenced[node] {
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
			"recovery.dryRun: false (fencing is due, and a dry run only reports it)",
		},
		"paused": {func(w *world, _ string) { w.store.Spec.Paused = true }, "spec.paused: false"},
		"more nodes than copies": {
			func(w *world, _ string) { w.killNode(w.podOf("box-master-2").Node) },
			"nodes to come back: 2 failure domains are lost, and the copies survive the loss of only 1",
		},
		"somebody else has": {
			func(w *world, node string) { w.foreign = node },
			"another controller, which fences the node or has fenced it: it has the taint",
		},
		"it was back in time": {
			func(w *world, node string) { runFor[steps.FenceNode](w, 5); w.reviveNode(node) }, "",
		},
	} {
		w := newFencingWorld(t)
		node := w.podOf("box-master-1").Node
		w.killNode(node)
		test.disturb(w, node)
		fenced := runFor[steps.FenceNode](w, 60)
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
	runFor[steps.FenceNode](w, 5)
	degraded := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDegraded)
	if !strings.Contains(degraded.Message, "with it; fencing waits for the node to come back, until 00:00:") {
		t.Error(degraded.Message)
	}
	runFor[steps.FenceNode](w, 25)
	degraded = meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDegraded)
	if !strings.Contains(degraded.Message, "; fencing (OutOfServiceTaint) is done; recovery.rescheduleAfter is 0s, so run: kubectl") {
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
		runFor[steps.FenceNode](w, 25)
		if !w.fenced[node] {
			t.Fatalf("%s: it is not fenced", name)
		}
		end(w)
		if runFor[steps.UnfenceNode](w, 60); w.fenced[node] {
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
	if fenced := runFor[steps.FenceNode](w, 29); len(fenced) != 1 {
		t.Fatalf("fenced %+v", fenced)
	}
	w.now = w.now.Add(5 * time.Second)
	for _, isOwn := range []bool{true, false} {
		o := w.observe()
		o.Nodes[node] = facts.Node{Ready: true, OutOfService: true}
		o.Fences[node] = facts.FenceState{Requested: isOwn, Done: true}
		if moves := countOf[steps.MoveMember](planner.Make(o)); moves == 1 == isOwn {
			t.Errorf("with the Store's own taint: %v, %d moves", isOwn, moves)
		}
	}
}

// newPowerWorld fences by power what is not ready for 20 s; nobody else moves a member for an hour.
func newPowerWorld(t *testing.T) (w *world, node string) {
	t.Helper()
	w = newFencingWorld(t)
	w.store.Spec.Recovery.Fencing.Type, w.store.Spec.Recovery.RescheduleAfter = v1alpha1.FencingBMC, "1h"
	node = w.podOf("box-master-1").Node
	w.killNode(node)
	if fenced := runFor[steps.FenceNode](w, 25); len(fenced) != 1 {
		t.Fatalf("fenced %+v", fenced)
	}
	return w, node
}

// A member moves at once when its machine is proved to be off, and not before; the machine is kept off until the member is elsewhere.
func TestMachineThatIsProvedOff(t *testing.T) {
	w, node := newPowerWorld(t)
	if moved := runFor[steps.MoveMember](w, 60); len(moved) > 0 {
		t.Fatalf("moved without proof: %+v", moved)
	}
	degraded := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDegraded)
	says := "; fencing (BMC) is under way: a message; its move to another node waits for the node to come back"
	if !strings.Contains(degraded.Message, says) {
		t.Error(degraded.Message)
	}
	w.proveOff(node)
	for second := range 60 {
		w.tick()
		plan, _ := w.reconcile(false)
		isUp := w.podOf("box-master-1") != nil && w.podOf("box-master-1").Node != node && w.podOf("box-master-1").Ready
		if countOf[steps.UnfenceNode](plan) > 0 && !isUp {
			t.Fatalf("after %d s the machine may be switched on, and the member has not moved", second)
		}
		if second > 6 && !isUp {
			t.Fatalf("after %d s the member has not moved: %+v", second, w.store.Status.Masters.Members)
		}
	}
	if w.fenced[node] || w.fenceOf(node) != nil || w.dead[node] {
		t.Errorf("fenced %v, dead %v, on record %+v", w.fenced[node], w.dead[node], w.fenceOf(node))
	}
}

// Where it is not known whether the member has moved, the machine is kept off.
func TestMachineStaysOffWhileItMayBeNeeded(t *testing.T) {
	w, node := newPowerWorld(t)
	w.proveOff(node)
	w.store.Spec.Paused = true // so that it goes on record, and the member does not move
	w.reconcile(false)
	w.store.Spec.Paused = false
	o := w.observe()
	next := w.podOf("box-master-0").Pod // the member's next pod, for which there is no node
	next.Name, next.UID, next.Member, next.Claim = "box-master-1-next", "uid-next", "box-master-1", "box-master-1-copies"
	next.Node, next.Process, next.Ready, next.CreatedAt = "", facts.ProcessAbsent, false, o.Now.Add(-time.Hour)
	o.Pods = append(o.Pods, next)
	if fence := w.fenceOf(node); fence == nil || !fence.Done {
		t.Fatalf("on record: %+v", fence)
	}
	claim := o.Claims[next.Claim]
	claim.TiedTo = "" // as it is unless its volume is looked at
	for name, change := range map[string]func(*facts.Observed, *facts.Claim){
		"no coordinator answers":       func(o *facts.Observed, _ *facts.Claim) { o.Cluster = nil },
		"its volume cannot be read":    func(_ *facts.Observed, claim *facts.Claim) { claim.IsHomeUnknown = true },
		"its volume is on the machine": func(_ *facts.Observed, claim *facts.Claim) { claim.TiedTo = node },
	} {
		o, claim := o, claim
		o.Claims = maps.Clone(o.Claims)
		change(&o, &claim)
		o.Claims[next.Claim] = claim
		if plan := planner.Make(o); countOf[steps.UnfenceNode](plan) > 0 {
			t.Errorf("%s: the machine may be switched on, and the member has not moved: %+v", name, plan.Steps)
		}
	}
}

// Where no other node has room, the machine is switched on again after a while: the member may come back there.
func TestMachineThatIsNeeded(t *testing.T) {
	w, node := newPowerWorld(t)
	w.isFull = true
	w.proveOff(node)
	released := runFor[steps.UnfenceNode](w, 90)
	for second := range released {
		if second < 60 {
			t.Errorf("after %d s", second)
		}
	}
	if len(released) != 1 {
		t.Errorf("released %+v, on record %+v", released, w.fenceOf(node))
	}
}

// Only proof by this Store's own word counts, and only of fencing by power.
func TestWhatProvesThatAMachineIsOff(t *testing.T) {
	w, node := newPowerWorld(t)
	w.proveOff(node)
	for name, test := range map[string]struct {
		change func(*facts.Observed)
		moves  int
	}{
		"proof":        {func(*facts.Observed) {}, 1},
		"asked for":    {func(o *facts.Observed) { o.Fences[node] = facts.FenceState{Requested: true} }, 0},
		"another's":    {func(o *facts.Observed) { o.Fences[node] = facts.FenceState{Done: true} }, 0},
		"another way":  {func(o *facts.Observed) { o.Store.Status.Fences[0].Type = v1alpha1.FencingOutOfServiceTaint }, 0},
		"another node": {func(o *facts.Observed) { o.Store.Status.Fences[0].Node = "elsewhere" }, 0},
		"by hand":      {func(o *facts.Observed) { o.Store.Spec.Recovery.RescheduleAfter = "0s" }, 0},
	} {
		o := w.observe()
		test.change(&o)
		if got := countOf[steps.MoveMember](planner.Make(o)); got != test.moves {
			t.Errorf("%s: %d moves", name, got)
		}
	}
}

// newFrozenWorld fences by power at once, and one node has just frozen.
func newFrozenWorld(t *testing.T) (w *world, node string) {
	t.Helper()
	w = newFencingWorld(t)
	w.store.Spec.Recovery.Fencing = v1alpha1.FencingSpec{Type: v1alpha1.FencingBMC, After: "0s"}
	w.store.Spec.Recovery.RescheduleAfter = "1h"
	node = w.podOf("box-master-1").Node
	w.freezeNode(node)
	return w, node
}

// A node that freezes is fenced by the coordinator's verdict and its kubelet's silence, before Kubernetes says that it is not ready. Its
// member moves by proof alone, and the machine is kept off until that is done.
func TestFrozenNodeIsFencedBeforeItIsNotReady(t *testing.T) {
	w, node := newFrozenWorld(t)
	fenced := runFor[steps.FenceNode](w, 20)
	if len(fenced) != 1 {
		t.Fatalf("fenced %+v, on record %+v", fenced, w.store.Status.Masters.Members)
	}
	want := "fence node " + node + " (BMC): its kubelet is silent, and box-master-1 was lost with it and is proven dead"
	for second, step := range fenced {
		if second < 15 || second > 18 || steps.Describe(step) != want {
			t.Errorf("after %d s: %s", second, steps.Describe(step))
		}
	}
	if moved := runFor[steps.MoveMember](w, 10); len(moved) > 0 {
		t.Fatalf("moved without proof: %+v", moved)
	}
	degraded := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDegraded)
	says := "its move to another node waits for proof that the node's server is off, or for Kubernetes to say that the node is not ready"
	if !strings.Contains(degraded.Message, "has been lost (Silent)") || !strings.Contains(degraded.Message, says) {
		t.Error(degraded.Message)
	}
	if w.fenceOf(node).RequestedAt == nil {
		t.Errorf("it was taken back: %+v", w.fenceOf(node))
	}
	w.proveOff(node)
	if !w.nodes()[node].Ready {
		t.Fatal("Kubernetes has found out before")
	}
	if moved := runFor[steps.MoveMember](w, 3); len(moved) != 1 {
		t.Fatalf("moved %+v, on record %+v", moved, w.store.Status.Masters.Members)
	}
	if runFor[steps.UnfenceNode](w, 20); w.fenced[node] || w.podOf("box-master-1").Node == node {
		t.Errorf("fenced %v, on record %+v", w.fenced[node], w.fenceOf(node))
	}
}

// The operator does not wait for its usual interval when a node freezes. It reconciles when the kubelet has missed its renewal, and soon
// after the proof looks for the taint, because no member moves without the taint.
func TestFrozenNodeIsLookedAtInTime(t *testing.T) {
	w, node := newFrozenWorld(t)
	w.tick()
	o := w.observe()
	const left = 700 * time.Millisecond
	setSilent(&o, node, o.Now.Add(left))
	if plan := planner.Make(o); plan.Next != left {
		t.Errorf("its kubelet counts as silent in %s, and is looked at in %s", left, plan.Next)
	}
	setDead(&o, false)
	if plan := planner.Make(o); plan.Next <= left {
		t.Errorf("the member is not declared dead, and the node is looked at in %s", plan.Next)
	}
	runFor[steps.FenceNode](w, 20)
	w.proveOff(node)
	w.store.Spec.Paused = true // so that the proof is recorded, and the member does not move
	w.reconcile(false)
	w.store.Spec.Paused = false
	o = w.observe()
	setSilent(&o, node, o.Now)
	plan := planner.Make(o)
	if countOf[steps.MoveMember](plan) > 0 || plan.Next > time.Second {
		t.Errorf("without the taint: next look in %s, %+v", plan.Next, plan.Steps)
	}
}

// Silence alone says nothing, nor does the coordinator's verdict alone, nor where power is not what fences.
func TestNodesThatAreNotTakenForFrozen(t *testing.T) {
	for name, change := range map[string]func(w *world, o *facts.Observed, node string){
		"it is heard":            func(_ *world, o *facts.Observed, n string) { setSilent(o, n, o.Now.Add(time.Second)) },
		"nobody may look":        func(_ *world, o *facts.Observed, n string) { setSilent(o, n, time.Time{}) },
		"the member is not dead": func(w *world, o *facts.Observed, _ string) { setDead(o, false) },
		"it is drained": func(_ *world, o *facts.Observed, n string) {
			o.Nodes[n] = facts.Node{Ready: true, SilentFrom: o.Now, Drained: v1alpha1.DrainKarpenter}
			o.Store.Spec.Recovery.DrainedNodes = v1alpha1.DrainedWait
		},
		"another way": func(_ *world, o *facts.Observed, _ string) {
			o.Store.Spec.Recovery.Fencing.Type = v1alpha1.FencingOutOfServiceTaint
		},
	} {
		w, node := newFrozenWorld(t)
		w.now = w.now.Add(silentAfter)
		w.tick()
		o := w.observe()
		if lost := lostIn(planner.Make(o)); lost == nil || lost.Cause != v1alpha1.NodeSilent {
			t.Fatalf("%s: it is not silent: %+v", name, lost)
		}
		change(w, &o, node)
		if lost := lostIn(planner.Make(o)); lost != nil {
			t.Errorf("%s: %+v", name, lost)
		}
	}
}

func setSilent(o *facts.Observed, node string, from time.Time) {
	o.Nodes[node] = facts.Node{Ready: true, SilentFrom: from}
}

func setDead(o *facts.Observed, isDead bool) {
	for i := range o.Cluster.Members {
		o.Cluster.Members[i].Dead = isDead
	}
}

func lostIn(plan planner.Plan) *planner.Lost {
	for i := range plan.Masters {
		if lost := plan.Masters[i].Lost; lost != nil {
			return lost
		}
	}
	return nil
}

// Two machines that the Store itself keeps off, and a third node that is drained while its member is down: the third node answers, and its
// volume is not lost. So the members of the two move, which ends their fences, and then the third member does.
func TestDrainedNodeKeepsNoFencedMemberFromMoving(t *testing.T) {
	w := newReplicatedWorld(5)
	w.isLocal = true
	w.store.Spec.Replication.Factor = new(int32(2))
	w.store.Spec.Recovery.Fencing = v1alpha1.FencingSpec{Type: v1alpha1.FencingBMC, After: "2s"}
	w.store.Spec.Recovery.RescheduleAfter = "0s" // until all three are down, nobody moves
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	off := []string{w.podOf("box-master-0").Node, w.podOf("box-master-1").Node}
	for _, node := range off {
		w.killNode(node)
		if fenced := runFor[steps.FenceNode](w, 20); len(fenced) != 1 {
			t.Fatalf("fenced %+v", fenced)
		}
		w.proveOff(node)
	}
	drained := w.cordon("box-master-2")
	w.end(w.podOf("box-master-2"))
	w.store.Spec.Recovery.RescheduleAfter = "2m"
	if moved := runFor[steps.MoveMember](w, 50); len(moved) > 0 {
		t.Fatalf("it is not known yet whether %s answers, and moved are %+v", drained, moved)
	}
	for name, want := range map[string]string{
		"box-master-0": "nodes to come back: 3 failure domains are lost, and the copies survive the loss of only 2; fences keep machines " +
			"off (" + off[0] + ", " + off[1] + "): if the other nodes do not come back, set recovery.fencing.type: None, and these " +
			"machines are switched on",
		"box-master-2": "nodes to come back: 3 failure domains are lost, and the copies survive the loss of only 2; to start the member " +
			"where it is, uncordon " + drained,
	} {
		i := slices.IndexFunc(w.store.Status.Masters.Members, func(m v1alpha1.MemberStatus) bool { return m.Name == name })
		if lost := w.store.Status.Masters.Members[i].Lost; lost == nil || lost.WaitsFor != want {
			t.Errorf("%s: on record is %+v", name, lost)
		}
	}
	var order []string
	for range 300 {
		plan, _ := w.reconcile(false)
		for move := range steps.Of[steps.MoveMember](plan.Steps) {
			order = append(order, move.Member)
		}
		w.tick()
	}
	if !slices.Equal(order, []string{"box-master-0", "box-master-1", "box-master-2"}) {
		t.Errorf("moved are %v", order)
	}
	if len(w.fenced) > 0 || w.condition(v1alpha1.ConditionDataSafe).Status != metav1.ConditionTrue {
		t.Errorf("fenced are %v, DataSafe is %+v", w.fenced, w.condition(v1alpha1.ConditionDataSafe))
	}
}

// A third machine that does not answer keeps both from moving: what to do is said.
func TestTooManyLostWithFencedMachines(t *testing.T) {
	w, node := newPowerWorld(t)
	w.proveOff(node)
	w.killNode(w.podOf("box-master-2").Node)
	if moved := runFor[steps.MoveMember](w, 120); len(moved) > 0 {
		t.Fatalf("moved %+v", moved)
	}
	want := "nodes to come back: 2 failure domains are lost, and the copies survive the loss of only 1; fences keep machines off (" + node +
		"): if the other nodes do not come back, set recovery.fencing.type: None, and these machines are switched on"
	if lost := w.lostOf(); lost == nil || lost.WaitsFor != want {
		t.Errorf("on record: %+v", lost)
	}
	if got := w.condition(v1alpha1.ConditionDegraded).Message; !strings.Contains(got, "set recovery.fencing.type: None") || len(got) > 300 {
		t.Errorf("Degraded says %q", got)
	}
	w.store.Spec.Recovery.Fencing.Type = v1alpha1.FencingNone
	runFor[steps.UnfenceNode](w, 10)
	if w.dead[node] {
		t.Error("the machine is off still")
	}
}
