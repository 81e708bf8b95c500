package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const failoverSpec = `apiVersion: rcbox.dev/v1alpha1
kind: Store
metadata: {name: box}
spec:
  masters: {replicas: 4, memory: 256Mi, resources: {requests: {cpu: 100m}}}
  replication: {factor: 2}
  backups: {storage: {size: 512Mi}}
  coordinator: {replicas: 2, state: {type: Kubernetes}}
  reclaimPolicy: Delete
  placement:
    tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
`

// apiServerAway is how long there is no API server: five times as long as a standby waits for a leader that does not renew its claim.
const apiServerAway = 30 * time.Second

// failover is what one step leaves for the next.
type failover struct{ clients *clients }

// TestCoordinatorFailover is the life of a Store with a standby. A Deployment of clients works with it all the time, over all masters.
func TestCoordinatorFailover(t *testing.T) {
	namespacesAreThere(t)
	f := &failover{}
	inOrder(t, []step{
		{"OperatorRuns", operatorRuns},
		{"StoreWithAStandbyBecomesSafe", storeWithAStandbyBecomesSafe},
		{"ClientsRun", func(step *testing.T) { f.clients = startClients(step, t) }},
		{"DeletedLeaderIsFollowed", func(t *testing.T) { f.leaderIsFollowed(t, "deleted", deletePod) }},
		{"KilledLeaderIsFollowed", func(t *testing.T) { f.leaderIsFollowed(t, "killed", killPod) }},
		{"OutdatedCoordinatorsAreReplaced", f.outdatedCoordinatorsAreReplaced},
		// From here on nobody but the store itself does anything.
		{"OperatorIsAway", operatorIsAway},
		{"LeaderOnAPausedNodeIsFollowed", func(t *testing.T) { f.nodeOfTheLeaderIsAway(t, pausedNode) }},
		{"LeaderOnAKilledNodeIsFollowed", func(t *testing.T) { f.nodeOfTheLeaderIsAway(t, killedNode) }},
		{"ApiServerIsNotNeededForReadsAndWrites", f.apiServerIsNotNeeded},
		{"OperatorIsNotNeeded", f.operatorIsNotNeeded},
		{"OperatorIsBack", f.operatorIsBack},
		{"ClientsSawNothingWrong", func(t *testing.T) { f.clients.end(t) }},
		{"NothingOfTheStoreIsLeft", nothingOfTheStoreIsLeft},
	})
}

