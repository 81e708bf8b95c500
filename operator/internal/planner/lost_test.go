package planner_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// newLocalWorld has three masters whose volumes are on one node each, and is settled.
func newLocalWorld(t *testing.T) *world {
	t.Helper()
	w := newReplicatedWorld(3)
	w.isLocal = true
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	w.cluster.members["box-master-1"].tablets = 2
	return w
}

// lostOf is what is on record of box-master-1.
func (w *world) lostOf() *v1alpha1.LostStatus {
	for _, entry := range w.store.Status.Masters.Members {
		if entry.Name == "box-master-1" {
			return entry.Lost
		}
	}
	return nil
}

// runFor lets time pass, and gives the steps of a kind that were taken, by the second.
func runFor[S steps.Step](w *world, seconds int) map[int]S {
	taken := map[int]S{}
	for second := range seconds {
		plan, _ := w.reconcile(false)
		for _, step := range plan.Steps {
			if wanted, ok := step.(S); ok {
				taken[second] = wanted
			}
		}
		w.tick()
	}
	return taken
}

func TestMemberMovesFromALostNode(t *testing.T) {
	w := newLocalWorld(t)
	before := w.podOf("box-master-1")
	w.killNode(before.Node)
	moved := runFor[steps.MoveMember](w, 14)
	if len(moved) != 1 {
		t.Fatalf("moved %+v", moved)
	}
	for second, step := range moved {
		if second < 10 || second > 12 || step.Claim != "box-master-1-copies-2" || step.Node != before.Node || step.Pod.Name != before.Name {
			t.Errorf("after %d s: %+v", second, step)
		}
		if text := steps.Describe(step); !strings.HasPrefix(text, "move box-master-1 away from node "+before.Node+
			", with the new volume claim box-master-1-copies-2: the node has been lost (NotReady) since 2026-01-01 00:00:") {
			t.Error(text)
		}
	}
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	after := w.podOf("box-master-1")
	if after == nil || after.Node == before.Node || after.Claim != "box-master-1-copies-2" || w.lostOf() != nil {
		t.Errorf("it is %+v, on record: %+v", after, w.lostOf())
	}
	if _, there := w.claims["box-master-1-copies"]; there {
		t.Error("the volume that was lost is still there")
	}
	// The node comes back, and has nothing to do any more.
	w.reviveNode(before.Node)
	w.settle(100)
	if now := w.podOf("box-master-1"); now.Name != after.Name || w.pods[before.Name] != nil {
		t.Errorf("it is %+v, and its former pod %+v", now, w.pods[before.Name])
	}
}

func TestNodeThatComesBackIsWaitedFor(t *testing.T) {
	w := newLocalWorld(t)
	before := w.podOf("box-master-1")
	w.killNode(before.Node)
	if moved := runFor[steps.MoveMember](w, 8); len(moved) > 0 {
		t.Fatalf("moved %+v", moved)
	}
	lost := w.lostOf()
	if lost == nil || lost.Cause != v1alpha1.NodeNotReady || lost.ProvenAt == nil ||
		!strings.HasPrefix(lost.WaitsFor, "the node to come back, until 00:00:") {
		t.Fatalf("on record: %+v", lost)
	}
	degraded := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDegraded)
	if degraded.Reason != v1alpha1.ReasonNodeLost || !strings.Contains(degraded.Message, "and box-master-1 with it; its move") {
		t.Errorf("Degraded is %+v", degraded)
	}
	w.reviveNode(before.Node)
	if moved := runFor[steps.MoveMember](w, 30); len(moved) > 0 || w.lostOf() != nil {
		t.Errorf("moved %+v, on record: %+v", moved, w.lostOf())
	}
	if now := w.podOf("box-master-1"); now.Name != before.Name || now.Claim != "box-master-1-copies" {
		t.Errorf("it is %+v", now)
	}
}

