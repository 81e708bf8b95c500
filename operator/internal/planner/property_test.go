package planner_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Whatever happens to pods, nodes, coordinator, spec and the operator itself: no process that holds data is ended, no member has two
// pods, no name is used twice; and when it stops happening, the Store comes to what its spec says.
func TestWorld(t *testing.T) { rapid.Check(t, anyWorld) }

func anyWorld(t *rapid.T) { disturb(t, newWorld(rapid.Int32Range(1, 4).Draw(t, "replicas")), 1) }

// With copies as well: and no process is ended while something is short of them, no pod is without its claim, no claim is deleted.
func TestReplicatedWorld(t *testing.T) { rapid.Check(t, anyReplicatedWorld) }

func anyReplicatedWorld(t *rapid.T) {
	w := newReplicatedWorld(rapid.Int32Range(2, 4).Draw(t, "replicas"))
	w.takesSettings = rapid.Bool().Draw(t, "takesSettings")
	disturb(t, w, 2)
}

// With volumes that are on one node each: members move when these are lost, nothing is lost by it, and no volume is left over.
func TestLocalVolumes(t *testing.T) { rapid.Check(t, anyLocalWorld) }

func anyLocalWorld(t *rapid.T) {
	w := newReplicatedWorld(rapid.Int32Range(2, 4).Draw(t, "replicas"))
	w.isLocal = true
	disturb(t, w, 2)
}

// With several coordinators: nobody leads for no longer than it takes, and in the end there are as many as asked for, made from the spec.
func TestStandbyWorld(t *testing.T) { rapid.Check(t, anyStandbyWorld) }

func anyStandbyWorld(t *rapid.T) {
	disturb(t, newStandbyWorld(rapid.Int32Range(1, 3).Draw(t, "coordinators")), 1)
}

