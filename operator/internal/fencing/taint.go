package fencing

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// taintValue is that of the taints that this operator has set.
const taintValue = "rcbox.dev"

// OutOfServiceTaint says to Kubernetes that a node is off: its pods are removed without their kubelet's word, and volumes are detached at
// once. What is not so by that: the node being off.
type OutOfServiceTaint struct{ clients Clients }

// Fence implements Fencer.
func (f *OutOfServiceTaint) Fence(ctx context.Context, name string) error {
	return f.change(ctx, name, func(node *corev1.Node) (bool, error) {
		if isReady(node) { // the patch goes through only if that is still so
			return false, fmt.Errorf("node %s: %w", name, ErrReady)
		}
		if i := indexOfTaint(node); i >= 0 {
			if !f.isOurs(node) {
				return false, fmt.Errorf("node %s has the taint %s: %w", name, corev1.TaintNodeOutOfService, ErrTaken)
			}
			return false, nil
		}
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
			Key: corev1.TaintNodeOutOfService, Value: taintValue, Effect: corev1.TaintEffectNoExecute,
		})
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[v1alpha1.AnnotationFencedBy] = f.clients.owner()
		return true, nil
	})
}

// Observe implements Fencer.
func (f *OutOfServiceTaint) Observe(ctx context.Context, name string) (State, error) {
	node := &corev1.Node{}
	if err := f.clients.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return State{}, nil
		}
		return State{}, fmt.Errorf("read node %s: %w", name, err)
	}
	return State{Requested: f.isOurs(node), Done: indexOfTaint(node) >= 0}, nil
}

// Release implements Fencer.
func (f *OutOfServiceTaint) Release(ctx context.Context, name string) error {
	return f.change(ctx, name, func(node *corev1.Node) (bool, error) {
		if !f.isOurs(node) {
			return false, nil
		}
		delete(node.Annotations, v1alpha1.AnnotationFencedBy)
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isOurTaint)
		return true, nil
	})
}

// change patches with the version that was read, as a list of taints is replaced as a whole. A node that is not there needs nothing.
func (f *OutOfServiceTaint) change(ctx context.Context, name string, change func(*corev1.Node) (bool, error)) error {
	node := &corev1.Node{}
	if err := f.clients.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read node %s: %w", name, err)
	}
	before := node.DeepCopy()
	changed, err := change(node)
	if err != nil || !changed {
		return err
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := f.clients.Writer.Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("change the taints of node %s (needs the right to patch nodes: docs/operator.md#fencing): %w", name, err)
	}
	return nil
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

func (f *OutOfServiceTaint) isOurs(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, isOurTaint) && node.Annotations[v1alpha1.AnnotationFencedBy] == f.clients.owner()
}

func isOurTaint(taint corev1.Taint) bool {
	return taint.Key == corev1.TaintNodeOutOfService && taint.Value == taintValue
}

func indexOfTaint(node *corev1.Node) int {
	return slices.IndexFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService })
}
