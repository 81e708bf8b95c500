package planner

import (
	"fmt"
	"slices"
)

// scaleIn takes out the members that the spec has no place for: all are drained, and the last one is removed once nobody needs
// anything that it has. True when one is on its way out: other changes then wait. A drain may take long, and nothing waits for it.
func (p *planning) scaleIn(masters []*member) bool {
	p.keepWanted(masters)
	last := masters[len(masters)-1]
	replicas := int(p.observed.Store.Spec.Masters.Replicas)
	if last.ordinal < replicas {
		return false
	}
	p.lookAgainIn(UnsettledInterval)
	why := fmt.Sprintf("masters.replicas is %d", replicas)
	p.drainExcess(masters, why)
	if !p.mayLeave(last) {
		return false
	}
	step := RetireMember{Member: last.name, Why: why}
	if pod := last.pod(); pod != nil && pod.Process != ProcessEnded {
		ref := pod.Ref()
		step.Pod = &ref
	}
	p.add(step)
	return true
}

// keepWanted takes drains back: there is a place for the member again, and its node is not drained. What somebody has ordered by annotation
// stays.
func (p *planning) keepWanted(masters []*member) {
	ordered := p.observed.Store.DrainedMembers()
	for i, m := range masters {
		view := &p.plan.Masters[i]
		if !view.Wanted || m.draining() == nil || slices.Contains(ordered, m.name) || p.isLeaving(view) {
			continue
		}
		why := fmt.Sprintf("masters.replicas is %d", p.observed.Store.Spec.Masters.Replicas)
		if p.observed.recordedEvacuation(m.name) != nil {
			why = "it stays, or is where it can stay: its node is not drained, or members wait there (recovery.drainedNodes)"
		}
		p.add(UndrainMember{Member: m.name, Why: why})
		p.lookAgainIn(UnsettledInterval)
	}
}

// drainExcess begins with the last that is not drained yet, and goes on with the next one when the coordinator has agreed: that
// looks at all that leave when it decides whether those that stay are enough.
func (p *planning) drainExcess(masters []*member, why string) {
	for _, m := range slices.Backward(masters) {
		if m.ordinal < int(p.observed.Store.Spec.Masters.Replicas) {
			return
		}
		if p.needsDrain(m) && m.draining() == nil {
			if why := p.whyNotFewer(); why != "" {
				p.plan.HeldBack = why
				return
			}
			p.add(DrainMember{Member: m.name, Why: why})
			return
		}
	}
}

// needsDrain: one that holds nothing and keeps no copies is let go as it is.
func (p *planning) needsDrain(m *member) bool {
	return m.reported != nil && (m.tablets() > 0 || p.observed.Store.Copies() > 0)
}

// mayLeave says whether the coordinator can be asked to let a member go.
func (p *planning) mayLeave(m *member) bool {
	if p.needsDrain(m) {
		draining := m.draining()
		return draining != nil && draining.Drained
	}
	return p.mayRemove(m.name)
}

func (m *member) draining() *Draining {
	if m.reported == nil {
		return nil
	}
	return m.reported.Draining
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