func storeWithAStandbyBecomesSafe(t *testing.T) {
	apply(t, failoverSpec)
	leads(t, "")
	store := waitForStore(t, "the Store is safe, and a standby runs", startDeadline, func(store v1alpha1.Store) error {
		if standbys := store.Status.Coordinator.Standbys; len(standbys) != 1 || !standbys[0].Running {
			return fmt.Errorf("standbys %+v", standbys)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
	coordinator := store.Status.Coordinator
	if coordinator.State != v1alpha1.StateKubernetes || coordinator.Claim != "" || coordinator.Term != 1 {
		t.Errorf("coordinator is %+v", coordinator)
	}
	if coordinator.Node == coordinator.Standbys[0].Node {
		t.Errorf("leader and standby are on node %s though there are four", coordinator.Node)
	}
	eventually(t, "all pods are ready, the standby's, too", changeDeadline, func() error {
		var wrong []string
		for _, pod := range storePods(t, storeName) {
			if isReady := pod.Status.ContainerStatuses[0].Ready; !isReady {
				wrong = append(wrong, fmt.Sprintf("%s is ready: %v", pod.Metadata.Name, isReady))
			}
		}
		if len(wrong) > 0 {
			return errors.New(strings.Join(wrong, ", "))
		}
		return nil
	})
	root := kubectl(t, "get", "configmap", storeName+"-state-root", "-n", namespaceOf(t), "-o", "jsonpath={.metadata.finalizers}")
	if !strings.Contains(root, v1alpha1.FinalizerState) {
		t.Errorf("finalizers of the root are %s", root)
	}
}

// leader is the coordinator that the Store's Services lead to, if there is one.
func leader(t *testing.T) (podObject, error) {
	t.Helper()
	type slice struct {
		Endpoints []struct {
			Addresses []string `json:"addresses"`
		} `json:"endpoints"`
	}
	found, _ := get[slice](t, "endpointslice", namespaceOf(t), storeName+"-leader")
	for _, endpoint := range found.Endpoints {
		for member, pod := range storePods(t, storeName) {
			if strings.HasPrefix(member, "box-coordinator") && slices.Contains(endpoint.Addresses, pod.Status.PodIP) {
				return pod, nil
			}
		}
	}
	return podObject{}, fmt.Errorf("no pod of the store has an address of %+v", found)
}

// leads waits until a coordinator leads that is not the one given.
func leads(t *testing.T, notThis string) podObject {
	t.Helper()
	var found podObject
	eventually(t, "a coordinator leads", startDeadline, func() (err error) {
		found, err = leader(t)
		if err == nil && found.Metadata.Name == notThis {
			err = fmt.Errorf("%s still leads", notThis)
		}
		return err
	})
	return found
}

func deletePod(t *testing.T, pod podObject) {
	t.Helper()
	kubectl(t, "delete", "pod", "-n", namespaceOf(t), pod.Metadata.Name, "--wait=false")
}

// killPod ends it without a word, and its pod with it: the next process in the pod would lead again. It is halted first, as whoever is
// told to end gives the lease up.
func killPod(t *testing.T, pod podObject) {
	t.Helper()
	docker(t, "exec", pod.Spec.NodeName, "kill", "-STOP", processOf(t, pod))
	kubectl(t, "delete", "pod", "-n", namespaceOf(t), pod.Metadata.Name, "--grace-period=0", "--force")
}

// mastersPrints tell whether a master's process was restarted.
func mastersPrints(t *testing.T) map[string]string {
	t.Helper()
	prints := fingerprints(storePods(t, storeName))
	for member := range prints {
		if strings.HasPrefix(member, "box-coordinator") {
			delete(prints, member)
		}
	}
	return prints
}

// leaderIsFollowed: clients go on, another one leads the same store, and new tables can be made.
func (f *failover) leaderIsFollowed(t *testing.T, how string, end func(*testing.T, podObject)) {
	before, masters := readStore(t), mastersPrints(t)
	old, since, started := leads(t, ""), now(t), time.Now()
	end(t, old)
	leads(t, old.Metadata.Name)
	took := time.Since(started)
	f.clients.goOn(t, "clients go on", 10)
	t.Logf("leader %s: another one leads after %.1f s; no client waited longer than %.2f s",
		how, took.Seconds(), f.clients.slowest(since, "").Seconds())
	client := openSession(t, t, "tables-"+old.Metadata.UID[:8], patience)
	client.mustAsk(t, 1, "create-table after-"+old.Metadata.UID[:8])
	waitForStore(t, "the standby leads, and another one stands by", startDeadline, func(store v1alpha1.Store) error {
		coordinator := store.Status.Coordinator
		if coordinator.Term <= before.Status.Coordinator.Term || coordinator.Pod == old.Metadata.Name {
			return fmt.Errorf("coordinator %+v", coordinator)
		}
		return errors.Join(
			aStandbyRuns(store),
			conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionTrue, ""),
			conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated))
	})
	after := readStore(t)
	if after.Status.ClusterID != before.Status.ClusterID || after.Status.LossCount != 0 {
		t.Errorf("store %s became %s, losses %+v", before.Status.ClusterID, after.Status.ClusterID, after.Status.Losses)
	}
	unchanged(t, masters, mastersPrints(t))
}

func aStandbyRuns(store v1alpha1.Store) error {
	if standbys := store.Status.Coordinator.Standbys; len(standbys) != 1 || !standbys[0].Running {
		return fmt.Errorf("standbys %+v", standbys)
	}
	return nil
}

func (f *failover) outdatedCoordinatorsAreReplaced(t *testing.T) {
	before, masters := storePods(t, storeName), mastersPrints(t)
	kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p",
		`{"spec":{"coordinator":{"resources":{"requests":{"cpu":"50m","memory":"256Mi"},"limits":{"memory":"256Mi"}}}}}`)
	waitForStore(t, "both are others", startDeadline, func(store v1alpha1.Store) error {
		now := storePods(t, storeName)
		for _, member := range []string{"box-coordinator", "box-coordinator-1"} {
			if uid := now[member].Metadata.UID; uid == "" || uid == before[member].Metadata.UID {
				return fmt.Errorf("%s is still the same", member)
			}
		}
		return errors.Join(aStandbyRuns(store),
			conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified))
	})
	unchanged(t, masters, mastersPrints(t))
	f.clients.goOn(t, "clients go on", 10)
}

