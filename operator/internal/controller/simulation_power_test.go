package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	isProvedOff = "a machine is proved to be off"
	// while Kubernetes calls its node ready
	isProvedEarly = "a machine is proved to be off early"
	isSwitchedOn  = "a machine is switched on again"
)

// never is a rescheduleAfter that no seed waits for: what moves, does so by proof.
const never = "24h"

// fencesByPower turns some seeds' fencing into one by power.
func (s *simulation) fencesByPower(seed uint64, spec *v1alpha1.StoreSpec) {
	if seed%2 == 1 && spec.Recovery.Fencing.Type == v1alpha1.FencingOutOfServiceTaint {
		spec.Recovery.Fencing.Type = v1alpha1.FencingBMC
		if seed%4 == 1 {
			spec.Recovery.RescheduleAfter, spec.Recovery.Fencing.After = never, "2s"
		}
		s.blows = append(s.blows, slices.Repeat([]func(*simulation){onPod((*simulation).killNodeOf)}, len(blows))...)
	}
}

// notReadyAfter is how long Kubernetes calls a node ready that it does not hear.
const notReadyAfter = 40 * second

// leaseOf is what a node's kubelet has renewed last.
func (s *simulation) leaseOf(node string) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(s.now)
	if since, isFrozen := s.frozen[node]; isFrozen {
		renewed = metav1.NewMicroTime(since)
	}
	duration := int32(notReadyAfter / second)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: corev1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed, LeaseDurationSeconds: &duration},
	}
}

func systemUUID(node int) string { return fmt.Sprintf("0000000%d-1111-4222-8333-444444444444", node) }

// Create makes what the operator does not apply.
func (c *operatorClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if !simulated(object) {
		return c.Client.Create(ctx, object, options...)
	}
	if member, isMember := object.(*v1alpha1.StoreMember); isMember {
		return c.createMember(member)
	}
	return c.s.write(fmt.Sprintf("create %T %s", object, object.GetName()), func() error {
		if _, there := c.simulatedAPI.objects[keyOf(object)]; there {
			return apierrors.NewAlreadyExists(schema.GroupResource{}, object.GetName())
		}
		if operation, isOperation := object.(*v1alpha1.StoreOperation); isOperation && operation.Spec.Isolate != nil {
			c.s.checkIsolation(operation.Spec.Isolate.Node)
		}
		if fence, isFence := object.(*v1alpha1.NodeFence); isFence {
			c.s.checkFence(fence.Spec.Node)
		}
		made, isObject := object.DeepCopyObject().(client.Object)
		if !isObject {
			return fmt.Errorf("%T is no object", object)
		}
		c.put(made)
		return nil
	})
}

// runBox is what the box controller does: it takes requests on, cuts power, proves that, and gives power back when nobody asks any more.
func (s *simulation) runBox() {
	wanted := map[string]bool{}
	for _, fence := range all[*v1alpha1.NodeFence](s.api.objects) {
		node := fence.Spec.Node
		wanted[node] = true
		switch {
		case fence.Status.AcceptedAt == nil && s.chance(0.5):
			edit(s.api, fence.Name, func(fence *v1alpha1.NodeFence) {
				at := metav1.NewTime(s.now)
				fence.Status = v1alpha1.NodeFenceStatus{State: v1alpha1.NodeFenceWaiting, Message: "it is looked at", AcceptedAt: &at}
			})
		case fence.Status.AcceptedAt != nil && fence.Status.State != v1alpha1.NodeFenceDone && s.dead[node] && s.chance(0.3):
			s.trace("%s is proved to be off", node)
			s.counts[isProvedOff]++
			if _, isFrozen := s.frozen[node]; isFrozen {
				s.counts[isProvedEarly]++
			}
			s.off[node] = true
			edit(s.api, fence.Name, func(fence *v1alpha1.NodeFence) {
				fence.Status.State, fence.Status.SystemGUID = v1alpha1.NodeFenceDone, fence.Spec.SystemUUID
				fence.Status.Off = &v1alpha1.OffProof{
					At: metav1.NewTime(s.now), By: []v1alpha1.Witness{v1alpha1.WitnessMMC, v1alpha1.WitnessPowerReading},
				}
			})
			edit(s.api, node, func(node *corev1.Node) {
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
					Key: corev1.TaintNodeOutOfService, Value: "rcbox.dev-box", Effect: corev1.TaintEffectNoExecute,
				})
			})
		}
	}
	for _, node := range all[*corev1.Node](s.api.objects) {
		if s.off[node.Name] && !wanted[node.Name] {
			s.trace("%s is switched on again", node.Name)
			s.counts[isSwitchedOn]++
			delete(s.off, node.Name)
			edit(s.api, node.Name, func(node *corev1.Node) {
				isIt := func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService }
				node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isIt)
			})
			s.reviveNode(node.Name)
		}
	}
}