// disturb lets everything happen that can, then nothing any more.
func disturb(t *rapid.T, w *world, fewest int32) {
	images := 0
	anyPod := func(t *rapid.T) *fakePod {
		live := w.livePods()
		if len(live) == 0 {
			t.Skip("no pod")
		}
		return rapid.SampledFrom(live).Draw(t, "pod")
	}
	t.Repeat(map[string]func(*rapid.T){
		"reconcile":      func(*rapid.T) { w.reconcile(false) },
		"reconcile lost": func(*rapid.T) { w.reconcile(true) },
		"tick":           func(*rapid.T) { w.tick() },
		"scale":          func(t *rapid.T) { w.store.Spec.Masters.Replicas = rapid.Int32Range(fewest, 5).Draw(t, "replicas") },
		"scale coordinators": func(t *rapid.T) {
			if !w.hasStandbys() {
				t.Skip("one only")
			}
			w.store.Spec.Coordinator.Replicas = rapid.Int32Range(1, 3).Draw(t, "coordinators")
		},
		"image": func(*rapid.T) {
			images++
			w.store.Spec.Image = fmt.Sprintf("store:new%d", images)
		},
		"a quota is full, or not": func(t *rapid.T) { w.isQuotaFull = rapid.Bool().Draw(t, "full") },
		"hibernate": func(t *rapid.T) {
			if !w.isReplicated() {
				t.Skip("the schema refuses it")
			}
			w.store.Spec.Hibernated = !w.store.Spec.Hibernated
		},
		"pause": func(*rapid.T) { w.store.Spec.Paused = !w.store.Spec.Paused },
		"drill": func(t *rapid.T) {
			member := rapid.SampledFrom([]string{"", "box-master-1"}).Draw(t, "member")
			w.order(fmt.Sprintf("drill-%d", w.uids), member)
		},
		"restart": func(t *rapid.T) {
			w.orderRestart(fmt.Sprintf("restart-%d", w.uids))
		},
		"split": func(t *rapid.T) {
			table := rapid.SampledFrom([]string{"fruit", "vegetables"}).Draw(t, "table")
			w.tables = map[string]*fakeTable{"fruit": {refused: rapid.SampledFrom([]string{"", "it moves"}).Draw(t, "refused")}}
			w.orderSplit(fmt.Sprintf("split-%d", w.uids), table, rapid.Int32Range(2, 9).Draw(t, "parts"))
		},
		"withdraw": func(t *rapid.T) {
			if len(w.operations) == 0 {
				t.Skip("nothing is ordered")
			}
			w.withdraw(w.operations[rapid.IntRange(0, len(w.operations)-1).Draw(t, "operation")].Name)
		},
		"schedule drills": func(t *rapid.T) {
			w.store.Spec.Recovery.Drill = rapid.SampledFrom([]*v1alpha1.DrillSpec{
				nil, {Schedule: "* * * * *", Window: "1m"}, {Schedule: "@hourly"}, {Schedule: "61 * * * *"},
			}).Draw(t, "drill")
		},
		"storage grows": func(t *rapid.T) {
			if !w.isReplicated() {
				t.Skip("no volumes")
			}
			w.store.Spec.Backups.Storage.Size.Add(resource.MustParse("1Gi"))
			w.rigid = rapid.Bool().Draw(t, "rigid")
		},
		"volumes grow":     func(*rapid.T) { w.rigid = false },
		"a minute goes by": func(*rapid.T) { w.now = w.now.Add(time.Minute) },
		"create table": func(t *rapid.T) {
			if w.cluster == nil || len(w.cluster.members) == 0 {
				t.Skip("nowhere to put it")
			}
			for _, member := range w.cluster.members {
				if !member.isDraining {
					member.tablets++
				}
			}
		},
		"drop tables": func(t *rapid.T) { w.dropTables() },
		"user deletes a claim": func(t *rapid.T) {
			names := slices.Sorted(maps.Keys(w.claims))
			if len(names) == 0 {
				t.Skip("no claim")
			}
			name := rapid.SampledFrom(names).Draw(t, "claim")
			claim := w.claims[name]
			claim.Terminating = true
			w.claims[name] = claim
		},
		"node freezes": func(t *rapid.T) {
			if !w.isLocal {
				t.Skip("Kubernetes moves pods")
			}
			if pod := anyPod(t); pod.Node != "" && !w.dead[pod.Node] {
				w.freezeNode(pod.Node)
			}
		},
		"node does not answer": func(t *rapid.T) {
			if !w.isLocal {
				t.Skip("Kubernetes moves pods")
			}
			if pod := anyPod(t); pod.Node != "" {
				w.killNode(pod.Node)
			}
		},
		"node is back": func(t *rapid.T) {
			nodes := slices.Sorted(maps.Keys(w.dead))
			if len(nodes) == 0 {
				t.Skip("all nodes answer")
			}
			w.reviveNode(rapid.SampledFrom(nodes).Draw(t, "node"))
		},
		"node is cordoned": func(t *rapid.T) {
			if pod := anyPod(t); pod.Node != "" {
				w.cordoned[pod.Node] = true
			}
		},
		"node is isolated": func(t *rapid.T) {
			if pod := anyPod(t); pod.Node != "" {
				w.isolate(append(w.isolatedNodes(), pod.Node)...)
			}
		},
		"no node is isolated": func(*rapid.T) { w.isolate() },
		"node is uncordoned": func(t *rapid.T) {
			nodes := slices.Sorted(maps.Keys(w.cordoned))
			if len(nodes) == 0 {
				t.Skip("none is cordoned")
			}
			delete(w.cordoned, rapid.SampledFrom(nodes).Draw(t, "node"))
		},
		"failing nodes are isolated, or not": func(t *rapid.T) {
			w.store.Spec.Recovery.Isolation.Crashes = rapid.SampledFrom([]int32{0, 2}).Draw(t, "crashes")
		},
		"fencing": func(t *rapid.T) {
			w.store.Spec.Recovery.Fencing = v1alpha1.FencingSpec{After: "4s", Type: rapid.SampledFrom(
				[]v1alpha1.FencingType{v1alpha1.FencingNone, v1alpha1.FencingOutOfServiceTaint, v1alpha1.FencingBMC}).Draw(t, "type")}
		},
		"a machine is proved to be off": func(t *rapid.T) {
			for _, fence := range w.store.Status.Fences {
				if fence.Type == v1alpha1.FencingBMC && w.fenced[fence.Node] && w.dead[fence.Node] {
					w.proveOff(fence.Node)
				}
			}
		},
		"members wait on drained nodes, or move": func(t *rapid.T) {
			w.store.Spec.Recovery.DrainedNodes = rapid.SampledFrom(
				[]v1alpha1.DrainedNodes{v1alpha1.DrainedMove, v1alpha1.DrainedWait}).Draw(t, "policy")
		},
		"cluster evicts": func(t *rapid.T) {
			for _, pod := range w.livePods() {
				if pod.deadNode {
					w.end(pod)
				}
			}
		},
		"user deletes a pod": func(t *rapid.T) {
			w.end(anyPod(t))
		},
		"process crashes": func(t *rapid.T) {
			if pod := anyPod(t); !pod.deadNode && pod.Process == facts.ProcessRunning {
				w.stop(pod)
			}
		},
		"pod is removed by force": func(t *rapid.T) {
			// Of one that is on record: whoever takes a pod away, finalizer and all, before the operator has written down that it made
			// it, takes the only trace of it with him.
			if pod := anyPod(t); len(pod.Addresses) > 0 && w.names[pod.Name] {
				w.removeByForce(pod)
			}
		},
		"somebody says what is silent": func(*rapid.T) { w.sayWhatIsSilent() },
		"pod is evicted": func(t *rapid.T) {
			pod := anyPod(t)
			w.stop(pod)
			pod.Process = facts.ProcessEnded
		},
		"node dies": func(t *rapid.T) {
			pod := anyPod(t)
			pod.deadNode = true
			if pod.Node != "" {
				w.killNode(pod.Node)
			}
			w.end(pod)
		},
		"": func(t *rapid.T) {
			if len(w.broken) > 0 {
				t.Fatalf("the operator ended processes that held data: %v", w.broken)
			}
		},
	})
	checkSettles(t, w)
}

