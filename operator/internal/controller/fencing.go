package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/fencing"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// fencer is the one by which a node is fenced that is on record.
func (r *Reconciler) fencer(store *v1alpha1.Store, fence *v1alpha1.FenceStatus) (fencing.Fencer, error) {
	return fencing.For(
		v1alpha1.FencingSpec{Type: fence.Type, RemediationTemplate: fence.RemediationTemplate},
		fencing.Clients{Writer: r.Client, Live: r.Live, Owner: client.ObjectKeyFromObject(store), UID: store.UID, Since: fence.Since})
}

// observeFences looks at the nodes that are on record as to be fenced: they may be nobody's any more.
func (r *Reconciler) observeFences(ctx context.Context, v *reconcileState) {
	o := &v.observed
	o.Fences = map[string]facts.FenceState{}
	for i := range o.Store.Status.Fences {
		fence := &o.Store.Status.Fences[i]
		if err := r.observeFence(ctx, v, fence); err != nil {
			delete(o.Nodes, fence.Node) // nothing is done about it while it is not known how it is
			log.FromContext(ctx).Info("it is not known whether a node is fenced", "node", fence.Node, "error", err.Error())
		}
	}
}

func (r *Reconciler) observeFence(ctx context.Context, v *reconcileState, fence *v1alpha1.FenceStatus) error {
	if err := errors.Join(r.readNode(ctx, v, fence.Node), r.readSilence(ctx, v, fence.Node)); err != nil {
		return err
	}
	fencer, err := r.fencer(v.observed.Store, fence)
	if err != nil {
		return fmt.Errorf("fence node %s: %w", fence.Node, err)
	}
	state, err := fencer.Observe(ctx, fence.Node)
	if err != nil {
		return fmt.Errorf("see whether node %s is fenced: %w", fence.Node, err)
	}
	v.observed.Fences[fence.Node] = facts.FenceState{Requested: state.Requested, Done: state.Done, Message: state.Message}
	return nil
}

func (r *Reconciler) fenceNode(ctx context.Context, v *reconcileState, step steps.FenceNode) error {
	fencer, err := r.fencer(v.observed.Store, &step.Fence)
	if err != nil {
		return fmt.Errorf("fence node %s: %w", step.Fence.Node, err)
	}
	err = fencer.Fence(ctx, step.Fence.Node)
	if errors.Is(err, fencing.ErrTaken) || errors.Is(err, fencing.ErrReady) {
		return fmt.Errorf("fence node %s: %w", step.Fence.Node, errors.Join(errStale, err))
	}
	if err != nil {
		return stale(err, "fence node "+step.Fence.Node)
	}
	return r.releaseUnlessRecorded(ctx, v, fencer, step.Fence.Node)
}

// releaseUnlessRecorded: what was asked for too late, when another operator had forgotten the node already, nobody would take back.
func (r *Reconciler) releaseUnlessRecorded(ctx context.Context, v *reconcileState, fencer fencing.Fencer, node string) error {
	now := &v1alpha1.Store{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(v.observed.Store), now)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look whether node %s is still to be fenced: %w", node, err)
	}
	isIt := func(f v1alpha1.FenceStatus) bool { return f.Node == node }
	if err == nil && now.UID == v.observed.Store.UID && slices.ContainsFunc(now.Status.Fences, isIt) {
		return nil
	}
	if err := fencer.Release(ctx, node); err != nil {
		return fmt.Errorf("release node %s, which was fenced too late: %w", node, err)
	}
	return fmt.Errorf("fence node %s: it is not on record any more: %w", node, errStale)
}

func (r *Reconciler) unfenceNode(ctx context.Context, v *reconcileState, step steps.UnfenceNode) error {
	fencer, err := r.fencer(v.observed.Store, &step.Fence)
	if err != nil {
		return fmt.Errorf("release node %s: %w", step.Fence.Node, err)
	}
	return stale(fencer.Release(ctx, step.Fence.Node), "release node "+step.Fence.Node)
}
