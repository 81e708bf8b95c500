package planner

import "rcbox.dev/rcbox/operator/internal/planner/steps"

// onRecordFirst withholds what may only be done once the number of copies is on record.
func (p *planning) onRecordFirst() {
	var kept []steps.Step
	for _, step := range p.plan.Steps {
		if _, is := step.(steps.AddFinalizer); is {
			kept = append(kept, step)
		}
	}
	p.plan.Steps, p.plan.Turn = kept, p.observed.Store.Status.Turn
	p.lookAgainIn(turnInterval)
}
