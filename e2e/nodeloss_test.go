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
  masters: {replicas: 2, memory: 256Mi, resources: {requests: {cpu: 100m}}}
  replication: {factor: 1}
  backups: {storage: {size: 512Mi}}
  coordinator: {replicas: 2, state: {type: Kubernetes}}
  reclaimPolicy: Delete
  recovery: {rescheduleAfter: 10s, dryRun: true}
`
	lostMember   = "box-master-1"
	formerVolume = lostMember + "-copies"
	nextVolume   = formerVolume + "-2"
)

// nodeLoss is what one step leaves for the next.
type nodeLoss struct {
	clients *clients
	// node that is lost, and since when.
	node  string
	since time.Time
	uids  map[string]string
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
	for _, step := range []struct {
		name string
		test func(*testing.T)
	}{
		{"HelmInstalls", helmInstalls},
		{"StoreBecomesSafe", n.storeBecomesSafe},
		{"ClientsRun", func(step *testing.T) { n.clients = startClients(step, t) }},
		{"NodeIsLost", n.nodeIsLost},
		{"DryRunSaysWhatItWouldDo", n.dryRunSays},
		{"MemberMovesToTheSpareNode", n.memberMoves},
		{"NodeComesBackAsASpare", n.nodeComesBack},
		{"ClientsSawNothingWrong", func(t *testing.T) { n.clients.end(t) }},
		{"UninstallLeavesNothing", uninstallLeavesNothing},
	} {
		if !t.Run(step.name, step.test) {
			diagnose(t)
			t.FailNow()
		}
	}
}

func (n *nodeLoss) storeBecomesSafe(t *testing.T) {
	apply(t, nodeLossSpec)
	waitUntilSafeWithStandby(t)
	n.uids = claimUIDs(t)
}

// nodeIsLost: what the master held is back without anybody's help.
func (n *nodeLoss) nodeIsLost(t *testing.T) {
	n.node, n.since = storePods(t, storeName)[lostMember].Spec.NodeName, time.Now()
	docker(t, killedNode.away, n.node)
	n.clients.goOn(t, "clients go on, also at the tablets of the master that is away", 10)
	t.Logf("node killed: all keys are used again after %.1f s", time.Since(n.since).Seconds())
}

// lostOf is what is on record of the member.
func lostOf(store v1alpha1.Store) *v1alpha1.LostStatus {
	for _, member := range store.Status.Masters.Members {
		if member.Name == lostMember {
			return member.Lost
		}
	}
	return nil
}

func (n *nodeLoss) dryRunSays(t *testing.T) {
	waitForStore(t, "the loss is on record, and proven", startDeadline, func(store v1alpha1.Store) error {
		if lost := lostOf(store); lost == nil || lost.Node != n.node || lost.Cause != v1alpha1.NodeNotReady || lost.ProvenAt == nil {
			return fmt.Errorf("on record: %+v", lost)
		}
		return nil
	})
	t.Logf("node killed: on record after %.1f s", time.Since(n.since).Seconds())
	store := waitForStore(t, "it would move now", startDeadline, func(store v1alpha1.Store) error {
		if lost := lostOf(store); lost == nil || !strings.Contains(lost.WaitsFor, "it would move now, but recovery.dryRun is set") {
			return fmt.Errorf("on record: %+v", lost)
		}
		return nil
	})
	if err := conditionIs(store, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonNodeLost); err != nil {
		t.Error(err)
	}
	if claims := claimUIDs(t); claims[nextVolume] != "" {
		t.Errorf("a dry run made a claim: %v", claims)
	}
}

func (n *nodeLoss) memberMoves(t *testing.T) {
	beside := fingerprints(storePods(t, storeName))["box-master-0"]
	kubectl(t, "patch", "store", storeName, "-n", namespace, "--type=merge", "-p", `{"spec":{"recovery":{"dryRun":false}}}`)
	started := time.Now()
	eventually(t, "it has a pod on the spare node", startDeadline, func() error {
		pod := storePods(t, storeName)[lostMember]
		if statuses := pod.Status.ContainerStatuses; pod.Spec.NodeName == n.node || len(statuses) == 0 || !statuses[0].Ready {
			return fmt.Errorf("pod %q on %q", pod.Metadata.Name, pod.Spec.NodeName)
		}
		return nil
	})
	t.Logf("told to move: on the spare node after %.1f s", time.Since(started).Seconds())
	waitForStore(t, "everything has its copies again", startDeadline, func(store v1alpha1.Store) error {
		if lost := lostOf(store); lost != nil || store.Status.LossCount != 0 {
			return fmt.Errorf("on record: %+v, losses %+v", lost, store.Status.Losses)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
	eventually(t, "the volume that was lost is given up", changeDeadline, func() error {
		claim, found := get[podObject](t, "persistentvolumeclaim", namespace, formerVolume)
		if found && claim.Metadata.DeletionTimestamp == "" {
			return errors.New("its claim is there")
		}
		return nil
	})
	if claims := claimUIDs(t); claims[nextVolume] == "" || claims["box-master-0-copies"] != n.uids["box-master-0-copies"] {
		t.Errorf("claims are %v, before %v", claims, n.uids)
	}
	if now := fingerprints(storePods(t, storeName))["box-master-0"]; now != beside {
		t.Errorf("box-master-0 was restarted: %s, before %s", now, beside)
	}
	events := kubectl(t, "get", "events", "-n", namespace, "-o", "jsonpath={range .items[*]}{.reason} {.note}{.message}{\"\\n\"}{end}")
	for _, want := range []string{
		"MemberMoved move " + lostMember + " away from node " + n.node, "VolumeDropped delete volume claim " + formerVolume,
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
		if claims := claimUIDs(t); claims[formerVolume] != "" {
			return fmt.Errorf("claims %v", claims)
		}
		for _, pod := range list[podObject](t, "pods", namespace) {
			if pod.Spec.NodeName == n.node && strings.HasPrefix(pod.Metadata.Name, lostMember) {
				return errors.New(pod.Metadata.Name + " is there")
			}
		}
		return nil
	})
	waitUntilSafe(t, "the Store is safe")
	now := fingerprints(storePods(t, storeName))
	for _, member := range []string{"box-master-0", lostMember} {
		if before[member] != now[member] {
			t.Errorf("%s was %s, and is %s", member, before[member], now[member])
		}
	}
}