// Each says why, and moves nothing.
func TestMembersThatDoNotMove(t *testing.T) {
	for name, test := range map[string]struct {
		disturb func(*world)
		want    string
	}{
		"never":   {func(w *world) { w.store.Spec.Recovery.RescheduleAfter = "0s" }, "because recovery.rescheduleAfter is 0s: kubectl"},
		"dry run": {func(w *world) { w.store.Spec.Recovery.DryRun = true }, "recovery.dryRun: false (the move is due, and"},
		"paused":  {func(w *world) { w.store.Spec.Paused = true }, "spec.paused: false"},
		"more nodes than copies": {
			func(w *world) { w.killNode(w.podOf("box-master-2").Node) },
			"nodes to come back: 2 failure domains are lost, and the copies survive the loss of only 1",
		},
	} {
		w := newLocalWorld(t)
		w.killNode(w.podOf("box-master-1").Node)
		test.disturb(w)
		moved := runFor[steps.MoveMember](w, 60)
		lost := w.lostOf()
		if len(moved) > 0 || lost == nil || !strings.Contains(lost.WaitsFor, test.want) {
			t.Errorf("%s: moved %+v, on record: %+v", name, moved, lost)
		}
	}
}

// With rescheduleAfter: 0s somebody has to move the member: Degraded has the command once it costs nothing, and the command suffices.
func TestMoveByHand(t *testing.T) {
	w := newLocalWorld(t)
	w.store.Spec.Recovery.RescheduleAfter = "0s"
	pod := w.podOf("box-master-1")
	w.killNode(pod.Node)
	if moved := runFor[steps.MoveMember](w, 20); len(moved) > 0 {
		t.Errorf("moved %+v", moved)
	}
	want := "; recovery.rescheduleAfter is 0s, so run: " +
		"kubectl delete --force --wait=false -n default pvc/box-master-1-copies pod/" + pod.Name
	if got := w.condition(v1alpha1.ConditionDegraded); !strings.Contains(got.Message, want) {
		t.Errorf("Degraded is %+v", got)
	}
	claim := w.claims["box-master-1-copies"]
	claim.Terminating = true
	w.claims["box-master-1-copies"] = claim
	w.removeByForce(pod)
	runFor[steps.MoveMember](w, 60)
	if now := w.podOf("box-master-1"); now == nil || now.Name == pod.Name || now.Process != facts.ProcessRunning || w.lostOf() != nil {
		t.Errorf("after the command its pod is %+v, and on record is %+v", now, w.lostOf())
	}
}

// observedLoss is a Store whose member 1 was lost with its node a minute ago, on record and proven.
func observedLoss(t *testing.T) facts.Observed {
	t.Helper()
	w := newLocalWorld(t)
	w.cluster.members["box-master-1"].tablets = 0
	w.killNode(w.podOf("box-master-1").Node)
	w.reconcile(false)
	w.now = w.now.Add(time.Minute)
	o := w.observe()
	if moves := movesOf(planner.Make(o)); len(moves) != 1 || moves[0] != "box-master-1" {
		t.Fatalf("moves %v", moves)
	}
	return o
}

func movesOf(plan planner.Plan) []string {
	var moves []string
	for _, step := range plan.Steps {
		if move, ok := step.(steps.MoveMember); ok {
			moves = append(moves, move.Member)
		}
	}
	return moves
}

