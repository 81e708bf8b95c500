package planner

import (
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/addressbook"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// planning is a plan in the making: what was observed, what was derived from that, and what rules have given so far.
type planning struct {
	observed *facts.Observed
	// coordinators and masters, by ordinal, as the plan's views of them.
	coordinators []*facts.Member
	masters      []*facts.Member
	plan         Plan
	book         *addressbook.Book
	// requested is the disruption lock for the first process whose end this plan asks for.
	requested *v1alpha1.DisruptionLock
	// tries is how many pods this plan asks the API server about.
	tries int
	// isChanging: a rule changes who is a member, and later ones wait with theirs.
	isChanging bool
}

func (p *planning) add(step steps.Step) { p.plan.Steps = append(p.plan.Steps, step) }

func (p *planning) lookAgainIn(d time.Duration) { p.plan.Next = min(p.plan.Next, d) }

// isLeaving says whether a member's drain is the operator's own, because of its node.
func (p *planning) isLeaving(view *MemberView) bool {
	return view.Evacuation != nil && !view.Evacuation.Moved() && p.observed.Store.MovesFrom(view.Evacuation.Cause)
}

// isEnding says whether a pod of the Store's processes was told to end, and has time left for it.
func (p *planning) isEnding(pod facts.Pod) bool {
	return pod.Terminating() && p.observed.Now.Before(pod.EndsAt)
}

// isPodEnding says whether any pod of the Store's processes was told to end, and has time left for it.
func (p *planning) isPodEnding() bool { return slices.ContainsFunc(p.observed.Pods, p.isEnding) }
