package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/nodelease"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// maxNodesRead bounds how many nodes are asked for in one reconcile; as many as a chassis has and more.
const maxNodesRead = 64

// observeMemberNodes looks at the nodes that masters are on, as the watch of nodes has them.
func (r *Reconciler) observeMemberNodes(ctx context.Context, v *reconcileState) {
	o := &v.observed
	o.Nodes = map[string]facts.Node{}
	if o.Store.Copies() == 0 && !o.Store.Spec.HasPorts() || r.Nodes.AreHidden() {
		return
	}
	names := quarantinedNodes(o.Store)
	for i := range o.Pods {
		if pod := &o.Pods[i]; pod.Component == v1alpha1.ComponentMaster && pod.Node != "" {
			names = append(names, pod.Node)
		}
	}
	slices.Sort(names)
	reads := 0
	for _, name := range slices.Compact(names) {
		if node := r.Nodes.Node(name); node != nil {
			o.Nodes[name] = nodeOf(node, false)
			continue
		}
		// It is gone, or the watch has it later than that of pods: that it is gone is the API server's word.
		if reads++; reads > maxNodesRead {
			continue
		}
		if err := r.readNode(ctx, v, name); err != nil {
			log.FromContext(ctx).Info("it is not known whether a node is there", "node", name, "error", err.Error())
		}
	}
}

// readNode asks the API server.
func (r *Reconciler) readNode(ctx context.Context, v *reconcileState, name string) error {
	node := &corev1.Node{}
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, node)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	v.observed.Nodes[name] = nodeOf(node, apierrors.IsNotFound(err))
	return nil
}

// readSilence finds out since when a node is silent that Kubernetes says is ready. Where the operator has no right to read the node's
// Lease, and where there is none, that is not known: then the node has to be not ready.
func (r *Reconciler) readSilence(ctx context.Context, v *reconcileState, name string) error {
	seen, found := v.observed.Nodes[name]
	if !found || !seen.Ready || v.observed.Store.Spec.Recovery.Fencing.Type != v1alpha1.FencingBMC {
		return nil
	}
	lease := &coordinationv1.Lease{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}, lease)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		delete(v.observed.Nodes, name) // nothing is done about it while it is not known how it is
		return fmt.Errorf("read the Lease of node %s: %w", name, err)
	}
	seen.SilentFrom = nodelease.SilentFrom(lease)
	v.observed.Nodes[name] = seen
	return nil
}

// observeDisplaced looks once more at the nodes, and where they are tied to one at the volumes, of masters that are not up or whose nodes
// are drained. Where the operator may read neither (it has rights in some namespaces only), members do not move by themselves.
func (r *Reconciler) observeDisplaced(ctx context.Context, v *reconcileState) {
	o := &v.observed
	if o.Cluster == nil || o.Store.Copies() == 0 {
		return
	}
	read := map[string]bool{}
	for i, displaced := range facts.Displaced(o) {
		if i == maxNodesRead {
			return
		}
		if err := r.observeHome(ctx, v, displaced, read); err != nil {
			if claim, found := o.Claims[displaced.Claim]; found && claim.TiedTo == "" {
				claim.IsHomeUnknown = true
				o.Claims[displaced.Claim] = claim
			}
			log.FromContext(ctx).Info("it is not known whether a node is lost", "member", displaced.Member, "error", err.Error())
		}
	}
}

// observeHome leaves out nodes that were read in this reconcile.
func (r *Reconciler) observeHome(ctx context.Context, v *reconcileState, displaced facts.DownMember, read map[string]bool) error {
	names := []string{displaced.Node}
	if claim, found := v.observed.Claims[displaced.Claim]; found {
		tiedTo, err := r.tiedTo(ctx, v.observed.Store.Namespace, claim)
		if err != nil {
			return err
		}
		claim.TiedTo = tiedTo
		v.observed.Claims[displaced.Claim] = claim
		names = append(names, tiedTo)
	}
	for _, name := range names {
		if name == "" || read[name] {
			continue
		}
		read[name] = true
		delete(v.observed.Nodes, name) // what was known of it does not count if it cannot be read now
		if err := errors.Join(r.readNode(ctx, v, name), r.readSilence(ctx, v, name)); err != nil {
			return err
		}
	}
	return nil
}

