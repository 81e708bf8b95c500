package planner

import (
	"fmt"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

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
	if before := p.observed.Recorded(m.Name).Lost; before != nil && before.Node == node {
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
	if before := p.observed.Recorded(m.Name).Lost; cause == v1alpha1.NodeSilent && (before == nil || before.ProvenAt == nil) {
		p.lookAgainIn(lockInterval) // only that this is on record is waited for
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

// evacuation is set while the member's node is drained, and then until the member is up elsewhere.
func (p *planning) evacuation(m *facts.Member, view *MemberView) *Evacuation {
	o := p.observed
	if !view.Wanted || o.Cluster == nil || o.Store.Copies() == 0 {
		return nil
	}
	recorded := o.Recorded(m.Name).Evacuation
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
