package fencing

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// BMC has the box controller take the power away from a node's server: by a NodeFence, whose status only that controller may write. The
// operator itself has no right on Servers.
type BMC struct{ clients Clients }

// Fence implements Fencer. That the node is still lost, the caller has seen right before; it may still be called ready. The box controller
// looks for itself.
func (f *BMC) Fence(ctx context.Context, name string) error {
	node := &corev1.Node{}
	if err := f.clients.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	if !bmc.SameSystem(node.Status.NodeInfo.SystemUUID, node.Status.NodeInfo.SystemUUID) {
		return fmt.Errorf("node %s cannot be fenced by BMC: status.nodeInfo.systemUUID is %q, which identifies no machine", name,
			node.Status.NodeInfo.SystemUUID)
	}
	present, err := f.read(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case present == nil:
		return f.create(ctx, node)
	case f.isOfThisLoss(present, node):
		return nil
	case f.isOurs(present): // what is left of an earlier loss proves nothing
		if err := f.delete(ctx, present); err != nil {
			return err
		}
	}
	return fmt.Errorf("NodeFence %s is there already: %w", present.Name, ErrTaken)
}

func (f *BMC) create(ctx context.Context, node *corev1.Node) error {
	controller := false
	fence := &v1alpha1.NodeFence{
		ObjectMeta: metav1.ObjectMeta{
			Name: f.name(node.Name), Namespace: f.clients.Owner.Namespace,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue, v1alpha1.LabelStore: f.clients.Owner.Name},
			// With its Store it goes, whoever takes that away.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "Store", Name: f.clients.Owner.Name, UID: f.clients.UID,
				Controller: &controller,
			}},
		},
		Spec: v1alpha1.NodeFenceSpec{
			StoreName: f.clients.Owner.Name, Node: node.Name, SystemUUID: node.Status.NodeInfo.SystemUUID, LostSince: f.clients.Since,
		},
	}
	if err := f.clients.Writer.Create(ctx, fence); err != nil {
		return f.describe("create", node.Name, err)
	}
	return nil
}

// Observe implements Fencer. It is done when the box controller has proved that the machine that the node still is was off, since it took
// on the request that this Store made for this loss.
func (f *BMC) Observe(ctx context.Context, name string) (State, error) {
	present, err := f.read(ctx, name)
	if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return State{}, nil // nothing is asked for by anybody as far as is known, and Fence says what is missing
	}
	if err != nil || present == nil {
		return State{}, err
	}
	node := &corev1.Node{}
	if err := f.clients.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) { // who deletes a node says that it is gone; this is taken back
			return State{Requested: true}, nil
		}
		return State{}, fmt.Errorf("read node %s: %w", name, err)
	}
	if !f.isOfThisLoss(present, node) {
		return State{}, nil
	}
	state := State{Requested: true, Message: present.Status.Message}
	switch present.Status.State {
	case "":
		state.Message = "NodeFence " + present.Name + " waits for the box controller, which has not answered it (Helm value box.enabled)"
	case v1alpha1.NodeFenceDone:
		state.Done = isProof(present)
		if !state.Done {
			state.Message = "the proof in NodeFence " + present.Name + " does not count: it is of another machine, or too old"
		}
	case v1alpha1.NodeFenceWaiting, v1alpha1.NodeFenceRefused, v1alpha1.NodeFenceRunning:
	}
	return state, nil
}

// isProof: two witnesses have seen, after the request was taken on, that the machine was off that was lost.
func isProof(fence *v1alpha1.NodeFence) bool {
	status := &fence.Status
	return status.Off != nil && status.AcceptedAt != nil && !status.Off.At.Before(status.AcceptedAt) &&
		len(slices.Compact(slices.Sorted(slices.Values(status.Off.By)))) > 1 && bmc.SameSystem(status.SystemGUID, fence.Spec.SystemUUID)
}

// Release implements Fencer.
func (f *BMC) Release(ctx context.Context, name string) error {
	present, err := f.read(ctx, name)
	if err != nil || present == nil || !f.isOurs(present) {
		return err
	}
	return f.delete(ctx, present)
}

// isOfThisLoss: this Store made it, for the loss that is on record, and the node is still the machine that it was.
func (f *BMC) isOfThisLoss(fence *v1alpha1.NodeFence, node *corev1.Node) bool {
	return f.isOurs(fence) && fence.DeletionTimestamp == nil && fence.Spec.Node == node.Name &&
		fence.Spec.LostSince.Equal(&f.clients.Since) && fence.Spec.SystemUUID == node.Status.NodeInfo.SystemUUID
}

func (f *BMC) isOurs(fence *v1alpha1.NodeFence) bool {
	return slices.ContainsFunc(fence.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == f.clients.UID })
}

func (f *BMC) name(node string) string { return f.clients.Owner.Name + "." + node }

// read gives the NodeFence of a node; nil if there is none.
func (f *BMC) read(ctx context.Context, node string) (*v1alpha1.NodeFence, error) {
	fence := &v1alpha1.NodeFence{}
	err := f.clients.Live.Get(ctx, client.ObjectKey{Namespace: f.clients.Owner.Namespace, Name: f.name(node)}, fence)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there being none is no error, and nothing else to say
	}
	if err != nil {
		return nil, f.describe("read", node, err)
	}
	return fence, nil
}

func (f *BMC) delete(ctx context.Context, fence *v1alpha1.NodeFence) error {
	uid := fence.UID
	if err := f.clients.Writer.Delete(ctx, fence, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) {
		return f.describe("delete", fence.Spec.Node, err)
	}
	return nil
}

func (f *BMC) describe(verb, node string, err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%s NodeFence %s: the box controller is not installed (Helm value box.enabled): %w", verb, f.name(node), err)
	}
	return fmt.Errorf("%s NodeFence %s (needs rights on nodefences: docs/operator.md#fencing): %w", verb, f.name(node), err)
}
