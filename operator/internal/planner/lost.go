package planner

import (
	"fmt"
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
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
	// withVolume: its volume can be used on that node only.
	withVolume bool
}

// DownMember is a master that is not up, or not to stay where it is, and what would tell why.
type DownMember struct {
	Member string
	// Node of its pod, and its Claim; empty where there is none.
	Node  string
	Claim string
}

// Displaced are the masters that are not up, and that have been somewhere, and those whose nodes are drained.
func Displaced(o *Observed) []DownMember {
	var list []DownMember
	for _, m := range o.masters() {
		if node, _ := m.home(); m.up() && o.drainOf(node) == "" {
			continue
		}
		down := DownMember{Member: m.name}
		if pod := m.pod(); pod != nil {
			down.Node = pod.Node
		}
		if claim, _, found := m.claim(); found {
			down.Claim = claim.Name
		}
		if down.Node != "" || down.Claim != "" {
			list = append(list, down)
		}
	}
	return list
}

// followLost finds members that were lost with their nodes, and moves those of which it is on record that nothing is lost with it. A few
// at a time, and not at all when more failure domains are lost than there are copies: then disks have to come back.
func (p *planning) followLost(masters []*member) {
	o := p.observed
	if o.Store.Spec.Replication.Factor == 0 || o.Cluster == nil {
		return
	}
	domains := map[string]bool{}
	for i, m := range masters {
		if lost := p.plan.Masters[i].Lost; lost != nil {
			domains[o.lostDomain(m, lost.Node)] = true
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
		lost.WaitsFor = p.whyNotMoved(m, lost, len(domains), room)
		if lost.WaitsFor == "" {
			p.add(p.move(m, lost))
			room--
		}
	}
}

// lostNode is what keeps a member down: the node that its volume is tied to, or else that of its pod. Nil if that is not lost.
func (p *planning) lostNode(m *member, view *MemberView) *Lost {
	if view.Up || !view.Wanted || p.observed.Cluster == nil || p.observed.Store.Spec.Replication.Factor == 0 {
		return nil
	}
	node, withVolume := m.home()
	state, known := p.observed.Nodes[node]
	cause := state.cause()
	if state.Ready && p.observed.Fences[node].Requested {
		cause = "" // it is back, and what this Store has said of it is about to be taken back
	}
	if drain := p.observed.drainOf(node); cause == "" && drain != "" && p.observed.Store.Spec.MovesFrom(drain) && !m.hasNothing() {
		cause = v1alpha1.NodeDrained
	}
	if node == "" || !known || cause == "" {
		return nil
	}
	lost := &Lost{Node: node, Cause: cause, Since: p.observed.Now, withVolume: withVolume}
	if before := p.observed.recordedLoss(m.name); before != nil && before.Node == node {
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
	return lost
}

// recordedLoss is what the status has.
func (o *Observed) recordedLoss(member string) *v1alpha1.LostStatus {
	members := o.Store.Status.Masters.Members
	i := slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Name == member })
	if i < 0 {
		return nil
	}
	return members[i].Lost
}

// lostDomain is the failure domain that was lost with the member.
func (o *Observed) lostDomain(m *member, node string) string {
	if m.reported != nil && m.reported.Domain != "" {
		return m.reported.Domain
	}
	if pod := m.pod(); pod != nil && pod.Domain != "" {
		return pod.Domain
	}
	return node
}

// unproven says what speaks against the member's process being dead for good and what it held being served by others; empty if nothing
// does. What its volume has of others' logs does not matter here: the volume stays until that has copies elsewhere.
func (p *planning) unproven(m *member) string {
	o := p.observed
	if o.Cluster.StateWait != "" {
		return "the coordinator cannot note what it does: " + o.Cluster.StateWait
	}
	if m.reported != nil && m.reported.Connected {
		return "its process is connected to the coordinator"
	}
	if tablets := m.tablets(); tablets > 0 {
		return fmt.Sprintf("its recovery: tablets left: %d", tablets)
	}
	for _, recovery := range o.recoveriesLeft() {
		if recovery.Member == m.name {
			return DescribeRecoveries([]Recovery{recovery})
		}
		if recovery.CanBeGivenUp {
			return "a recovery that may need what is on the node: " + DescribeRecoveries([]Recovery{recovery})
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
func (p *planning) whyNotMoved(m *member, lost *Lost, domains, room int) string {
	spec := p.observed.Store.Spec
	after, err := time.ParseDuration(spec.Recovery.RescheduleAfter)
	if err != nil {
		after = defaultRescheduleAfter
	}
	left := after - p.observed.Now.Sub(lost.Since)
	recorded := p.observed.recordedLoss(m.name)
	switch {
	case after == 0:
		return "recovery.rescheduleAfter is 0s: members do not move by themselves"
	case lost.ProvenAt.IsZero():
		return p.unproven(m)
	case domains > int(spec.Replication.Factor):
		return fmt.Sprintf("%d failure domains are lost, more than the %d that copies make up for: nodes have to come back",
			domains, spec.Replication.Factor)
	case left > 0:
		p.lookAgainIn(left)
		return "the node to come back, until " + lost.Since.Add(after).UTC().Format("15:04:05 UTC")
	case recorded == nil || recorded.ProvenAt == nil:
		return "what is proven to be on record"
	case room <= 0:
		return fmt.Sprintf("others that are on their way (recovery.maxConcurrentReplacements: %d)", spec.Recovery.MaxConcurrentReplacements)
	case spec.Paused:
		return "spec.paused to be taken back"
	case spec.Recovery.DryRun:
		return "nothing: it would move now, but recovery.dryRun is set"
	default:
		return ""
	}
}

// defaultRescheduleAfter is that of the schema, for a Store from before the field.
const defaultRescheduleAfter = 5 * time.Minute

func (p *planning) move(m *member, lost *Lost) MoveMember {
	why := fmt.Sprintf("the node is lost (%s) since %s, what the member served is served by others",
		lost.Cause, lost.Since.UTC().Format("2006-01-02 15:04:05 UTC"))
	step := MoveMember{Member: m.name, Node: lost.Node, Why: why}
	if pod := m.pod(); pod != nil {
		ref := pod.Ref() // as it is: should its kubelet say anything, the node is back
		step.Pod = &ref
	}
	if _, number, _ := m.claim(); lost.withVolume {
		step.Claim = resources.MasterClaimAt(m.name, number+1)
	}
	return step
}

// dropVolumes deletes claims that members had on nodes that were lost, once the members are up with others and everything has its copies.
func (p *planning) dropVolumes(masters []*member) {
	o := p.observed
	if p.plan.Shortfall != nil || o.Store.Spec.Recovery.DryRun {
		return
	}
	for i, m := range masters {
		if !p.plan.Masters[i].Up || len(m.claims) < 2 {
			continue
		}
		for _, claim := range m.claims[:len(m.claims)-1] {
			if !claim.Terminating && !o.isUsed(claim.Name) {
				why := "the member has another one, and everything has its copies elsewhere"
				p.add(DropVolume{Member: m.name, Claim: claim.Name, Why: why})
			}
		}
	}
}

// isUsed says whether a pod that was not told to end has the volume of this claim.
func (o *Observed) isUsed(claim string) bool {
	return slices.ContainsFunc(o.Pods, func(pod Pod) bool { return !pod.Terminating() && pod.Claim == claim })
}