func operatorIsAway(t *testing.T) {
	kubectl(t, "scale", "-n", operatorNamespace, "deployment", "--all", "--replicas=0")
	eventually(t, "the operator is gone", changeDeadline, func() error {
		if pods := list[podObject](t, "pods", operatorNamespace); len(pods) > 0 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
}

// nodeFault takes a node away, and gives it back.
type nodeFault struct{ name, away, back string }

var (
	// A paused node does not know that it was: its leader and its master go on when it is back, and nobody listens to them any more.
	pausedNode = nodeFault{"paused", "pause", "unpause"}
	killedNode = nodeFault{"killed", "kill", "start"}
)

// nodeOfTheLeaderIsAway: with it a master and a part of the clients. The standby leads, and has what the master held recovered; when
// the node is back, so are all members, and the old leader is a standby.
func (f *failover) nodeOfTheLeaderIsAway(t *testing.T, fault nodeFault) {
	old := leaderOnAWorker(t)
	node, term := old.Spec.NodeName, termOf(t)
	isBack := false
	giveBack := func() {
		docker(t, fault.back, node)
		isBack = true
	}
	t.Cleanup(func() {
		if !isBack {
			giveBack()
		}
	})
	since, started := now(t), time.Now()
	docker(t, fault.away, node)
	leads(t, old.Metadata.Name)
	took := time.Since(started)
	f.clients.goOn(t, "clients go on, also at the tablets of the master that is away", 10)
	t.Logf("node of the leader %s: another one leads after %.1f s; no client elsewhere waited longer than %.2f s",
		fault.name, took.Seconds(), f.clients.slowest(since, node).Seconds())
	giveBack()
	eventually(t, "all members are back, and everything has its copies", startDeadline, coordinatorSaysSafe(t))
	eventually(t, "the old leader stands by", changeDeadline, func() error {
		pod, _ := get[podObject](t, "pod", namespaceOf(t), old.Metadata.Name)
		for _, container := range pod.Status.ContainerStatuses {
			if container.State.Running != nil && container.RestartCount > old.Status.ContainerStatuses[0].RestartCount {
				return nil
			}
		}
		return fmt.Errorf("it was not started again: %+v", pod.Status)
	})
	if now := leads(t, ""); now.Metadata.Name == old.Metadata.Name {
		t.Errorf("%s leads again, without need", old.Metadata.Name)
	}
	if now := termOf(t); now != term+1 {
		t.Errorf("term %d, after %d: want one new leader", now, term)
	}
	f.clients.goOn(t, "clients go on", 10)
}

// leaderOnAWorker has the leader end, if need be, so that one leads whose node can be taken away: the API server's cannot.
func leaderOnAWorker(t *testing.T) podObject {
	t.Helper()
	found := leads(t, "")
	for _, node := range list[podObject](t, "nodes", "", "-l", "node-role.kubernetes.io/control-plane") {
		if node.Metadata.Name == found.Spec.NodeName {
			docker(t, "exec", found.Spec.NodeName, "kill", "-TERM", processOf(t, found))
			found = leads(t, found.Metadata.Name)
			break
		}
	}
	return found
}

// presentTerm is that of the coordinator that leads.
func presentTerm(t *testing.T) (int64, error) {
	t.Helper()
	var status struct {
		Leader struct {
			Term int64 `json:"term"`
		} `json:"leader"`
	}
	text, err := inCoordinator(t, "status", "--json")
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return 0, fmt.Errorf("%w in %s", err, text)
	}
	if status.Leader.Term == 0 {
		return 0, fmt.Errorf("no term in %s", text)
	}
	return status.Leader.Term, nil
}

func termOf(t *testing.T) int64 {
	t.Helper()
	term, err := presentTerm(t)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

// waitUntilSafeWithStandby waits until the Store's status is of the present leader, and says that all is well.
func waitUntilSafeWithStandby(t *testing.T) v1alpha1.Store {
	t.Helper()
	return waitForStore(t, "the Store is safe, and a standby runs", startDeadline, func(store v1alpha1.Store) error {
		// What was written before the operator or the leader was away does not count.
		term, err := presentTerm(t)
		if err == nil && store.Status.Coordinator.Term != term {
			err = fmt.Errorf("the status is of term %d, the leader of %d", store.Status.Coordinator.Term, term)
		}
		return errors.Join(err, aStandbyRuns(store),
			conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionTrue, ""),
			conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated))
	})
}

