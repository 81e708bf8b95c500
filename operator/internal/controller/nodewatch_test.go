package controller

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clientgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	// roomNodes are as many as a room of 16 chassis of 46 has.
	roomNodes = 736
	// seenWithin is how long a change may take; the machine of a test may be ten times slower than an operator's.
	seenWithin = 10 * time.Second
)

// roomNode is as large as nodes are: images, labels, conditions, and who owns which field.
func roomNode(i int) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-%d", i), UID: types.UID(fmt.Sprintf("uid-of-node-%d", i)), ResourceVersion: "1",
			Labels: map[string]string{
				corev1.LabelHostname: fmt.Sprintf("node-%d", i), "rcbox.dev/chassis": fmt.Sprintf("chassis-%d", i/46),
			},
			Annotations: map[string]string{},
		},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "kubelet is posting"}},
			Capacity:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Gi")},
		},
	}
	const labels, annotations, images = 30, 10, 50 // a kubelet reports 50 images at most
	for n := range labels {
		node.Labels[fmt.Sprintf("feature.node.kubernetes.io/cpu-%d-%d", n, i)] = "true"
	}
	for n := range annotations {
		node.Annotations[fmt.Sprintf("example.com/annotation-%d-%d", n, i)] = "a value as tools write them, which nobody here reads"
	}
	for n := range images {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("registry.example.com/team-%d/image-%d@sha256:%064x", i, n, n),
				fmt.Sprintf("registry.example.com/team-%d/image-%d:1", i, n),
			}, SizeBytes: 1 << 28,
		})
	}
	node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(fmt.Sprintf("%04096d", i))}}
	return node
}

// watchedRoom is a room that a NodeWatch has seen, with one Store of a master each on every tenth node.
type watchedRoom struct {
	t         *testing.T
	clientset *fake.Clientset
	watch     *NodeWatch
	queue     workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func watchRoom(t *testing.T, objects ...client.Object) *watchedRoom {
	t.Helper()
	var nodes []apiruntime.Object
	for i := range roomNodes {
		nodes = append(nodes, roomNode(i))
	}
	room := &watchedRoom{t: t, clientset: fake.NewClientset(nodes...)}
	room.start(objects...)
	if err := room.source().WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return room
}

func (w *watchedRoom) source() *nodeEvents {
	return &nodeEvents{watch: w.watch, concerned: func(context.Context, string) []reconcile.Request { return nil }}
}

// start begins to watch; the Stores on a node are found by the cache's own indexes.
func (w *watchedRoom) start(objects ...client.Object) {
	w.t.Helper()
	scheme := newHarness(w.t).client.Scheme()
	builder := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	for object, nodes := range nodeIndexes() {
		builder = builder.WithIndex(object, indexNode, nodes)
	}
	r := &Reconciler{Client: builder.Build()}
	watch, err := NewNodeWatch(w.clientset)
	if err != nil {
		w.t.Fatal(err)
	}
	w.watch = watch
	w.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	w.t.Cleanup(w.queue.ShutDown)
	if err := watch.Source(r.storesOnNode).Start(w.t.Context(), w.queue); err != nil {
		w.t.Fatal(err)
	}
}

// next is the next Store to reconcile, and how long that took.
func (w *watchedRoom) next() (types.NamespacedName, time.Duration) {
	w.t.Helper()
	begun, got := time.Now(), make(chan reconcile.Request, 1)
	go func() {
		request, _ := w.queue.Get()
		got <- request
	}()
	select {
	case request := <-got:
		w.queue.Done(request)
		return request.NamespacedName, time.Since(begun)
	case <-time.After(seenWithin):
		w.t.Fatal("no Store is to be reconciled")
		return types.NamespacedName{}, 0
	}
}

func (w *watchedRoom) update(node *corev1.Node) {
	w.t.Helper()
	if _, err := w.clientset.CoreV1().Nodes().Update(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// drain takes what the first list of nodes has put into the queue.
func (w *watchedRoom) drain() {
	for w.queue.Len() > 0 {
		request, _ := w.queue.Get()
		w.queue.Done(request)
	}
}

func podOn(store string, node int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("%s-%d", store, node), Labels: map[string]string{v1alpha1.LabelStore: store},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", node)},
	}
}

// TestCordonIsSeenAtOnce among 736 nodes whose kubelets have all just written: only the Store on the cordoned node is reconciled.
func TestCordonIsSeenAtOnce(t *testing.T) {
	var pods []client.Object
	for i := 0; i < roomNodes; i += 10 {
		pods = append(pods, podOn(fmt.Sprintf("store-%d", i), i))
	}
	room := watchRoom(t, pods...)
	room.drain()
	for i := range roomNodes {
		beat := roomNode(i)
		beat.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		beat.Status.Images = beat.Status.Images[1:]
		room.update(beat)
	}
	const cordoned = 500
	node := roomNode(cordoned)
	node.Spec.Unschedulable = true
	room.update(node)
	store, took := room.next()
	t.Logf("seen after %v", took)
	if want := fmt.Sprintf("store-%d", cordoned); store.Name != want || room.queue.Len() != 0 {
		t.Errorf("%s is reconciled, not %s alone: %d others wait", store.Name, want, room.queue.Len())
	}
	if seen := room.watch.Node(node.Name); seen == nil || nodeOf(seen, false).Drained != v1alpha1.DrainCordoned {
		t.Errorf("the watch has %+v", seen)
	}
}

// TestNodeConcernsStores that have a pod or a volume there, or whose status or StoreMember names it; a label, a taint, readiness and the
// node's end count.
func TestNodeConcernsStores(t *testing.T) {
	named := &v1alpha1.StoreMember{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lost-one-there-master-0"},
		Spec:       v1alpha1.StoreMemberSpec{StoreRef: v1alpha1.StoreReference{Name: "lost-one-there"}},
		Record:     v1alpha1.MemberRecord{Lost: &v1alpha1.LostStatus{Node: "node-7"}},
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "claim", Labels: map[string]string{v1alpha1.LabelStore: "claims"},
		Annotations: map[string]string{annotationSelectedNode: "node-7"},
	}}
	room := watchRoom(t, podOn("runs-there", 7), podOn("elsewhere", 8), named, claim)
	room.drain()
	changes := map[string]func(*corev1.Node){
		"label": func(node *corev1.Node) { node.Labels["rcbox.dev/chassis"] = "another" },
		"taint": func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
		},
		"readiness": func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown },
	}
	check := func(what string) {
		t.Helper()
		seen := map[string]bool{}
		for range 3 {
			store, _ := room.next()
			seen[store.String()] = true
		}
		for _, want := range []string{"default/runs-there", "default/lost-one-there", "team-a/claims"} {
			if !seen[want] {
				t.Errorf("%s: %s is not reconciled, but %v", what, want, seen)
			}
		}
	}
	for what, change := range changes {
		node := roomNode(7)
		change(node)
		room.update(node)
		check(what)
		room.update(roomNode(7))
		check(what + " taken back")
	}
	if err := room.clientset.CoreV1().Nodes().Delete(t.Context(), "node-7", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	check("the end of the node")
	if room.watch.Node("node-7") != nil {
		t.Error("the watch has a node that is gone")
	}
}

