package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

var drainedNodes = rule{
	name:      "members on drained nodes",
	blockedBy: []blocker{noAnswer},
	gives:     (*planning).followEvacuations,
}

// followEvacuations drains members whose nodes are drained, one at a time, and moves those of which nobody needs anything any more.
func (p *planning) followEvacuations() {
	first := p.firstToLeave()
	for i, m := range p.masters {
		view := &p.plan.Masters[i]
		leaves := view.Evacuation
		if leaves == nil {
			continue
		}
		p.lookAgainIn(UnsettledInterval)
		if leaves.WaitsFor = p.whyNotEvacuated(m, view, first); leaves.WaitsFor != "" {
			continue
		}
		why := fmt.Sprintf("node %s is drained (%s)", leaves.Node, leaves.Cause)
		switch {
		case m.HasNothing() && p.isNextAdmitted(forMove, view, why):
			p.add(evacuate(m, leaves))
		case !m.HasNothing() && m.Draining() == nil && p.isNextAdmitted(forDrain, view, why):
			p.add(steps.DrainMember{Member: m.Name, Why: why, Trial: trialBeforeDrain(view)})
		}
	}
}

// isNextAdmitted says whether a member may leave its node: if a process runs in its pod, the API server has to admit the next one. That is
// asked before the drain, so that a member that has to stay serves, and again before the pod ends.
func (p *planning) isNextAdmitted(purpose validity, view *MemberView, why string) bool {
	if view.Pod == nil || view.Pod.Process != facts.ProcessRunning {
		return true
	}
	verdict, words := p.tryFor(purpose, view, why)
	switch verdict {
	case admitted:
	case untried:
		view.Evacuation.WaitsFor = words
	case refused:
		orElse := HowToStay(view.Evacuation)
		view.Evacuation.WaitsFor = "the API server to admit its next pod; it says: " + words + "; correct that, or " + orElse
		p.refuse(view, words, orElse)
	}
	return verdict == admitted
}

// trialBeforeDrain is the key of the trial that decides whether a member is drained; empty if no process runs in its pod.
func trialBeforeDrain(view *MemberView) string {
	if view.Pod == nil || view.Pod.Process != facts.ProcessRunning {
		return ""
	}
	key, err := facts.TrialKey(view.Pod, view.inputs)
	if err != nil {
		return "" // then it is refused, and the member is not drained
	}
	return key
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
		return whyDownOnDrained(view)
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

// whyDownOnDrained says what a member waits for that is down on a drained node. To uncordon the node starts only a member without a pod, on
// a node that answers: a machine without power starts nothing, and a pod that is there is restarted where it is.
func whyDownOnDrained(view *MemberView) string {
	const text = "the member to be up, or to move like one whose node is lost"
	if view.Lost == nil || view.Lost.Cause != v1alpha1.NodeDrained || view.Pod != nil {
		return text
	}
	return text + "; to start it where it is, " + HowToStay(view.Evacuation)
}

// whyOthersFirst: one leaves at a time, and only while everything is in order, so that a drain of many nodes is never more than one master
// away.
func (p *planning) whyOthersFirst(view, first *MemberView) string {
	i := slices.IndexFunc(p.plan.Masters, func(v MemberView) bool { return v.Wanted && !v.Up })
	ordered := p.observed.DrainedMembers()
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
	case p.isPodEnding():
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
