package planner

import (
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// What keeps planned steps from being taken. It comes after all rules that plan some.
var (
	// What is made of a decision must not outlive it.
	undecidedCopies = rule{
		name: "no pod or volume before the number of copies is recorded",
		blockedBy: []blocker{
			{"the number of copies is recorded, or the spec sets it", func(p *planning) bool { return !p.observed.CopiesUnrecorded }},
		},
		gives: func(p *planning) {
			var kept []steps.Step
			for step := range steps.Of[steps.AddFinalizer](p.plan.Steps) {
				kept = append(kept, step)
			}
			p.plan.Steps, p.plan.Lock = kept, p.observed.Store.Status.DisruptionLock
			p.lookAgainIn(lockInterval)
		},
	}

	notAllowed = rule{
		name: "nothing for a Store that asks for what the installation does not allow",
		blockedBy: []blocker{
			{"the installation allows all that the spec asks for", func(p *planning) bool { return p.plan.NotAllowed == "" }},
		},
		gives: func(p *planning) { p.withhold() },
	}

	paused = rule{
		name: "nothing for a paused Store",
		blockedBy: []blocker{
			{"spec.paused is not set", func(p *planning) bool { return !p.observed.Store.Spec.Paused }},
		},
		gives: func(p *planning) { p.plan.Withheld = p.withhold() },
	}
)

// withhold takes all steps out of the plan, and gives them. Nothing comes of steps that are not taken, so that a reconcile half a second
// later would find what this one found.
func (p *planning) withhold() []steps.Step {
	withheld := p.plan.Steps
	p.plan.Steps, p.plan.Next = nil, max(p.plan.Next, UnsettledInterval)
	return withheld
}
