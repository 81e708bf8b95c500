package planner

import (
	"time"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// strandedAfter is how long a process may run without being ready and without the coordinator knowing its member, before it is replaced. A
// process that was let go for a scaling in that was then taken back never becomes ready.
const strandedAfter = 5 * time.Minute

var emptyMasters = rule{
	name:      "outdated or stranded masters that hold nothing",
	blockedBy: []blocker{noAnswer, stateStuck, memberChanges},
	gives:     (*planning).replaceEmpty,
}

// replaceEmpty replaces the pod of a master that holds nothing, if its pod was made from another spec or its process is stranded: one at a
// time. One that serves waits until all others do, so that there is always somewhere to put a new table.
func (p *planning) replaceEmpty() {
	var first *MemberView
	allUp := true
	for i := range p.plan.Masters {
		view := &p.plan.Masters[i]
		if !view.Wanted {
			continue
		}
		allUp = allUp && view.Up
		if p.whyReplace(view) != "" && (first == nil || first.Up && !view.Up) {
			first = view
		}
	}
	if first == nil {
		return
	}
	p.isChanging = true
	if first.Up && !allUp || !p.mayRemove(first.Name) {
		return
	}
	why := p.whyReplace(first)
	switch verdict, words := p.tryNext(first, why); verdict {
	case untried:
		return
	case refused:
		p.refuse(first, words, first.howToKeep())
		p.isChanging = false
		return
	case admitted:
	}
	ref := first.Pod.Ref()
	p.add(steps.RetireMember{Member: first.Name, Pod: &ref, Why: why})
	p.lookAgainIn(UnsettledInterval)
}

// whyReplace says why an empty master with a running process should have another pod; empty when it should not, or when it keeps copies for
// others: then it is restarted like one that holds something.
func (p *planning) whyReplace(view *MemberView) string {
	pod := view.Pod
	if pod == nil || pod.Process != facts.ProcessRunning || view.Tablets() > 0 || view.Evacuation != nil {
		return ""
	}
	if view.Pending != "" && (view.Reported.Runs(pod) && !view.Rolls || !pod.Ready) {
		return "it holds nothing, and " + view.whyOutdated()
	}
	if view.Reported == nil && !pod.NotReadySince.IsZero() && p.observed.Now.Sub(pod.NotReadySince) >= strandedAfter {
		return "its process has not enlisted for a long time; the coordinator may have removed it"
	}
	return ""
}
