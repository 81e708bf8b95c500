package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// keepCoordinators sees to it that there are as many as there should be, and finds the one that leads.
func (p *planning) keepCoordinators() {
	o := p.observed
	for _, m := range o.CoordinatorMembers() {
		wanted := m.Ordinal < o.WantedCoordinators()
		p.plan.Coordinators = append(p.plan.Coordinators, p.keep(m, v1alpha1.ComponentCoordinator, wanted))
	}
	p.plan.Coordinator = p.plan.Coordinators[p.leader()]
	if o.StateType() == v1alpha1.StateKubernetes {
		p.rollCoordinators()
	}
}

// leader is the index of the one that answered; else of the one that did last; else of the first.
func (p *planning) leader() int {
	views := p.plan.Coordinators
	answered := func(v MemberView) bool { return v.Pod != nil && v.Pod.Name == p.observed.LeaderPod }
	if i := slices.IndexFunc(views, answered); i >= 0 {
		return i
	}
	led := func(v MemberView) bool { return v.Pod != nil && v.Pod.Name == p.observed.Store.Status.Coordinator.Pod }
	return max(slices.IndexFunc(views, led), 0)
}

// rollCoordinators replaces outdated coordinators and ends those too many, one at a time and standbys first: they hold nothing. The leader
// goes only where another one can follow it at once; an outdated one that is alone is the user's to restart.
func (p *planning) rollCoordinators() {
	o := p.observed
	isEnding := func(pod facts.Pod) bool {
		return pod.Component == v1alpha1.ComponentCoordinator && pod.Terminating() && o.Now.Before(pod.EndsAt)
	}
	isAway := func(v MemberView) bool { return v.Wanted && (v.Pod == nil || v.Pod.Process != facts.ProcessRunning) }
	if o.Cluster == nil || slices.ContainsFunc(o.Pods, isEnding) || slices.ContainsFunc(p.plan.Coordinators, isAway) {
		return
	}
	canFollow := func(v MemberView) bool { return v.Wanted && v.Pending == "" && v.Pod.Name != o.LeaderPod }
	var leaves *MemberView
	for i := range p.plan.Coordinators {
		view := &p.plan.Coordinators[i]
		if view.Pod == nil || view.Wanted && view.Pending == "" {
			continue
		}
		if view.Pod.Name != o.LeaderPod {
			leaves = view
			break
		}
		if slices.ContainsFunc(p.plan.Coordinators, canFollow) {
			leaves = view
		}
	}
	if leaves == nil {
		return
	}
	why := fmt.Sprintf("coordinator.replicas is %d", o.WantedCoordinators())
	if leaves.Wanted {
		why = "the spec has changed, and another coordinator can lead: " + leaves.Pending
	}
	p.endInTurn(leaves, why, func(ref facts.PodRef) steps.Step {
		return steps.DeletePod{Member: leaves.Name, Pod: ref, Why: why, InTurn: true}
	})
	p.lookAgainIn(UnsettledInterval)
}