func TestWhatSpeaksAgainstAMove(t *testing.T) {
	member := func(o *facts.Observed) *facts.MemberReport {
		i := slices.IndexFunc(o.Cluster.Members, func(m facts.MemberReport) bool { return m.Name == "box-master-1" })
		return &o.Cluster.Members[i]
	}
	for want, change := range map[string]func(*facts.Observed){
		"the coordinator, which cannot write its state: away": func(o *facts.Observed) { o.Cluster.StateWait = "away" },
		"its recovery: tablets left: 3":                       func(o *facts.Observed) { member(o).Tablets = 3 },
		"its process to end, which is still connected to the coordinator": func(o *facts.Observed) {
			member(o).Connected, member(o).Instance = true, "another"
		},
		"recovery of box-master-1 (1.1): tablets left: 1": func(o *facts.Observed) {
			o.Cluster.Recoveries = []facts.Recovery{{ServerID: "1.1", Member: "box-master-1", TabletsLeft: 1}}
		},
		"a recovery that may need what is on the node: recovery of box-master-7": func(o *facts.Observed) {
			o.Cluster.Recoveries = []facts.Recovery{{ServerID: "9.1", Member: "box-master-7", TabletsLeft: 1, CanBeGivenUp: true}}
		},
		"the proof of its end to be recorded in the status": func(o *facts.Observed) {
			for i := range o.Store.Status.Masters.Members {
				if lost := o.Store.Status.Masters.Members[i].Lost; lost != nil {
					lost.ProvenAt = nil
				}
			}
		},
	} {
		o := observedLoss(t)
		change(&o)
		plan := planner.Make(o)
		lost := plan.Masters[1].Lost
		if moves := movesOf(plan); len(moves) > 0 || lost == nil || !strings.HasPrefix(lost.WaitsFor, want) {
			t.Errorf("%s: moves %v, lost %+v", want, moves, lost)
		}
	}
	// With rescheduleAfter: 0s nobody is told to delete anything before that costs nothing.
	o := observedLoss(t)
	o.Store.Spec.Recovery.RescheduleAfter = "0s"
	member(&o).Tablets = 3
	if lost := planner.Make(o).Masters[1].Lost; lost.WaitsFor != "its recovery: tablets left: 3" {
		t.Errorf("it waits for %s", lost.WaitsFor)
	}
	// Nobody knows whether the node is lost.
	o = observedLoss(t)
	o.Nodes = nil
	if plan := planner.Make(o); len(movesOf(plan)) > 0 || plan.Masters[1].Lost != nil {
		t.Errorf("a node that could not be read is lost: %+v", plan.Masters[1].Lost)
	}
}

// Members whose volumes can be used elsewhere take them along.
func TestVolumeThatIsNotTiedGoesAlong(t *testing.T) {
	o := observedLoss(t)
	claim := o.Claims["box-master-1-copies"]
	claim.TiedTo = ""
	o.Claims["box-master-1-copies"] = claim
	for _, step := range planner.Make(o).Steps {
		if move, ok := step.(steps.MoveMember); ok && move.Claim != "" {
			t.Errorf("it gets the claim %s", move.Claim)
		}
	}
}

// A member that is scaled away, and whose copies others still need, was lost with its node like the others.
func TestMemberThatLeavesCountsAsLost(t *testing.T) {
	w := newLocalWorld(t)
	w.store.Spec.Masters.Replicas = 2
	for _, member := range []string{"box-master-1", "box-master-2"} {
		w.killNode(w.podOf(member).Node)
		w.cluster.members[member].tablets = 0
	}
	w.reconcile(false)
	w.reconcile(false)
	w.now = w.now.Add(time.Minute)
	o := w.observe()
	plan := planner.Make(o)
	if moves := movesOf(plan); len(moves) > 0 || !strings.Contains(plan.Masters[1].Lost.WaitsFor, "2 failure domains are lost") {
		t.Errorf("with copies on a lost node that others need: moves %v, waits for %s", moves, plan.Masters[1].Lost.WaitsFor)
	}
	o.Cluster.Members[2].Draining = &facts.Draining{Drained: true}
	if moves := movesOf(planner.Make(o)); len(moves) != 1 {
		t.Errorf("nobody needs what the leaving member has, and moves %v", moves)
	}
	o = w.observe()
	node := o.Nodes[w.podOf("box-master-2").Node]
	node.Ready = true
	o.Nodes[w.podOf("box-master-2").Node] = node
	if moves := movesOf(planner.Make(o)); len(moves) != 1 {
		t.Errorf("the node of the leaving member is there, and moves %v", moves)
	}
}

// countsNoLeavers takes members that the spec has no place for as drained, where it moves others.
func countsNoLeavers(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	if o.Cluster == nil {
		return plan
	}
	cluster := *o.Cluster
	cluster.Members = slices.Clone(cluster.Members)
	for i := range cluster.Members {
		leaver := &cluster.Members[i]
		if ordinal, _ := v1alpha1.MasterOrdinal(o.Store.Name, leaver.Name); ordinal >= int(o.Store.Spec.Masters.Replicas) {
			leaver.Draining = &facts.Draining{Drained: true}
		}
	}
	o.Cluster = &cluster
	isMove := func(step steps.Step) bool { _, ofKind := step.(steps.MoveMember); return ofKind }
	plan.Steps = slices.DeleteFunc(plan.Steps, isMove)
	for move := range steps.Of[steps.MoveMember](planner.Make(o).Steps) {
		plan.Steps = append(plan.Steps, move)
	}
	return plan
}

