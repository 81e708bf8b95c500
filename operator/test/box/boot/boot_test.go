package boot_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/box/join"
	"rcbox.dev/rcbox/operator/test/testbed"
)

const (
	apiPort     = "6443"
	tokenID     = "abcdef"
	tokenSecret = "0123456789abcdef"
)

// labels are those of the blade that becomes a node.
var labels = map[string]string{"rcbox.dev/chassis": "mercury1", "rcbox.dev/slot": "1", "rcbox.dev/node-class": "MicroModularServer"}

// TestBlades brings one blade from a blank disk to a node.
func TestBlades(t *testing.T) {
	h := startHost(t, 1)
	m := newMachine(t, h, 1)
	isInstalled(t, m)
	becomesNode(t, h, testbed.StartForNodes(t, hostAddress, apiPort), m)
}

// becomesNode brings an installed blade to a Ready node, and then once more, while no box host is there.
func becomesNode(t *testing.T, h *host, cluster *testbed.Cluster, m *machine) {
	t.Helper()
	number := m.number
	cluster.GiveToken(tokenID, tokenSecret)
	var given atomic.Int32
	h.join = refusesFirst(letsJoin(t, cluster, number, &given))
	started := time.Now()
	m.start(fromDisk)
	m.says("this blade is " + name(number))
	node := ready(t, cluster, m, "")
	t.Logf("Ready %d s after the first start from the disk", int(time.Since(started).Seconds()))
	isAsOrdered(t, node, number)
	carries(t, cluster, m, node.Name)
	isReported(t, cluster, m)
	if given.Load() != 1 {
		t.Errorf("the token was given %d times", given.Load())
	}
	m.cut()
	h.goAway()
	started = time.Now()
	m.start(fromDisk)
	again := ready(t, cluster, m, node.Status.NodeInfo.BootID)
	t.Logf("Ready %d s after power on, from its disk, without a box host", int(time.Since(started).Seconds()))
	isAsOrdered(t, again, number)
}

// refusesFirst refuses the first question, and has the next handler answer the others. It gives no dead token: a kubelet tries that for
// five minutes. Package blade tests what the units do once the kubelet has ended.
func refusesFirst(next http.Handler) http.Handler {
	var asked atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			http.Error(w, "the token is not here yet: ask again", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// letsJoin is the handler of a box host, whose file has the token of one blade. The box controller, which writes that file, does not run.
func letsJoin(t *testing.T, cluster *testbed.Cluster, number int, given *atomic.Int32) http.Handler {
	t.Helper()
	file := &join.File{
		APIServer: "https://" + hostAddress + ":" + apiPort, CA: cluster.Authority(),
		Entries: []join.Entry{{
			Node: name(number), State: join.EntryOffered, TokenID: tokenID, Secret: tokenSecret, UUID: uuid(number),
			Ports: []join.Port{{MAC: mac(number), Address: address(number).String()}}, Labels: labels,
			ExpiresAt: time.Now().Add(2 * patience),
		}},
	}
	text, err := file.Text()
	if err != nil {
		t.Fatal(err)
	}
	handler := &join.Handler{File: filepath.Join(t.TempDir(), "tokens"), Claims: t.TempDir(), Now: time.Now}
	handler.Log = func(question join.Question, node string, refusal error) {
		if refusal == nil {
			given.Add(1)
		}
		t.Logf("%+v asks to join: %q, %v", question, node, refusal)
	}
	if err := os.WriteFile(handler.File, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return handler
}

// ready waits for a Ready node whose kernel was started after the one that is named, and approves its certificate meanwhile.
func ready(t *testing.T, cluster *testbed.Cluster, m *machine, before string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	cluster.Eventually(patience, func() string {
		m.isAlive()
		cluster.Approve(name(m.number))
		if !cluster.Get(node, "", name(m.number)) {
			return "there is no node " + name(m.number) + "; its console says:\n" + tail(m.console())
		}
		if node.Status.NodeInfo.BootID == before {
			return "the kubelet has not reported since the restart; its console says:\n" + tail(m.console())
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return fmt.Sprintf("node %s is not ready: %+v", node.Name, node.Status.Conditions)
	})
	return node
}

func isAsOrdered(t *testing.T, node *corev1.Node, number int) {
	t.Helper()
	want := maps.Clone(labels)
	want[corev1.LabelHostname] = name(number)
	for label, want := range want {
		if got := node.Labels[label]; got != want {
			t.Errorf("label %s is %q, not %q", label, got, want)
		}
	}
	if node.Status.NodeInfo.SystemUUID != uuid(number) {
		t.Errorf("the system's UUID is %s", node.Status.NodeInfo.SystemUUID)
	}
	isThere := false
	for _, found := range node.Status.Addresses {
		isThere = isThere || found.Type == corev1.NodeInternalIP && found.Address == address(number).String()
	}
	if !isThere {
		t.Errorf("its addresses are %+v", node.Status.Addresses)
	}
	if pages := node.Status.Capacity["hugepages-2Mi"]; pages.IsZero() {
		t.Error("there are no huge pages")
	}
}

// isReported waits for the inventory that the blade writes to its node, and compares that with the machine that is emulated.
func isReported(t *testing.T, cluster *testbed.Cluster, m *machine) {
	t.Helper()
	var found hardware.Inventory
	cluster.Eventually(patience, func() string {
		m.isAlive()
		node := &corev1.Node{}
		if !cluster.Get(node, "", name(m.number)) || node.Annotations[hardware.Annotation] == "" {
			return "the blade has not reported its inventory; its console says:\n" + tail(m.console())
		}
		var err error
		if found, err = hardware.Parse(node.Annotations[hardware.Annotation]); err != nil {
			t.Fatal(err)
		}
		return ""
	})
	t.Logf("the blade reports %+v", found)
	const memoryOfKernel = 256 * mebi // what the kernel keeps for itself, at most
	if found.UUID != uuid(m.number) || found.CPU.Threads != processors || !found.CPU.CRC32 || !found.CPU.AES || !found.CPU.Pages1G ||
		found.MemoryBytes > memoryMiB*mebi || found.MemoryBytes < memoryMiB*mebi-memoryOfKernel || len(found.Missing) > 0 {
		t.Errorf("it reports %+v", found)
	}
	if len(found.Disks) != 1 || found.Disks[0].Bytes != diskSize || len(found.Modules) != 1 || found.Modules[0].Bytes != memoryMiB*mebi {
		t.Errorf("its disks are %+v, its memory modules %+v", found.Disks, found.Modules)
	}
	if differences := found.Differences("", []hardware.RecordedPort{{Name: name(m.number), MAC: mac(m.number)}}); len(differences) > 0 {
		t.Errorf("%q", differences)
	}
}

// carries runs a pod of the image that the blade carries: a blade reaches no registry.
func carries(t *testing.T, cluster *testbed.Cluster, m *machine, node string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "carried"},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64), AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "pause", Image: blade.PauseImage, ImagePullPolicy: corev1.PullNever}},
		},
	}
	if err := cluster.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(patience, func() string {
		m.isAlive()
		if cluster.Get(pod, pod.Namespace, pod.Name); pod.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("the pod is %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return ""
	})
}
