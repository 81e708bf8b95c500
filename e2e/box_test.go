// Package e2e drives a whole cluster the way its users do: Helm, kubectl, and clients in pods.
//
// It needs a cluster of its own with the images loaded; `make e2e` provides both and says where they are through the
// environment: KUBECONFIG, RCBOX_KUBECTL, RCBOX_HELM, RCBOX_PLUGIN, RCBOX_CLI, RCBOX_PYTHON_PACKAGE, RCBOX_STORE_IMAGE,
// RCBOX_OPERATOR_IMAGE, RCBOX_RECORDER_IMAGE.
package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	operatorNamespace = "rcbox-system"
	storeName         = "box"

	// Liveness deadlines: ten times what is typical and more. A pass does not wait for them.
	startDeadline  = 8 * time.Minute
	changeDeadline = 4 * time.Minute
)

var settings struct {
	kubectl, helm                            string
	storeImage, operatorImage, recorderImage string
}

func TestMain(m *testing.M) {
	settings.kubectl = setting("RCBOX_KUBECTL", "kubectl")
	settings.helm = setting("RCBOX_HELM", "helm")
	settings.storeImage = os.Getenv("RCBOX_STORE_IMAGE")
	settings.operatorImage = os.Getenv("RCBOX_OPERATOR_IMAGE")
	settings.recorderImage = os.Getenv("RCBOX_RECORDER_IMAGE")
	if os.Getenv("KUBECONFIG") == "" || settings.storeImage == "" || settings.operatorImage == "" || settings.recorderImage == "" {
		fmt.Fprintln(os.Stderr, "e2e: no cluster: run `make e2e`, or set KUBECONFIG and the images, as hack/e2e.sh does")
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestBox is the life of one Store, in order: each step finds the box as the one before left it, and the first that
// fails ends it.
func TestBox(t *testing.T) {
	namespacesAreThere(t)
	if left := kubectl(t, "get", "crd", "stores.rcbox.dev", "--ignore-not-found", "-o", "name"); left != "" {
		t.Fatal("an earlier test left what it installed; end that cluster with `hack/cluster.sh down rcbox-e2e` first")
	}
	laptop := &proxied{namespace: namespaceOf(t), store: storeName}
	inOrder(t, []step{
		{"HelmInstalls", helmInstalls},
		{"BadSpecsAreRefused", badSpecsAreRefused},
		{"AppliedStoreBecomesAvailable", appliedStoreBecomesAvailable},
		{"ProxyLetsInClientsOfThisMachine", func(step *testing.T) { laptop.letsIn(step, t) }},
		{"ProxyLetsInPython", laptop.letsInPython},
		{"ProxiedTableIsDropped", func(t *testing.T) { laptop.rcbox(t, "drop-table", laptopTable) }},
		{"ClientInAPodReadsAndWrites", clientInAPodReadsAndWrites},
		{"ClusterPerfRuns", clusterPerfRuns},
		{"ClusterPerfKeepsFigures", clusterPerfKeepsFigures},
		{"ScalesOutWhileOperatorRestarts", scalesOutWhileOperatorRestarts},
		{"OperatorUpgradeRestartsNothing", operatorUpgradeRestartsNothing},
		{"ScalesInWithItsTablets", func(t *testing.T) { scalesInWithItsTablets(t, laptop) }},
		{"DeletedMasterComesBackEmpty", deletedMasterComesBackEmpty},
		{"CrashedMasterComesBackEmpty", crashedMasterComesBackEmpty},
		{"DeletedCoordinatorComesBackEmpty", deletedCoordinatorComesBackEmpty},
		{"ScalesInWithoutTables", scalesInWithoutTables},
		{"UninstallLeavesNothing", uninstallLeavesNothing},
	})
}

func installOrUpgrade(t *testing.T, more ...string) {
	t.Helper()
	operator, store := splitImage(t, settings.operatorImage), splitImage(t, settings.storeImage)
	helm(t, append([]string{
		"upgrade", "--install", "rcbox", "../charts/rcbox", "-n", operatorNamespace, "--wait", "--timeout", "2m",
		"--set", "image.repository=" + operator[0], "--set", "image.tag=" + operator[1],
		"--set", "storeImage.repository=" + store[0], "--set", "storeImage.tag=" + store[1],
		"--set", "allow.capabilities={NET_ADMIN,NET_RAW}", // for DPDK on interfaces of the kernel
	}, more...)...)
}

func splitImage(t *testing.T, image string) [2]string {
	t.Helper()
	colon := strings.LastIndex(image, ":")
	if colon < 0 {
		t.Fatalf("image %q has no tag", image)
	}
	return [2]string{image[:colon], image[colon+1:]}
}

// operatorRuns: TestBox has tried how it is installed and uninstalled; for the tests after it, it stays.
func operatorRuns(t *testing.T) { installOrUpgrade(t) }

func helmInstalls(t *testing.T) {
	installOrUpgrade(t)
	// Again: nothing to change, and no error.
	installOrUpgrade(t)
	kubectl(t, "wait", "--for=condition=Established", "crd/stores.rcbox.dev", "--timeout=60s")
}

func appliedStoreBecomesAvailable(t *testing.T) {
	// A coordinator that forgets, so that its loss can be seen.
	apply(t, "apiVersion: rcbox.dev/v1alpha1\nkind: Store\nmetadata: {name: box}\n"+
		"spec: {masters: {replicas: 2, memory: 512Mi}, replication: {factor: 0}, coordinator: {state: {type: Memory}}}\n")
	store := waitForStore(t, "Available", startDeadline, func(store v1alpha1.Store) error {
		return conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
	})
	if err := conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionFalse, v1alpha1.ReasonUnreplicated); err != nil {
		t.Error(err)
	}
	for _, kind := range []string{
		v1alpha1.ConditionAvailable, v1alpha1.ConditionProgressing, v1alpha1.ConditionDegraded, v1alpha1.ConditionDataSafe,
	} {
		if meta.FindStatusCondition(store.Status.Conditions, kind) == nil {
			t.Errorf("condition %s is missing", kind)
		}
	}
	if want := locator(t); store.Status.Locator != want {
		t.Errorf("locator %q, want %q", store.Status.Locator, want)
	}
	pods := storePods(t, storeName)
	if len(pods) != 3 {
		t.Errorf("pods %v, want a coordinator and two masters", fingerprints(pods))
	}
	if a, b := pods["box-master-0"].Spec.NodeName, pods["box-master-1"].Spec.NodeName; a == b {
		t.Errorf("both masters are on node %s though there are three", a)
	}
	columns := kubectl(t, "get", "rcs", "-n", namespaceOf(t))
	for _, want := range []string{"box", "Unreplicated", locator(t)} {
		if !strings.Contains(columns, want) {
			t.Errorf("kubectl get rcs does not show %q:\n%s", want, columns)
		}
	}
}

// rcbox is the command of a client of the test's own Store.
func rcbox(t *testing.T, arguments ...string) []string {
	return append([]string{"rcbox", "-C", locator(t)}, arguments...)
}

func mustClient(t *testing.T, pod string, command ...string) string {
	t.Helper()
	got := clientPod(t, pod, changeDeadline, command...)
	if got.exitCode != 0 {
		t.Fatalf("%s: exit code %d\n%s", strings.Join(command, " "), got.exitCode, got.stdout)
	}
	return got.stdout
}

func clientInAPodReadsAndWrites(t *testing.T) {
	mustClient(t, "create-table", rcbox(t, "create-table", "greetings", "--span", "2")...)
	mustClient(t, "put", rcbox(t, "put", "greetings", "hello", "world")...)
	if got := mustClient(t, "get", rcbox(t, "get", "greetings", "hello")...); strings.TrimSpace(got) != "world" {
		t.Errorf("get answers %q, want %q", got, "world")
	}
	absent := clientPod(t, "get-absent", changeDeadline, rcbox(t, "get", "greetings", "nobody")...)
	if absent.exitCode != 1 || absent.stdout == "" {
		t.Errorf("get of an absent key: exit code %d, output %q; want 1 and a text", absent.exitCode, absent.stdout)
	}
	waitForStore(t, "status shows the table's tablets", changeDeadline, func(store v1alpha1.Store) error {
		for _, member := range store.Status.Masters.Members {
			if member.Tablets != 1 {
				return fmt.Errorf("%s has %d tablets, want 1", member.Name, member.Tablets)
			}
		}
		return nil
	})
}

func clusterPerfRuns(t *testing.T) {
	out := mustClient(t, "clusterperf", "clusterperf", "-C", locator(t), "--numClients", "1", "basic")
	for _, want := range []string{"basic.read100", "basic.readBw100", "basic.write100", "basic.read1M", "basic.write1M"} {
		if !strings.Contains(out, want) {
			t.Errorf("no line %s in\n%s", want, out)
		}
	}
}

func scalesOutWhileOperatorRestarts(t *testing.T) {
	before := fingerprints(storePods(t, storeName))
	startClientPod(t, "traffic", "clusterperf", "-C", locator(t), "--numClients", "1", "basic")
	kubectl(t, "scale", "store/box", "-n", namespaceOf(t), "--replicas=3")
	kubectl(t, "delete", "pods", "-n", operatorNamespace, "--all", "--wait=false")
	waitForStore(t, "third master serves", startDeadline, func(store v1alpha1.Store) error {
		if store.Status.Masters.Ready != 3 || len(store.Status.Masters.Members) != 3 {
			return fmt.Errorf("%d of %d masters ready", store.Status.Masters.Ready, store.Status.Masters.Replicas)
		}
		return conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
	})
	if got := finishClientPod(t, "traffic", changeDeadline); got.exitCode != 0 {
		t.Errorf("a client met an error meanwhile: exit code %d\n%s", got.exitCode, got.stdout)
	}
	unchanged(t, before, fingerprints(storePods(t, storeName)))
	mustClient(t, "create-wide", rcbox(t, "create-table", "wide", "--span", "3")...)
	waitForStore(t, "the new master has its part of a new table", changeDeadline, func(store v1alpha1.Store) error {
		for _, member := range store.Status.Masters.Members {
			// Parts of tables that were there before have moved to it as well, where balancing had a reason.
			if member.Name == "box-master-2" && member.Tablets >= 1 {
				return nil
			}
		}
		return fmt.Errorf("members %+v", store.Status.Masters.Members)
	})
	if got := mustClient(t, "get-after", rcbox(t, "get", "greetings", "hello")...); strings.TrimSpace(got) != "world" {
		t.Errorf("get answers %q after scaling, want %q", got, "world")
	}
}

func operatorUpgradeRestartsNothing(t *testing.T) {
	before := fingerprints(storePods(t, storeName))
	operators := podUIDs(t, operatorNamespace)
	// A new operator pod, whose default for new stores is another store image: a running store keeps what it has.
	installOrUpgrade(t, "--set", "resources.requests.memory=80Mi", "--set", "storeImage.tag=another")
	eventually(t, "the operator's pod is a new one", changeDeadline, func() error {
		for _, uid := range podUIDs(t, operatorNamespace) {
			if slices.Contains(operators, uid) {
				return fmt.Errorf("pod %s is still there", uid)
			}
		}
		return nil
	})
	// The new operator has looked at the store once it carries out a change that needs no restart.
	kubectl(t, "label", "store/box", "-n", namespaceOf(t), "e2e=upgraded")
	leaderIsNew(t)
	waitForStore(t, "as specified", changeDeadline, func(store v1alpha1.Store) error {
		return conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	})
	unchanged(t, before, fingerprints(storePods(t, storeName)))
}

// leaderIsNew waits until the present operator pod holds the leader Lease: only then does it act.
func leaderIsNew(t *testing.T) {
	t.Helper()
	type lease struct {
		Spec struct {
			HolderIdentity string `json:"holderIdentity"`
		} `json:"spec"`
	}
	eventually(t, "the new operator leads", changeDeadline, func() error {
		pods := list[podObject](t, "pods", operatorNamespace)
		for _, candidate := range list[lease](t, "leases", operatorNamespace) {
			for _, pod := range pods {
				if pod.Metadata.DeletionTimestamp == "" && strings.HasPrefix(candidate.Spec.HolderIdentity, pod.Metadata.Name) {
					return nil
				}
			}
		}
		return errors.New("no present pod holds a lease")
	})
}

// wideKeys are enough for each of three masters to have some.
const wideKeys = 12

// scalesInWithItsTablets: without copies, too, a master that is not wanted any more gives its tablets away first, and nothing is lost.
func scalesInWithItsTablets(t *testing.T, laptop *proxied) {
	before := fingerprints(storePods(t, storeName))
	for key := range wideKeys {
		laptop.rcbox(t, "put", "wide", fmt.Sprint("key", key), "value")
	}
	if shown := laptop.rcbox(t, "tables"); !strings.Contains(shown, "box-master-2") {
		t.Errorf("no tablet is at box-master-2:\n%s", shown)
	}
	kubectl(t, "scale", "store/box", "-n", namespaceOf(t), "--replicas=2")
	store := waitForStore(t, "scaled in", changeDeadline, func(store v1alpha1.Store) error {
		if _, there := storePods(t, storeName)["box-master-2"]; there || len(store.Status.Masters.Members) != 2 {
			return fmt.Errorf("members %+v", store.Status.Masters.Members)
		}
		return conditionIs(store, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	})
	if store.Status.LossCount != 0 {
		t.Errorf("losses %+v", store.Status.Losses)
	}
	delete(before, "box-master-2")
	unchanged(t, before, fingerprints(storePods(t, storeName)))
	if keys := strings.Fields(laptop.rcbox(t, "scan", "wide", "--keys-only")); len(keys) != wideKeys {
		t.Errorf("table wide has the keys %v after scaling in, %d were written", keys, wideKeys)
	}
	if got := mustClient(t, "get-scaled", rcbox(t, "get", "greetings", "hello")...); strings.TrimSpace(got) != "world" {
		t.Errorf("get answers %q after scaling in, want %q", got, "world")
	}
	// Tablets of greetings may all be at one master now; of a new table each master has one.
	for _, table := range []string{"wide", "test", "greetings"} {
		laptop.rcbox(t, "drop-table", table)
	}
	clientInAPodReadsAndWrites(t)
}

// lossOf waits until the status tells of a loss beyond the first `seen` and the Store is Available again.
func lossOf(t *testing.T, cause v1alpha1.LossCause, member string, seen int64) v1alpha1.Store {
	t.Helper()
	return waitForStore(t, "loss of "+member+" is told, and the Store is Available again", startDeadline, func(store v1alpha1.Store) error {
		if err := conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionFalse, v1alpha1.ReasonDataLost); err != nil {
			return err
		}
		if store.Status.LossCount <= seen || len(store.Status.Losses) == 0 {
			return fmt.Errorf("loss count %d", store.Status.LossCount)
		}
		last := store.Status.Losses[len(store.Status.Losses)-1]
		if last.Cause != cause || last.Member != member {
			return fmt.Errorf("last loss is %s of %s", last.Cause, last.Member)
		}
		return conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
	})
}

func deletedMasterComesBackEmpty(t *testing.T) {
	seen := readStore(t).Status.LossCount
	old := storePods(t, storeName)
	// A table on each master has its key on one of them: delete both masters, one after the other, and it is gone.
	for _, member := range []string{"box-master-0", "box-master-1"} {
		kubectl(t, "delete", "pod", "-n", namespaceOf(t), old[member].Metadata.Name, "--wait=false")
		store := lossOf(t, v1alpha1.LossOfMember, member, seen)
		seen = store.Status.LossCount
		if last := store.Status.Losses[len(store.Status.Losses)-1]; !slices.Contains(last.Tables, "greetings") {
			t.Errorf("the loss names tables %v, want greetings", last.Tables)
		}
		now := storePods(t, storeName)[member]
		if now.Metadata.Name == old[member].Metadata.Name {
			t.Errorf("pod name %s was used again", now.Metadata.Name)
		}
	}
	if got := clientPod(t, "get-lost", changeDeadline, rcbox(t, "get", "greetings", "hello")...); got.exitCode != 1 {
		t.Errorf("a lost key: exit code %d, output %q; want 1", got.exitCode, got.stdout)
	}
	mustClient(t, "put-again", rcbox(t, "put", "greetings", "hello", "again")...)
}

func crashedMasterComesBackEmpty(t *testing.T) {
	seen := readStore(t).Status.LossCount
	kubectl(t, "annotate", "store/box", "-n", namespaceOf(t), "--overwrite",
		fmt.Sprintf("%s=%d", v1alpha1.AnnotationAcknowledgedLosses, seen))
	waitForStore(t, "losses are acknowledged", changeDeadline, func(store v1alpha1.Store) error {
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionFalse, v1alpha1.ReasonUnreplicated)
	})
	pod := storePods(t, storeName)["box-master-1"]
	crash(t, pod)
	lossOf(t, v1alpha1.LossOfMember, "box-master-1", seen)
	// The coordinator knows of the new process before the kubelet says so.
	eventually(t, "the pod is the same, and its container was restarted in place", changeDeadline, func() error {
		now := storePods(t, storeName)["box-master-1"]
		if now.Metadata.UID != pod.Metadata.UID || now.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("pod %s: %+v", now.Metadata.Name, now.Status.ContainerStatuses)
		}
		return nil
	})
}

