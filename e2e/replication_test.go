package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	replicatedSpec = `apiVersion: rcbox.dev/v1alpha1
kind: Store
metadata: {name: box}
spec:
  masters: {replicas: 4, memory: 256Mi, resources: {requests: {cpu: 100m}}}
  replication: {factor: 2}
  backups: {storage: {size: 512Mi}}
  coordinator: {state: {type: Volume, size: 64Mi}}
  placement:
    tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
`
	// patience is for how many seconds a write is tried: as long as everything may be down.
	patience = 300
	// promptly is for how many seconds a read is tried at a master that nothing happened to.
	promptly = 10
)

// replicatedBox is what one step leaves for the next.
type replicatedBox struct {
	// writes is the traffic of acknowledged writes, of keys k0, k1, ... with values v0, v1, ...
	writes *traffic
	acked  int
	claims map[string]string
}

// TestReplicatedBox is the life of a Store with two copies of everything on four nodes. Traffic runs all the time, and no
// acknowledged write is lost, whatever ends.
func TestReplicatedBox(t *testing.T) {
	namespacesAreThere(t)
	box := &replicatedBox{}
	inOrder(t, []step{
		{"OperatorRuns", operatorRuns},
		{"ReplicatedStoreBecomesSafe", box.becomesSafe},
		{"TrafficRuns", func(step *testing.T) { box.startWrites(step, t) }},
		{"KilledMasterIsRecovered", box.killedMasterIsRecovered},
		{"DeletedPodComesBackWithItsVolume", box.deletedPodComesBackWithItsVolume},
		{"DeletedCoordinatorForgetsNothing", box.deletedCoordinatorForgetsNothing},
		{"MoreIsLostThanCopiesSurvive", box.moreIsLostThanCopiesSurvive},
		{"AllPodsDeletedAtOnce", box.allPodsDeletedAtOnce},
		{"StoreMadeAnewFindsEverything", box.storeMadeAnewFindsEverything},
		{"StoreSleepsAndWakesUp", box.storeSleepsAndWakesUp},
		{"ReclaimPolicyDeleteLeavesNoVolume", box.reclaimPolicyDeleteLeavesNoVolume},
	})
}

// waitUntilSafe waits until everything serves and has its copies; nothing may have been lost.
func waitUntilSafe(t *testing.T, what string) v1alpha1.Store {
	t.Helper()
	// The Store's status is younger than what happened only some time after it: the coordinator is asked first.
	eventually(t, what+", says its coordinator", startDeadline, coordinatorSaysSafe(t))
	store := waitForStore(t, what, startDeadline, func(store v1alpha1.Store) error {
		return errors.Join(
			conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionTrue, ""),
			conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated))
	})
	if store.Status.LossCount != 0 {
		t.Fatalf("%s: losses %+v", what, store.Status.Losses)
	}
	return store
}

// inCoordinator runs the command line client in the pod of the coordinator that leads: the admin API is open to that, to members and to
// the operator, and to no other pod.
func inCoordinator(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	coordinator := storePods(t, storeName)["box-coordinator"]
	if _, several := get[podObject](t, "endpointslice", namespaceOf(t), storeName+"-leader"); several {
		var err error
		if coordinator, err = leader(t); err != nil {
			return "", err
		}
	}
	command := []string{"exec", "-n", namespaceOf(t), coordinator.Metadata.Name, "--", "rcbox", "-C", "tcp:host=127.0.0.1,port=11100"}
	got, err := run(settings.kubectl, "", append(command, arguments...)...)
	if err == nil && got.exitCode != 0 {
		err = fmt.Errorf("exit code %d: %s%s", got.exitCode, got.stdout, got.stderr)
	}
	return got.stdout, err
}

