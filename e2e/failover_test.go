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

// apiServerAway is how long there is no API server.
const apiServerAway = time.Minute

// TestCoordinatorFailover is the life of a Store with a standby. Writes run all the time over all masters; no acknowledged one is
// lost, and no master's process ends.
func TestCoordinatorFailover(t *testing.T) {
	namespacesAreThere(t)
	box := &replicatedBox{}
	for _, step := range []struct {
		name string
		test func(*testing.T)
	}{
		{"HelmInstalls", helmInstalls},
		{"StoreWithAStandbyBecomesSafe", storeWithAStandbyBecomesSafe},
		{"TrafficRuns", func(step *testing.T) { box.startWrites(step, t) }},
		{"DeletedLeaderIsFollowed", func(t *testing.T) { box.leaderIsFollowed(t, deletePod) }},
		{"KilledLeaderIsFollowed", func(t *testing.T) { box.leaderIsFollowed(t, killPod) }},
		{"OperatorIsNotNeeded", box.operatorIsNotNeeded},
		{"OutdatedCoordinatorsAreReplaced", box.outdatedCoordinatorsAreReplaced},
		{"NothingWasLost", box.nothingWasLost},
		{"ApiServerIsNotNeededForReadsAndWrites", apiServerIsNotNeeded},
		{"UninstallLeavesNothing", uninstallLeavesNothing},
	} {
		if !t.Run(step.name, step.test) {
			diagnose(t)
			t.FailNow()
		}
	}
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
	eventually(t, "all pods but the standby's are ready", changeDeadline, func() error {
		var wrong []string
		for _, pod := range storePods(t, storeName) {
			if isReady := pod.Status.ContainerStatuses[0].Ready; isReady != (pod.Metadata.Name != coordinator.Standbys[0].Pod) {
				wrong = append(wrong, fmt.Sprintf("%s is ready: %v", pod.Metadata.Name, isReady))
			}
		}
		if len(wrong) > 0 {
			return errors.New(strings.Join(wrong, ", "))
		}
		return nil
	})
	root := kubectl(t, "get", "configmap", storeName+"-state-root", "-n", namespace, "-o", "jsonpath={.metadata.finalizers}")
	if !strings.Contains(root, v1alpha1.FinalizerState) {
		t.Errorf("finalizers of the root are %s", root)
	}
}

// leads waits until the Store is told to be led by a pod that is ready and is not the one given.
func leads(t *testing.T, notThis string) string {
	t.Helper()
	var name string
	eventually(t, "a coordinator leads", startDeadline, func() error {
		for member, pod := range storePods(t, storeName) {
			isCoordinator := strings.HasPrefix(member, "box-coordinator")
			if statuses := pod.Status.ContainerStatuses; isCoordinator && len(statuses) > 0 && statuses[0].Ready {
				if name = pod.Metadata.Name; name != notThis {
					return nil
				}
			}
		}
		return errors.New("nobody is ready")
	})
	return name
}

func deletePod(t *testing.T, pod podObject) {
	t.Helper()
	kubectl(t, "delete", "pod", "-n", namespace, pod.Metadata.Name, "--wait=false")
}

// killPod ends it without a word, and its pod with it: the next process in the pod would lead again.
func killPod(t *testing.T, pod podObject) {
	t.Helper()
	kubectl(t, "delete", "pod", "-n", namespace, pod.Metadata.Name, "--grace-period=0", "--force")
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

// leaderIsFollowed: writes go on, another one leads the same store, and new tables can be made.
func (b *replicatedBox) leaderIsFollowed(t *testing.T, end func(*testing.T, podObject)) {
	before, masters := readStore(t), mastersPrints(t)
	var leader podObject
	for _, pod := range storePods(t, storeName) {
		if pod.Metadata.Name == before.Status.Coordinator.Pod {
			leader = pod
		}
	}
	end(t, leader)
	b.writes.goesOn(t, "writes go on", 100)
	leads(t, leader.Metadata.Name)
	client := openSession(t, t, "tables-"+leader.Metadata.UID[:8], patience)
	client.mustAsk(t, 1, "create-table after-"+leader.Metadata.UID[:8])
	waitForStore(t, "the standby leads, and another one stands by", startDeadline, func(store v1alpha1.Store) error {
		coordinator := store.Status.Coordinator
		if coordinator.Term <= before.Status.Coordinator.Term || coordinator.Pod == leader.Metadata.Name {
			return fmt.Errorf("coordinator %+v", coordinator)
		}
		if len(coordinator.Standbys) != 1 || !coordinator.Standbys[0].Running {
			return fmt.Errorf("standbys %+v", coordinator.Standbys)
		}
		return errors.Join(
			conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionTrue, ""),
			conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated))
	})
	after := readStore(t)
	if after.Status.ClusterID != before.Status.ClusterID || after.Status.LossCount != 0 {
		t.Errorf("store %s became %s, losses %+v", before.Status.ClusterID, after.Status.ClusterID, after.Status.Losses)
	}
	unchanged(t, masters, mastersPrints(t))
	b.writes.goesOn(t, "writes go on", 50)
}

