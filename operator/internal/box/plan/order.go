package plan

import (
	"fmt"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// stopFollowing ends what is going on for a Chassis that is not accepted: its addresses may be somebody else's.
func (m *machine) stopFollowing() {
	m.adoptOrder()
	if m.isOrderOpen() {
		m.endOrder(v1alpha1.OrderRefused, "its Chassis %s is not accepted: see condition Accepted there", m.Chassis.Name)
	}
}

// follow does what the fence, the isolation, the order and the spec say, in this order.
func (m *machine) follow() {
	m.adoptOrder()
	m.noteIsolation()
	if m.fence != nil {
		m.followFence()
		m.noteFence()
		return
	}
	if m.isIsolated() {
		m.followIsolation()
		return
	}
	if m.isToReturn() {
		m.followReturn()
		return
	}
	if m.next.Change != nil && m.next.Change.For == v1alpha1.ForFencing {
		m.next.Change = nil
	}
	if m.isOrderOpen() {
		m.followOrder()
		return
	}
	if m.next.Isolation != nil && m.followIsolationsEnd() {
		return
	}
	m.followSpec()
}

func (m *machine) isOrderOpen() bool {
	order := m.next.Order
	return order != nil && (order.State == v1alpha1.OrderWaiting || order.State == v1alpha1.OrderRunning)
}

// adoptOrder puts a new order on record. A Cycle whose power was taken away gives it back first.
func (m *machine) adoptOrder() {
	order, recorded := m.spec().Order, m.next.Order
	if order == nil || recorded != nil && recorded.ID == order.ID {
		return
	}
	change := m.next.Change
	if change != nil && change.TriedAt != nil && change.TriedAt.Time.Equal(m.second()) {
		return // in the next second, so that the answer to the former order's command is not taken for that to this one's
	}
	isOrders := change != nil && change.For == v1alpha1.ForOrder
	if isOrders && m.isOrderOpen() && recorded.Action == v1alpha1.ActionCycle &&
		(change.Tries > 0 || change.Stage == v1alpha1.StageSwitchingOn) {
		return
	}
	isIsolations := change != nil && change.For == v1alpha1.ForIsolation && (!m.isIsolated() || isShutdown(order.Action))
	if isOrders || isIsolations || change != nil && change.For == v1alpha1.ForSpec {
		m.next.Change = nil
	}
	m.next.Order = &v1alpha1.OrderStatus{ID: order.ID, Action: order.Action, State: v1alpha1.OrderWaiting, Since: stamp(m.now)}
}

func (m *machine) endOrder(state v1alpha1.OrderState, text string, values ...any) {
	m.next.Order.State, m.next.Order.Message = state, cut(fmt.Sprintf(text, values...))
	if m.next.Change != nil && m.next.Change.For == v1alpha1.ForOrder {
		m.next.Change = nil
	}
}

// isForced: the order on record is still that of the spec, and is forced.
func (m *machine) isForced() bool {
	order := m.spec().Order
	return order != nil && order.ID == m.next.Order.ID && order.Force
}

func (m *machine) followOrder() {
	order := m.next.Order
	if order.State == v1alpha1.OrderWaiting && m.next.Change == nil {
		if why := m.whyRefused(order.Action); why != "" {
			m.endOrder(v1alpha1.OrderRefused, "%s", why)
			return
		}
		if m.isReached(order.Action) {
			m.endOrder(v1alpha1.OrderDone, "the server is %s already", strings.ToLower(string(m.power)))
			return
		}
		if !m.canBeTold() {
			m.waitForBMC()
			return
		}
		if m.isHeldBack() || m.isGathering() {
			return
		}
		m.begin(v1alpha1.ForOrder, stageOf(order.Action))
	}
	if m.next.Change == nil || m.next.Change.For != v1alpha1.ForOrder {
		m.endOrder(v1alpha1.OrderFailed, "the record of the command is gone (status.change): give a new order")
		return
	}
	if m.isUnbegun() && m.isHeldBack() { // members have come since
		return
	}
	if m.next.Change.Tries == 0 && m.isOrderOfAll() && (m.isWholeOpen() || m.isWholeUnknown()) {
		return
	}
	order.State = v1alpha1.OrderRunning
	m.conclude(m.drive())
}

// isOrderOfAll: the order is one that all servers of the chassis are given, and that the chassis manager can carry out.
func (m *machine) isOrderOfAll() bool {
	order := m.spec().Order
	return order != nil && order.ID == m.next.Order.ID && int(order.Servers) >= len(m.machines) && m.model.SwitchesAll(order.Action)
}

// isGathering: the user is giving all servers of the chassis the same order, one after the other, and the chassis manager can carry it out
// with one command once each server's status has it. The user's program may be killed half way, so the wait for the next server is limited.
func (m *machine) isGathering() bool {
	if !m.isOrderOfAll() {
		return false
	}
	if m.isWholeOpen() || m.isWholeUnknown() {
		return true
	}
	id := m.next.Order.ID
	latest, isComplete := m.next.Order.Since.Time, true
	for _, other := range m.machines {
		if next := other.next.Order; next != nil && next.ID == id && next.Since.After(latest) {
			latest = next.Since.Time
		}
		// As it was observed: a plan from an outdated view would only be refused, with the command on record.
		if recorded := other.Object.Status.Order; recorded == nil || recorded.ID != id {
			isComplete = false
		}
	}
	if isComplete || m.elapsed(latest) > m.Times.Gather {
		return false
	}
	m.next.Order.Message = "waiting until all servers of the chassis have this order"
	return true
}

// isWholeOpen: the command to the chassis manager was put on record of other servers, but not given, because another Server was changed
// meanwhile or the command waited too long. It is taken back from all of them (takeBack), and then given as one command again.
func (m *machine) isWholeOpen() bool {
	isOpen := slices.ContainsFunc(m.machines, func(other *machine) bool {
		order, change := other.next.Order, other.next.Change
		return order != nil && order.ID == m.next.Order.ID && change != nil && change.For == v1alpha1.ForOrder &&
			change.By == v1alpha1.WitnessCMM && change.Tries > 0 && other.notGiven() != nil
	})
	if isOpen {
		m.next.Order.Message = "the command to the chassis manager was not given, and will be repeated"
	}
	return isOpen
}

// isWholeUnknown: the operator cannot tell yet whether one command to the chassis manager can carry out the order, such as after a restart
// of the operator. The wait is limited as that for a silent BMC is.
func (m *machine) isWholeUnknown() bool {
	order := m.next.Order
	unheard := m.unheard(order.ID)
	if unheard == "" || m.elapsed(order.Since.Time) > m.Times.Patience {
		return false
	}
	order.Message = fmt.Sprintf("waiting until it is known whether %s answers", unheard)
	return true
}

// unheard names a controller that a command to all servers depends on, if this operator does not know yet whether that controller answers;
// empty if there is none.
func (p *planning) unheard(id string) string {
	for i := range p.Managers {
		if of := &p.Managers[i]; p.manager == nil && !p.hasLooked(&of.Contact) {
			return "chassis manager " + of.Address
		}
	}
	for _, m := range p.machines {
		if m.isOrderOpen() && m.next.Order.ID == id && !m.hasLooked(&m.MMC) {
			return "the BMC of " + m.name()
		}
	}
	return ""
}

// isUnbegun: nothing was told yet that takes the power away.
func (m *machine) isUnbegun() bool {
	return m.next.Change.Tries == 0 && m.next.Change.Stage != v1alpha1.StageSwitchingOn
}

// conclude ends the order with what became of its change.
func (m *machine) conclude(result outcome, text string) {
	order := m.next.Order
	switch result {
	case pending:
		order.Message = cut(text)
	case failed:
		m.endOrder(v1alpha1.OrderFailed, "%s", text)
	case reached:
		if order.Action == v1alpha1.ActionCycle && m.next.Change.Stage == v1alpha1.StageSwitchingOff {
			isUnproved := m.next.Change.Unproved
			m.begin(v1alpha1.ForOrder, v1alpha1.StageSwitchingOn)
			m.next.Change.Unproved = isUnproved
			m.want()
			order.Message = text
			return
		}
		if order.Action == v1alpha1.ActionCycle && m.next.Change.Unproved {
			m.endOrder(v1alpha1.OrderFailed, "the server is on, but no second witness has seen within %s that it was off", m.Times.Proof)
			return
		}
		if order.Action == v1alpha1.ActionCycle {
			text += " again"
		}
		m.endOrder(v1alpha1.OrderDone, "%s", text)
	}
}

func stageOf(action v1alpha1.PowerAction) v1alpha1.ChangeStage {
	switch action {
	case v1alpha1.ActionOn:
		return v1alpha1.StageSwitchingOn
	case v1alpha1.ActionSoft:
		return v1alpha1.StageShuttingDown
	case v1alpha1.ActionReset:
		return v1alpha1.StageRestarting
	case v1alpha1.ActionOff, v1alpha1.ActionCycle:
	}
	return v1alpha1.StageSwitchingOff
}

func isShutdown(action v1alpha1.PowerAction) bool {
	return action == v1alpha1.ActionOff || action == v1alpha1.ActionSoft
}

// isReached: a server that is as the order says is told nothing, and the order is done.
func (m *machine) isReached(action v1alpha1.PowerAction) bool {
	switch action {
	case v1alpha1.ActionOn:
		return m.power == v1alpha1.PowerOn
	case v1alpha1.ActionOff, v1alpha1.ActionSoft:
		return m.power == v1alpha1.PowerOff
	case v1alpha1.ActionCycle, v1alpha1.ActionReset:
	}
	return false
}

// whyRefused says why an order is not begun; empty if it may be.
func (m *machine) whyRefused(action v1alpha1.PowerAction) string {
	isOff := isShutdown(action)
	switch {
	case m.spec().Power == v1alpha1.WantOn && isOff:
		return "spec.power is On, so the server would be switched on again: set spec.power: Unmanaged first"
	case m.spec().Power == v1alpha1.WantOff && !isOff:
		return "spec.power is Off, so the server would be switched off again: set spec.power: Unmanaged first"
	case action == v1alpha1.ActionReset && m.power == v1alpha1.PowerOff:
		return "the server is off: order On"
	case action != v1alpha1.ActionOn && !m.isForced():
		if held := m.held(); !held.passes {
			return held.why
		}
	}
	return ""
}

// canBeTold: its BMC answers, and nothing is known against a command.
func (m *machine) canBeTold() bool { return m.answers(&m.MMC) && m.whyNobody() == "" }

// whyNobody says why the BMC lets nobody in; empty if it does.
func (m *machine) whyNobody() string {
	if why := whyRefuses(m.MMC.Err); why != "" {
		return fmt.Sprintf("its BMC %s refuses: %s", m.layout.MMC, why)
	}
	return ""
}

// waitForBMC: an order waits only so long for a BMC.
func (m *machine) waitForBMC() {
	order := m.next.Order
	order.Message = "waiting for the BMC, which has not answered yet"
	if why := m.whyNobody(); why != "" {
		m.endOrder(v1alpha1.OrderFailed, "%s", why)
		return
	}
	if m.MMC.AskedAt.IsZero() {
		return
	}
	order.Message = fmt.Sprintf("waiting for BMC %s, which does not answer", m.layout.MMC)
	if m.elapsed(order.Since.Time) > m.Times.Patience {
		m.endOrder(v1alpha1.OrderFailed, "BMC %s does not answer; nothing was done", m.layout.MMC)
	}
}

// followSpec keeps the power as spec.power says. A server of which nothing is known is left alone.
func (m *machine) followSpec() {
	change := m.next.Change
	wanted := map[v1alpha1.WantedPower]v1alpha1.PowerState{
		v1alpha1.WantOn: v1alpha1.PowerOn, v1alpha1.WantOff: v1alpha1.PowerOff,
	}[m.spec().Power]
	isOther := change != nil &&
		(change.For != v1alpha1.ForSpec || (change.Stage == v1alpha1.StageSwitchingOn) != (wanted == v1alpha1.PowerOn))
	if wanted == "" || isOther {
		m.next.Change, change = nil, nil
	}
	if wanted == "" {
		return
	}
	if change == nil {
		if m.power == wanted || m.power == v1alpha1.PowerUnknown || !m.canBeTold() {
			return
		}
		stage := v1alpha1.StageSwitchingOn
		if wanted == v1alpha1.PowerOff {
			if m.waits = m.held().why; m.waits != "" {
				return
			}
			stage = v1alpha1.StageShuttingDown
		}
		m.begin(v1alpha1.ForSpec, stage)
	}
	if m.next.Change.Stage != v1alpha1.StageSwitchingOn && m.isUnbegun() { // members may have come since
		if m.waits = m.held().why; m.waits != "" {
			m.next.Change = nil
			return
		}
	}
	result, text := m.drive()
	m.waits = text
	if result == reached {
		m.next.Change = nil
	}
}