// coordinatorSaysSafe: as many masters as asked for are connected and serve, no recovery is under way, and no segment lacks a copy.
func coordinatorSaysSafe(t *testing.T) func() error {
	t.Helper()
	masters := int(readStore(t).Spec.Masters.Replicas)
	return func() error {
		text, err := inCoordinator(t, "status", "--json")
		if err != nil {
			return err
		}
		var status struct {
			Members []struct {
				Name   string `json:"name"`
				Shards []struct {
					Connected     bool `json:"connected"`
					Serving       bool `json:"serving"`
					SegmentsShort int  `json:"segmentsShort"`
				} `json:"shards"`
			} `json:"members"`
			Recoveries []struct {
				Member      string `json:"member"`
				TabletsLeft int    `json:"tabletsLeft"`
			} `json:"recoveries"`
		}
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			return fmt.Errorf("%w in %s", err, text)
		}
		if len(status.Members) != masters {
			return fmt.Errorf("%d members", len(status.Members))
		}
		for _, member := range status.Members {
			for _, shard := range member.Shards {
				if !shard.Connected || !shard.Serving || shard.SegmentsShort > 0 {
					return fmt.Errorf("%s: %+v", member.Name, shard)
				}
			}
		}
		for _, recovery := range status.Recoveries {
			if recovery.TabletsLeft > 0 {
				return fmt.Errorf("recovery of %s: %d tablets left", recovery.Member, recovery.TabletsLeft)
			}
		}
		return nil
	}
}

// claimUIDs are the Store's volume claims.
func claimUIDs(t *testing.T) map[string]string {
	t.Helper()
	uids := map[string]string{}
	for _, claim := range list[podObject](t, "persistentvolumeclaims", namespaceOf(t), "-l", v1alpha1.LabelStore+"="+storeName) {
		uids[claim.Metadata.Name] = claim.Metadata.UID
	}
	return uids
}

