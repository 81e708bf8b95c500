package controller

import (
	"context"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// maxIsolationReason bounds what a StoreOperation has of why, in bytes.
const maxIsolationReason = 500

// isolateNode makes the StoreOperation by which somebody would order it, so that it is taken back in the same way.
func (r *Reconciler) isolateNode(ctx context.Context, v *reconcileState, step steps.IsolateNode) error {
	store := v.observed.Store
	return r.createOperation(ctx, v, steps.CreateOperation{
		Name: v1alpha1.OperationName(store.Name, v1alpha1.OperationIsolate, step.Node),
		Spec: v1alpha1.StoreOperationSpec{
			StoreRef: v1alpha1.StoreReference{Name: store.Name}, Type: v1alpha1.OperationIsolate,
			Isolate: &v1alpha1.IsolateOperation{
				Node: step.Node, Reason: brief.Fit(step.Why, maxIsolationReason), Cause: v1alpha1.IsolatedFailures,
			},
		},
	})
}
