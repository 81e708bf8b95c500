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
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// observeState lists the ConfigMaps of a coordinator's state, of which the cache holds none: they are long and change often. They
// matter only once the Store is being deleted.
func (r *Reconciler) observeState(ctx context.Context, v *reconcileState) error {
	store := v.observed.Store
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := r.Live.List(ctx, list, client.InNamespace(store.Namespace), client.HasLabels{v1alpha1.LabelState},
		client.MatchingLabels{v1alpha1.LabelStore: store.Name}); err != nil {
		return fmt.Errorf("list the coordinator's state: %w", err)
	}
	for i := range list.Items {
		v.observed.StateObjects = append(v.observed.StateObjects, facts.StateObject{
			Name: list.Items[i].Name, Held: slices.Contains(list.Items[i].Finalizers, v1alpha1.FinalizerState),
		})
	}
	// The root at last: without it, nobody would know what the others are.
	slices.SortFunc(v.observed.StateObjects, func(a, b facts.StateObject) int {
		root := v1alpha1.StateRoot(store.Name)
		switch {
		case a.Name == root:
			return 1
		case b.Name == root:
			return -1
		default:
			return 0
		}
	})
	return nil
}

// guardState gives the root its finalizer back, before the Store gets its own: the root may be of a Store of this name that was deleted
// before. A new root has its finalizer from the coordinator.
func (r *Reconciler) guardState(ctx context.Context, v *reconcileState) error {
	object, err := r.stateObject(ctx, v, v1alpha1.StateRoot(v.observed.Store.Name))
	if object == nil || err != nil || object.DeletionTimestamp != nil || object.Labels[v1alpha1.LabelState] == "" {
		return err
	}
	return r.patchState(ctx, object, controllerutil.AddFinalizer)
}

// releaseState lets a ConfigMap go when somebody deletes it; nil if there is none.
func (r *Reconciler) releaseState(ctx context.Context, v *reconcileState, name string) (*metav1.PartialObjectMetadata, error) {
	object, err := r.stateObject(ctx, v, name)
	if object == nil || err != nil {
		return nil, err
	}
	return object, r.patchState(ctx, object, controllerutil.RemoveFinalizer)
}

func (r *Reconciler) deleteState(ctx context.Context, v *reconcileState, name string) error {
	object, err := r.releaseState(ctx, v, name)
	if object == nil || err != nil {
		return err
	}
	if err := r.Client.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ConfigMap %s: %w", name, err)
	}
	return nil
}

// stateObject asks the API server; nil if there is none.
func (r *Reconciler) stateObject(ctx context.Context, v *reconcileState, name string) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: v.observed.Store.Namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
	default:
		return object, nil
	}
}

func (r *Reconciler) patchState(ctx context.Context, object *metav1.PartialObjectMetadata, change func(client.Object, string) bool) error {
	before := object.DeepCopy()
	if !change(object, v1alpha1.FinalizerState) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, object, patch, FieldManager); err != nil && !apierrors.IsNotFound(err) {
		return stale(err, "change the finalizers of ConfigMap "+object.Name)
	}
	return nil
}