func (b *replicatedBox) becomesSafe(t *testing.T) {
	apply(t, replicatedSpec)
	store := waitUntilSafe(t, "the Store is safe")
	if store.Status.Durability != v1alpha1.DurabilityBuffered || store.Status.Replication.Factor != 2 ||
		store.Status.Replication.CoordinatorState != v1alpha1.StateVolume {
		t.Errorf("in force: %s, %+v", store.Status.Durability, store.Status.Replication)
	}
	var nodes []string
	for member, pod := range storePods(t, storeName) {
		if strings.Contains(member, "-master-") {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	if len(slices.Compact(nodes)) != 4 {
		t.Errorf("four masters are on nodes %v", nodes)
	}
	b.claims = claimUIDs(t)
	if len(b.claims) != 5 {
		t.Errorf("claims are %v, want one for each master and the coordinator's", b.claims)
	}
}

// startWrites writes over all masters, as long as the whole test takes; each key is acknowledged before the next is written.
func (b *replicatedBox) startWrites(t, whole *testing.T) {
	writer := openSession(t, whole, "writer", patience)
	writer.mustAsk(t, 1, "create-table traffic --span 4")
	b.writes = startTraffic(writer, func(i int) string { return fmt.Sprintf("put traffic k%d v%d", i, i) })
	b.writes.goesOn(t, "writes are acknowledged", 200)
}

// verify reads everything that was acknowledged.
func (b *replicatedBox) verify(t *testing.T, pod string) {
	t.Helper()
	reader := openSession(t, t, pod, patience)
	const atOnce = 100
	for from := 0; from < b.acked; from += atOnce {
		// Never a single one, whose answer would be the value alone: the first key is asked for each time.
		to := min(from+atOnce, b.acked)
		answer := reader.mustAsk(t, 1+to-from, joined("get traffic k0", from, to))
		for i, line := range answer[1:] {
			if want := fmt.Sprintf("k%d\tv%d", from+i, from+i); line != want {
				t.Fatalf("of %d acknowledged writes, one reads %q, not %q", b.acked, line, want)
			}
		}
	}
	t.Logf("%d acknowledged writes are all there", b.acked)
}

// elsewhere makes a table whose only tablet is not at this member, with one object in it.
func elsewhere(t *testing.T, s *session, member string) string {
	t.Helper()
	type tablet struct {
		Member string `json:"member"`
	}
	var tables []struct {
		Name    string   `json:"name"`
		Tablets []tablet `json:"tablets"`
	}
	// Tables go to one member after the other.
	for i := range 2 {
		name := fmt.Sprintf("beside-%s-%d", member, i)
		s.mustAsk(t, 1, "create-table "+name)
		s.mustAsk(t, 1, "put "+name+" key value")
	}
	text, err := inCoordinator(t, "tables", "--json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &tables); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	for _, table := range tables {
		if strings.HasPrefix(table.Name, "beside-"+member) && len(table.Tablets) == 1 && table.Tablets[0].Member != member {
			return table.Name
		}
	}
	t.Fatalf("no table is elsewhere than at %s:\n%s", member, text)
	return ""
}

// killedMasterIsRecovered: signal 9 to a master under writes. What it held comes back at others without a pod being made; reads
// at another master go on all the while, each within its time.
func (b *replicatedBox) killedMasterIsRecovered(t *testing.T) {
	const victim = "box-master-1"
	reader := openSession(t, t, "reader", promptly)
	table := elsewhere(t, reader, victim)
	reads := startTraffic(reader, func(int) string { return "get " + table + " key" })
	reads.goesOn(t, "reads are answered", 50)

	pod := storePods(t, storeName)[victim]
	crash(t, pod)
	reads.goesOn(t, "reads beside the dead master go on", 200)
	// Keys are spread over all masters: without the dead one's part, writes would stop at the next key of it.
	b.writes.goesOn(t, "writes go on at the dead master's tablets", 200)
	waitForStore(t, "the recovery is told of", changeDeadline, func(store v1alpha1.Store) error {
		for _, recovery := range store.Status.Recoveries {
			if recovery.Member == victim && recovery.TabletsLeft == 0 && recovery.MeasuredMs > 0 {
				return nil
			}
		}
		return fmt.Errorf("recoveries %+v", store.Status.Recoveries)
	})
	waitUntilSafe(t, "everything has its copies again")
	reads.end(t)
	now := storePods(t, storeName)[victim]
	if now.Metadata.UID != pod.Metadata.UID || now.Status.ContainerStatuses[0].RestartCount == 0 {
		t.Errorf("pod %s after the kill: want the same one, its container restarted in place", now.Metadata.Name)
	}
}

func (b *replicatedBox) deletedPodComesBackWithItsVolume(t *testing.T) {
	const victim = "box-master-2"
	old := storePods(t, storeName)[victim]
	kubectl(t, "delete", "pod", "-n", namespaceOf(t), old.Metadata.Name, "--wait=false")
	b.writes.goesOn(t, "writes go on", 200)
	eventually(t, "another pod takes its place", startDeadline, func() error {
		now := storePods(t, storeName)[victim]
		if now.Metadata.UID == "" || now.Metadata.UID == old.Metadata.UID {
			return errors.New("not yet")
		}
		if statuses := now.Status.ContainerStatuses; len(statuses) == 0 || !statuses[0].Ready {
			return fmt.Errorf("%s is not ready", now.Metadata.Name)
		}
		return nil
	})
	waitUntilSafe(t, "everything has its copies again")
	b.sameClaims(t)
}

func (b *replicatedBox) sameClaims(t *testing.T) {
	t.Helper()
	for name, uid := range claimUIDs(t) {
		if b.claims[name] != uid {
			t.Errorf("claim %s is another than before", name)
		}
	}
}

func (b *replicatedBox) deletedCoordinatorForgetsNothing(t *testing.T) {
	before := readStore(t)
	masters := fingerprints(storePods(t, storeName))
	pod := storePods(t, storeName)["box-coordinator"]
	kubectl(t, "delete", "pod", "-n", namespaceOf(t), pod.Metadata.Name, "--wait=false")
	eventually(t, "another coordinator runs", startDeadline, func() error {
		if now := storePods(t, storeName)["box-coordinator"]; now.Metadata.UID == "" || now.Metadata.UID == pod.Metadata.UID {
			return errors.New("not yet")
		}
		return nil
	})
	after := waitUntilSafe(t, "the Store is safe again")
	if after.Status.ClusterID != before.Status.ClusterID || after.Status.Tables != before.Status.Tables {
		t.Errorf("store %s with %d tables became %s with %d",
			before.Status.ClusterID, before.Status.Tables, after.Status.ClusterID, after.Status.Tables)
	}
	now := fingerprints(storePods(t, storeName))
	delete(masters, "box-coordinator")
	delete(now, "box-coordinator")
	unchanged(t, masters, now)
	b.writes.goesOn(t, "writes go on", 50)
}

// moreIsLostThanCopiesSurvive: three masters of four cannot be anywhere. Nothing is given up, the Store says who is missed, and everything
// is there again when they are.
func (b *replicatedBox) moreIsLostThanCopiesSurvive(t *testing.T) {
	const taint = "rcbox.dev/e2e-closed"
	open := func() { kubectl(t, "taint", "nodes", "--all", taint+"-") }
	kubectl(t, "taint", "nodes", "--all", taint+"=:NoSchedule")
	isOpen := false
	defer func() {
		if !isOpen {
			open()
		}
	}()
	pods := storePods(t, storeName)
	missed := []string{"box-master-0", "box-master-1", "box-master-2"}
	// At once: one after the other, the last one would have everything.
	arguments := []string{"delete", "pods", "-n", namespaceOf(t), "--wait=false", "--grace-period=1"}
	for _, member := range missed {
		arguments = append(arguments, pods[member].Metadata.Name)
	}
	kubectl(t, arguments...)
	waitForStore(t, "the Store says who is missed", startDeadline, func(store v1alpha1.Store) error {
		safe := meta.FindStatusCondition(store.Status.Conditions, v1alpha1.ConditionDataSafe)
		if safe == nil || safe.Status != metav1.ConditionFalse {
			return fmt.Errorf("DataSafe is %+v", safe)
		}
		for _, member := range missed {
			if !strings.Contains(safe.Message, member) {
				return fmt.Errorf("DataSafe says nothing of %s: %s", member, safe.Message)
			}
		}
		return conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionFalse, "")
	})
	b.sameClaims(t)
	open()
	isOpen = true
	waitUntilSafe(t, "the Store is safe again")
	b.sameClaims(t)
	b.writes.goesOn(t, "writes go on", 50)
}

// allPodsDeletedAtOnce, as by a power failure, the operator's too: nothing is left in any memory, every process has another address, and
// everything comes back from the volumes.
func (b *replicatedBox) allPodsDeletedAtOnce(t *testing.T) {
	old := storePods(t, storeName)
	kubectl(t, "delete", "pods", "-n", namespaceOf(t), "-l", v1alpha1.LabelStore+"="+storeName, "--wait=false")
	kubectl(t, "delete", "pods", "-n", operatorNamespace, "-l", "app.kubernetes.io/name=rcbox-operator", "--wait=false")
	eventually(t, "all pods are others", startDeadline, func() error {
		now := storePods(t, storeName)
		for member, pod := range old {
			if uid := now[member].Metadata.UID; uid == "" || uid == pod.Metadata.UID {
				return fmt.Errorf("%s has pod %q", member, now[member].Metadata.Name)
			}
		}
		return nil
	})
	waitUntilSafe(t, "the Store is safe again")
	b.sameClaims(t)
	moved := 0
	for member, pod := range storePods(t, storeName) {
		if pod.Status.PodIP != old[member].Status.PodIP {
			moved++
		}
	}
	t.Logf("%d of %d pods have another address", moved, len(old))
	b.writes.goesOn(t, "writes go on", 50)
	b.acked = b.writes.end(t)
	b.verify(t, "verify-cold-start")
}

func (b *replicatedBox) storeMadeAnewFindsEverything(t *testing.T) {
	kubectl(t, "delete", "store", storeName, "-n", namespaceOf(t), "--timeout=180s")
	b.sameClaims(t)
	if len(claimUIDs(t)) != len(b.claims) {
		t.Errorf("claims are %v, before %v", claimUIDs(t), b.claims)
	}
	apply(t, replicatedSpec)
	waitUntilSafe(t, "the Store is safe again")
	b.verify(t, "verify-made-anew")
}

// storeSleepsAndWakesUp: nothing of it runs, and afterwards everything is there.
func (b *replicatedBox) storeSleepsAndWakesUp(t *testing.T) {
	hibernated := func(value string) {
		kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p", `{"spec":{"hibernated":`+value+`}}`)
	}
	hibernated("true")
	waitForStore(t, "it sleeps", changeDeadline, func(store v1alpha1.Store) error {
		if pods := storePods(t, storeName); len(pods) > 0 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return errors.Join(
			conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonHibernated),
			conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonHibernated))
	})
	hibernated("false")
	waitForStore(t, "it is awake", startDeadline, func(store v1alpha1.Store) error {
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
	waitUntilSafe(t, "the Store is safe again")
	b.sameClaims(t)
	b.verify(t, "verify-awake")
}

func (b *replicatedBox) reclaimPolicyDeleteLeavesNoVolume(t *testing.T) {
	kubectl(t, "patch", "store", storeName, "-n", namespaceOf(t), "--type=merge", "-p", `{"spec":{"reclaimPolicy":"Delete"}}`)
	nothingOfTheStoreIsLeft(t)
	eventually(t, "no volume claim is left", changeDeadline, func() error {
		if left := claimUIDs(t); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}
