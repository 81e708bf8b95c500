package plan

import (
	"fmt"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// maxReason is the length of spec.isolated.reason, as the API server checks it, too.
const maxReason = 120

// Reasons of the condition Isolated beside the stages.
const (
	reasonDataWouldBeLost = "DataWouldBeLost"
	reasonNotAccepted     = "NotAccepted"
)

// Cordon is a node that is to get no more pods, or to get pods again.
type Cordon struct {
	Node string
	// Server is the isolated server that it is cordoned for; IsUndo: that server is in use again.
	Server string
	IsUndo bool
}

// isIsolated: somebody has ordered it.
func (m *machine) isIsolated() bool { return m.spec().Isolated != nil }

// noteIsolation puts on record that the server is isolated, or returns. A server that returns has the power that it had before, unless
// somebody gives another order.
func (m *machine) noteIsolation() {
	isolation := m.next.Isolation
	switch {
	case m.isIsolated():
		if isolation == nil || isolation.Stage == v1alpha1.StageReturning {
			wasOn := m.power == v1alpha1.PowerOn || m.isToReturn() || isolation != nil && isolation.WasOn
			begun := &v1alpha1.ServerIsolationStatus{Since: *stamp(m.now), Stage: v1alpha1.StageMembersLeave, WasOn: wasOn}
			if isolation != nil {
				// They are off still, and its node may not have reported another start since.
				begun.Ports, begun.LastBoot = isolation.Ports, isolation.LastBoot
			}
			isolation, m.next.Isolation = begun, begun
		}
		isolation.Reason = label(m.spec().Isolated.Reason, maxReason)
		if isolation.Stage == v1alpha1.StageMembersLeave && m.power == v1alpha1.PowerOn {
			isolation.WasOn = true
		}
		m.refuseStart()
	case isolation != nil:
		if isolation.Stage != v1alpha1.StageReturning {
			m.next.ReturnedAt = stamp(m.now)
		}
		isolation.Stage = v1alpha1.StageReturning
		if m.isOrderOpen() {
			isolation.WasOn = false
		}
		m.openPorts()
	}
	if m.isShutOff() {
		m.noteLastBoot()
	}
}

// noteLastBoot puts on record which start of its system the server's node has reported before the server was off.
func (m *machine) noteLastBoot() {
	if m.next.Isolation != nil && m.node != nil {
		m.next.Isolation.LastBoot = label(m.node.BootID, maxText)
	}
}

// refuseStart ends an order that would switch on a server that is isolated.
func (m *machine) refuseStart() {
	if !m.isOrderOpen() || isShutdown(m.next.Order.Action) {
		return
	}
	state := v1alpha1.OrderFailed
	if change := m.next.Change; change == nil || change.For != v1alpha1.ForOrder || change.Tries == 0 {
		state = v1alpha1.OrderRefused
	}
	m.endOrder(state, "the server is isolated (%s): %s brings it back", m.next.Isolation.Reason, m.howToReturn())
}

func (m *machine) howToReturn() string { return "kubectl rcbox isolate-server " + m.name() + " --undo" }

// followIsolation takes the power away once no member of a Store is there any more, and keeps it away.
func (m *machine) followIsolation() {
	isolation, change := m.next.Isolation, m.next.Change
	if m.isOrderOpen() { // it shuts the server down, too
		m.followOrder()
		m.isolationWaits = "the order " + string(m.next.Order.Action) + " comes first"
		return
	}
	if change != nil && (change.For != v1alpha1.ForIsolation || change.Stage == v1alpha1.StageSwitchingOn) {
		m.next.Change = nil
	}
	if m.isShutOff() {
		m.closePorts()
		m.next.Change, isolation.Stage = nil, v1alpha1.StageIsolated
		return
	}
	if m.next.Change == nil || m.isUnbegun() && m.power != v1alpha1.PowerOff { // members may have come since
		if m.isolationWaits = m.whyNotShutDown(); m.isolationWaits != "" {
			m.next.Change, isolation.Stage = nil, v1alpha1.StageMembersLeave
			return
		}
		if m.isolationWaits = m.closePorts(); m.isolationWaits != "" {
			m.next.Change, isolation.Stage = nil, v1alpha1.StagePortsOff
			return
		}
	}
	if m.next.Change == nil {
		m.begin(v1alpha1.ForIsolation, v1alpha1.StageShuttingDown)
	}
	isolation.Stage = v1alpha1.StageIsolationOff
	result, text := m.drive()
	m.isolationWaits = text
	if result == reached {
		m.next.Change, isolation.Stage = nil, v1alpha1.StageIsolated
	}
}

// noteFence says how far the isolation of a server is that a Store has fenced: its own commands wait until that has ended.
func (m *machine) noteFence() {
	switch {
	case !m.isIsolated():
	case m.isShutOff():
		m.closePorts()
		m.next.Isolation.Stage = v1alpha1.StageIsolated
	case m.next.Isolation.Stage == v1alpha1.StageIsolated:
		m.next.Isolation.Stage = v1alpha1.StageIsolationOff
	}
}

// isShutOff: it is off, with proof where there can be one.
func (m *machine) isShutOff() bool {
	return m.power == v1alpha1.PowerOff && (m.next.LastOff != nil || !m.isProvable())
}

// whyNotShutDown says why the power of a server that is isolated is not taken away yet; empty if it may be.
func (m *machine) whyNotShutDown() string {
	switch {
	case m.power == v1alpha1.PowerOff:
		return ""
	case m.whyNobody() != "":
		return m.whyNobody()
	case !m.canBeTold():
		return fmt.Sprintf("waiting for BMC %s, which does not answer", m.layout.MMC)
	case m.power == v1alpha1.PowerUnknown:
		return "whether the server is on is not known: " + m.whatIsSeen()
	case m.Identity == nil, !m.isFresh(m.IdentityAt): // another blade may be in the slot by now
		m.isDoubted = true
		return "waiting for the BMC's system GUID, which says which node runs on the server"
	}
	if why := m.whyNotCordoned(); why != "" {
		return why
	}
	held := m.held()
	if len(held.here) == 0 || m.node == nil {
		return held.why
	}
	return m.whoLeaves(held.here)
}

// whyNotCordoned: members would come back to a node that still gets pods.
func (m *machine) whyNotCordoned() string {
	switch {
	case m.guidTwin != "":
		return m.whyTwins("")
	case m.node == nil || m.node.Cordoned:
		return ""
	}
	return "node " + m.node.Name + " is being cordoned"
}

// whoLeaves says which member is waited for, and what that one waits for. What cannot leave without loss keeps the server on.
func (m *machine) whoLeaves(all []Blocker) string {
	first := mostLost(all)
	if first.Loses != "" {
		m.isolationReason = reasonDataWouldBeLost
		return fmt.Sprintf("its power stays, because without %s, Store %s would lose %s", first.Member, first.Store, first.Loses) +
			more(all)
	}
	if i := slices.IndexFunc(all, func(b Blocker) bool { return !b.IsCoordinator }); i >= 0 { // masters leave first
		first = &all[i]
	}
	text := fmt.Sprintf("waiting for %s of Store %s to leave node %s", first.Member, first.Store, m.node.Name)
	switch {
	case first.IsCoordinator:
		text += ": kubectl drain " + m.node.Name + " evicts it"
	case first.WaitsFor != "":
		text += ", which waits for " + first.WaitsFor
	}
	return text + more(all)
}

// followIsolationsEnd gives the server the power back that it had before it was isolated. It says whether it is at that.
func (m *machine) followIsolationsEnd() bool {
	isolation, change := m.next.Isolation, m.next.Change
	isOwn := change != nil && change.For == v1alpha1.ForIsolation
	if isOwn && !isolation.WasOn || isOwn && m.spec().Power != v1alpha1.WantUnmanaged || isOwn && m.isShutDownOver() {
		m.next.Change, isOwn = nil, false
	}
	switch {
	case !isolation.WasOn || m.spec().Power != v1alpha1.WantUnmanaged: // somebody else says whether it is on
		return false
	case isOwn && m.next.Change.Stage != v1alpha1.StageSwitchingOn:
		m.isolationWaits = "the server was told to shut down before; it is switched on once it was seen off"
		return true
	case !isOwn && (m.power != v1alpha1.PowerOff || !m.canBeTold()):
		return false
	case !isOwn && m.portsWait != "": // without a network, its system would be of no use
		return true
	case !isOwn:
		m.begin(v1alpha1.ForIsolation, v1alpha1.StageSwitchingOn)
		m.noteLastBoot()
	}
	result, text := m.drive()
	m.isolationWaits = text
	if result == reached {
		m.next.Change, m.isolationWaits = nil, ""
	}
	return true
}

// isShutDownOver: what the server was told before it was to return has had its effect, or will have none.
func (m *machine) isShutDownOver() bool {
	change := m.next.Change
	switch {
	case change.Stage == v1alpha1.StageSwitchingOn:
		return false
	case change.Tries == 0 || m.power == v1alpha1.PowerOff:
		return true
	case change.Stage == v1alpha1.StageShuttingDown:
		return m.power == v1alpha1.PowerOn && m.elapsed(change.Since.Time) > m.Times.Shutdown
	}
	return m.power == v1alpha1.PowerOn && m.isDue()
}

// cordonNodes says which nodes are to get no more pods, and which are to get pods again. A node that somebody else has cordoned stays as it
// is.
func (p *planning) cordonNodes() {
	if len(p.Layout.Problems) > 0 {
		return
	}
	wanted := map[string]bool{}
	for _, m := range p.machines {
		node := m.node
		if !m.isIsolated() || node == nil || m.guidTwin != "" {
			continue
		}
		wanted[node.Name] = true
		if !node.Cordoned || node.CordonedFor != "" && node.CordonedFor != m.name() {
			p.plan.Cordons = append(p.plan.Cordons, Cordon{Node: node.Name, Server: m.name()})
		}
	}
	for _, m := range p.machines {
		isOpen := false
		for i := range p.Nodes {
			node := &p.Nodes[i]
			if m.isIsolated() || node.CordonedFor != m.name() {
				continue
			}
			isOpen = true
			if !wanted[node.Name] && m.mayUncordon(node) {
				p.plan.Cordons = append(p.plan.Cordons, Cordon{Node: node.Name, Server: m.name(), IsUndo: true})
			}
		}
		if !m.isIsolated() && !isOpen && m.next.Isolation != nil && m.hasReturned() {
			m.next.Isolation = nil
		}
	}
}

// hasReturned: it has the power that it had before it was isolated, or somebody else says whether it is on.
func (m *machine) hasReturned() bool {
	isolation := m.next.Isolation
	isItsOwn := m.next.Change != nil && m.next.Change.For == v1alpha1.ForIsolation
	return isolation == nil || len(isolation.Ports) == 0 && !isItsOwn &&
		(!isolation.WasOn || m.spec().Power != v1alpha1.WantUnmanaged || m.power == v1alpha1.PowerOn)
}

// isElsewhere: the blade of a node has left the slot.
func (m *machine) isElsewhere(node *Node) bool {
	return m.node != nil && m.node != node ||
		slices.ContainsFunc(m.machines, func(other *machine) bool { return other != m && other.node == node })
}

// mayUncordon says whether a node that is cordoned for the server may get pods again.
func (m *machine) mayUncordon(node *Node) bool {
	isolation := m.next.Isolation
	isLeftOff := isolation == nil || !isolation.WasOn && m.spec().Power != v1alpha1.WantOn || m.spec().Power == v1alpha1.WantOff
	// A node is called Ready for a while after its machine was switched off.
	isAnotherStart := isolation == nil || isolation.LastBoot == "" || node.BootID != isolation.LastBoot
	isReady := node.Ready && (isAnotherStart || m.spec().Qualification == v1alpha1.QualificationWaived)
	switch {
	case !m.hasReturned():
	case isLeftOff || isReady && m.isElsewhere(node):
		return true
	case isReady:
		m.isolationWaits = m.whyNotQualified()
		return m.isolationWaits == ""
	}
	if isolation != nil && m.isolationWaits == "" {
		m.isolationWaits = m.whyNotReady(node)
	}
	return false
}

// whyNotReady says what is waited for before a node gets pods again. If a BMC said wrongly that the server was off, another start never
// comes.
func (m *machine) whyNotReady(node *Node) string {
	if !node.Ready || !m.hasReturned() {
		return "waiting for node " + node.Name + " to be ready; then it gets pods again"
	}
	return fmt.Sprintf("waiting for another start of node %s: the one that it reports is from before the server was off. "+
		"If it was never off: %s --force", node.Name, m.howToReturn())
}

// isolated is the condition of that name; false if there is nothing to say.
func (m *machine) isolated() (verdict, bool) {
	isolation := m.next.Isolation
	if isolation == nil {
		return verdict{}, false
	}
	reason, waits := string(isolation.Stage), m.isolationWaits
	if m.isolationReason != "" {
		reason = m.isolationReason
	}
	switch {
	case len(m.Layout.Problems) > 0:
		return no(reasonNotAccepted, isolation.Reason+"; its Chassis is not accepted: nothing in it is switched"), true
	case isolation.Stage == v1alpha1.StageIsolated:
		off := "it is off, as two witnesses say"
		if m.next.LastOff == nil {
			off = "it is off, without proof by a second witness"
		}
		return yes(reason, strings.Join([]string{
			isolation.Reason, off, m.whatOfPorts(), m.howToReturn() + " brings it back",
		}, "; ")), true
	case m.fence != nil:
		waits = "waiting for the end of the fence of its node, which Store " + m.fence.by() + " has lost"
	case m.portsWait != "":
		waits = m.portsWait
	case waits == "":
		waits = "its power is looked at"
	}
	return no(reason, isolation.Reason+"; "+waits), true
}

// correctIsolation corrects the beginning after the clock was set back.
func (m *machine) correctIsolation() {
	if isolation := m.next.Isolation; isolation != nil && m.isToCome(&isolation.Since) {
		isolation.Since = *stamp(m.now)
	}
	if isolation := m.next.Isolation; isolation != nil && m.isToCome(isolation.PortsSince) {
		isolation.PortsSince = stamp(m.now)
	}
	if m.isToCome(m.next.ReturnedAt) {
		m.next.ReturnedAt = stamp(m.now)
	}
}
