package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/members"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// seePorts reads what a pod has of addresses, and whether it is proven that it sends nothing any more.
func seePorts(seen *facts.Pod, pod *corev1.Pod) {
	seen.Addresses = network.Split(pod.Annotations[v1alpha1.AnnotationAddresses])
	seen.IsHeld = slices.Contains(pod.Finalizers, v1alpha1.FinalizerAddresses)
	seen.Gated = slices.ContainsFunc(pod.Spec.SchedulingGates, isGate)
	seen.Attached, seen.AttachedKnown = network.ParseStatus(pod.Annotations[network.AnnotationStatus])
	seen.Ended = hasEnded(pod)
	seen.Refused = refusalOf(pod)
}

func isGate(gate corev1.PodSchedulingGate) bool { return gate.Name == v1alpha1.GateAddresses }

// hasEnded is the word of the pod's kubelet: what it says last of a pod is its phase, after its containers and their network are gone. A
// phase alone tells nothing, for a pod of a node that does not answer is given one, too; containers that have ended are the kubelet's word.
func hasEnded(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return pod.DeletionTimestamp != nil // it gets none any more
	}
	if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
		return false
	}
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].State.Terminated == nil {
			return false
		}
	}
	// An init container that runs beside the others sends from the pod's addresses, too.
	for i := range pod.Status.InitContainerStatuses {
		if pod.Status.InitContainerStatuses[i].State.Running != nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0 || refusalOf(pod) != ""
}

// refusals are the reasons for which kubelets do not admit pods: devices, huge pages and CPUs that do not fit together or are not there,
// what changed since the scheduler looked.
var refusals = []string{
	"UnexpectedAdmissionError", "TopologyAffinityError", "ContainerAlignmentError", "PodAffinityError", "NodeAffinity", "NodeName",
	"NodePorts", "SMTAlignmentError", "UnschedulableTaint",
}

// refusalOf is why the pod's kubelet did not admit it; empty if it did. Such a pod has never run.
func refusalOf(pod *corev1.Pod) string {
	reason := pod.Status.Reason
	isRefusal := slices.Contains(refusals, reason) || strings.HasPrefix(reason, "OutOf")
	if pod.Status.Phase != corev1.PodFailed || !isRefusal || len(pod.Status.ContainerStatuses) > 0 {
		return ""
	}
	return reasonAndMessage(reason, pod.Status.Message)
}

// quarantinedNodes are those on which pods were of which nobody saw how they ended.
func quarantinedNodes(store *v1alpha1.Store) []string {
	if store.Status.Network == nil {
		return nil
	}
	var nodes []string
	for _, entry := range store.Status.Network.Quarantined {
		if entry.Node != "" && len(nodes) < maxNodesRead {
			nodes = append(nodes, entry.Node)
		}
	}
	return nodes
}

// observeForeign looks which addresses other Stores have, as far as the operator may see them. By range, not by definition: two definitions
// may be of one network.
func (r *Reconciler) observeForeign(ctx context.Context, v *reconcileState) error {
	store := v.observed.Store
	if !store.Spec.HasPorts() {
		return nil
	}
	others := &v1alpha1.StoreList{}
	if err := r.Client.List(ctx, others); err != nil {
		return fmt.Errorf("list Stores, whose addresses must be others: %w", err)
	}
	if len(others.Items) > 1 {
		if err := members.JoinAll(ctx, r.Client, others.Items, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	for i := range others.Items {
		other := &others.Items[i]
		pools, err := network.Pools(&other.Spec)
		if err != nil || len(pools) == 0 || other.UID == store.UID {
			continue // one without pools that can be read gives nobody an address
		}
		foreign := facts.Foreign{Store: other.Namespace + "/" + other.Name, IsOlder: isOlder(other, store)}
		for _, pool := range pools {
			foreign.Ranges = append(foreign.Ranges, pool.Range)
		}
		for j := range other.Status.Masters.Members {
			for _, address := range other.Status.Masters.Members[j].Addresses {
				foreign.Addresses = appendAddress(foreign.Addresses, address.IP)
			}
		}
		if other.Status.Network != nil {
			for _, entry := range other.Status.Network.Quarantined {
				foreign.Addresses = appendAddress(foreign.Addresses, entry.IP)
			}
		}
		v.observed.Foreign = append(v.observed.Foreign, foreign)
	}
	slices.SortFunc(v.observed.Foreign, func(a, b facts.Foreign) int { return strings.Compare(a.Store, b.Store) })
	return nil
}

func appendAddress(list []netip.Addr, text string) []netip.Addr {
	if ip, err := netip.ParseAddr(text); err == nil {
		return append(list, ip)
	}
	return list
}

func isOlder(other, store metav1.Object) bool {
	theirs, ours := other.GetCreationTimestamp(), store.GetCreationTimestamp()
	if !theirs.Equal(&ours) {
		return theirs.Before(&ours)
	}
	return other.GetUID() < store.GetUID()
}

// ungatePod opens the gate of this very pod, in the version that was seen, after a look at record and pods without the cache. One look does
// for all pods of a reconcile: one that is made later is looked at by who would ungate it.
func (r *Reconciler) ungatePod(ctx context.Context, v *reconcileState, step steps.UngatePod) error {
	if v.ungates == nil {
		if err := r.checkStoreIsPresent(ctx, v); err != nil {
			return err
		}
		again := &reconcileState{observed: v.observed}
		if err := observePods(ctx, r.Live, again); err != nil {
			return err
		}
		v.ungates = map[steps.UngatePod]bool{}
		for ungate := range steps.Of[steps.UngatePod](r.makePlan(again.observed).Steps) {
			v.ungates[ungate] = true
		}
	}
	if !v.ungates[step] {
		return fmt.Errorf("%s: not any more: %w", steps.Describe(step), errStale)
	}
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": step.Pod.UID, "resourceVersion": step.Pod.ResourceVersion},
		"spec":     map[string]any{"schedulingGates": nil},
	})
	if err != nil {
		return fmt.Errorf("encode the gates of pod %s: %w", step.Pod.Name, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v.observed.Store.Namespace, Name: step.Pod.Name}}
	return stale(r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, text), FieldManager), "ungate pod "+step.Pod.Name)
}

// releasePod takes the finalizer from this very pod.
func (r *Reconciler) releasePod(ctx context.Context, v *reconcileState, step steps.ReleasePod) error {
	pod := &corev1.Pod{}
	// In a cache that is behind, a StoreMember may not have the pod yet, and would have it for ever once the pod is gone.
	if err := r.checkMembers(ctx, v); err != nil {
		return err
	}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: v.observed.Store.Namespace, Name: step.Pod.Name}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at pod %s: %w", step.Pod.Name, err)
	}
	changed := pod.DeepCopy()
	if string(pod.UID) != step.Pod.UID || !controllerutil.RemoveFinalizer(changed, v1alpha1.FinalizerAddresses) {
		return nil
	}
	patch := client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch, FieldManager); err != nil && !apierrors.IsNotFound(err) {
		return stale(err, "release pod "+step.Pod.Name)
	}
	return nil
}
