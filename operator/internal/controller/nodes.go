package controller

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
)

// maxNodesRead bounds how many members' nodes are looked at in one visit; as many as a chassis has and more.
const maxNodesRead = 64

// observeNodes reads the nodes, and where they are tied to one the volumes, of masters that are not up. That is rare, so neither is
// watched. Where the operator may read neither (it has rights in some namespaces only), members do not move by themselves.
func (r *Reconciler) observeNodes(ctx context.Context, v *visit) {
	o := &v.observed
	o.Nodes = map[string]planner.Node{}
	if o.Cluster == nil || o.Store.Spec.Replication.Factor == 0 {
		return
	}
	for i, down := range planner.Down(o) {
		if i == maxNodesRead {
			return
		}
		if err := r.observeNode(ctx, v, down); err != nil {
			log.FromContext(ctx).Info("it is not known whether a node is lost", "member", down.Member, "error", err.Error())
		}
	}
}

func (r *Reconciler) observeNode(ctx context.Context, v *visit, down planner.DownMember) error {
	names := []string{down.Node}
	if claim, found := v.observed.Claims[down.Claim]; found {
		tiedTo, err := r.tiedTo(ctx, v.observed.Store.Namespace, claim)
		if err != nil {
			return err
		}
		claim.TiedTo = tiedTo
		v.observed.Claims[down.Claim] = claim
		names = append(names, tiedTo)
	}
	for _, name := range names {
		if _, read := v.observed.Nodes[name]; name == "" || read {
			continue
		}
		node := &corev1.Node{}
		err := r.Live.Get(ctx, client.ObjectKey{Name: name}, node)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("read node %s: %w", name, err)
		}
		v.observed.Nodes[name] = nodeOf(node, apierrors.IsNotFound(err))
	}
	return nil
}

func nodeOf(node *corev1.Node, deleted bool) planner.Node {
	seen := planner.Node{Deleted: deleted}
	for _, taint := range node.Spec.Taints {
		seen.OutOfService = seen.OutOfService || taint.Key == corev1.TaintNodeOutOfService
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			seen.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	return seen
}

// tiedTo is the one node on which the claim's volume can be used; empty if it has none yet, or may be used on others as well.
func (r *Reconciler) tiedTo(ctx context.Context, namespace string, claim planner.Claim) (string, error) {
	object := &corev1.PersistentVolumeClaim{}
	if err := r.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: claim.Name}, object); err != nil {
		return "", fmt.Errorf("read volume claim %s: %w", claim.Name, err)
	}
	if object.Spec.VolumeName == "" {
		return "", nil
	}
	volume := &corev1.PersistentVolume{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: object.Spec.VolumeName}, volume); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("read volume %s: %w", object.Spec.VolumeName, err)
	}
	host := hostOf(volume)
	if host != "" && claim.Node != "" {
		return claim.Node, nil // the node's name, which its label for the host need not be
	}
	return host, nil
}

// hostOf is the host that a volume's node affinity asks for, if there is just one.
func hostOf(volume *corev1.PersistentVolume) string {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	term := affinity.Required.NodeSelectorTerms[0]
	for _, expression := range term.MatchExpressions {
		if expression.Key == corev1.LabelHostname && expression.Operator == corev1.NodeSelectorOpIn && len(expression.Values) == 1 {
			return expression.Values[0]
		}
	}
	for _, field := range term.MatchFields {
		if field.Key == "metadata.name" && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
			return field.Values[0]
		}
	}
	return ""
}

// claimOf is the name of the volume claim that a pod uses; it has one at most.
func claimOf(pod *corev1.Pod) string {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			return volume.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// stillPlanned looks at everything once more that a step depends on which cannot be taken back, and says whether it is still right.
func (r *Reconciler) stillPlanned(ctx context.Context, v *visit, step planner.Step) error {
	if v.coordinator == nil {
		return fmt.Errorf("%s: the coordinator was not reached", step.Describe())
	}
	response, err := v.coordinator.Status(ctx)
	if err != nil {
		return fmt.Errorf("%s: ask the coordinator once more: %w", step.Describe(), err)
	}
	again := &visit{observed: v.observed}
	if err := r.observeClaims(ctx, again); err != nil {
		return err
	}
	cluster := clusterOf(response)
	again.observed.Cluster, again.observed.Now = &cluster, r.Now()
	r.observeNodes(ctx, again)
	for _, planned := range planner.Make(again.observed).Steps {
		if reflect.DeepEqual(planned, step) {
			return nil
		}
	}
	return fmt.Errorf("%s: not any more: %w", step.Describe(), errStale)
}

// moveMember ends the pod first: should this be interrupted, the next visit makes a pod that cannot start, and moves the member again.
func (r *Reconciler) moveMember(ctx context.Context, v *visit, step planner.MoveMember) error {
	if err := r.stillPlanned(ctx, v, step); err != nil {
		return err
	}
	if step.Pod != nil {
		if err := r.deletePod(ctx, v, *step.Pod); err != nil {
			return err
		}
	}
	if step.Claim == "" {
		return nil
	}
	return r.createClaim(ctx, v, planner.CreateClaim{
		Component: v1alpha1.ComponentMaster, Member: step.Member, Name: step.Claim, Why: step.Why,
	})
}

func (r *Reconciler) dropVolume(ctx context.Context, v *visit, step planner.DropVolume) error {
	if err := r.stillPlanned(ctx, v, step); err != nil {
		return err
	}
	return r.deleteClaim(ctx, v, step.Claim)
}
