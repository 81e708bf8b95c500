package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// observeLock asks the API server for the pod whose process is on record as the next one to end. A cache that is behind would have another
// version of it, too, and that means nothing.
func (r *Reconciler) observeLock(ctx context.Context, v *reconcileState) {
	lock := v.observed.Store.Status.DisruptionLock
	v.observed.LockState = facts.LockUnknown
	if lock == nil {
		return
	}
	pod := &corev1.Pod{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: v.observed.Store.Namespace, Name: lock.Pod}, pod)
	switch {
	case apierrors.IsNotFound(err):
		v.observed.LockState = facts.LockVoid
	case err != nil:
		log.FromContext(ctx).Info("it is not known how the pod is that is to end next", "pod", lock.Pod, "error", err.Error())
	case string(pod.UID) != lock.PodUID || pod.ResourceVersion != lock.PodResourceVersion || pod.DeletionTimestamp != nil:
		v.observed.LockState = facts.LockVoid
	default:
		v.observed.LockState = facts.LockStands
	}
}

// cancelDisruption changes the pod, if it is the one that is on record: another uid or version in the patch is a conflict.
func (r *Reconciler) cancelDisruption(ctx context.Context, v *reconcileState, step steps.CancelDisruption) error {
	lock := step.Lock
	pod := facts.PodRef{Name: lock.Pod, UID: lock.PodUID, ResourceVersion: lock.PodResourceVersion}
	return r.cancelPodEnd(ctx, v, pod, lock.PodResourceVersion)
}

// cancelPodEnd marks a pod in the version that was seen.
func (r *Reconciler) cancelPodEnd(ctx context.Context, v *reconcileState, ref facts.PodRef, mark string) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             ref.UID,
		"resourceVersion": ref.ResourceVersion,
		"annotations":     map[string]string{v1alpha1.AnnotationEndCancelled: mark},
	}})
	if err != nil {
		return fmt.Errorf("encode the recall of pod %s: %w", ref.Name, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v.observed.Store.Namespace, Name: ref.Name}}
	err = r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, text), FieldManager)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return stale(err, "recall the end of pod "+ref.Name)
}
