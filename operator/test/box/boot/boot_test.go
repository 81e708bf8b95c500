package boot_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/box/join"
	"rcbox.dev/rcbox/operator/test/box/rack"
)

// labels are those of the blade that becomes a node.
var labels = map[string]string{"rcbox.dev/chassis": chassisName, "rcbox.dev/slot": "1", "rcbox.dev/node-class": "EmulatedRack"}

// TestBlades brings one blade from a blank disk to a node. It is isolated then, and its power fails. It is brought back while no box host
// is there, and its node gets pods again once its system has measured it anew.
func TestBlades(t *testing.T) {
	b := newBed(t)
	isInstalled(b)
	started := time.Now()
	b.up()
	b.says("this blade is " + bladeName)
	node := b.ready("")
	t.Logf("Ready %d s after the first start from the disk", int(time.Since(started).Seconds()))
	b.isAsOrdered(node)
	b.carries(node.Name)
	b.isReported()
	b.isJoined()
	b.isolated()
	b.host.Kill()
	started = time.Now()
	b.seen += len(b.console())
	b.kubectl("isolate-server", bladeName, "--undo")
	t.Logf("in use %d s after the order to bring it back, from its disk, without a box host", int(time.Since(started).Seconds()))
	again := &corev1.Node{}
	b.Get(again, "", bladeName)
	b.isAsOrdered(again)
	found, err := hardware.Parse(again.Annotations[hardware.Annotation])
	boot := again.Status.NodeInfo.BootID
	if err != nil || boot == node.Status.NodeInfo.BootID || found.Boot != boot || found.Measured == nil || again.Spec.Unschedulable {
		t.Errorf("it is in use again: %v, without having measured start %s: %+v, %v", !again.Spec.Unschedulable, boot, found, err)
	}
}

// isolated has a user isolate the blade. While it shuts down, its power fails.
func (b *bed) isolated() {
	b.Helper()
	b.kubectl("isolate-server", bladeName, "--reason", "it loses packets", "--wait=false")
	b.Eventually(patience, func() string {
		if of := b.server().Status.Isolation; of == nil || of.Stage != v1alpha1.StageIsolationOff {
			return fmt.Sprintf("it is %+v", of)
		}
		return ""
	})
	b.must(b.rack.Set(chassisName, slot, rack.Off))
	b.kubectl("isolate-server", bladeName, "--reason", "it loses packets")
}

// isJoined waits until the controller has seen the node, and deleted the token.
func (b *bed) isJoined() {
	b.Helper()
	b.Eventually(patience, func() string {
		if status := b.server().Status.Join; status == nil || status.State != v1alpha1.JoinJoined {
			return fmt.Sprintf("it is %+v", status)
		}
		secrets := &corev1.SecretList{}
		b.must(b.Client.List(b.Context(), secrets, client.InNamespace(metav1.NamespaceSystem)))
		for i := range secrets.Items {
			if strings.HasPrefix(secrets.Items[i].Name, join.SecretPrefix) {
				return "the token " + secrets.Items[i].Name + " is there"
			}
		}
		return ""
	})
}

// ready waits for a Ready node whose kernel was started after the one that is named.
func (b *bed) ready(before string) *corev1.Node {
	b.Helper()
	node := &corev1.Node{}
	b.Eventually(patience, func() string {
		b.isAlive()
		if !b.Get(node, "", bladeName) {
			return fmt.Sprintf("there is no node; its Server says %+v, its console:\n%s", b.server().Status.Join, tail(b.console()))
		}
		if node.Status.NodeInfo.BootID == before {
			return "the kubelet has not reported since the restart; its console says:\n" + tail(b.console())
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

func (b *bed) isAsOrdered(node *corev1.Node) {
	b.Helper()
	want := maps.Clone(labels)
	want[corev1.LabelHostname] = bladeName
	for label, want := range want {
		if got := node.Labels[label]; got != want {
			b.Errorf("label %s is %q, not %q", label, got, want)
		}
	}
	if node.Status.NodeInfo.SystemUUID != theBlade.UUID() {
		b.Errorf("the system's UUID is %s", node.Status.NodeInfo.SystemUUID)
	}
	isThere := false
	for _, found := range node.Status.Addresses {
		isThere = isThere || found.Type == corev1.NodeInternalIP && found.Address == bladeAddress
	}
	if !isThere {
		b.Errorf("its addresses are %+v", node.Status.Addresses)
	}
	if pages := node.Status.Capacity["hugepages-2Mi"]; pages.IsZero() {
		b.Error("there are no huge pages")
	}
}

// isReported waits for the inventory that the blade writes to its node, and compares that with the machine that is emulated.
func (b *bed) isReported() {
	b.Helper()
	var found hardware.Inventory
	b.Eventually(patience, func() string {
		b.isAlive()
		node := &corev1.Node{}
		if !b.Get(node, "", bladeName) || node.Annotations[hardware.Annotation] == "" {
			return "the blade has not reported its inventory; its console says:\n" + tail(b.console())
		}
		var err error
		if found, err = hardware.Parse(node.Annotations[hardware.Annotation]); err != nil {
			b.Fatal(err)
		}
		return ""
	})
	b.Logf("the blade reports %+v", found)
	const memoryOfKernel = 256 * mebi // what the kernel keeps for itself, at most
	if found.UUID != theBlade.UUID() || found.CPU.Threads != processors || !found.CPU.CRC32 || !found.CPU.AES || !found.CPU.Pages1G ||
		found.MemoryBytes > memoryMiB*mebi || found.MemoryBytes < memoryMiB*mebi-memoryOfKernel || len(found.Missing) > 0 {
		b.Errorf("it reports %+v", found)
	}
	if len(found.Disks) != 1 || found.Disks[0].Bytes != diskSize || len(found.Modules) != 1 || found.Modules[0].Bytes != memoryMiB*mebi {
		b.Errorf("its disks are %+v, its memory modules %+v", found.Disks, found.Modules)
	}
	// How fast that is depends on what else this machine does.
	if of := found.Measured; of == nil || of.ChecksumMBps < 1 || of.CopyMBps < 1 || of.ReadMBps < 1 || of.Disk != found.Disks[0].Name ||
		len(of.Failed) > 0 {
		b.Errorf("it has measured %+v", of)
	}
	if differences := found.Differences("", []hardware.RecordedPort{{Name: bladeName, MAC: bladeMAC}}); len(differences) > 0 {
		b.Errorf("%q", differences)
	}
}

// carries runs a pod of the image that the blade carries: a blade reaches no registry.
func (b *bed) carries(node string) {
	b.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "carried"},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64), AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "pause", Image: blade.PauseImage, ImagePullPolicy: corev1.PullNever}},
		},
	}
	if err := b.Client.Create(b.Context(), pod); err != nil {
		b.Fatal(err)
	}
	b.Eventually(patience, func() string {
		b.isAlive()
		if b.Get(pod, pod.Namespace, pod.Name); pod.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("the pod is %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return ""
	})
}
