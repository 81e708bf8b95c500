package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// NodeSource has the cluster's nodes without asking the API server.
type NodeSource interface {
	// Node has the fields that nodeOf reads, and the labels. It is shared, and must not be changed. nil: there is none of that name, or the
	// source does not have it yet.
	Node(name string) *corev1.Node
	// AreHidden says whether the operator lacks the right to watch nodes.
	AreHidden() bool
}

// NodeWatch is the NodeSource of a cluster. It is not part of the manager's cache, which does not start before it has everything: an
// operator with rights in some namespaces only may not watch nodes, and has to do without them.
type NodeWatch struct {
	informer cache.SharedIndexInformer
	hidden   atomic.Bool
	// isToldHidden: the log says so.
	isToldHidden atomic.Bool
	// decided is closed once all nodes are there, or once it is known that the operator may not see them.
	decided    chan struct{}
	wasDecided atomic.Bool
}

// NewNodeWatch makes a NodeWatch that has nothing until its source is started.
func NewNodeWatch(clientset kubernetes.Interface) (*NodeWatch, error) {
	w := &NodeWatch{decided: make(chan struct{})}
	nodes := clientset.CoreV1().Nodes()
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := nodes.List(ctx, options)
			return list, w.answered(err)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watched, err := nodes.Watch(ctx, options)
			return watched, w.answered(err)
		},
	}
	w.informer = cache.NewSharedIndexInformer(
		cache.ToListWatcherWithWatchListSemantics(listWatch, clientset), &corev1.Node{}, 0, cache.Indexers{})
	if err := w.informer.SetTransform(stripNode); err != nil {
		return nil, fmt.Errorf("set up the watch of nodes: %w", err)
	}
	// It is tried again and again, with growing pauses; that the operator lacks the right is said once.
	if err := w.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		switch {
		case !apierrors.IsForbidden(err):
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
		case w.isToldHidden.CompareAndSwap(false, true):
			log.FromContext(ctx).Info("nodes are not watched: drained and lost nodes are not seen", "error", err.Error())
		}
	}); err != nil {
		return nil, fmt.Errorf("set up the watch of nodes: %w", err)
	}
	return w, nil
}

// answered notes what an answer of the API server says of the operator's rights. They may change while the operator runs.
func (w *NodeWatch) answered(err error) error {
	switch {
	case err == nil:
		w.hidden.Store(false)
		w.isToldHidden.Store(false)
	case apierrors.IsForbidden(err):
		w.hidden.Store(true)
		w.decide()
	}
	return err
}

func (w *NodeWatch) decide() {
	if w.wasDecided.CompareAndSwap(false, true) {
		close(w.decided)
	}
}

// Node implements NodeSource.
func (w *NodeWatch) Node(name string) *corev1.Node {
	if w.hidden.Load() {
		return nil // what it had may have changed since
	}
	object, found, err := w.informer.GetStore().GetByKey(name)
	node, isNode := object.(*corev1.Node)
	if err != nil || !found || !isNode {
		return nil
	}
	return node
}

// AreHidden implements NodeSource.
func (w *NodeWatch) AreHidden() bool { return w.hidden.Load() }

// Source has the controller reconcile the Stores that a changed node concerns.
func (w *NodeWatch) Source(concerned func(ctx context.Context, node string) []reconcile.Request) source.SyncingSource {
	return &nodeEvents{watch: w, concerned: concerned}
}

type nodeEvents struct {
	watch     *NodeWatch
	concerned func(ctx context.Context, node string) []reconcile.Request
}

// Start implements source.Source. The controller starts its sources once this process leads: one that does not lead watches nothing.
func (e *nodeEvents) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	changed := func(name string) {
		for _, request := range e.concerned(ctx, name) {
			queue.Add(request)
		}
	}
	registration, err := e.watch.informer.AddEventHandler(nodeHandler(changed))
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	go e.watch.informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			e.watch.decide()
		}
	}()
	return nil
}

// WaitForSync implements source.SyncingSource: nothing is planned before it is known how nodes are, or that this is not known.
func (e *nodeEvents) WaitForSync(ctx context.Context) error {
	select {
	case <-e.watch.decided:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("the nodes of the cluster could not be listed in time"), ctx.Err())
	}
}

// nodeHandler passes on what a plan may depend on. Kubelets write to their nodes all the time, and that changes rarely.
func nodeHandler(changed func(name string)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if node, isNode := object.(*corev1.Node); isNode {
				changed(node.Name)
			}
		},
		UpdateFunc: func(before, after any) {
			old, wasNode := before.(*corev1.Node)
			node, isNode := after.(*corev1.Node)
			if wasNode && isNode && (nodeOf(old, false) != nodeOf(node, false) || !maps.Equal(old.Labels, node.Labels)) {
				changed(node.Name)
			}
		},
		DeleteFunc: func(object any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				changed(name)
			}
		},
	}
}

// stripNode keeps what nodeOf reads, and the labels: any of them may be a Store's failure domain. The rest of a node is four times as much,
// most of it the images that the node has.
func stripNode(object any) (any, error) {
	node, isNode := object.(*corev1.Node)
	if !isNode {
		return object, nil // a tombstone of one that was stripped before
	}
	stripped := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable},
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		stripped.Spec.Taints = append(stripped.Spec.Taints, corev1.Taint{Key: taint.Key, Effect: taint.Effect})
	}
	for i := range node.Status.Conditions {
		if condition := &node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
			stripped.Status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	stripped.Spec.Taints = slices.Clip(stripped.Spec.Taints)
	return stripped, nil
}
