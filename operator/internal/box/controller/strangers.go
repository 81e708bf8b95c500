package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// strangers refuses NodeFences in namespaces that no Chassis names, each once. The reconciliation of a Chassis does not read them, so that
// each costs one write and delays no Chassis. NodeFences that were accepted before are left alone.
type strangers struct {
	Client   client.Client
	Recorder events.EventRecorder
}

// isStranger: the NodeFence has no effect, and never had one.
func isStranger(fence *v1alpha1.NodeFence, chassis []v1alpha1.Chassis) bool {
	return fence.Status.AcceptedAt == nil && !slices.Contains(fencingNamespaces(chassis), fence.Namespace)
}

func (s *strangers) setUp(manager ctrl.Manager) error {
	specs := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err := ctrl.NewControllerManagedBy(manager).
		Named("nodefence").
		For(&v1alpha1.NodeFence{}, specs).
		// A Chassis may name other namespaces now, or be deleted.
		Watches(&v1alpha1.Chassis{}, handler.EnqueueRequestsFromMapFunc(s.all), specs).
		Complete(s)
	if err != nil {
		return fmt.Errorf("make the controller of NodeFences: %w", err)
	}
	return nil
}

func (s *strangers) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.NodeFenceList{}
	if err := s.Client.List(ctx, list); err != nil {
		log.FromContext(ctx).Error(err, "list NodeFences")
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i] = reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}
	}
	return requests
}

// Reconcile looks at one NodeFence.
func (s *strangers) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	fence := &v1alpha1.NodeFence{}
	if err := s.Client.Get(ctx, request.NamespacedName, fence); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read NodeFence %s: %w", request, err)
	}
	chassis := &v1alpha1.ChassisList{}
	if err := s.Client.List(ctx, chassis); err != nil {
		return ctrl.Result{}, fmt.Errorf("list Chassis: %w", err)
	}
	next := v1alpha1.NodeFenceStatus{State: v1alpha1.NodeFenceRefused, Message: whyStranger(fence, chassis.Items)}
	if fence.DeletionTimestamp != nil || !isStranger(fence, chassis.Items) || equality.Semantic.DeepEqual(fence.Status, next) {
		return ctrl.Result{}, nil
	}
	fence.Status = next
	if err := s.Client.Status().Update(ctx, fence, FieldManager); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("write the status of NodeFence %s: %w", request, err)
	}
	s.Recorder.Eventf(fence, nil, corev1.EventTypeNormal, "Fence"+string(next.State), "Fence", "%s", next.Message)
	return ctrl.Result{}, nil
}

func whyStranger(fence *v1alpha1.NodeFence, chassis []v1alpha1.Chassis) string {
	if len(chassis) == 1 {
		return fmt.Sprintf("spec.fencing.namespaces of Chassis %s does not list namespace %s: add it to let its Stores fence nodes",
			chassis[0].Name, fence.Namespace)
	}
	return fmt.Sprintf("none of the %d Chassis lists namespace %s in spec.fencing.namespaces: add it to the Chassis of node %s to let the "+
		"namespace's Stores fence that node", len(chassis), fence.Namespace, fence.Spec.Node)
}