func checkSettles(t *rapid.T, w *world) {
	w.nodesComeBack()
	w.rigid, w.isQuotaFull = false, false
	w.store.Spec.Paused, w.store.Spec.Recovery.Drill = false, nil
	isDrill := func(operation facts.Operation) bool { return operation.Spec.Type == v1alpha1.OperationDrill }
	for _, table := range w.tables {
		table.refused = ""
	}
	w.operations = slices.DeleteFunc(w.operations, isDrill) // whoever has ordered some withdraws them
	checkSleeps(t, w)
	for node := range w.orphanedNodes() {
		w.killOrphaned(node)
	}
	w.reconcile(false)
	w.sayWhatIsSilent()
	w.nodesComeBack() // a member that slept cannot start on a node that was isolated while it ran there
	plan, refused, settled := w.settle(300)
	if !settled {
		t.Fatalf("still busy after 300 reconciles: %+v", plan.Steps)
	}
	if refused == "" && len(w.masters()) != int(w.store.Spec.Masters.Replicas) {
		t.Fatalf("there are masters %v, but %d are asked for", w.masters(), w.store.Spec.Masters.Replicas)
	}
	if settled && refused == "" && w.isReplicated() {
		for _, view := range append(plan.Masters, plan.Coordinator) {
			if view.Pending != "" && view.Pod.Inputs.Replication != nil {
				t.Fatalf("%s was not restarted: %s", view.Name, view.Pending)
			}
		}
	}
	// Without data nothing is refused, and every master is made anew from the spec.
	w.dropTables()
	plan, refused, settled = w.settle(300)
	if !settled || refused != "" || len(w.masters()) != int(w.store.Spec.Masters.Replicas) {
		t.Fatalf("settled %v, refused %q, masters %v, %d are asked for",
			settled, refused, w.masters(), w.store.Spec.Masters.Replicas)
	}
	for _, view := range plan.Masters {
		if !view.Up || view.Pending != "" {
			t.Fatalf("%s is up: %v, pending: %q, lost: %+v, pod: %+v", view.Name, view.Up, view.Pending, view.Lost, view.Pod)
		}
	}
	if len(w.broken) > 0 {
		t.Fatalf("the operator ended processes that held data: %v", w.broken)
	}
	if current := plan.Drills.Current(); current != nil && current.State == v1alpha1.DrillWaiting || len(plan.Drills.List) > 10 {
		t.Fatalf("drills: %+v", plan.Drills)
	}
	for name, member := range w.cluster.members {
		if member.isDraining {
			t.Fatalf("%s is drained, and the spec has a place for it", name)
		}
	}
	for node := range w.fenced {
		if !w.dead[node] || w.store.Spec.Recovery.Fencing.Type == v1alpha1.FencingNone {
			t.Fatalf("node %s is fenced, and it is back, or nobody wants that: %+v", node, w.store.Status.Fences)
		}
	}
	checkReplicated(t, w)
	if w.hasStandbys() {
		asked := int(w.store.Spec.Coordinator.Replicas)
		if got := w.coordinators(); len(got) != asked || len(plan.Coordinators) != asked {
			t.Fatalf("there are coordinators %v, but %d are asked for", got, asked)
		}
		for _, view := range plan.Coordinators {
			if asked > 1 && view.Pending != "" {
				t.Fatalf("%s is outdated: %s", view.Name, view.Pending)
			}
		}
	}
	if !reflect.DeepEqual(planner.Make(w.observe()).Steps, plan.Steps) {
		t.Fatal("the same observation gave another plan")
	}
	checkDeletes(t, w)
}

