package planner

import (
	"slices"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// ungatePods lets pods be started whose addresses are on record as their own. A pod may be made late, by an operator that stood still
// meanwhile, with addresses that another pod has by now, and no precondition keeps it from that. So it is made with a gate, and is nothing
// but an offer. The status says whose an address is, and of two operators that write it one wins. A gate is opened in the version of
// the pod that was seen, by who has seen record and pods without the cache; and an offer that comes too late is deleted.
func (p *planning) ungatePods(masters []*facts.Member) {
	for _, m := range masters {
		for i, pod := range m.Live {
			if !pod.Gated || p.isEnded(pod) {
				continue
			}
			p.lookAgainIn(turnInterval)
			rivals, isRecorded := p.book.Rivals(pod), p.observed.IsRecordedFor(pod)
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