// operatorIsNotNeeded: without it a standby leads all the same, and a dead master is recovered.
func (b *replicatedBox) operatorIsNotNeeded(t *testing.T) {
	leader := leads(t, "")
	kubectl(t, "scale", "-n", operatorNamespace, "deployment", "--all", "--replicas=0")
	eventually(t, "the operator is gone", changeDeadline, func() error {
		if pods := list[podObject](t, "pods", operatorNamespace); len(pods) > 0 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	kubectl(t, "delete", "pod", "-n", namespace, leader, "--wait=false")
	next := leads(t, leader)
	crash(t, storePods(t, storeName)["box-master-3"])
	b.writes.goesOn(t, "writes go on at the dead master's tablets", 200)
	if now := leads(t, ""); now != next {
		t.Errorf("%s leads, after %s", now, next)
	}
	kubectl(t, "scale", "-n", operatorNamespace, "deployment", "--all", "--replicas=1")
	waitForStore(t, "everything is as it was", startDeadline, func(store v1alpha1.Store) error {
		if len(store.Status.Coordinator.Standbys) != 1 || !store.Status.Coordinator.Standbys[0].Running {
			return fmt.Errorf("standbys %+v", store.Status.Coordinator.Standbys)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
}

func (b *replicatedBox) outdatedCoordinatorsAreReplaced(t *testing.T) {
	before, masters := storePods(t, storeName), mastersPrints(t)
	kubectl(t, "patch", "store", storeName, "-n", namespace, "--type=merge", "-p",
		`{"spec":{"coordinator":{"resources":{"requests":{"cpu":"50m","memory":"256Mi"},"limits":{"memory":"256Mi"}}}}}`)
	waitForStore(t, "both are others", startDeadline, func(store v1alpha1.Store) error {
		now := storePods(t, storeName)
		for _, member := range []string{"box-coordinator", "box-coordinator-1"} {
			if uid := now[member].Metadata.UID; uid == "" || uid == before[member].Metadata.UID {
				return fmt.Errorf("%s is still the same", member)
			}
		}
		return conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	})
	unchanged(t, masters, mastersPrints(t))
	b.writes.goesOn(t, "writes go on", 50)
}

func (b *replicatedBox) nothingWasLost(t *testing.T) {
	b.acked = b.writes.end(t)
	b.verify(t, "verify-failover")
}

// apiServerIsNotNeeded: it stands still for a minute, and a client that has begun before reads and writes meanwhile. Afterwards the
// same coordinator leads.
func apiServerIsNotNeeded(t *testing.T) {
	leader, masters := leads(t, ""), mastersPrints(t)
	var nodes []string
	for _, node := range list[podObject](t, "nodes", "", "-l", "node-role.kubernetes.io/control-plane") {
		nodes = append(nodes, node.Metadata.Name)
	}
	signal := func(name string) {
		for _, node := range nodes {
			must(t, setting("RCBOX_DOCKER", "docker"), "", "exec", node, "sh", "-c", "kill -"+name+" $(pidof kube-apiserver)")
		}
	}
	client := nodeSession(t, storePods(t, storeName)["box-master-0"], patience)
	client.mustAsk(t, 1, "create-table away --span 4")
	traffic := startTraffic(client, func(i int) string {
		if i%2 == 0 {
			return fmt.Sprintf("put away k%d v%d", i, i)
		}
		return fmt.Sprintf("get away k%d", i-1)
	})
	traffic.goesOn(t, "a client reads and writes", 50)
	t.Cleanup(func() { signal("CONT") })
	signal("STOP")
	time.Sleep(apiServerAway) //nolint:forbidigo // nothing can be asked meanwhile
	traffic.goesOn(t, "a client reads and writes after a minute without API server", 200)
	signal("CONT")
	traffic.end(t)
	if now := leads(t, ""); now != leader {
		t.Errorf("%s leads, after %s", now, leader)
	}
	unchanged(t, masters, mastersPrints(t))
}