func deletedCoordinatorComesBackEmpty(t *testing.T) {
	before := readStore(t)
	masters := fingerprints(storePods(t, storeName))
	pod := storePods(t, storeName)["box-coordinator"]
	kubectl(t, "delete", "pod", "-n", namespaceOf(t), pod.Metadata.Name, "--wait=false")
	after := lossOf(t, v1alpha1.LossOfCoordinator, "box-coordinator", before.Status.LossCount)
	if after.Status.ClusterID == before.Status.ClusterID {
		t.Errorf("cluster id is still %s", after.Status.ClusterID)
	}
	now := fingerprints(storePods(t, storeName))
	delete(masters, "box-coordinator")
	delete(now, "box-coordinator")
	unchanged(t, masters, now)
	if got := clientPod(t, "get-no-table", changeDeadline, rcbox(t, "get", "greetings", "hello")...); got.exitCode != 1 {
		t.Errorf("a table of the lost coordinator: exit code %d, output %q; want 1", got.exitCode, got.stdout)
	}
	mustClient(t, "create-anew", rcbox(t, "create-table", "greetings")...)
	mustClient(t, "put-anew", rcbox(t, "put", "greetings", "hello", "anew")...)
	if got := mustClient(t, "get-anew", rcbox(t, "get", "greetings", "hello")...); strings.TrimSpace(got) != "anew" {
		t.Errorf("get answers %q, want %q", got, "anew")
	}
	mustClient(t, "drop-anew", rcbox(t, "drop-table", "greetings")...)
}

