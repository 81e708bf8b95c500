// Package finalizers takes the operator's finalizers from objects that no operator will look after any more, so that they, and their
// namespace, can be deleted. It deletes nothing itself.
package finalizers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// attempts to take a finalizer from an object that others change at the same time.
const attempts = 5

// held is a kind of objects that a finalizer of the operator's, or of a coordinator's, keeps.
type held struct {
	kind      schema.GroupVersionKind
	finalizer string
	options   []client.ListOption
}

var (
	stores = held{kind: v1alpha1.GroupVersion.WithKind("Store"), finalizer: v1alpha1.Finalizer}
	pods   = held{
		kind: corev1.SchemeGroupVersion.WithKind("Pod"), finalizer: v1alpha1.FinalizerAddresses,
		options: []client.ListOption{client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue}},
	}
	roots = held{
		kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), finalizer: v1alpha1.FinalizerState,
		options: []client.ListOption{client.HasLabels{v1alpha1.LabelState}},
	}
)

// Release takes the finalizers from every Store of a namespace, from the Stores' pods, and from the roots of coordinators' states; an
// empty namespace means all. It gives what it has released, such as "Store default/box".
func Release(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	var released []string
	var errs []error
	// Stores first: a Store without its finalizer gets no new pod from an operator that ends at this moment.
	for _, each := range []held{stores, pods, roots} {
		names, err := each.release(ctx, c, namespace)
		released = append(released, names...)
		errs = append(errs, err)
	}
	return released, errors.Join(errs...)
}

func (h held) release(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(h.kind.GroupVersion().WithKind(h.kind.Kind + "List"))
	err := c.List(ctx, list, append(slices.Clone(h.options), client.InNamespace(namespace))...)
	if meta.IsNoMatchError(err) {
		return nil, nil // the definition is gone, and its objects with it
	}
	if err != nil {
		return nil, fmt.Errorf("list %s objects: %w", h.kind.Kind, err)
	}
	var released []string
	var errs []error
	for i := range list.Items {
		object := &list.Items[i]
		object.SetGroupVersionKind(h.kind)
		if !slices.Contains(object.Finalizers, h.finalizer) {
			continue
		}
		if err := h.take(ctx, c, object); err != nil {
			errs = append(errs, err)
			continue
		}
		released = append(released, fmt.Sprintf("%s %s/%s", h.kind.Kind, object.Namespace, object.Name))
	}
	return released, errors.Join(errs...)
}

// take patches with the version that was read: another finalizer may come or go at this moment.
func (h held) take(ctx context.Context, c client.Client, object *metav1.PartialObjectMetadata) error {
	var err error
	for range attempts {
		before := object.DeepCopy()
		if !controllerutil.RemoveFinalizer(object, h.finalizer) {
			return nil
		}
		err = c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(err) {
			break
		}
		if err = c.Get(ctx, client.ObjectKeyFromObject(before), object); err != nil {
			break
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the finalizer %s from %s %s/%s: %w", h.finalizer, h.kind.Kind, object.Namespace, object.Name, err)
	}
	return nil
}
