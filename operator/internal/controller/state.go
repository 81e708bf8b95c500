package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// observeState lists the ConfigMaps of a coordinator's state, of which the cache holds none: they are long and change often. They
// matter only where they are to be deleted.
func (r *Reconciler) observeState(ctx context.Context, v *visit) error {
	store := v.observed.Store
	if store.Spec.ReclaimPolicy != v1alpha1.ReclaimDelete {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := r.Live.List(ctx, list, client.InNamespace(store.Namespace), client.HasLabels{v1alpha1.LabelState},
		client.MatchingLabels{v1alpha1.LabelStore: store.Name}); err != nil {
		return fmt.Errorf("list the coordinator's state: %w", err)
	}
	for i := range list.Items {
		v.observed.StateObjects = append(v.observed.StateObjects, list.Items[i].Name)
	}
	// The root at last: without it, nobody would know what the others are.
	slices.SortFunc(v.observed.StateObjects, func(a, b string) int {
		root := v1alpha1.StateRoot(store.Name)
		switch {
		case a == root:
			return 1
		case b == root:
			return -1
		default:
			return 0
		}
	})
	return nil
}

func (r *Reconciler) deleteState(ctx context.Context, v *visit, name string) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: v.observed.Store.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	before := object.DeepCopy()
	if controllerutil.RemoveFinalizer(object, v1alpha1.FinalizerState) {
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, object, patch, FieldManager); err != nil {
			return stale(err, "release ConfigMap "+name)
		}
	}
	if err := r.Client.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ConfigMap %s: %w", name, err)
	}
	return nil
}