func scalesInWithoutTables(t *testing.T) {
	kubectl(t, "scale", "store/box", "-n", namespaceOf(t), "--replicas=1")
	waitForStore(t, "one master is left", changeDeadline, func(store v1alpha1.Store) error {
		if pods := storePods(t, storeName); len(pods) != 2 || len(store.Status.Masters.Members) != 1 {
			return fmt.Errorf("pods %v", fingerprints(pods))
		}
		return conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
	})
}

func uninstallLeavesNothing(t *testing.T) {
	nothingOfTheStoreIsLeft(t)
	operatorIsUninstalled(t)
}

// nothingOfTheStoreIsLeft once it is deleted, but its volumes and its state.
func nothingOfTheStoreIsLeft(t *testing.T) {
	kubectl(t, "delete", "store", storeName, "-n", namespaceOf(t), "--timeout=120s")
	eventually(t, "nothing of the Store is left", changeDeadline, func() error {
		left := kubectl(t, "get", "pods,services,networkpolicies,poddisruptionbudgets,configmaps,endpointslices", "-n", namespaceOf(t),
			"-l", v1alpha1.LabelStore+"="+storeName, "-o", "name")
		if strings.TrimSpace(left) != "" {
			return fmt.Errorf("left: %s", strings.Fields(left))
		}
		return nil
	})
}

