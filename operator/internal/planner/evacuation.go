package planner

import (
	"fmt"
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Evacuation is how far a member is with leaving a node that is drained.
type Evacuation struct {
	Node  string
	Cause v1alpha1.NodeDrain
	// Since when that was seen; MovedAt is when its pod there was told to end, zero before that.
	Since   time.Time
	MovedAt time.Time
	// WaitsFor says why it does not go on; empty when it does.
	WaitsFor string
	// withVolume: its volume can be used on that node only.
	withVolume bool
}

// Moved says whether the member has left, and its next pod is on its way.
func (e *Evacuation) Moved() bool { return e != nil && !e.MovedAt.IsZero() }

// evacuation is set while the member's node is drained, and then until the member is up elsewhere.
func (p *planning) evacuation(m *facts.Member, view *MemberView) *Evacuation {
	o := p.observed
	if !view.Wanted || o.Cluster == nil || o.Store.Copies() == 0 {
		return nil
	}
	recorded := o.RecordedEvacuation(m.Name)
	node, withVolume := m.Home()
	cause := o.DrainOf(node)
	if cause == "" {
		if recorded == nil || recorded.MovedAt == nil || view.Up {
			return nil
		}
		return &Evacuation{Node: recorded.Node, Cause: recorded.Cause, Since: recorded.Since.Time, MovedAt: recorded.MovedAt.Time}
	}
	leaves := &Evacuation{Node: node, Cause: cause, Since: o.Now, withVolume: withVolume}
	if recorded != nil && recorded.Node == node && recorded.MovedAt == nil {
		leaves.Since = recorded.Since.Time
	}
	return leaves
}

// isLeaving says whether a member's drain is the operator's own, because of its node.
func (p *planning) isLeaving(view *MemberView) bool {
	return view.Evacuation != nil && !view.Evacuation.Moved() && p.observed.Store.MovesFrom(view.Evacuation.Cause)
}

// followEvacuations drains members whose nodes are drained, one at a time, and moves those of which nobody needs anything any more.
func (p *planning) followEvacuations(masters []*facts.Member) {
	first := p.firstToLeave()
	for i, m := range masters {
		view := &p.plan.Masters[i]
		leaves := view.Evacuation
		if leaves == nil {
			continue
		}
		p.lookAgainIn(UnsettledInterval)
		leaves.WaitsFor = p.whyNotEvacuated(m, view, first)
		switch {
		case leaves.WaitsFor != "":
		case m.HasNothing():
			p.add(evacuate(m, leaves))
		case m.Draining() == nil:
			p.add(steps.DrainMember{Member: m.Name, Why: fmt.Sprintf("node %s is drained (%s)", leaves.Node, leaves.Cause)})
		}
	}
}

// firstToLeave is the one that is being drained already, else the first that can be; nil if there is none.
func (p *planning) firstToLeave() *MemberView {
	views := p.plan.Masters
	isBegun := func(v MemberView) bool { return p.isLeaving(&v) && v.Reported != nil && v.Reported.Draining != nil }
	if i := slices.IndexFunc(views, isBegun); i >= 0 {
		return &views[i]
	}
	if i := slices.IndexFunc(views, func(v MemberView) bool { return p.isLeaving(&v) && v.Up }); i >= 0 {
		return &views[i]
	}
	return nil
}

// whyNotEvacuated says what keeps the member from leaving; empty if nothing does, or it is being drained.
func (p *planning) whyNotEvacuated(m *facts.Member, view, first *MemberView) string {
	spec, hasNothing := p.observed.Store.Spec, m.HasNothing()
	switch {
	case view.Evacuation.Moved():
		return waitsForNode(view)
	case !p.observed.Store.MovesFrom(view.Evacuation.Cause):
		return "a user to delete its pod: recovery.drainedNodes is Wait"
	case p.observed.Cluster.StateWait != "":
		return "the coordinator, which cannot write its state: " + p.observed.Cluster.StateWait
	case !hasNothing && !view.Up:
		return "the member to be up, or to move like one whose node is lost"
	case !hasNothing && m.Draining() != nil:
		return ""
	}
	if !hasNothing {
		if others := p.whyOthersFirst(view, first); others != "" {
			return others
		}
	}
	switch {
	case spec.Paused:
		return "spec.paused: false"
	case spec.Recovery.DryRun:
		return "recovery.dryRun: false"
	default:
		return ""
	}
}

// whyOthersFirst: one leaves at a time, and only while everything is in order, so that a drain of many nodes is never more than one master
// away.
func (p *planning) whyOthersFirst(view, first *MemberView) string {
	i := slices.IndexFunc(p.plan.Masters, func(v MemberView) bool { return v.Wanted && !v.Up })
	ordered := p.observed.Store.DrainedMembers()
	isTakenBack := func(v MemberView) bool {
		return v.Wanted && !p.isLeaving(&v) && v.Reported.Draining != nil && !slices.Contains(ordered, v.Name)
	}
	switch {
	case i >= 0:
		away := &p.plan.Masters[i]
		text := away.Name + " to be up"
		if away.Pod != nil && away.Pod.Trouble != "" {
			text += " (" + away.Pod.Trouble + ")"
		}
		return text
	case first != nil && first.Name != view.Name:
		return first.Name + ", which leaves first"
	case slices.ContainsFunc(p.plan.Masters, isTakenBack):
		return "the drain of another master to be cancelled"
	case p.plan.Shortfall != nil && !p.plan.Shortfall.restart: // else its next process keeps more, and here it gets none
		return "all copies to be there: " + p.plan.Shortfall.Message
	case slices.ContainsFunc(p.observed.Pods, p.isEnding):
		return "a pod to end"
	default:
		return ""
	}
}

// waitsForNode says what a member waits for that has left, and what helps.
func waitsForNode(view *MemberView) string {
	pod := view.Pod
	if pod == nil || pod.Node != "" || pod.Trouble == "" {
		return "its next pod to be up"
	}
	return fmt.Sprintf("a node for its next pod (%s): add one with room for a master, or %s", pod.Trouble, HowToStay(view.Evacuation))
}

// HowToStay is what takes back that a node is drained.
func HowToStay(leaves *Evacuation) string {
	if leaves.Cause == v1alpha1.DrainIsolated {
		return "take " + leaves.Node + " out of the Store's annotation " + v1alpha1.AnnotationIsolated
	}
	return "uncordon " + leaves.Node
}

func evacuate(m *facts.Member, leaves *Evacuation) steps.MoveMember {
	step := steps.MoveMember{
		Member: m.Name, Node: leaves.Node, Drained: true,
		Why: fmt.Sprintf("the node is drained (%s), and the member holds nothing that is still needed", leaves.Cause),
	}
	if pod := m.Pod(); pod != nil {
		ref := pod.Ref()
		ref.ResourceVersion = "" // its state changes when the coordinator lets its process go
		step.Pod = &ref
	}
	if _, number, _ := m.Claim(); leaves.withVolume {
		step.Claim = resources.MasterClaimAt(m.Name, number+1)
	}
	return step
}

// Evacuating are the members that leave nodes which are drained.
func Evacuating(views []MemberView) []MemberView {
	return slices.DeleteFunc(slices.Clone(views), func(v MemberView) bool { return v.Evacuation == nil })
}
