package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// StateType is where the Store's coordinator keeps what it knows. It is chosen when the Store is made: what one kind of state holds
// comes to no other by itself.
func (o *Observed) StateType() v1alpha1.StateType {
	had, asked := o.formerState(), o.Store.Spec.Coordinator.State.Type
	switch {
	case had == "" && asked != "":
		return asked
	case had == "":
		return v1alpha1.StateKubernetes
	case had == v1alpha1.StateMemory && asked == v1alpha1.StateVolume:
		return asked // what memory holds ends with the process in any case
	default:
		return had
	}
}

// formerState is the one that the Store has; empty for a new Store. The status may have been lost, or be of the time before there
// was a choice.
func (o *Observed) formerState() v1alpha1.StateType {
	if state := o.Store.Status.Coordinator.State; state != "" {
		return state
	}
	for i := range o.Pods {
		pod := &o.Pods[i]
		if pod.Component != v1alpha1.ComponentCoordinator || pod.Inputs.Image == "" {
			continue
		}
		if pod.Inputs.State == "" {
			return v1alpha1.StateMemory
		}
		return pod.Inputs.State
	}
	claim := resources.ClaimName(v1alpha1.CoordinatorMember(o.Store.Name), v1alpha1.ComponentCoordinator)
	if _, found := o.Claims[claim]; found {
		return v1alpha1.StateVolume
	}
	if o.Store.Status.ClusterID != "" {
		return o.Store.FormerState()
	}
	return ""
}

// StateRefused says that the spec asks for another state than the Store has, and what to do; empty where it does not.
func (o *Observed) StateRefused() string {
	spec, state := o.Store.Spec.Coordinator, o.StateType()
	const why = "rcbox does not move the state. For the other type, make another Store and copy the data with a client; " +
		"to keep this Store as it is, take the field out of the spec"
	switch {
	case spec.State.Type != "" && spec.State.Type != state:
		return fmt.Sprintf("coordinator.state.type: %s has no effect, because this Store keeps its state in %s: %s",
			spec.State.Type, state, why)
	case spec.Replicas > 1 && state != v1alpha1.StateKubernetes:
		return fmt.Sprintf("coordinator.replicas: %d has no effect, because this Store keeps its state in %s, where only one process "+
			"can use it: %s", spec.Replicas, state, why)
	default:
		return ""
	}
}

// wantedCoordinators is how many there should be.
func (o *Observed) wantedCoordinators() int {
	if o.StateType() != v1alpha1.StateKubernetes {
		return 1
	}
	return max(int(o.Store.Spec.Coordinator.Replicas), 1)
}

// coordinators are all that should be there or have a pod, by ordinal.
func (o *Observed) coordinators() []*member {
	var members []*member
	for ordinal := range v1alpha1.MaxCoordinators {
		m := o.gather(v1alpha1.CoordinatorMemberAt(o.Store.Name, ordinal), ordinal, nil)
		if ordinal < o.wantedCoordinators() || len(m.live) > 0 {
			members = append(members, m)
		}
	}
	return members
}

// keepCoordinators sees to it that there are as many as there should be, and finds the one that leads.
func (p *planning) keepCoordinators() {
	o := p.observed
	for _, m := range o.coordinators() {
		wanted := m.ordinal < o.wantedCoordinators()
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
	isEnding := func(pod Pod) bool {
		return pod.Component == v1alpha1.ComponentCoordinator && pod.Terminating() && o.Now.Before(pod.EndsAt)
	}
	isAway := func(v MemberView) bool { return v.Wanted && (v.Pod == nil || v.Pod.Process != ProcessRunning) }
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
	why := fmt.Sprintf("coordinator.replicas is %d", o.wantedCoordinators())
	if leaves.Wanted {
		why = "the spec has changed, and another coordinator can lead: " + leaves.Pending
	}
	p.endInTurn(leaves, why, func(ref PodRef) Step { return DeletePod{Member: leaves.Name, Pod: ref, Why: why, InTurn: true} })
	p.lookAgainIn(UnsettledInterval)
}