// checkSleeps: a Store that is to sleep comes to rest without a pod, and keeps its volumes.
func checkSleeps(t *rapid.T, w *world) {
	if !w.store.Spec.Hibernated {
		return
	}
	claims := 0
	for _, claim := range w.claims {
		if !claim.Terminating {
			claims++
		}
	}
	w.settle(300)
	for range 45 { // a pod on a node that does not answer is waited for
		w.reconcile(false)
		w.tick()
	}
	if len(w.livePods()) > 0 || len(w.claims) < claims {
		t.Fatalf("%d pods, %d of %d claims: %+v", len(w.livePods()), len(w.claims), claims, w.store.Status.Conditions)
	}
	w.store.Spec.Hibernated = false
}

// nodesComeBack, all but those without which the store has to do; those that coordinators are on, Kubernetes gives up.
func (w *world) nodesComeBack() {
	clear(w.frozen) // Kubernetes has found out by now
	for _, pod := range w.livePods() {
		if pod.deadNode && pod.Component == v1alpha1.ComponentCoordinator {
			w.end(pod)
		}
	}
	if !w.store.MovesFromDrained() {
		clear(w.cordoned)
		w.isolate()
	}
	if w.lostDomains() > int(w.store.Copies()) || w.cluster != nil && w.cluster.lost > 0 {
		for _, name := range slices.Sorted(maps.Keys(w.dead)) {
			w.reviveNode(name)
		}
	}
}

func (w *world) isolate(nodes ...string) {
	w.operations = slices.DeleteFunc(w.operations, func(operation facts.Operation) bool { return operation.Spec.Isolate != nil })
	for _, node := range nodes {
		w.order("isolate-"+node, "").Spec = v1alpha1.StoreOperationSpec{
			StoreRef: v1alpha1.StoreReference{Name: w.store.Name}, Type: v1alpha1.OperationIsolate,
			Isolate: &v1alpha1.IsolateOperation{Node: node},
		}
	}
}

// isolatedNodes are those that the world's StoreOperations isolate.
func (w *world) isolatedNodes() []string {
	var nodes []string
	for i := range w.operations {
		if isolate := w.operations[i].Spec.Isolate; isolate != nil {
			nodes = append(nodes, isolate.Node)
		}
	}
	return nodes
}

// In the end everything is where it belongs, and the status says that it is safe.
func checkReplicated(t *rapid.T, w *world) {
	if !w.isReplicated() {
		return
	}
	held := map[string]int{}
	for name := range w.claims {
		if member, _, ok := resources.ParseMasterClaim(name); ok {
			held[member]++
		}
	}
	for _, pod := range w.livePods() {
		if _, there := w.claims[pod.Claim]; !there {
			t.Fatalf("%s has no claim", pod.Member)
		}
		if held[pod.Member] > 1 {
			t.Fatalf("%s has %d claims", pod.Member, held[pod.Member])
		}
		if pod.Component == v1alpha1.ComponentMaster && w.isToBeLeft(pod.Node) {
			t.Fatalf("%s is on the cordoned node %s: %+v", pod.Member, pod.Node, w.store.Status.Conditions)
		}
		if pod.Component == v1alpha1.ComponentMaster && pod.Domain != "rack of "+pod.Node {
			t.Fatalf("%s on %s was told the failure domain %q", pod.Name, pod.Node, pod.Domain)
		}
	}
	if safe := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDataSafe); safe.Status != metav1.ConditionTrue &&
		safe.Reason != v1alpha1.ReasonDataLost {
		t.Fatalf("DataSafe is %+v", safe)
	}
}

