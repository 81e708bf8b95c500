package testbed

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// LabelChassis is a node's failure domain.
	LabelChassis = "rcbox.dev/chassis"

	// labelKwok is on nodes that kwok plays the kubelets of; one that lost it says nothing any more.
	labelKwok      = "kwok.x-k8s.io/node"
	labelKwokValue = "fake"

	// shortestGrace is what the controller manager needs to tell a node that is slow from one that is lost.
	shortestGrace = 10 * time.Second
	// kwokConfiguration is from the folder of the project.
	kwokConfiguration = "operator/test/testbed/kwok.yaml"
	callsAtATime      = 16
)

// Nodes have no machine behind them: kwok renews their Leases, writes their status, and says of the pods that are bound to them that they
// run, and end when told to.
type Nodes struct {
	t         *testing.T
	clientset *kubernetes.Clientset
	watch     *PodWatch
	kwok      *Process
}

// grace is how long a node may be silent before it counts as lost. kwok renews a Lease four times in it.
func (o Options) grace() time.Duration {
	return max(4*o.Heartbeat, shortestGrace).Round(time.Second)
}

func (c *Cluster) startNodes(kwok string, options Options) {
	c.t.Helper()
	c.Nodes = &Nodes{t: c.t, clientset: c.Clientset, watch: c.Watch}
	c.Nodes.kwok = startProcess(c.t, []string{"KWOK_WORKDIR=" + c.folder}, kwok, // no configuration of the user's
		"--kubeconfig="+c.kubeconfig("system:kwok", "system:masters"), "--config="+filepath.Join(root(c.t), kwokConfiguration),
		"--manage-nodes-with-label-selector="+labelKwok+"="+labelKwokValue, "--cidr="+freeNetwork(c.t),
		fmt.Sprintf("--node-lease-duration-seconds=%.0f", options.grace().Seconds()), "--v=WARN")
	chassis := map[string]string{} // by node
	for i, nodes := range options.NodesPerChassis {
		for slot := range nodes {
			chassis[NodeName(i, slot)] = ChassisName(i)
		}
	}
	// Evenly over the time between two renewals of a Lease, so that these are spread as those of kubelets are, and come in no bursts.
	pace := time.NewTicker(options.Heartbeat / time.Duration(len(chassis)))
	defer pace.Stop()
	c.Nodes.forEach(slices.Sorted(maps.Keys(chassis)), func(ctx context.Context, name string) error {
		<-pace.C
		_, err := c.Clientset.CoreV1().Nodes().Create(ctx, newNode(name, chassis[name]), metav1.CreateOptions{})
		return err //nolint:wrapcheck // forEach does
	})
	c.Eventually(startTimeout, func() string {
		nodes := &corev1.NodeList{}
		c.must(c.Client.List(c.t.Context(), nodes))
		ready := 0
		for i := range nodes.Items {
			if isReady(&nodes.Items[i]) {
				ready++
			}
		}
		if ready < len(chassis) {
			return fmt.Sprintf("kwok says of %d of %d nodes that they are ready", ready, len(chassis))
		}
		return ""
	})
}

// Usage is what kwok has used.
func (n *Nodes) Usage() Usage { return n.kwok.Usage() }

// ChassisName is that of the chassis of a number.
func ChassisName(chassis int) string { return fmt.Sprintf("chassis-%02d", chassis) }

// NodeName is that of the node in a slot of a chassis.
func NodeName(chassis, slot int) string { return fmt.Sprintf("%s%02d", NodePrefix(chassis), slot) }

// NodePrefix is what the names of a chassis' nodes begin with.
func NodePrefix(chassis int) string { return fmt.Sprintf("node-%02d-", chassis) }

// SystemUUID is that of a node's machine.
func SystemUUID(node string) string {
	sum := sha256.Sum256([]byte(node))
	return fmt.Sprintf("%x-%x-4%03x-8%03x-%x", sum[:4], sum[4:6], sum[6], sum[7], sum[8:14])
}

func newNode(name, chassis string) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, LabelChassis: chassis, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			labelKwok: labelKwokValue,
		}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, NodeInfo: corev1.NodeSystemInfo{SystemUUID: SystemUUID(name)},
		},
	}
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// forEach makes a call for each node, some at a time; all must succeed.
func (n *Nodes) forEach(names []string, call func(ctx context.Context, name string) error) {
	n.t.Helper()
	var wait sync.WaitGroup
	for i := range callsAtATime {
		wait.Go(func() {
			for j := i; j < len(names); j += callsAtATime {
				if err := call(n.t.Context(), names[j]); err != nil {
					n.t.Errorf("node %s: %v", names[j], err)
				}
			}
		})
	}
	wait.Wait()
	if n.t.Failed() {
		n.t.FailNow()
	}
}

// Kill has processes on nodes end, and kwok say nothing of these nodes any more, nor of the pods there: their Leases run out.
func (n *Nodes) Kill(names ...string) {
	n.t.Helper()
	n.watch.endAllOn(names...)
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, labelKwok)
	n.forEach(names, func(ctx context.Context, name string) error {
		_, err := n.clientset.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err //nolint:wrapcheck // forEach does
	})
}

// Revive has kwok speak for nodes again, whose machines have started anew.
func (n *Nodes) Revive(names ...string) {
	n.t.Helper()
	n.watch.revive(names...)
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, labelKwok, labelKwokValue)
	n.forEach(names, func(ctx context.Context, name string) error {
		_, err := n.clientset.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err //nolint:wrapcheck // forEach does
	})
}

// LastRenewal is when the last of some nodes' Leases was renewed.
func (n *Nodes) LastRenewal(names ...string) time.Time {
	n.t.Helper()
	var mu sync.Mutex
	var last time.Time
	n.forEach(names, func(ctx context.Context, name string) error {
		lease, err := n.clientset.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err //nolint:wrapcheck // forEach does
		}
		mu.Lock()
		defer mu.Unlock()
		if lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(last) {
			last = lease.Spec.RenewTime.Time
		}
		return nil
	})
	return last
}
