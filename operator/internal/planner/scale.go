package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// scaleIn takes out the members that the spec has no place for: all are drained, and the last one is removed once nobody needs
// anything that it has. True when one is on its way out: other changes then wait. A drain may take long, and nothing waits for it.
func (p *planning) scaleIn(masters []*facts.Member) bool {
	p.keepWanted(masters)
	last := masters[len(masters)-1]
	replicas := int(p.observed.Store.Spec.Masters.Replicas)
	if last.Ordinal < replicas {
		return false
	}
	p.lookAgainIn(UnsettledInterval)
	why := fmt.Sprintf("masters.replicas is %d", replicas)
	p.drainExcess(masters, why)
	if !p.mayLeave(last) {
		return false
	}
	step := steps.RetireMember{Member: last.Name, Why: why}
	if pod := last.Pod(); pod != nil && pod.Process != facts.ProcessEnded {
		ref := pod.Ref()
		step.Pod = &ref
	}
	p.add(step)
	return true
}

// keepWanted takes drains back: there is a place for the member again, and its node is not drained. What somebody has ordered by annotation
// stays.
func (p *planning) keepWanted(masters []*facts.Member) {
	ordered := p.observed.Store.DrainedMembers()
	for i, m := range masters {
		view := &p.plan.Masters[i]
		if !view.Wanted || m.Draining() == nil || slices.Contains(ordered, m.Name) || p.isLeaving(view) {
			continue
		}
		why := fmt.Sprintf("masters.replicas is %d", p.observed.Store.Spec.Masters.Replicas)
		if p.observed.RecordedEvacuation(m.Name) != nil {
			why = "it stays, or is where it can stay: its node is not drained, or members wait there (recovery.drainedNodes)"
		}
		p.add(steps.UndrainMember{Member: m.Name, Why: why})
		p.lookAgainIn(UnsettledInterval)
	}
}

// drainExcess begins with the last that is not drained yet, and goes on with the next one when the coordinator has agreed: that
// looks at all that leave when it decides whether those that stay are enough.
func (p *planning) drainExcess(masters []*facts.Member, why string) {
	for _, m := range slices.Backward(masters) {
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

// Leaving is what the members that are drained have left, the last member first; those that are not Wanted.
func Leaving(views []MemberView) []MemberView {
	var leaving []MemberView
	for _, view := range slices.Backward(views) {
		if !view.Wanted && view.Reported != nil && view.Reported.Draining != nil {
			leaving = append(leaving, view)
		}
	}
	return leaving
}
