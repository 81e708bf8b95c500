package planner

import (
	"slices"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

var outdatedProcesses = rule{
	name: "outdated processes that hold something",
	blockedBy: []blocker{
		noAnswer, stateStuck, memberChanges,
		{"copies are missing", func(p *planning) bool { return p.plan.Shortfall != nil && !p.plan.Shortfall.restart }},
		{"a master is away, or leaves", func(p *planning) bool {
			return slices.ContainsFunc(p.plan.Masters, func(v MemberView) bool { return !v.Up || !v.Wanted })
		}},
		{"a pod is ending", (*planning).isPodEnding},
		{"a coordinator is outdated, and there are several", func(p *planning) bool {
			return p.hasStandbys() && slices.ContainsFunc(p.plan.Coordinators, func(v MemberView) bool {
				return v.Pending != "" || v.Pod == nil || v.Pod.Process != facts.ProcessRunning
			})
		}},
		// Where a node is drained, no pod would start; and one change at a time.
		{"a member leaves its node", func(p *planning) bool {
			return slices.ContainsFunc(p.plan.Masters, func(v MemberView) bool {
				return p.isLeaving(&v) && v.Reported != nil && v.Reported.Draining != nil
			})
		}},
	},
	gives: (*planning).roll,
}

// hasStandbys: there is more than one coordinator.
func (p *planning) hasStandbys() bool { return len(p.plan.Coordinators) > 1 }

// roll restarts one outdated process, if everything has all its copies, everybody is up, and nobody is on the way out: then the loss of any
// one costs nothing but the moment until others serve what it held. A coordinator that is alone comes last, for what does not start with
// the new spec is better found out with a master.
func (p *planning) roll() {
	views := slices.Clone(p.plan.Masters)
	if !p.hasStandbys() && p.observed.Store.Copies() > 0 {
		views = append(views, p.plan.Coordinators...)
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
	if view.OrderedBy != "" {
		why = view.Pending + ", and everything has its copies"
	}
	p.replaceUnderLock(view, why, func(ref facts.PodRef) steps.Step { return steps.RestartMember{Member: view.Name, Pod: ref, Why: why} })
	p.lookAgainIn(UnsettledInterval)
}
