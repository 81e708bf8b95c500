package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// cordonNodes has nodes of isolated servers get no more pods, and has them get pods again. An annotation marks the nodes that it has
// cordoned: no other node is uncordoned. A node that somebody else changes meanwhile is looked at again, and so is one whose Server was
// changed.
func (r *Reconciler) cordonNodes(ctx context.Context, seen *round, made *plan.Plan, written map[string]bool) error {
	var errs []error
	for _, cordon := range made.Cordons {
		i := slices.IndexFunc(seen.nodes, func(n corev1.Node) bool { return n.Name == cordon.Node })
		if i < 0 || !written[cordon.Server] {
			continue
		}
		node := seen.nodes[i].DeepCopy()
		setCordon(node, cordon)
		patch := client.MergeFromWithOptions(&seen.nodes[i], client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, node, patch, FieldManager); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("cordon node %s for Server %s, or uncordon it: %w", cordon.Node, cordon.Server, err))
		}
	}
	return errors.Join(errs...)
}

// setCordon writes a cordon into a node.
func setCordon(node *corev1.Node, cordon plan.Cordon) {
	node.Spec.Unschedulable = !cordon.IsUndo
	if cordon.IsUndo {
		delete(node.Annotations, v1alpha1.AnnotationCordonedFor)
		return
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[v1alpha1.AnnotationCordonedFor] = cordon.Server
}
