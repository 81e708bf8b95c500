package planner

import (
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/planner/addressbook"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// derive makes the views of all members and what follows from them, before any rule gives a step.
func (p *planning) derive() {
	o := p.observed
	p.openBook()
	p.coordinators, p.masters = o.CoordinatorMembers(), o.Masters()
	for _, m := range p.coordinators {
		wanted := m.Ordinal < o.WantedCoordinators()
		view := p.viewOf(m, v1alpha1.ComponentCoordinator, wanted)
		view.Up = o.Cluster != nil && (o.LeaderPod == "" || view.Pod != nil && view.Pod.Name == o.LeaderPod)
		p.compare(m, &view, v1alpha1.ComponentCoordinator)
		p.plan.Coordinators = append(p.plan.Coordinators, view)
	}
	p.plan.Coordinator = p.plan.Coordinators[p.leader()]
	allUp := true
	for _, m := range p.masters {
		wanted := m.Ordinal < int(o.Store.Spec.Masters.Replicas)
		view := p.viewOf(m, v1alpha1.ComponentMaster, wanted)
		view.Lost, view.Evacuation = p.lostNode(m, &view), p.evacuation(m, &view)
		view.Failures, view.Refusals = p.failures(m, &view), p.refusals(m)
		p.compare(m, &view, v1alpha1.ComponentMaster)
		p.plan.Masters = append(p.plan.Masters, view)
		allUp = allUp && (!wanted || m.Up())
	}
	p.plan.Shortfall = FindShortfall(o, p.plan.Masters)
	p.plan.Capacity = p.checkCapacity()
	if o.Cluster == nil || !allUp || len(o.RecoveriesLeft()) > 0 {
		p.lookAgainIn(UnsettledInterval)
	}
}

// viewOf is what was seen of a member.
func (p *planning) viewOf(m *facts.Member, component string, wanted bool) MemberView {
	o := p.observed
	view := MemberView{
		Name: m.Name, Wanted: wanted, Pod: m.Pod(), Reported: m.Reported, Up: m.Up(), PodNumber: m.HighestPod,
		Unheard: o.Cluster != nil && m.Reported != nil && m.Reported.NotHeard && o.Cluster.IsNew,
	}
	view.inputs = resources.InputsFor(o.Store, component, p.plan.Image, o.StateType())
	isNeeded := view.inputs.InVolume() && (wanted || view.Pod != nil || m.Tablets() > 0)
	if name := claimName(m, component); isNeeded || p.hasClaim(name) {
		view.Claim = name
	}
	return view
}

// compare says how the member's pod differs from what the spec asks for.
func (p *planning) compare(m *facts.Member, view *MemberView, component string) {
	view.inputs = p.asFarAsThereIsRoom(m, view.Claim, view.inputs)
	if view.Pod == nil {
		return
	}
	if view.Pod.Process != facts.ProcessEnded {
		view.Pending = p.outdated(view.Pod.Inputs, view.inputs)
		order := p.observed.OrderedRestart(m.Name, view.Pod)
		if order != nil && view.Pending == "" && component == v1alpha1.ComponentMaster {
			view.OrderedBy, view.Pending = order.Name, "StoreOperation "+order.Name+" orders its restart"
		}
	}
	view.Rolls = p.rolls(view, component)
}

// leader is the index of the one that answered; else of the one that did last; else of the first.
func (p *planning) leader() int {
	views := p.plan.Coordinators
	answered := func(v MemberView) bool { return v.Pod != nil && v.Pod.Name == p.observed.LeaderPod }
	if i := slices.IndexFunc(views, answered); i >= 0 {
		return i
	}
	led := func(v MemberView) bool { return v.Pod != nil && v.Pod.Name == p.observed.Store.Status.Coordinator.Pod }
	return max(slices.IndexFunc(views, led), 0)
}

// openBook reads the pools.
func (p *planning) openBook() {
	pools, err := network.Pools(&p.observed.Store.Spec)
	p.book = addressbook.New(p.observed, pools)
	if err != nil {
		p.plan.Addresses.Error = err.Error()
	}
	p.plan.Addresses.Pools = pools
}

// claimName is that of the volume claim that the member has, or is to get.
func claimName(m *facts.Member, component string) string {
	if claim, _, found := m.Claim(); found && component == v1alpha1.ComponentMaster {
		return claim.Name
	}
	return resources.ClaimName(m.Name, component)
}

// hasClaim says whether there is a volume claim of this name.
func (p *planning) hasClaim(name string) bool {
	_, found := p.observed.Claims[name]
	return found
}
