package planner

import (
	"slices"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

var (
	addressPools = rule{name: "address pools", gives: func(p *planning) {
		b, report := p.book, &p.plan.Addresses
		report.Quarantined, report.Conflicts, report.Overlap = b.Quarantined(p.masters), b.Conflicts(p.masters), b.Overlap()
		report.Sizes, report.Free = b.Room()
	}}

	ungatedPods = rule{name: "gated pods whose addresses are recorded", gives: (*planning).ungatePods}

	silentPods = rule{name: "ended pods that send nothing any more", gives: (*planning).releasePods}
)

// ungatePods lets pods be started whose addresses are on record as their own. A pod may be made late, by an operator that stood still
// meanwhile, with addresses that another pod has by now, and no precondition keeps it from that. So it is made with a gate, and is nothing
// but an offer. StoreMembers say whose an address is, and of two that have the same one on record the address book chooses one. A gate is
// opened in the version of the pod that was seen, by who has seen record and pods without the cache; and an offer that comes too late is
// deleted.
func (p *planning) ungatePods() {
	for _, m := range p.masters {
		for i, pod := range m.Live {
			if !pod.Gated || p.isEnded(pod) {
				continue
			}
			p.lookAgainIn(lockInterval)
			rivals, isRecorded := p.book.Rivals(pod), p.book.Owns(pod)
			why := p.book.WhyInVain(pod)
			switch {
			case why != "":
				p.add(steps.DeletePod{Member: m.Name, Pod: pod.Ref(), Why: why})
			case i == 0 && isRecorded && len(rivals) == 0:
				p.add(steps.UngatePod{Member: m.Name, Pod: pod.Ref(), Why: "its addresses are on record"})
			}
		}
	}
}

// isEnded says whether this plan ends the pod.
func (p *planning) isEnded(pod *facts.Pod) bool {
	return slices.ContainsFunc(p.plan.Steps, func(step steps.Step) bool {
		end, isEnd := step.(steps.DeletePod)
		return isEnd && end.Pod.UID == pod.UID
	})
}

// releasePods lets pods vanish that send nothing any more. That is on record before: of a pod that is gone it could not be seen.
func (p *planning) releasePods() {
	for i := range p.observed.Pods {
		pod := &p.observed.Pods[i]
		if !pod.Terminating() || !pod.IsHeld {
			continue
		}
		p.lookAgainIn(UnsettledInterval)
		if p.book.IsSilent(pod) && !p.observed.MaySend(pod.Name) {
			p.add(steps.ReleasePod{Member: pod.Member, Pod: facts.PodRef{Name: pod.Name, UID: pod.UID}, Why: "it sends nothing any more"})
		}
	}
}