// While members are scaled away, nodes are lost with these and with others: no more of them than there are copies when one moves.
func TestLossesWhileMembersLeave(t *testing.T) { rapid.Check(t, anyShrinkingWorld) }

func anyShrinkingWorld(t *rapid.T) {
	w := newReplicatedWorld(4)
	w.isLocal = true
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	t.Repeat(map[string]func(*rapid.T){
		"reconcile": func(*rapid.T) { w.reconcile(false) },
		"tick":      func(*rapid.T) { w.tick() },
		"scale in": func(t *rapid.T) {
			w.store.Spec.Masters.Replicas = rapid.Int32Range(2, w.store.Spec.Masters.Replicas).Draw(t, "replicas")
		},
		"node dies": func(t *rapid.T) {
			member := v1alpha1.MasterMember("box", rapid.IntRange(0, 3).Draw(t, "ordinal"))
			if pod := w.podOf(member); pod != nil && pod.Node != "" && !w.dead[pod.Node] {
				w.killNode(pod.Node)
			}
		},
		"a minute goes by": func(*rapid.T) { w.now = w.now.Add(time.Minute) },
	})
}

func TestPlantedCountOfLeavers(t *testing.T) {
	setFlags(t, map[string]string{"rapid.seed": "1", "rapid.checks": "100", "rapid.shrinktime": "0s", "rapid.nofailfile": "true"})
	defer func() { makePlan = planner.Make }()
	makePlan = countsNoLeavers
	if heard := objection(t, anyShrinkingWorld); !strings.Contains(heard, "more nodes are lost than copies make up for") {
		t.Errorf("where leaving members do not count: %.2000s", heard)
	}
}

// One at a time, or as many as may.
func TestMovesAreBounded(t *testing.T) {
	for atOnce, want := range map[int32]int{1: 1, 2: 2} {
		w := newReplicatedWorld(5)
		w.isLocal = true
		w.store.Spec.Replication.Factor = new(int32(2))
		w.store.Spec.Recovery.MaxConcurrentReplacements = atOnce
		w.settle(100)
		for _, member := range []string{"box-master-1", "box-master-3"} {
			w.killNode(w.podOf(member).Node)
		}
		w.reconcile(false)
		w.now = w.now.Add(time.Minute)
		if moves := movesOf(planner.Make(w.observe())); len(moves) != want {
			t.Errorf("%d at once: moves %v", atOnce, moves)
		}
	}
}

// From the moment that a member is told to move until it is up elsewhere it counts: also while it has no pod at all.
func TestMovesAreBoundedOverTime(t *testing.T) {
	w := newReplicatedWorld(5)
	w.isLocal = true
	w.store.Spec.Replication.Factor = new(int32(2))
	w.settle(100)
	for _, member := range []string{"box-master-1", "box-master-3"} {
		w.killNode(w.podOf(member).Node)
	}
	moved := map[string]bool{}
	for range 60 {
		plan, _ := w.reconcile(false)
		for _, member := range movesOf(plan) {
			moved[member] = true
		}
		onTheirWay := 0
		for member := range moved {
			if !w.runs(member, w.cluster.members[member]) {
				onTheirWay++
			}
		}
		if onTheirWay > 1 {
			t.Fatalf("%d members are on their way, and one may be (moved: %v)", onTheirWay, moved)
		}
		w.tick()
	}
	if len(moved) != 2 {
		t.Errorf("moved %v", moved)
	}
}

// Without copies, what a member held is nowhere else.
func TestUnreplicatedMembersDoNotMove(t *testing.T) {
	w := newWorld(2)
	w.settle(100)
	w.killNode(w.podOf("box-master-1").Node)
	if moved := runFor[steps.MoveMember](w, 60); len(moved) > 0 || w.lostOf() != nil {
		t.Errorf("moved %+v", moved)
	}
}
