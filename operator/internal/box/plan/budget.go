package plan

import (
	"cmp"
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// load is what servers take, or may take, of the chassis' power.
type load struct {
	watts    int32
	starting int32
}

// isStarting: it was told to start and may do so yet, or has been on for a short time only.
func (m *machine) isStarting() bool {
	start, until := m.model.StartTime(m.Times.Start), m.next.Power.MayStartUntil
	switch {
	case m.power == v1alpha1.PowerOn && m.elapsed(m.next.Power.Since.Time) < start:
		return true
	case until == nil:
		return false
	case m.power == v1alpha1.PowerUnknown: // it may have started at the last moment
		return m.now.Before(until.Add(start))
	}
	return !m.now.After(until.Time)
}

// load of a server. One of which nothing is known counts as on.
func (m *machine) load() load {
	switch {
	case m.isStarting():
		return load{watts: m.model.StartWatts(), starting: 1}
	case m.power == v1alpha1.PowerOff:
		return load{}
	}
	return load{watts: m.model.ServerWatts()}
}

// budget is what the chassis may draw; 0: nobody has said.
func (p *planning) budget() int32 {
	if p.Chassis.Spec.Power.BudgetWatts > 0 {
		return p.Chassis.Spec.Power.BudgetWatts
	}
	return p.model.MaxWatts
}

func (p *planning) startsAtOnce() int32 { return max(p.Chassis.Spec.Power.StartsAtOnce, 1) }

// committed is what the servers take: what was measured, if that is more than what is reserved.
func (p *planning) committed() load {
	sum := load{watts: int32(len(p.Taken)) * p.model.ServerWatts()} //nolint:gosec // at most ranges.MaxItems
	for _, m := range p.machines {
		of := m.load()
		sum.watts += of.watts
		sum.starting += of.starting
	}
	if watts := p.measured(); watts != nil {
		sum.watts = max(sum.watts, *watts)
	}
	return sum
}

// measured is what the chassis draws, as its manager says: at least what its slots do.
func (p *planning) measured() *int32 {
	if p.manager == nil || !p.isFresh(p.manager.SensorsAt) {
		return nil
	}
	value, isThere := p.manager.read(p.model.Manager.ChassisWatts)
	if p.model.Manager.ChassisWatts == "" {
		value, isThere = p.slotWatts()
	}
	if !isThere || value < 0 || value > 1e6 {
		return nil
	}
	watts := int32(value)
	return &watts
}

// slotWatts is what all slots with a server draw; false if that is not known of each of them.
func (p *planning) slotWatts() (sum float64, isKnown bool) {
	of := p.model.Manager.SlotWatts
	for _, m := range p.machines {
		if of == nil {
			return 0, false
		}
		value, isThere := p.manager.read(fmt.Sprintf(of.Sensor, m.layout.Slot))
		if !isThere {
			return 0, false
		}
		sum += value
	}
	return sum, len(p.machines) > 0
}

// grant lets servers start as long as there is power for them: those that wait longest first, then by slot.
func (p *planning) grant() {
	slices.SortStableFunc(p.wanted, func(a, b *machine) int {
		return cmp.Or(a.next.Change.Since.Compare(b.next.Change.Since.Time), bySlot(a, b))
	})
	sum, budget := p.committed(), p.budget()
	if p.startsWhole(sum, budget) {
		for _, m := range p.wanted {
			m.start()
		}
		return
	}
	for _, m := range p.wanted {
		after := sum.watts - m.load().watts + m.model.StartWatts()
		switch {
		case budget > 0 && after > budget:
			m.lacksPower(budget)
		case sum.starting-m.load().starting >= p.startsAtOnce():
			m.waitsFor(fmt.Sprintf("waiting until fewer than %d servers are starting (power.startsAtOnce)", p.startsAtOnce()))
		default:
			sum.starting += 1 - m.load().starting
			sum.watts = after
			m.start()
		}
	}
}

// startsWhole: all that want to start may do so by one command, since the chassis manager starts them one after the other.
func (p *planning) startsWhole(sum load, budget int32) bool {
	staggers := p.model.Manager.StaggersStarts
	canDo := p.manager != nil && staggers != nil && *staggers && p.model.SwitchesAll(v1alpha1.ActionOn)
	if !canDo || len(p.wanted) < 2 || sum.starting > 0 {
		return false
	}
	given, watts := map[*machine]bool{}, sum.watts
	for _, m := range p.wanted {
		if m.next.Change.Tries > 0 || m.next.Change.Stage != v1alpha1.StageSwitchingOn {
			return false
		}
		given[m] = true
		watts += m.model.StartWatts() - m.load().watts
	}
	return (budget == 0 || watts <= budget) && p.suitsAll(bmc.ActionOn, given)
}

func (m *machine) start() {
	action := bmc.ActionOn
	if m.next.Change.Stage == v1alpha1.StageRestarting {
		action = bmc.ActionReset
	}
	_, text := m.try(action, "the server was told to switch on, and has not been seen on yet")
	m.waitsFor(text)
}

// lacksPower: an order waits only so long for the budget, which nothing may change.
func (m *machine) lacksPower(budget int32) {
	change := m.next.Change
	text := fmt.Sprintf("a start takes %d W, and less is left of %d W (power.budgetWatts)", m.model.StartWatts(), budget)
	if change.For == v1alpha1.ForOrder && m.elapsed(change.Since.Time) > m.Times.Patience {
		m.endOrder(v1alpha1.OrderFailed, "the server was not switched on: %s", text)
		return
	}
	m.waitsFor("waiting for power: " + text)
}

// waitsFor says so where the change is on record.
func (m *machine) waitsFor(text string) {
	m.waits = text
	if m.next.Change.For == v1alpha1.ForOrder {
		m.next.Order.Message = text
	}
}
