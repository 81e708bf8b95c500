package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

var (
	withdrawnDrains = rule{
		name:      "drains of members that stay",
		blockedBy: []blocker{noAnswer, stateStuck},
		gives:     (*planning).keepWanted,
	}

	scalingIn = rule{
		name: "members that the spec has no place for",
		blockedBy: []blocker{
			noAnswer, stateStuck,
			{"the spec has a place for every member", func(p *planning) bool {
				return p.masters[len(p.masters)-1].Ordinal < int(p.observed.Store.Spec.Masters.Replicas)
			}},
		},
		gives: (*planning).scaleIn,
	}
)

// scaleIn takes out the members that the spec has no place for: all are drained, and the last one is removed once nobody needs
// anything that it has. A drain may take long, and no other change waits for it.
func (p *planning) scaleIn() {
	last := p.masters[len(p.masters)-1]
	replicas := int(p.observed.Store.Spec.Masters.Replicas)
	p.lookAgainIn(UnsettledInterval)
	why := fmt.Sprintf("masters.replicas is %d", replicas)
	p.drainExcess(why)
	if !p.mayLeave(last) {
		return
	}
	step := steps.RetireMember{Member: last.Name, Why: why}
	if pod := last.Pod(); pod != nil && pod.Process != facts.ProcessEnded {
		ref := pod.Ref()
		step.Pod = &ref
	}
	p.add(step)
	p.isChanging = true
}

// keepWanted takes drains back: there is a place for the member again, and its node is not drained. What a StoreOperation
// orders stays.
func (p *planning) keepWanted() {
	ordered := p.observed.DrainedMembers()
	for i, m := range p.masters {
		view := &p.plan.Masters[i]
		if !view.Wanted || m.Draining() == nil || slices.Contains(ordered, m.Name) || p.isLeaving(view) {
			continue
		}
		why := fmt.Sprintf("masters.replicas is %d", p.observed.Store.Spec.Masters.Replicas)
		if p.observed.Recorded(m.Name).Evacuation != nil {
			why = "it stays, or is where it can stay: its node is not drained, or members wait there (recovery.drainedNodes)"
		}
		p.add(steps.UndrainMember{Member: m.Name, Why: why})
		p.lookAgainIn(UnsettledInterval)
	}
}

// drainExcess begins with the last that is not drained yet, and goes on with the next one when the coordinator has agreed: that
// looks at all that leave when it decides whether those that stay are enough.
func (p *planning) drainExcess(why string) {
	for _, m := range slices.Backward(p.masters) {
		if m.Ordinal < int(p.observed.Store.Spec.Masters.Replicas) {
			return
		}
		if p.needsDrain(m) && m.Draining() == nil {
			if why := p.whyNotFewer(); why != "" {
				p.plan.HeldBack = why
				return
			}
			p.add(steps.DrainMember{Member: m.Name, Why: why})
			return
		}
	}
}

// needsDrain: one that holds nothing and keeps no copies is let go as it is.
func (p *planning) needsDrain(m *facts.Member) bool {
	return m.Reported != nil && (m.Tablets() > 0 || p.observed.Store.Copies() > 0)
}

// mayLeave says whether the coordinator can be asked to let a member go.
func (p *planning) mayLeave(m *facts.Member) bool {
	if p.needsDrain(m) {
		draining := m.Draining()
		return draining != nil && draining.Drained
	}
	return p.mayRemove(m.Name)
}
