package testbed

import (
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// PodWatch sees all pods, in the order in which they change, and has the stand-ins for the stores' processes (Stores) begin and end with
// them: one begins when kwok has said that its pod runs, and ends when the pod is told to end, has ended, or its node dies.
type PodWatch struct {
	t      *testing.T
	stores *Stores
	pods   cache.SharedIndexInformer

	mu      sync.Mutex // held while processes begin and end
	dead    map[string]bool
	running map[types.UID]*corev1.Pod
}

func startPodWatch(t *testing.T, clientset *kubernetes.Clientset, stores *Stores) *PodWatch {
	t.Helper()
	factory := informers.NewSharedInformerFactory(clientset, 0)
	w := &PodWatch{
		t: t, stores: stores, pods: factory.Core().V1().Pods().Informer(),
		dead: map[string]bool{}, running: map[types.UID]*corev1.Pod{},
	}
	_, err := w.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.changed,
		UpdateFunc: func(_, object any) { w.changed(object) },
		DeleteFunc: w.deleted,
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return w
}

func (w *PodWatch) changed(object any) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		w.end(pod.UID)
	case pod.Status.Phase == corev1.PodRunning && w.running[pod.UID] == nil && !w.dead[pod.Spec.NodeName]:
		w.running[pod.UID] = pod
		if err := w.stores.started(w.t.Context(), pod); err != nil && w.t.Context().Err() == nil {
			w.t.Errorf("start what stands in for the process of pod %s: %v", pod.Name, err)
		}
	}
}

func (w *PodWatch) deleted(object any) {
	if unseen, isUnseen := object.(cache.DeletedFinalStateUnknown); isUnseen {
		object = unseen.Obj
	}
	if pod, isPod := object.(*corev1.Pod); isPod {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.end(pod.UID)
	}
}

// endAllOn is what happens to processes when their nodes die; none begins there any more.
func (w *PodWatch) endAllOn(nodes ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range nodes {
		w.dead[node] = true
	}
	for uid, pod := range w.running {
		if slices.Contains(nodes, pod.Spec.NodeName) {
			w.end(uid)
		}
	}
}

// revive lets processes begin on nodes again.
func (w *PodWatch) revive(nodes ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, node := range nodes {
		delete(w.dead, node)
	}
}

// end has the process of a pod end, if it runs.
func (w *PodWatch) end(uid types.UID) {
	if pod := w.running[uid]; pod != nil {
		delete(w.running, uid)
		w.stores.ended(pod)
	}
}

// PodCounts are how many pods of Stores there are that were not told to end, on a node, and ready.
type PodCounts struct{ Made, Placed, Ready int }

// Counts is a look at the watched pods: it asks the API server nothing.
func (w *PodWatch) Counts() PodCounts {
	var counts PodCounts
	for _, pod := range w.Pods() {
		if pod.DeletionTimestamp != nil {
			continue
		}
		counts.Made++
		if pod.Spec.NodeName != "" {
			counts.Placed++
		}
		if pod.Status.Phase == corev1.PodRunning {
			counts.Ready++
		}
	}
	return counts
}

// Pods are the watched ones, by name.
func (w *PodWatch) Pods() map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for _, object := range w.pods.GetStore().List() {
		if pod, isPod := object.(*corev1.Pod); isPod {
			pods[pod.Name] = pod
		}
	}
	return pods
}
