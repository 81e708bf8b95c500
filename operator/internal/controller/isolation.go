package controller

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// isolateNode writes to the annotation by which somebody would order it, so that it is taken back in the same way.
func (r *Reconciler) isolateNode(ctx context.Context, v *visit, step steps.IsolateNode) error {
	store := v.observed.Store
	changed := store.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[v1alpha1.AnnotationIsolated] = strings.Join(append(store.IsolatedNodes(), step.Node), ",")
	patch := client.MergeFromWithOptions(store.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch, FieldManager); err != nil {
		return stale(err, "isolate node "+step.Node)
	}
	// The status is written to what there is now.
	store.Annotations, store.ResourceVersion = changed.Annotations, changed.ResourceVersion
	return nil
}
