package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// createClaim makes a member's volume claim. The API server itself is asked whether there is one: the cache holds only the
// operator's own, and what is in somebody else's volume must not be touched.
func (r *Reconciler) createClaim(ctx context.Context, v *reconcileState, step steps.CreateClaim) error {
	store := v.observed.Store
	there := &corev1.PersistentVolumeClaim{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: store.Namespace, Name: step.Name}, there)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("look for a volume claim %s: %w", step.Name, err)
	case there.Labels[v1alpha1.LabelStore] == store.Name:
		return fmt.Errorf("create volume claim %s: it is there: %w", step.Name, errStale)
	default:
		return &nameTakenError{fmt.Sprintf(
			"%s %s/%s is there already and is not this Store's: delete it, or make the Store under another name",
			steps.KindClaim, store.Namespace, step.Name)}
	}
	claim := resources.Claim(store, step.Member, step.Component, step.Name)
	if err := r.Client.Apply(ctx, claim, FieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("create volume claim %s: %w", step.Name, err)
	}
	return nil
}

// growClaim asks for a larger volume. There is nothing else to be changed of a claim; what is not the operator's in it stays.
func (r *Reconciler) growClaim(ctx context.Context, v *reconcileState, step steps.GrowClaim) error {
	claim := resources.Claim(v.observed.Store, step.Member, step.Component, step.Name)
	if err := r.Client.Apply(ctx, claim, FieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("grow volume claim %s (its StorageClass must have allowVolumeExpansion: true; "+
			"docs/store-reference.md says what to do without): %w", step.Name, err)
	}
	return nil
}

// touchClaim writes when it was, which is another value each time.
func (r *Reconciler) touchClaim(ctx context.Context, v *reconcileState, step steps.TouchClaim) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{v1alpha1.AnnotationTouched: v.observed.Now.UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return fmt.Errorf("encode when a volume claim was touched: %w", err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: v.observed.Store.Namespace, Name: step.Name}}
	err = r.Client.Patch(ctx, claim, client.RawPatch(types.MergePatchType, text), FieldManager)
	return stale(err, "touch volume claim "+step.Name)
}

func (r *Reconciler) deleteClaim(ctx context.Context, v *reconcileState, name string) error {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: v.observed.Store.Namespace, Name: name}}
	if err := r.Client.Delete(ctx, claim); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete volume claim %s: %w", name, err)
	}
	return nil
}

// setDomain writes the annotation to this very pod: another uid in the patch is a conflict.
func (r *Reconciler) setDomain(ctx context.Context, v *reconcileState, step steps.SetDomain) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         step.Pod.UID,
		"annotations": map[string]string{v1alpha1.AnnotationDomain: step.Domain},
	}})
	if err != nil {
		return fmt.Errorf("encode the failure domain of pod %s: %w", step.Pod.Name, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v.observed.Store.Namespace, Name: step.Pod.Name}}
	err = r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, text), FieldManager)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return stale(err, "set the failure domain of pod "+step.Pod.Name)
}

// storeOfClaim finds the Store of a volume claim by its label.
func storeOfClaim(_ context.Context, claim client.Object) []reconcile.Request {
	name := claim.GetLabels()[v1alpha1.LabelStore]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: claim.GetNamespace(), Name: name}}}
}
