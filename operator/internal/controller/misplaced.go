package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// misplacedAfter is the age from which it is asked why no container of a pod was started: most are within seconds.
const misplacedAfter = 10 * time.Second

// observeMisplaced finds pods on nodes where their volumes cannot be used: their kubelets try to mount these for ever. The scheduler places
// a pod so where a volume waits for the pod's claim by name, as after a restore: until the claim is bound, the scheduler counts on a new
// volume, which can be made on any node. Where the operator may not read nodes and volumes (it has rights in some namespaces only), such a
// pod stays until somebody deletes it.
func (r *Reconciler) observeMisplaced(ctx context.Context, v *reconcileState) {
	reads := 0
	for i := range v.observed.Pods {
		pod := &v.observed.Pods[i]
		claim, found := v.observed.Claims[pod.Claim]
		isYoung := v.observed.Now.Sub(pod.CreatedAt) < misplacedAfter
		if pod.Node == "" || !pod.NeverRan || isYoung || pod.Terminating() || !found || claim.Volume == "" {
			continue
		}
		if reads++; reads > maxNodesRead {
			return
		}
		why, err := r.whyMisplaced(ctx, pod, claim.Volume)
		if err != nil {
			log.FromContext(ctx).Info("it is not known whether a pod can use its volume", "pod", pod.Name, "error", err.Error())
			continue
		}
		pod.Misplaced = why
	}
}

// whyMisplaced is empty for a pod that can use its volume, and while nobody knows.
func (r *Reconciler) whyMisplaced(ctx context.Context, pod *facts.Pod, name string) (string, error) {
	volume, node := &corev1.PersistentVolume{}, &corev1.Node{}
	err := errors.Join(r.Live.Get(ctx, client.ObjectKey{Name: name}, volume), r.Live.Get(ctx, client.ObjectKey{Name: pod.Node}, node))
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read volume %s and node %s: %w", name, pod.Node, err)
	case volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil:
		return "", nil
	}
	selector, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
	if err != nil {
		return "", fmt.Errorf("read the node affinity of volume %s: %w", name, err)
	}
	if selector.Match(node) {
		return "", nil
	}
	return fmt.Sprintf("its volume %s cannot be used on node %s, where it was placed before its claim %s was bound",
		name, pod.Node, pod.Claim), nil
}

// hasNeverRun says that no container of the pod was ever started.
func hasNeverRun(pod *corev1.Pod) bool {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			state, last := &statuses[i].State, &statuses[i].LastTerminationState
			if state.Running != nil || state.Terminated != nil || last.Terminated != nil || statuses[i].RestartCount > 0 {
				return false
			}
		}
	}
	return pod.Status.Phase == corev1.PodPending || pod.Status.Phase == ""
}
