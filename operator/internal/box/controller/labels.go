package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// labelNodes says at each node where its server is, so that the copies of a Store can be kept apart by chassis. A node whose server is not
// known any more keeps what was said of it last.
func (r *Reconciler) labelNodes(ctx context.Context, seen *round, made *plan.Plan) error {
	var errs []error
	for i := range seen.nodes {
		node := &seen.nodes[i]
		labels := maps.Clone(node.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, made.NodeLabels[node.Name])
		if maps.Equal(labels, node.Labels) {
			continue
		}
		written := node.DeepCopy()
		written.Labels = labels
		err := r.Client.Patch(ctx, written, client.MergeFrom(node), FieldManager)
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("label node %s: %w", node.Name, err))
		}
	}
	return errors.Join(errs...)
}
