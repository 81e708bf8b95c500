package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const nodeDrainSpec = `apiVersion: rcbox.dev/v1alpha1
kind: Store
metadata: {name: box}
spec:
  masters: {replicas: 3, memory: 256Mi, resources: {requests: {cpu: 100m}}}
  replication: {factor: 1}
  backups: {storage: {size: 512Mi}}
  coordinator: {replicas: 2, state: {type: Kubernetes}}
  reclaimPolicy: Delete
  placement:
    tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
`

// nodeDrain is what one step leaves for the next.
type nodeDrain struct {
	clients *clients
	// members of the two nodes that are drained, by the nodes' names.
	members map[string]string
	// drains are the ends of the two commands.
	drains chan error
	// uids of all claims before.
	uids map[string]string
}

// TestNodeDrained: two nodes are drained at once, as kubectl does it, and there is a spare for one of them. Clients use the Store all the
// time, and nothing is recovered, because nothing is lost at any moment.
func TestNodeDrained(t *testing.T) {
	namespacesAreThere(t)
	n := &nodeDrain{members: map[string]string{}, drains: make(chan error, 2)}
	t.Cleanup(func() {
		for node := range n.members {
			_, _ = run(settings.kubectl, "", "uncordon", node) // those that the test has not come to
		}
	})
	inOrder(t, []step{
		{"OperatorRuns", operatorRuns},
		{"StoreBecomesSafe", n.storeBecomesSafe},
		{"ClientsRun", func(step *testing.T) { n.clients = startClients(step, t) }},
		{"TwoNodesAreDrained", n.twoNodesAreDrained},
		{"OneMemberMovesAndOneHasNoNode", n.oneMovesOneHasNoNode},
		{"UncordonedNodeTakesIt", n.uncordonedNodeTakesIt},
		{"IsolatedNodeIsLeft", n.isolatedNodeIsLeft},
		{"NodeOfFailuresIsLeft", n.nodeOfFailuresIsLeft},
		{"ClientsSawNothingWrong", func(t *testing.T) { n.clients.end(t) }},
		{"NothingOfTheStoreIsLeft", nothingOfTheStoreIsLeft},
	})
}

func (n *nodeDrain) storeBecomesSafe(t *testing.T) {
	apply(t, nodeDrainSpec)
	waitUntilSafeWithStandby(t)
	n.uids = claimUIDs(t)
}

// twoNodesAreDrained: evictions are refused, and kubectl asks again and again until the pods have gone. The node with the API server stays.
func (n *nodeDrain) twoNodesAreDrained(t *testing.T) {
	control := list[podObject](t, "nodes", "", "-l", "node-role.kubernetes.io/control-plane")[0].Metadata.Name
	for member, pod := range storePods(t, storeName) {
		if strings.Contains(member, "-master-") && pod.Spec.NodeName != control && len(n.members) < 2 {
			n.members[pod.Spec.NodeName] = member
		}
	}
	for node := range n.members {
		go func() {
			got, err := run(settings.kubectl, "", "drain", node, "--pod-selector=rcbox.dev/store="+storeName,
				fmt.Sprintf("--timeout=%ds", int(startDeadline.Seconds())))
			if err == nil && got.exitCode != 0 {
				err = errors.New("drain " + node + ": " + got.stdout + got.stderr)
			}
			n.drains <- err
		}()
	}
}

// evacuations are what is on record of members that leave.
func evacuations(store v1alpha1.Store) map[string]*v1alpha1.EvacuationStatus {
	leaving := map[string]*v1alpha1.EvacuationStatus{}
	for _, member := range store.Status.Masters.Members {
		if member.Evacuation != nil {
			leaving[member.Name] = member.Evacuation
		}
	}
	return leaving
}

