package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	nodeLossSpec = `apiVersion: rcbox.dev/v1alpha1
kind: Store
metadata: {name: box}
spec:
  masters: {replicas: 3, memory: 256Mi, resources: {requests: {cpu: 100m}}}
  replication: {factor: 1}
  backups: {storage: {size: 512Mi}}
  coordinator: {replicas: 2, state: {type: Kubernetes}}
  reclaimPolicy: Delete
  recovery: {rescheduleAfter: 10s, dryRun: true}
  placement:
    tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
`
)

// nodeLoss is what one step leaves for the next.
type nodeLoss struct {
	clients *clients
	// node that is lost, with this member, since when.
	node   string
	member string
	since  time.Time
	// former volume of the member, and its next one, by the names of their claims.
	former, next string
	// uids of all claims before.
	uids map[string]string
	// isBack: it was started again.
	isBack bool
}

// TestNodeLoss: a node is lost for good, with the volume of a master on it. Clients use the Store all the time.
func TestNodeLoss(t *testing.T) {
	namespacesAreThere(t)
	n := &nodeLoss{}
	t.Cleanup(func() {
		if n.node != "" && !n.isBack {
			docker(t, killedNode.back, n.node)
		}
	})
	inOrder(t, []step{
		{"OperatorRuns", operatorRuns},
		{"StoreBecomesSafe", n.storeBecomesSafe},
		{"ClientsRun", func(step *testing.T) { n.clients = startClients(step, t) }},
		{"NodeIsLost", n.nodeIsLost},
		{"DryRunSaysWhatItWouldDo", n.dryRunSays},
		{"MemberMovesToTheSpareNode", n.memberMoves},
		{"NodeComesBackAsASpare", n.nodeComesBack},
		{"ClientsSawNothingWrong", func(t *testing.T) { n.clients.end(t) }},
		{"NothingOfTheStoreIsLeft", nothingOfTheStoreIsLeft},
	})
}

func (n *nodeLoss) storeBecomesSafe(t *testing.T) {
	apply(t, nodeLossSpec)
	waitUntilSafeWithStandby(t)
	n.uids = claimUIDs(t)
}

// nodeIsLost: what the master held is back without anybody's help. The node with the API server has to stay.
func (n *nodeLoss) nodeIsLost(t *testing.T) {
	nodes := list[podObject](t, "nodes", "", "-l", "node-role.kubernetes.io/control-plane")
	for member, pod := range storePods(t, storeName) {
		if strings.Contains(member, "-master-") && pod.Spec.NodeName != nodes[0].Metadata.Name {
			n.member, n.node = member, pod.Spec.NodeName
		}
	}
	n.former, n.next, n.since = n.member+"-copies", n.member+"-copies-2", time.Now()
	docker(t, killedNode.away, n.node)
	n.clients.goOn(t, "clients go on, also at the tablets of the master that is away", 10)
	t.Logf("node killed: all keys are used again after %.1f s", time.Since(n.since).Seconds())
}

// lost is what is on record of the member.
func (n *nodeLoss) lost(store v1alpha1.Store) *v1alpha1.LostStatus {
	for _, member := range store.Status.Masters.Members {
		if member.Name == n.member {
			return member.Lost
		}
	}
	return nil
}

func (n *nodeLoss) dryRunSays(t *testing.T) {
	waitForStore(t, "the loss is on record, and proven", startDeadline, func(store v1alpha1.Store) error {
		if lost := n.lost(store); lost == nil || lost.Node != n.node || lost.Cause != v1alpha1.NodeNotReady || lost.ProvenAt == nil {
			return fmt.Errorf("on record: %+v", lost)
		}
		return nil
	})
	t.Logf("node killed: on record after %.1f s", time.Since(n.since).Seconds())
	store := waitForStore(t, "its move is due", startDeadline, func(store v1alpha1.Store) error {
		if lost := n.lost(store); lost == nil || !strings.Contains(lost.WaitsFor, "recovery.dryRun: false (the move is due") {
			return fmt.Errorf("on record: %+v", lost)
		}
		return nil
	})
	if err := conditionIs(store, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonNodeLost); err != nil {
		t.Error(err)
	}
	if claims := claimUIDs(t); claims[n.next] != "" {
		t.Errorf("a dry run made a claim: %v", claims)
	}
}

func (n *nodeLoss) memberMoves(t *testing.T) {
	beside := fingerprints(storePods(t, storeName))
	kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p", `{"spec":{"recovery":{"dryRun":false}}}`)
	started := time.Now()
	eventually(t, "it has a pod on the spare node", startDeadline, func() error {
		pod := storePods(t, storeName)[n.member]
		if statuses := pod.Status.ContainerStatuses; pod.Spec.NodeName == n.node || len(statuses) == 0 || !statuses[0].Ready {
			return fmt.Errorf("pod %q on %q", pod.Metadata.Name, pod.Spec.NodeName)
		}
		return nil
	})
	t.Logf("told to move: on the spare node after %.1f s", time.Since(started).Seconds())
	waitForStore(t, "everything has its copies again", startDeadline, func(store v1alpha1.Store) error {
		if lost := n.lost(store); lost != nil || store.Status.LossCount != 0 {
			return fmt.Errorf("on record: %+v, losses %+v", lost, store.Status.Losses)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
	eventually(t, "the volume that was lost is given up", changeDeadline, func() error {
		claim, found := get[podObject](t, "persistentvolumeclaim", namespaceOf(t), n.former)
		if found && claim.Metadata.DeletionTimestamp == "" {
			return errors.New("its claim is there")
		}
		return nil
	})
	claims, now := claimUIDs(t), fingerprints(storePods(t, storeName))
	for member, former := range beside {
		if member == n.member || !strings.Contains(member, "-master-") {
			continue
		}
		if now[member] != former || claims[member+"-copies"] != n.uids[member+"-copies"] {
			t.Errorf("%s was %s and is %s; claims are %v, before %v", member, former, now[member], claims, n.uids)
		}
	}
	if claims[n.next] == "" {
		t.Errorf("claims are %v, before %v", claims, n.uids)
	}
	events := kubectl(t, "get", "events", "-n", namespaceOf(t), "-o", "jsonpath={range .items[*]}{.reason} {.note}{.message}{\"\\n\"}{end}")
	for _, want := range []string{
		"MemberMoved move " + n.member + " away from node " + n.node, "VolumeDropped delete volume claim " + n.former,
	} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %q among\n%s", want, events)
		}
	}
	n.clients.goOn(t, "clients go on", 10)
}

func (n *nodeLoss) nodeComesBack(t *testing.T) {
	before := fingerprints(storePods(t, storeName))
	docker(t, killedNode.back, n.node)
	n.isBack = true
	kubectl(t, "wait", "--for=condition=Ready", "node/"+n.node, "--timeout=150s")
	eventually(t, "nothing of what was there is left", startDeadline, func() error {
		if claims := claimUIDs(t); claims[n.former] != "" {
			return fmt.Errorf("claims %v", claims)
		}
		for _, pod := range list[podObject](t, "pods", namespaceOf(t)) {
			if pod.Spec.NodeName == n.node && strings.HasPrefix(pod.Metadata.Name, n.member+"-") {
				return errors.New(pod.Metadata.Name + " is there")
			}
		}
		return nil
	})
	waitUntilSafe(t, "the Store is safe")
	now := fingerprints(storePods(t, storeName))
	for member, former := range before {
		if strings.Contains(member, "-master-") && now[member] != former {
			t.Errorf("%s was %s, and is %s", member, former, now[member])
		}
	}
}
