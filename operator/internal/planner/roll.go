package planner

import (
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// rolls says whether the operator restarts an outdated process that runs: nothing that it holds is lost by that.
func (p *planning) rolls(view *MemberView, component string) bool {
	pod, strategy := view.Pod, p.observed.Store.Spec.UpdateStrategy
	isLeft := strategy == v1alpha1.UpdateOnDelete && !isEmpty(view, component)
	if view.Pending == "" || !view.Wanted || pod.Process != facts.ProcessRunning || isLeft {
		return false
	}
	if component == v1alpha1.ComponentCoordinator {
		// One that is alone is restarted with the masters, and without copies these are not: then its restart is the user's, too.
		isRestarted := p.observed.Store.Spec.Coordinator.Replicas > 1 || p.observed.Store.Copies() > 0
		return isRestarted && pod.Inputs.State != "" && pod.Inputs.State != v1alpha1.StateMemory
	}
	return pod.Inputs.Replication != nil && p.observed.Store.Copies() > 0
}

// isEmpty says whether a master holds no part of any table: whoever restarts the others himself has nothing to do with that one.
func isEmpty(view *MemberView, component string) bool {
	return component == v1alpha1.ComponentMaster && view.Reported.Runs(view.Pod) && view.Tablets() == 0
}

// roll restarts one outdated process, if everything has all its copies, everybody is up, and nobody is on the way out: then the loss of any
// one costs nothing but the moment until others serve what it held. A coordinator that is alone comes last, for what does not start with
// the new spec is better found out with a master.
func (p *planning) roll() {
	o := p.observed
	isAway := func(v MemberView) bool { return v.Wanted && !v.Up || !v.Wanted }
	isShort := p.plan.Shortfall != nil && !p.plan.Shortfall.restart
	if isShort || slices.ContainsFunc(p.plan.Masters, isAway) || slices.ContainsFunc(o.Pods, p.isEnding) {
		return
	}
	standbys := len(p.plan.Coordinators) > 1
	isOutdated := func(v MemberView) bool {
		return v.Pending != "" || v.Pod == nil || v.Pod.Process != facts.ProcessRunning
	}
	if standbys && slices.ContainsFunc(p.plan.Coordinators, isOutdated) {
		return // those first, in their own way
	}
	views := slices.Clone(p.plan.Masters)
	if !standbys && o.Store.Copies() > 0 {
		views = append(views, p.plan.Coordinators...)
	}
	// Where a node is drained, no pod would start; and one change at a time.
	if slices.ContainsFunc(views, func(v MemberView) bool { return p.isLeaving(&v) && v.Reported.Draining != nil }) {
		return
	}
	first := slices.IndexFunc(views, func(v MemberView) bool { return v.Rolls && v.Evacuation == nil })
	if first < 0 {
		return
	}
	view := &views[first]
	if why := p.whyNotSmaller(view.Pod); why != "" {
		p.plan.HeldBack = why
		return
	}
	why := "the spec has changed, and everything has its copies: " + view.Pending
	p.endInTurn(view, why, func(ref facts.PodRef) steps.Step { return steps.RestartMember{Member: view.Name, Pod: ref, Why: why} })
	p.lookAgainIn(UnsettledInterval)
}

// isEnding says whether a pod of the Store's processes was told to end, and has time left for it.
func (p *planning) isEnding(pod facts.Pod) bool {
	return pod.Terminating() && p.observed.Now.Before(pod.EndsAt)
}