func (n *nodeDrain) oneMovesOneHasNoNode(t *testing.T) {
	started := time.Now()
	for range n.members {
		if err := <-n.drains; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("two nodes drained, one after the other, in %.1f s", time.Since(started).Seconds())
	store := waitForStore(t, "one member has left, and has no node", startDeadline, func(store v1alpha1.Store) error {
		leaving := evacuations(store)
		for _, leaves := range leaving {
			if len(leaving) == 1 && leaves.MovedAt != nil && strings.Contains(leaves.WaitsFor, "or uncordon "+leaves.Node) {
				return conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonEvacuating)
			}
		}
		progressing := meta.FindStatusCondition(store.Status.Conditions, v1alpha1.ConditionProgressing)
		return fmt.Errorf("%d members leave; Progressing: %s", len(leaving), progressing.Message)
	})
	if err := conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated); err != nil {
		t.Error(err)
	}
	if store.Status.LossCount != 0 || len(store.Status.Recoveries) > 0 {
		t.Errorf("losses %+v, recoveries %+v", store.Status.Losses, store.Status.Recoveries)
	}
	n.clients.goOn(t, "clients go on with two masters", 10)
}

func (n *nodeDrain) uncordonedNodeTakesIt(t *testing.T) {
	for _, leaves := range evacuations(readStore(t)) {
		kubectl(t, "uncordon", leaves.Node)
	}
	store := waitForStore(t, "all members are up elsewhere", startDeadline, func(store v1alpha1.Store) error {
		if leaving := evacuations(store); len(leaving) > 0 || store.Status.Masters.Ready != 3 {
			return fmt.Errorf("%d members leave, %d are up", len(leaving), store.Status.Masters.Ready)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
	if store.Status.LossCount != 0 || len(store.Status.Recoveries) > 0 {
		t.Errorf("losses %+v, recoveries %+v", store.Status.Losses, store.Status.Recoveries)
	}
	moved := slices.Collect(func(yield func(string) bool) {
		for _, member := range n.members {
			if !yield(member) {
				return
			}
		}
	})
	eventually(t, "the former volumes are given up, and only those", changeDeadline, func() error {
		claims := claimUIDs(t)
		for member := range storePods(t, storeName) {
			former, next := claims[member+"-copies"], claims[member+"-copies-2"]
			switch {
			case !strings.Contains(member, "-master-"):
			case slices.Contains(moved, member) && (former != "" || next == ""),
				!slices.Contains(moved, member) && (former != n.uids[member+"-copies"] || next != ""):
				return fmt.Errorf("claims of %s: %q, %q; before %v", member, former, next, n.uids)
			}
		}
		return nil
	})
	events := kubectl(t, "get", "events", "-n", namespaceOf(t), "-o", "jsonpath={range .items[*]}{.reason} {.note}{.message}{\"\\n\"}{end}")
	for node, member := range n.members {
		for _, want := range []string{
			"MemberDraining drain " + member + ": node " + node + " is drained", "MemberMoved move " + member + " away from node " + node,
			"MemberArrived " + member,
		} {
			if !strings.Contains(events, want) {
				t.Errorf("no event %q among\n%s", want, events)
			}
		}
	}
	n.clients.goOn(t, "clients go on", 10)
}

// masterOnWorker is a master that is not beside the API server, and its node.
func masterOnWorker(t *testing.T) (member, node string) {
	t.Helper()
	control := list[podObject](t, "nodes", "", "-l", "node-role.kubernetes.io/control-plane")[0].Metadata.Name
	pods := storePods(t, storeName)
	members := slices.Sorted(maps.Keys(pods))
	member = members[slices.IndexFunc(members, func(member string) bool {
		return strings.Contains(member, "-master-") && pods[member].Spec.NodeName != control
	})]
	return member, pods[member].Spec.NodeName
}

// waitUntilElsewhere waits until a member has left a node and all is well.
func waitUntilElsewhere(t *testing.T, member, node string) v1alpha1.Store {
	t.Helper()
	return waitForStore(t, member+" is up elsewhere", startDeadline, func(store v1alpha1.Store) error {
		on := storePods(t, storeName)[member].Spec.NodeName
		if left := evacuations(store); on == node || on == "" || len(left) > 0 || store.Status.Masters.Ready != 3 {
			return fmt.Errorf("it is on %q, %d members leave, %d are up", on, len(left), store.Status.Masters.Ready)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
}

// isolatedNodeIsLeft: a node that somebody wants nothing on has its master move away, in order, and gets none until that is taken back.
func (n *nodeDrain) isolatedNodeIsLeft(t *testing.T) {
	for node := range n.members {
		kubectl(t, "uncordon", node)
	}
	leaving, node := masterOnWorker(t)
	started := time.Now()
	apply(t, fmt.Sprintf(`
apiVersion: rcbox.dev/v1alpha1
kind: StoreOperation
metadata: {name: slow-disk}
spec: {storeRef: {name: %s}, type: Isolate, isolate: {node: %s, reason: its disk is slow}}
`, storeName, node))
	store := waitUntilElsewhere(t, leaving, node)
	t.Logf("a master left an isolated node in %.1f s", time.Since(started).Seconds())
	if store.Status.LossCount != 0 || len(store.Status.Recoveries) > 0 {
		t.Errorf("losses %+v, recoveries %+v", store.Status.Losses, store.Status.Recoveries)
	}
	waitForOperation(t, "slow-disk", v1alpha1.OperationInForce)
	kubectl(t, "delete", "storeoperation", "slow-disk", "-n", namespaceOf(t))
	n.clients.goOn(t, "clients go on", 10)
}

// nodeOfFailuresIsLeft: a master's process ends again and again on one node, while all others are well. The node is isolated by itself, and
// the master goes on elsewhere.
func (n *nodeDrain) nodeOfFailuresIsLeft(t *testing.T) {
	const crashes = 3
	member, node := masterOnWorker(t)
	kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"recovery":{"isolation":{"crashes":%d}}}}`, crashes))
	before := len(readStore(t).Status.Isolations)
	for count := range int32(crashes) {
		// Kubernetes starts it again, later each time.
		waitForStore(t, "all masters are up", startDeadline, func(store v1alpha1.Store) error {
			if store.Status.Masters.Ready != 3 {
				return fmt.Errorf("%d are", store.Status.Masters.Ready)
			}
			return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
		})
		store := readStore(t)
		if len(store.Status.Isolations) != before {
			t.Fatalf("isolated after %d failures: %+v", count, store.Status.Isolations)
		}
		crash(t, storePods(t, storeName)[member])
		waitForStore(t, "the failure is counted", startDeadline, func(store v1alpha1.Store) error {
			for _, known := range store.Status.Masters.Members {
				if known.Name == member && known.Failures != nil && known.Failures.Node == node && known.Failures.Count == count+1 {
					return nil
				}
			}
			// What is counted is forgotten when the member has left the node.
			if len(store.Status.Isolations) > before {
				return nil
			}
			return fmt.Errorf("members %+v", store.Status.Masters.Members)
		})
	}
	started := time.Now()
	store := waitUntilElsewhere(t, member, node)
	t.Logf("a master left a node on which it had failed %d times in %.1f s", crashes, time.Since(started).Seconds())
	isolated := func(i v1alpha1.IsolationStatus) bool {
		return i.Node == node && i.Cause == v1alpha1.IsolatedFailures && strings.Contains(i.Message, member)
	}
	if !slices.ContainsFunc(store.Status.Isolations, isolated) {
		t.Errorf("isolations %+v; want %s for the failures of %s", store.Status.Isolations, node, member)
	}
	waitForOperation(t, v1alpha1.OperationName(storeName, v1alpha1.OperationIsolate, node), v1alpha1.OperationInForce)
	if store.Status.LossCount != 0 {
		t.Errorf("losses %+v", store.Status.Losses)
	}
	n.clients.goOn(t, "clients go on", 10)
}
