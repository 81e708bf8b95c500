package planner

import (
	"fmt"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// startingFor is how long a pod that was just made counts as one on its way: what does not start by then is broken, and keeps nobody else
// from moving.
const startingFor = 5 * time.Minute

// Lost is what is known of a member whose node is lost.
type Lost struct {
	Node  string
	Cause v1alpha1.NodeLoss
	// Since when that was seen; ProvenAt is when it was proven that nothing is lost if the member moves, zero while it is not.
	Since    time.Time
	ProvenAt time.Time
	// WaitsFor says why the member does not move yet; empty when it does.
	WaitsFor string
	// ByHand is the command that moves the member, where the operator does not move members; empty where it does, or may not yet.
	ByHand string
	// withVolume: its volume can be used on that node only.
	withVolume bool
}

// followLost finds members that were lost with their nodes, and moves those of which it is on record that nothing is lost with it. A few
// at a time, and not at all when more failure domains are lost than there are copies: then disks have to come back.
func (p *planning) followLost(masters []*facts.Member) {
	o := p.observed
	if o.Store.Copies() == 0 || o.Cluster == nil {
		return
	}
	domains := map[string]bool{}
	for i, m := range masters {
		if lost := p.plan.Masters[i].Lost; lost != nil {
			domains[o.LostDomain(m, lost.Node)] = true
		}
	}
	p.dropVolumes(masters)
	if len(domains) == 0 {
		return
	}
	p.lookAgainIn(UnsettledInterval)
	room := int(max(o.Store.Spec.Recovery.MaxConcurrentReplacements, 1)) - p.starting()
	for i, m := range masters {
		lost := p.plan.Masters[i].Lost
		if lost == nil {
			continue
		}
		if p.returnsToIsolated(m, &p.plan.Masters[i], len(domains)) {
			continue
		}
		lost.WaitsFor = p.whyNotMoved(m, lost, len(domains), room)
		if lost.WaitsFor == "" {
			p.add(p.move(m, lost))
			room--
		}
	}
}

// lostNode is what keeps a member down: the node that its volume is tied to, or else that of its pod. Nil if that is not lost.
func (p *planning) lostNode(m *facts.Member, view *MemberView) *Lost {
	if view.Up || !view.Wanted || p.observed.Cluster == nil || p.observed.Store.Copies() == 0 {
		return nil
	}
	node, withVolume := m.Home()
	_, known := p.observed.Nodes[node]
	cause := p.causeOf(m, node)
	if node == "" || !known || cause == "" {
		return nil
	}
	lost := &Lost{Node: node, Cause: cause, Since: p.observed.Now, withVolume: withVolume}
	if before := p.observed.RecordedLoss(m.Name); before != nil && before.Node == node {
		lost.Since = before.Since.Time
		if before.ProvenAt != nil {
			lost.ProvenAt = before.ProvenAt.Time
		}
	}
	if unproven := p.unproven(m); unproven != "" {
		lost.ProvenAt = time.Time{}
	} else if lost.ProvenAt.IsZero() {
		lost.ProvenAt = p.observed.Now
	}
	if before := p.observed.RecordedLoss(m.Name); cause == v1alpha1.NodeSilent && (before == nil || before.ProvenAt == nil) {
		p.lookAgainIn(turnInterval) // only that this is on record is waited for
	}
	return lost
}

// causeOf says how a node is lost on which a member was that is down; empty if it is not.
func (p *planning) causeOf(m *facts.Member, node string) v1alpha1.NodeLoss {
	o := p.observed
	state := o.Nodes[node]
	cause, isSilent := state.Cause(), o.IsSilent(node)
	switch {
	case state.Ready && !isSilent && o.Fences[node].Requested:
		cause = "" // it is back, and what this Store has said of it is about to be taken back
	case cause == "" && isSilent && p.isFencedOnceSilent(m, state):
		cause = v1alpha1.NodeSilent
	case cause == "" && !state.SilentFrom.IsZero() && p.isFencedOnceSilent(m, state):
		p.lookAgainIn(state.SilentFrom.Sub(o.Now))
	}
	if drain := o.DrainOf(node); cause == "" && drain != "" && o.Store.MovesFrom(drain) && !m.HasNothing() {
		cause = v1alpha1.NodeDrained
	}
	return cause
}

// isFencedOnceSilent: the member is declared dead, and its node is fenced as soon as the node's kubelet is silent, too.
func (p *planning) isFencedOnceSilent(m *facts.Member, node facts.Node) bool {
	return node.Drained == "" && p.isDeclaredDead(m) && p.observed.Store.Spec.Recovery.Fencing.Type == v1alpha1.FencingBMC
}

// isSudden: nobody has said that the node is gone, or is to go.
func (l *Lost) isSudden() bool {
	return l != nil && (l.Cause == v1alpha1.NodeNotReady || l.Cause == v1alpha1.NodeSilent)
}

// isDeclaredDead: the coordinator has declared the process in the member's pod dead.
func (p *planning) isDeclaredDead(m *facts.Member) bool {
	return m.Reported != nil && m.Reported.Dead && m.Reported.Runs(m.Pod())
}

// unproven says what speaks against the member's process being dead for good and what it held being served by others; empty if nothing
// does. What its volume has of others' logs does not matter here: the volume stays until that has copies elsewhere.
func (p *planning) unproven(m *facts.Member) string {
	o := p.observed
	if o.Cluster.StateWait != "" {
		return "the coordinator, which cannot write its state: " + o.Cluster.StateWait
	}
	if m.Reported != nil && m.Reported.Connected {
		return "its process to end, which is still connected to the coordinator"
	}
	if tablets := m.Tablets(); tablets > 0 {
		return fmt.Sprintf("its recovery: tablets left: %d", tablets)
	}
	for _, recovery := range o.RecoveriesLeft() {
		if recovery.Member == m.Name {
			return facts.DescribeRecoveries([]facts.Recovery{recovery})
		}
		if recovery.CanBeGivenUp {
			return "a recovery that may need what is on the node: " + facts.DescribeRecoveries([]facts.Recovery{recovery})
		}
	}
	return ""
}

// starting is how many members have a new pod that is on its way, or get one now: between the end of the old one and the next visit there
// is none.
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
	recorded := p.observed.RecordedLoss(m.Name)
	switch {
	case lost.ProvenAt.IsZero():
		return p.unproven(m)
	case domains > int(p.observed.Store.Copies()):
		return fmt.Sprintf("nodes to come back: %d failure domains are lost, and the copies survive the loss of only %d",
			domains, p.observed.Store.Copies())
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

// defaultRescheduleAfter is that of the schema, for a Store from before the field.
const defaultRescheduleAfter = 5 * time.Minute

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
func (p *planning) dropVolumes(masters []*facts.Member) {
	o := p.observed
	if p.plan.Shortfall != nil || o.Store.Spec.Recovery.DryRun {
		return
	}
	for i, m := range masters {
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