// checkProof: where nobody moves for want of patience, a member moves because its node is left, or its machine is off.
func (s *simulation) checkProof(member, node string) {
	if s.store().Spec.Recovery.RescheduleAfter == never && !s.isLeft(node) && !s.off[node] {
		s.violate("%s moves, and %s was not proved to be off", member, node)
	}
}

// checkRelease: a machine that is off may be switched on only when no member's present volume is there any more.
func (s *simulation) checkRelease(fence *v1alpha1.NodeFence) {
	if !s.off[fence.Spec.Node] || s.store().Spec.Recovery.Fencing.Type != v1alpha1.FencingBMC {
		return
	}
	for member, claim := range s.presentClaims() {
		ordinal, _ := v1alpha1.MasterOrdinal("sim", member)
		if claim.Annotations[annotationSelectedNode] == fence.Spec.Node && ordinal < int(s.store().Spec.Masters.Replicas) {
			s.violate("%s may be switched on, and %s has not moved", fence.Spec.Node, member)
		}
	}
}

// trustsTheRequest takes power that was asked for to be taken away.
func trustsTheRequest(o facts.Observed) planner.Plan {
	fences := map[string]facts.FenceState{}
	for node, state := range o.Fences {
		state.Done = state.Done || state.Requested
		fences[node] = state
	}
	o.Fences = fences
	return planner.Make(o)
}

// trustsSilence takes a machine for off whose node is silent.
func trustsSilence(o facts.Observed) planner.Plan {
	fences := map[string]facts.FenceState{}
	for node, state := range o.Fences {
		isSilent := o.Nodes[node].Ready && !o.Now.Before(o.Nodes[node].SilentFrom)
		state.Done = state.Done || state.Requested && isSilent
		fences[node] = state
		if seen := o.Nodes[node]; isSilent {
			seen.OutOfService = true
			o.Nodes[node] = seen
		}
	}
	o.Fences = fences
	return planner.Make(o)
}

// fencesByVerdict does not listen to kubelets.
func fencesByVerdict(o facts.Observed) planner.Plan {
	for node, seen := range o.Nodes {
		seen.SilentFrom = time.Unix(1, 0)
		o.Nodes[node] = seen
	}
	return planner.Make(o)
}

// releasesAtOnce gives power back as soon as it was taken away.
func releasesAtOnce(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	for _, fence := range plan.Fences {
		if o.Fences[fence.Node].Done && fence.RequestedAt != nil {
			plan.Steps = slices.Insert(plan.Steps, 0, steps.Step(steps.UnfenceNode{Fence: fence}))
		}
	}
	return plan
}

// byPower is for bugs about machines.
func byPower(spec *v1alpha1.StoreSpec) {
	spec.Recovery.Fencing = v1alpha1.FencingSpec{Type: v1alpha1.FencingBMC, After: "2s"}
	spec.Recovery.RescheduleAfter = never
}