// operatorIsUninstalled twice: it can be installed again, and is ready then.
func operatorIsUninstalled(t *testing.T) {
	helm(t, "uninstall", "rcbox", "-n", operatorNamespace, "--wait", "--timeout", "2m")
	// Helm leaves the definitions, for Stores would go with them; and the release can be installed again, which takes them over.
	kubectl(t, "get", "crd", "stores.rcbox.dev", "storemembers.rcbox.dev", "clusterperfs.rcbox.dev", "storeoperations.rcbox.dev")
	started := time.Now()
	installOrUpgrade(t)
	t.Logf("installed again, and ready: %.1f s", time.Since(started).Seconds())
	helm(t, "uninstall", "rcbox", "-n", operatorNamespace, "--wait", "--timeout", "2m")
	kubectl(t, "delete", "crd", "stores.rcbox.dev", "storemembers.rcbox.dev", "clusterperfs.rcbox.dev", "storeoperations.rcbox.dev",
		"--timeout=60s")
	eventually(t, "nothing of the operator is left", changeDeadline, func() error {
		all := kubectl(t, "get", "crd,clusterrole,clusterrolebinding", "-o", "name") +
			kubectl(t, "get", "all,serviceaccounts,roles,rolebindings,networkpolicies,leases,secrets,configmaps",
				"-n", operatorNamespace, "-o", "name")
		var left []string
		for name := range strings.FieldsSeq(all) {
			if strings.Contains(name, "rcbox") {
				left = append(left, name)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
}
