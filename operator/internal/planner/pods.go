package planner

import (
	"cmp"
	"fmt"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// memberRules see to it that a member has one pod, made from the spec as far as that costs nothing.
var memberRules = []memberRule{
	createClaim,
	touchClaim,
	{name: "pod", gives: func(p *planning, s *subject) {
		if s.view.Pod == nil {
			p.fill(s)
		} else {
			p.keepPod(s)
		}
	}},
	{name: "failure domain", gives: func(p *planning, s *subject) { p.setDomain(s.view.Pod) }},
	{name: "surplus pods", gives: (*planning).deleteSurplus},
}

// masterRules are those of a master. Which addresses it has is seen before it, and after the masters before it, are given any.
var masterRules = append([]memberRule{
	{name: "addresses", gives: func(p *planning, s *subject) { s.view.Addresses = p.book.AddressesOf(s.Member) }},
}, memberRules...)

var (
	coordinatorPods = rule{name: "pods of coordinators", gives: func(p *planning) {
		p.followForEach(p.coordinators, p.plan.Coordinators, v1alpha1.ComponentCoordinator, memberRules)
	}}

	masterPods = rule{name: "pods of masters", gives: func(p *planning) {
		p.followForEach(p.masters, p.plan.Masters, v1alpha1.ComponentMaster, masterRules)
	}}
)

// fill gives a member a pod that has none.
func (p *planning) fill(s *subject) {
	view := s.view
	switch {
	case view.Lost != nil && view.Lost.withVolume, p.isLeaving(view) && view.Evacuation.withVolume:
		// It could not start: the node comes back, or the member moves.
		p.lookAgainIn(UnsettledInterval)
	case view.Wanted || s.Tablets() > 0:
		// One that is not wanted but still owns tablets stays a member until they are dropped.
		view.AddressWait = p.createPod(s, "")
	}
}

// keepPod deletes a member's pod where that costs nothing and another one would be better.
func (p *planning) keepPod(s *subject) {
	view, pod := s.view, s.view.Pod
	if pod.Process == facts.ProcessEnded {
		p.replaceEnded(s)
		return
	}
	if pod.Misplaced != "" {
		p.add(steps.DeletePod{Member: s.Name, Pod: pod.Ref(), Why: pod.Misplaced})
		p.lookAgainIn(UnsettledInterval)
		return
	}
	// The kubelet reports an end late: where a process serves again by now, nothing is replaced.
	if pod.Process != facts.ProcessAbsent || view.Up {
		return
	}
	// Nor where only the coordinator could tell, and does not.
	if s.component == v1alpha1.ComponentMaster && p.observed.Cluster == nil {
		return
	}
	var why string
	switch {
	case pod.Claim != "" && pod.Claim != view.Claim:
		why = fmt.Sprintf("its volume claim is %s, and the member's is %s", pod.Claim, view.Claim)
	case view.Pending != "" && (view.Wanted || s.component == v1alpha1.ComponentCoordinator):
		why = "no process runs in it, and " + view.whyOutdated()
	default:
		return
	}
	p.add(steps.DeletePod{Member: s.Name, Pod: pod.Ref(), Why: why})
	p.lookAgainIn(UnsettledInterval)
}

// replaceEnded: one whose process is still connected may only be replaced when it has let go.
func (p *planning) replaceEnded(s *subject) {
	view := s.view
	wait := pauseAfter(view.Refusals) - p.observed.Now.Sub(view.Pod.CreatedAt)
	if view.Up && s.component == v1alpha1.ComponentMaster {
		wait = UnsettledInterval
	}
	if wait > 0 {
		p.lookAgainIn(wait)
		return
	}
	why := "it has ended for good: " + cmp.Or(view.Pod.Trouble, "no reason given")
	p.add(steps.DeletePod{Member: s.Name, Pod: view.Pod.Ref(), Why: why})
	p.lookAgainIn(UnsettledInterval)
}

// createPod gives the member a pod, unless it waits for an address. The pod may run on the isolated node returnsTo.
func (p *planning) createPod(s *subject, returnsTo string) (waitsFor string) {
	p.lookAgainIn(UnsettledInterval)
	inputs := s.view.inputs
	step := steps.CreatePod{
		Component: s.component, Member: s.Name, Number: s.HighestPod + 1, Inputs: inputs, ReturnsTo: returnsTo,
		Why: whyCreate(s.Member, inputs),
	}
	if inputs.InVolume() {
		step.Claim = claimName(s.Member, s.component)
		if p.observed.Claims[step.Claim].Terminating {
			return "" // until it is gone: a pod would keep it, but a volume that somebody deletes is to go
		}
	}
	if inputs.Network != nil && len(inputs.Network.Ports) > 0 {
		if p.plan.Addresses.Error != "" {
			return p.plan.Addresses.Error
		}
		if step.Addresses, waitsFor = p.book.Allot(s.Name); waitsFor != "" {
			return waitsFor
		}
	}
	p.add(step)
	return ""
}

func whyCreate(m *facts.Member, inputs resources.Inputs) string {
	switch {
	case m.Tablets() > 0 && inputs.Replication != nil:
		return fmt.Sprintf("its pod is gone; its data is recovered from copies (tablets: %d)", m.Tablets())
	case m.Tablets() > 0:
		return fmt.Sprintf("its pod is gone; its data is lost with it (tablets: %d)", m.Tablets())
	case !m.IsKnown:
		return "it is new"
	default:
		return "its pod is gone"
	}
}

// setDomain: only the operator may read nodes, so it writes the failure domain of the pod's node to the pod.
func (p *planning) setDomain(pod *facts.Pod) {
	if pod == nil || pod.DomainKnown || pod.Node == "" || !pod.Inputs.NeedsDomain() {
		return
	}
	if domain, known := p.observed.Domains[pod.Node]; known {
		ref := pod.Ref()
		ref.ResourceVersion = "" // it has a node once and for all
		p.add(steps.SetDomain{Member: pod.Member, Pod: ref, Domain: domain, Why: "it runs on " + pod.Node})
	}
}

// deleteSurplus ends all but one pod of a member. The way in which pods are named leaves no way for a second one; but if one is there,
// its process and the first one would drive each other out for ever.
func (p *planning) deleteSurplus(s *subject) {
	for i := 1; i < len(s.Live); i++ {
		known := s.component == v1alpha1.ComponentCoordinator || s.Reported.Runs(s.Live[0])
		if s.Live[i].Process != facts.ProcessRunning || (p.observed.Cluster != nil && known) {
			p.add(steps.DeletePod{Member: s.Name, Pod: s.Live[i].Ref(), Why: "the member has another pod, " + s.Live[0].Name})
		}
	}
}