// apiServerIsNotNeeded: it stands still for some time, and clients read and write meanwhile. Afterwards the same coordinator leads.
func (f *failover) apiServerIsNotNeeded(t *testing.T) {
	before, masters := leads(t, ""), mastersPrints(t)
	var nodes []string
	for _, node := range list[podObject](t, "nodes", "", "-l", "node-role.kubernetes.io/control-plane") {
		nodes = append(nodes, node.Metadata.Name)
	}
	signal := func(name string) {
		for _, node := range nodes {
			docker(t, "exec", node, "sh", "-c", "kill -"+name+" $(pidof kube-apiserver)")
		}
	}
	t.Cleanup(func() { signal("CONT") })
	since := now(t)
	signal("STOP")
	time.Sleep(apiServerAway) //nolint:forbidigo // nothing can be asked meanwhile
	f.clients.goOn(t, "clients read and write though there has been no API server for a while", 10)
	// The kubelet starts it again if it is away for long.
	for _, node := range nodes {
		state := docker(t, "exec", node, "sh", "-c", "grep State /proc/$(pidof kube-apiserver)/status")
		if !strings.Contains(state, "stopped") {
			t.Errorf("there was an API server on %s again before all clients went on: %s", node, state)
		}
	}
	t.Logf("API server away for %v: no client waited longer than %.2f s", apiServerAway, f.clients.slowest(since, "").Seconds())
	signal("CONT")
	if now := leads(t, ""); now.Metadata.Name != before.Metadata.Name {
		t.Errorf("%s leads, after %s", now.Metadata.Name, before.Metadata.Name)
	}
	unchanged(t, masters, mastersPrints(t))
}

// operatorIsNotNeeded: without it a standby leads for good, and a dead master is recovered.
func (f *failover) operatorIsNotNeeded(t *testing.T) {
	old := leads(t, "")
	deletePod(t, old)
	next := leads(t, old.Metadata.Name)
	crash(t, storePods(t, storeName)["box-master-3"])
	f.clients.goOn(t, "clients go on at the dead master's tablets", 10)
	if now := leads(t, ""); now.Metadata.Name != next.Metadata.Name {
		t.Errorf("%s leads, after %s", now.Metadata.Name, next.Metadata.Name)
	}
}

func (f *failover) operatorIsBack(t *testing.T) {
	kubectl(t, "scale", "-n", operatorNamespace, "deployment", "--all", "--replicas=1")
	store := waitUntilSafeWithStandby(t)
	if store.Status.LossCount != 0 {
		t.Errorf("losses %+v", store.Status.Losses)
	}
}
