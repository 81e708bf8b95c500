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
		{"HelmInstalls", helmInstalls},
		{"StoreBecomesSafe", n.storeBecomesSafe},
		{"ClientsRun", func(step *testing.T) { n.clients = startClients(step, t) }},
		{"TwoNodesAreDrained", n.twoNodesAreDrained},
		{"OneMemberMovesAndOneHasNoNode", n.oneMovesOneHasNoNode},
		{"UncordonedNodeTakesIt", n.uncordonedNodeTakesIt},
		{"IsolatedNodeIsLeft", n.isolatedNodeIsLeft},
		{"ClientsSawNothingWrong", func(t *testing.T) { n.clients.end(t) }},
		{"UninstallLeavesNothing", uninstallLeavesNothing},
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
	events := kubectl(t, "get", "events", "-n", namespace, "-o", "jsonpath={range .items[*]}{.reason} {.note}{.message}{\"\\n\"}{end}")
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

// isolatedNodeIsLeft: a node that somebody wants nothing on has its master move away, in order, and gets none until that is taken back.
func (n *nodeDrain) isolatedNodeIsLeft(t *testing.T) {
	for node := range n.members {
		kubectl(t, "uncordon", node)
	}
	control := list[podObject](t, "nodes", "", "-l", "node-role.kubernetes.io/control-plane")[0].Metadata.Name
	pods := storePods(t, storeName)
	members := slices.Sorted(maps.Keys(pods))
	leaving := members[slices.IndexFunc(members, func(member string) bool {
		return strings.Contains(member, "-master-") && pods[member].Spec.NodeName != control
	})]
	node, started := pods[leaving].Spec.NodeName, time.Now()
	kubectl(t, "annotate", "store", storeName, "-n", namespace, v1alpha1.AnnotationIsolated+"="+node)
	store := waitForStore(t, leaving+" is up elsewhere", startDeadline, func(store v1alpha1.Store) error {
		on := storePods(t, storeName)[leaving].Spec.NodeName
		if left := evacuations(store); on == node || on == "" || len(left) > 0 || store.Status.Masters.Ready != 3 {
			return fmt.Errorf("it is on %q, %d members leave, %d are up", on, len(left), store.Status.Masters.Ready)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
	t.Logf("a master left an isolated node in %.1f s", time.Since(started).Seconds())
	if store.Status.LossCount != 0 || len(store.Status.Recoveries) > 0 {
		t.Errorf("losses %+v, recoveries %+v", store.Status.Losses, store.Status.Recoveries)
	}
	kubectl(t, "annotate", "store", storeName, "-n", namespace, v1alpha1.AnnotationIsolated+"-")
	n.clients.goOn(t, "clients go on", 10)
}