// TestOperatorWithoutTheRightToWatchNodes begins all the same, and sees nodes once it gets the right.
func TestOperatorWithoutTheRightToWatchNodes(t *testing.T) {
	room := &watchedRoom{t: t, clientset: fake.NewClientset(roomNode(1))}
	granted := make(chan struct{})
	refuse := func(clientgotesting.Action) (bool, apiruntime.Object, error) {
		select {
		case <-granted:
			return false, nil, nil
		default:
			return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)
		}
	}
	room.clientset.PrependReactor("list", "nodes", refuse)
	room.start(podOn("store", 1))
	if err := room.source().WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !room.watch.AreHidden() || room.watch.Node("node-1") != nil {
		t.Error("nodes are seen without the right to")
	}
	close(granted)
	if store, _ := room.next(); store.Name != "store" {
		t.Errorf("%v is reconciled once nodes are seen", store)
	}
	if room.watch.AreHidden() || room.watch.Node("node-1") == nil {
		t.Error("nodes are hidden, though the operator may watch them")
	}
}

// TestMemoryOfNodes states what a node takes of the operator's memory.
func TestMemoryOfNodes(t *testing.T) {
	measure := func(keep func(*corev1.Node) any) (bytes uint64, kept []any) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range roomNodes {
			kept = append(kept, keep(roomNode(i)))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		return (after.HeapAlloc - before.HeapAlloc) / roomNodes, kept
	}
	whole, all := measure(func(node *corev1.Node) any { return node })
	stripped, some := measure(func(node *corev1.Node) any {
		kept, err := stripNode(node)
		if err != nil {
			t.Fatal(err)
		}
		return kept
	})
	t.Logf("%d bytes a node, of %d; %d KiB for %d nodes", stripped, whole, stripped*roomNodes>>10, roomNodes)
	const most = 8 << 10
	if stripped > most || 3*stripped > whole {
		t.Errorf("a node takes %d bytes, and %d before it was stripped", stripped, whole)
	}
	runtime.KeepAlive(all)
	runtime.KeepAlive(some)
}