func nodeOf(node *corev1.Node, deleted bool) facts.Node {
	seen := facts.Node{Deleted: deleted}
	if node.Spec.Unschedulable {
		seen.Drained = v1alpha1.DrainCordoned
	}
	for _, taint := range node.Spec.Taints {
		seen.OutOfService = seen.OutOfService || taint.Key == corev1.TaintNodeOutOfService
		if drain, known := drainTaints[taint.Key]; known && taint.Effect != corev1.TaintEffectPreferNoSchedule {
			seen.Drained = drain
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			seen.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	return seen
}

// drainTaints are those by which nodes are marked that are about to be emptied.
var drainTaints = map[string]v1alpha1.NodeDrain{
	corev1.TaintNodeUnschedulable:    v1alpha1.DrainCordoned,
	"ToBeDeletedByClusterAutoscaler": v1alpha1.DrainClusterAutoscaler,
	"karpenter.sh/disrupted":         v1alpha1.DrainKarpenter,
	"karpenter.sh/disruption":        v1alpha1.DrainKarpenter, // before Karpenter's version 1
}

// tiedTo is the one node on which the claim's volume can be used; empty if it has none yet, or may be used on others as well.
func (r *Reconciler) tiedTo(ctx context.Context, namespace string, claim facts.Claim) (string, error) {
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
	if host == "" || claim.Node == "" || claim.Node == host {
		return host, nil
	}
	return r.nodeOfHost(ctx, host, claim.Node)
}

// nodeOfHost is the name of the node whose label says that it is this host; the name and the label of a node may differ. The node that the
// scheduler has written to the claim is that node, unless the volume had been there before the claim and is elsewhere.
func (r *Reconciler) nodeOfHost(ctx context.Context, host, chosen string) (string, error) {
	node := &corev1.Node{}
	err := r.Live.Get(ctx, client.ObjectKey{Name: chosen}, node)
	switch {
	case apierrors.IsNotFound(err):
		return chosen, nil
	case err != nil:
		return "", fmt.Errorf("read node %s: %w", chosen, err)
	case node.Labels[corev1.LabelHostname] != "" && node.Labels[corev1.LabelHostname] != host:
		return host, nil
	}
	return chosen, nil
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

// stillPlanned looks at everything once more that a step depends on which cannot be taken back, and says whether it is still right. Not at
// the cache: what it does not have yet may be a record that was withdrawn, or another process that was told to end.
func (r *Reconciler) stillPlanned(ctx context.Context, v *reconcileState, step steps.Step) error {
	if v.coordinator == nil {
		return fmt.Errorf("%s: the coordinator was not reached", steps.Describe(step))
	}
	response, err := v.coordinator.Status(ctx)
	if err != nil {
		return fmt.Errorf("%s: ask the coordinator once more: %w", steps.Describe(step), err)
	}
	if err := r.checkStoreIsPresent(ctx, v); err != nil {
		return fmt.Errorf("%s: %w", steps.Describe(step), err)
	}
	again := &reconcileState{observed: v.observed}
	again.observed.Nodes = maps.Clone(v.observed.Nodes)
	if err := errors.Join(
		observePods(ctx, r.Live, again), observeClaims(ctx, r.Live, again), listOperations(ctx, r.Live, again)); err != nil {
		return err
	}
	cluster := clusterOf(response)
	again.observed.Cluster, again.observed.Now = &cluster, r.Now()
	again.observed.Trials = r.trials.of(v.observed.Store) // one may have been repeated right before
	r.observeByCluster(ctx, again)
	for _, planned := range r.makePlan(again.observed).Steps {
		if reflect.DeepEqual(planned, step) {
			return nil
		}
	}
	return fmt.Errorf("%s: not any more: %w", steps.Describe(step), errStale)
}

// moveMember ends the pod first: should this be interrupted, the next reconcile makes a pod that cannot start, and moves the member again.
// Where its process may run, the coordinator lets it go before, and the pod is last, so that it is known until then that the member is to
// move.
func (r *Reconciler) moveMember(ctx context.Context, v *reconcileState, step steps.MoveMember) error {
	endPod := func() error {
		if step.Pod == nil {
			return nil
		}
		return r.deletePod(ctx, v, *step.Pod)
	}
	makeClaim := func() error {
		if step.Claim == "" {
			return nil
		}
		return r.createClaim(ctx, v, steps.CreateClaim{
			Component: v1alpha1.ComponentMaster, Member: step.Member, Name: step.Claim, Why: step.Why,
		})
	}
	inOrder := []func() error{endPod, makeClaim}
	if step.Drained {
		letGo := func() error { return v.coordinator.RemoveMember(ctx, step.Member, instanceOf(step.Pod)) }
		inOrder = []func() error{letGo, makeClaim, endPod}
	}
	for _, do := range inOrder {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