// A Store that is deleted goes, whatever its pods on dead nodes do.
func checkDeletes(t *rapid.T, w *world) {
	w.store.DeletionTimestamp = &metav1.Time{Time: w.now}
	kept := 0
	for _, claim := range w.claims {
		if !claim.Terminating {
			kept++
		}
	}
	for range 60 {
		w.reconcile(false)
		if len(w.store.Finalizers) == 0 {
			if live := w.livePods(); len(live) > 0 {
				t.Fatalf("the Store went before its pods: %v", live)
			}
			if len(w.claims) < kept {
				t.Fatalf("of %d volumes there are %d, and nobody asked for that", kept, len(w.claims))
			}
			return
		}
		w.tick()
	}
	t.Fatal("the Store is still there a minute after its deletion")
}

func (w *world) dropTables() {
	if w.cluster == nil {
		return
	}
	w.cluster.lost = 0
	for _, member := range w.cluster.members {
		member.tablets = 0
	}
}

// A plan that was lost before any of its effects were seen is made again with the same names.
func TestPlanIsRepeatable(t *testing.T) {
	w := newWorld(3)
	first, second := planner.Make(w.observe()), planner.Make(w.observe())
	if !reflect.DeepEqual(first, second) {
		t.Errorf("two plans from one observation:\n%+v\n%+v", first, second)
	}
}

// A member that goes and comes back never gets a pod name that it had before (createPod panics if it does).
func TestNamesAfterScalingInAndOut(t *testing.T) {
	w := newWorld(3)
	w.settle(100)
	for range 3 {
		w.store.Spec.Masters.Replicas = 1
		w.settle(100)
		w.store.Spec.Masters.Replicas = 3
		if _, _, settled := w.settle(100); !settled {
			t.Fatal("does not settle")
		}
	}
	last := w.store.Status.Masters.Members[2]
	if last.PodNumber != 4 {
		t.Errorf("%s is at pod %d, not 4", last.Name, last.PodNumber)
	}
}

// A Terminating pod on a dead node keeps nobody waiting.
func TestDeadNodeBlocksNothing(t *testing.T) {
	w := newWorld(2)
	w.settle(100)
	lost := w.podOf("box-master-1")
	lost.deadNode = true
	w.end(lost)
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	again := w.podOf("box-master-1")
	if again == nil || again.Name == lost.Name || again.Process != facts.ProcessRunning {
		t.Fatalf("box-master-1 has not come back: %+v", again)
	}
	if w.pods[lost.Name] == nil {
		t.Fatal("the pod on the dead node went away: this test proves nothing")
	}
}

// The operator's default image is for new Stores only: others remember theirs, in the status and in their pods.
func TestOperatorUpgradeChangesNothing(t *testing.T) {
	for name, change := range map[string]func(*facts.Observed){
		"all there":   func(*facts.Observed) {},
		"status lost": func(o *facts.Observed) { o.Store.Status = v1alpha1.StoreStatus{} },
		"pods lost":   func(o *facts.Observed) { o.Pods = nil },
	} {
		w := newWorld(3)
		w.settle(100)
		o := w.observe()
		change(&o)
		o.DefaultImage = "store:2"
		plan := planner.Make(o)
		if plan.Image != "store:1" || (len(o.Pods) > 0 && len(plan.Steps) != 0) {
			t.Errorf("%s: another default image leads to %+v and image %s", name, plan.Steps, plan.Image)
		}
	}
}

// Nothing to do means nothing is done, and the next look comes at the settled pace.
func TestSettled(t *testing.T) {
	w := newWorld(3)
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	plan := planner.Make(w.observe())
	if len(plan.Steps) != 0 || plan.Next != planner.SettledInterval {
		t.Errorf("a settled Store gets steps %+v and is looked at in %s", plan.Steps, plan.Next)
	}
}

// A node that refuses every pod is not asked without pause.
func TestEndedPodsAreReplacedSlowly(t *testing.T) {
	w := newWorld(1)
	w.settle(100)
	pods := w.uids
	for range 60 {
		if pod := w.podOf("box-master-0"); pod != nil {
			w.stop(pod)
			pod.Process = facts.ProcessEnded
		}
		w.reconcile(false)
		w.tick()
	}
	if made := w.uids - pods; made < 4 || made > 7 {
		t.Errorf("in a minute %d pods were made", made)
	}
}
