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

// observeTurn asks the API server for the pod whose process is on record as the next one to end. A cache that is behind would have another
// version of it, too, and that means nothing.
func (r *Reconciler) observeTurn(ctx context.Context, v *visit) {
	turn := v.observed.Store.Status.Turn
	v.observed.Turn = facts.TurnUnknown
	if turn == nil {
		return
	}
	pod := &corev1.Pod{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: v.observed.Store.Namespace, Name: turn.Pod}, pod)
	switch {
	case apierrors.IsNotFound(err):
		v.observed.Turn = facts.TurnVoid
	case err != nil:
		log.FromContext(ctx).Info("it is not known how the pod is that is to end next", "pod", turn.Pod, "error", err.Error())
	case string(pod.UID) != turn.PodUID || pod.ResourceVersion != turn.PodResourceVersion || pod.DeletionTimestamp != nil:
		v.observed.Turn = facts.TurnVoid
	default:
		v.observed.Turn = facts.TurnStands
	}
}

// recallTurn changes the pod, if it is the one that is on record: another uid or version in the patch is a conflict.
func (r *Reconciler) recallTurn(ctx context.Context, v *visit, step steps.RecallTurn) error {
	turn := step.Turn
	pod := facts.PodRef{Name: turn.Pod, UID: turn.PodUID, ResourceVersion: turn.PodResourceVersion}
	return r.recallPod(ctx, v, pod, turn.PodResourceVersion)
}

// recallPod marks a pod in the version that was seen.
func (r *Reconciler) recallPod(ctx context.Context, v *visit, ref facts.PodRef, mark string) error {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             ref.UID,
		"resourceVersion": ref.ResourceVersion,
		"annotations":     map[string]string{v1alpha1.AnnotationRecalled: mark},
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
