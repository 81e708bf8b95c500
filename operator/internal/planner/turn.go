package planner

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	// turnInterval is how soon a Store is looked at again where it is on record which process ends.
	turnInterval  = 500 * time.Millisecond
	turnPrecision = time.Second
	// maxTurnText bounds what is kept of why.
	maxTurnText = 500
)

// endInTurn plans the end of a process that serves, of which there may be one at a time. In one visit it is put on record which one, in the
// state that its pod was seen in, and only what stands on record is carried out, with that state as precondition: an operator that looked
// before the record was there sees it in its second look, and one that comes too late finds another pod. The first that is
// planned for counts.
func (p *planning) endInTurn(view *MemberView, why string, step func(facts.PodRef) steps.Step) {
	if !p.askTurn(view, why) {
		return
	}
	if recorded := p.recordedTurn(); recorded != nil && recorded.PodUID == view.Pod.UID && p.observed.Turn == facts.TurnStands {
		p.add(step(facts.PodRef{Name: recorded.Pod, UID: recorded.PodUID, ResourceVersion: recorded.PodResourceVersion}))
	}
}

// askTurn has a process be on record as the next one to end, if none was planned for before.
func (p *planning) askTurn(view *MemberView, why string) bool {
	if p.asked != nil {
		return false
	}
	p.asked = &v1alpha1.TurnStatus{
		Member: view.Name, Pod: view.Pod.Name, PodUID: view.Pod.UID, PodResourceVersion: view.Pod.ResourceVersion,
		Since: metav1.NewTime(p.observed.Now.Truncate(turnPrecision)), Why: brief.Fit(why, maxTurnText),
	}
	return true
}

// recordedTurn is what the status has, unless it is void.
func (p *planning) recordedTurn() *v1alpha1.TurnStatus {
	if p.observed.Turn == facts.TurnVoid {
		return nil
	}
	return p.observed.Store.Status.Turn
}

// settleTurn decides what is on record after this visit. A turn that nobody plans for any more is not just forgotten, for somebody may be
// about to carry it out: it is recalled by a change of the pod, and forgotten when that was seen.
func (p *planning) settleTurn() {
	o, recorded := p.observed, p.recordedTurn()
	p.plan.Turn = recorded
	switch {
	case recorded != nil && p.asked != nil && p.asked.PodUID == recorded.PodUID:
		p.lookAgainIn(turnInterval)
	case recorded != nil && o.Turn == facts.TurnStands && o.Cluster != nil:
		p.add(steps.RecallTurn{Turn: *recorded, Why: "its process is not to be ended any more, or not now"})
		p.lookAgainIn(turnInterval)
	case recorded != nil:
		p.lookAgainIn(UnsettledInterval)
	case p.asked != nil && p.plan.NotAllowed == "" && !o.Store.Spec.Paused && !o.Store.Spec.Hibernated:
		p.plan.Turn = p.asked
		p.lookAgainIn(turnInterval)
	}
}
