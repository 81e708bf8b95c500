package planner

import (
	"fmt"
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// startingFor is how long a pod that was just made counts as one on its way: what does not start by then is broken, and keeps nobody else
// from moving.
const startingFor = 5 * time.Minute

// defaultRescheduleAfter is that of the schema, for a Store from before the field.
const defaultRescheduleAfter = 5 * time.Minute

var (
	formerVolumes = rule{
		name: "former volumes of members that moved",
		blockedBy: []blocker{
			noCopies, noAnswer, dryRun,
			{"copies are missing", func(p *planning) bool { return p.plan.Shortfall != nil }},
		},
		gives: (*planning).dropVolumes,
	}

	lostMembers = rule{
		name:      "members that were lost with their nodes",
		blockedBy: []blocker{noCopies, noAnswer},
		gives:     (*planning).followLost,
	}
)

// followLost finds members that were lost with their nodes, and moves those of which it is on record that nothing is lost with it. A few
// at a time, and not at all when more failure domains are lost than there are copies: then disks have to come back.
func (p *planning) followLost() {
	if !slices.ContainsFunc(p.plan.Masters, func(view MemberView) bool { return view.Lost != nil }) {
		return
	}
	p.lookAgainIn(UnsettledInterval)
	room := int(max(p.observed.Store.Spec.Recovery.MaxConcurrentReplacements, 1)) - p.starting()
	for i, m := range p.masters {
		lost := p.plan.Masters[i].Lost
		if lost == nil {
			continue
		}
		domains := p.domainsWithout(m, lost)
		if p.returnsToIsolated(&subject{m, &p.plan.Masters[i], v1alpha1.ComponentMaster}, domains) {
			continue
		}
		lost.WaitsFor = p.whyNotMoved(m, lost, domains, room)
		if lost.WaitsFor == "" {
			p.add(p.move(m, lost))
			room--
		}
	}
}

// answersAfter is how long after its member was lost a drained node has to be ready still to count as one that is there: longer than it
// takes Kubernetes to say that a node is not ready.
const answersAfter = time.Minute

// isThere says whether a member is down on a drained node that answers. The volume there is not lost: its member starts with it once the
// node is not drained any more. So the node keeps no other member from moving.
func (p *planning) isThere(lost *Lost) bool {
	o := p.observed
	node := o.Nodes[lost.Node]
	return lost.Cause == v1alpha1.NodeDrained && node.Ready && !o.IsSilent(lost.Node) && o.Now.Sub(lost.Since) >= answersAfter
}

// domainsWithout is how many failure domains the Store does without if a lost member moves: those that are lost, and the member's own.
func (p *planning) domainsWithout(m *facts.Member, lost *Lost) int {
	domains := p.domainsLost()
	domains[p.observed.LostDomain(m, lost.Node)] = true
	return len(domains)
}

// lostDomains is how many failure domains were lost with members.
func (p *planning) lostDomains() int { return len(p.domainsLost()) }

// domainsLost are the failure domains that were lost with members. One that the spec has no place for counts as long as the coordinator
// needs what the member has: the copies there are as lost as those of a member that is to stay.
func (p *planning) domainsLost() map[string]bool {
	o := p.observed
	domains := map[string]bool{}
	for i, m := range p.masters {
		view := &p.plan.Masters[i]
		node, _ := m.Home()
		state, known := o.Nodes[node]
		isLostLeaver := !view.Wanted && !view.Up && !m.HasNothing() && known && state.Cause() != ""
		switch {
		case view.Lost != nil && p.isThere(view.Lost):
		case view.Lost != nil:
			domains[o.LostDomain(m, view.Lost.Node)] = true
		case isLostLeaver:
			domains[o.LostDomain(m, node)] = true
		}
	}
	return domains
}

// whyTooManyLost says what a member waits for while more failure domains are lost than the copies survive, and what to do if the others do
// not come back: machines that the operator itself keeps off do not come back by themselves.
func (p *planning) whyTooManyLost(lost *Lost, domains int) string {
	text := fmt.Sprintf("nodes to come back: %d failure domains are lost, and the copies survive the loss of only %d",
		domains, p.observed.Store.Copies())
	var off []string
	for _, fence := range p.observed.Store.Status.Fences {
		if p.observed.IsProvedOff(fence.Node) {
			off = append(off, fence.Node)
		}
	}
	switch drain := p.observed.DrainOf(lost.Node); {
	case lost.Cause == v1alpha1.NodeDrained:
		return text + "; to start the member where it is, " + HowToStay(&Evacuation{Node: lost.Node, Cause: drain})
	case len(off) > 0:
		return text + fmt.Sprintf("; fences keep machines off (%s): if the other nodes do not come back, set recovery.fencing.type: None, "+
			"and these machines are switched on", brief.List(off, maxListed))
	default:
		return text
	}
}

// returnsToIsolated starts a member that is down once more on the isolated node that its volume is on, and says whether it does. The member
// is to leave that node, but it can neither be drained, because it is not up, nor move, because what is in the volume may be needed: by the
// member's own recovery, or since more failure domains are lost than the copies survive. Once it is up, it leaves in order.
func (p *planning) returnsToIsolated(s *subject, lostDomains int) bool {
	o, lost := p.observed, s.view.Lost
	isNeeded := lost.ProvenAt.IsZero() || lostDomains > int(o.Store.Copies())
	if lost.Cause != v1alpha1.NodeDrained || o.DrainOf(lost.Node) != v1alpha1.DrainIsolated || !lost.withVolume || !isNeeded {
		return false
	}
	lost.WaitsFor = "its next pod to be up there, because what is in its volume may be needed"
	switch pod := s.view.Pod; {
	case pod == nil:
		s.view.AddressWait = p.createPod(s, lost.Node)
	case pod.Node == "" && slices.Contains(pod.Avoids, lost.Node):
		p.add(steps.DeletePod{Member: s.Name, Pod: pod.Ref(), Why: fmt.Sprintf(
			"it may not run on %s, where its volume is: the node is isolated, and the member cannot leave it while it is down", lost.Node)})
	}
	return true
}

// starting is how many members have a new pod that is on its way, or get one now: between the end of the old one and the next reconcile
// there is none.
func (p *planning) starting() int {
	count := 0
	for i := range p.plan.Masters {
		view := &p.plan.Masters[i]
		if !view.Wanted || view.Up || view.Lost != nil {
			continue
		}
		if view.Pod == nil || p.observed.Now.Sub(view.Pod.CreatedAt) < startingFor {
			count++
		}
	}
	return count
}

// whyNotMoved says what the member's move waits for; empty if it can move now.
func (p *planning) whyNotMoved(m *facts.Member, lost *Lost, domains, room int) string {
	spec := p.observed.Store.Spec
	after, err := time.ParseDuration(spec.Recovery.RescheduleAfter)
	if err != nil {
		after = defaultRescheduleAfter
	}
	left := after - p.observed.Now.Sub(lost.Since)
	if p.observed.IsProvedOff(lost.Node) {
		left = 0 // nobody waits for a machine that is kept off
	}
	recorded := p.observed.Recorded(m.Name).Lost
	switch {
	case lost.ProvenAt.IsZero():
		return p.unproven(m)
	case domains > int(p.observed.Store.Copies()):
		return p.whyTooManyLost(lost, domains)
	case lost.Cause == v1alpha1.NodeSilent: // a new pod might get this very node
		return "proof that the node's server is off, or for Kubernetes to say that the node is not ready"
	case after == 0:
		lost.ByHand = p.moveByHand(m)
		return "a command, because recovery.rescheduleAfter is 0s: " + lost.ByHand
	case left > 0:
		p.lookAgainIn(left)
		return "the node to come back, until " + lost.Since.Add(after).UTC().Format("15:04:05 UTC")
	case recorded == nil || recorded.ProvenAt == nil:
		return "the proof of its end to be recorded in the status"
	case room <= 0:
		return fmt.Sprintf("other moves to end (recovery.maxConcurrentReplacements: %d)", spec.Recovery.MaxConcurrentReplacements)
	case spec.Paused:
		return "spec.paused: false"
	case spec.Recovery.DryRun:
		return "recovery.dryRun: false (the move is due, and a dry run only reports it)"
	default:
		return ""
	}
}

// moveByHand is the command that does what the operator would do. By force, because the kubelet of a lost node confirms no end, and the
// claim stays as long as the pod does.
func (p *planning) moveByHand(m *facts.Member) string {
	command := "kubectl delete --force --wait=false -n " + p.observed.Store.Namespace
	if claim, _, found := m.Claim(); found && claim.TiedTo != "" {
		command += " pvc/" + claim.Name
	}
	if pod := m.Pod(); pod != nil {
		command += " pod/" + pod.Name
	}
	return command
}

func (p *planning) move(m *facts.Member, lost *Lost) steps.MoveMember {
	why := fmt.Sprintf("the node has been lost (%s) since %s, and other masters serve what the member served",
		lost.Cause, lost.Since.UTC().Format("2006-01-02 15:04:05 UTC"))
	step := steps.MoveMember{Member: m.Name, Node: lost.Node, Why: why}
	if pod := m.Pod(); pod != nil {
		ref := pod.Ref() // as it is: should its kubelet say anything, the node is back
		step.Pod = &ref
	}
	if _, number, _ := m.Claim(); lost.withVolume {
		step.Claim = resources.MasterClaimAt(m.Name, number+1)
	}
	return step
}

// dropVolumes deletes claims that members had on nodes that were lost, once the members are up with others and everything has its copies.
func (p *planning) dropVolumes() {
	o := p.observed
	for i, m := range p.masters {
		if !p.plan.Masters[i].Up || len(m.Claims) < 2 {
			continue
		}
		for _, claim := range m.Claims[:len(m.Claims)-1] {
			if !claim.Terminating && !o.IsUsed(claim.Name) {
				why := "the member has another one, and everything has its copies elsewhere"
				p.add(steps.DropVolume{Member: m.Name, Claim: claim.Name, Why: why})
			}
		}
	}
}
