package plan

import (
	"fmt"
	"strconv"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/model"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/box/ranges"
)

// redundant: all parts of a kind work, as far as the chassis manager sees them.
func (p *planning) redundant(what string, parts *model.Parts) verdict {
	switch {
	case parts == nil:
		return unknown("NotMeasured",
			fmt.Sprintf("model %s names no sensors of %s: name them in spec.modelOverrides.manager", p.model.Name, what))
	case p.isManagerUnasked():
		return notYet("NotAsked", "not all chassis managers were asked yet")
	case p.manager == nil:
		return unknown(p.noManager())
	}
	if failed := p.failedParts(parts); len(failed) > 0 {
		return no("Failed", fmt.Sprintf("%d of %d %s do not work or are not there: %s; replace them while the chassis runs",
			len(failed), parts.Count, what, listed(failed)))
	}
	return yes("AllWork", fmt.Sprintf("all %d %s work", parts.Count, what))
}

// failedParts are the names of sensors of parts that do not work.
func (p *planning) failedParts(parts *model.Parts) []string {
	if parts == nil || p.manager == nil {
		return nil
	}
	var failed []string
	for n := int32(1); n <= parts.Count; n++ {
		name := fmt.Sprintf(parts.Sensor, n)
		if value, isThere := p.manager.read(name); !isThere || value < parts.WorksFrom {
			failed = append(failed, name)
		}
	}
	return failed
}

// isEmpty: there is no blade in its slot. Its BMC is silent, and the slot draws less than any blade that is off.
func (m *machine) isEmpty() bool {
	watts := m.model.Manager.SlotWatts
	if watts == nil || watts.EmptyBelow == 0 || m.manager == nil || !m.isSilent() || !m.isFresh(m.manager.SensorsAt) {
		return false
	}
	value, isThere := m.manager.read(fmt.Sprintf(watts.Sensor, m.layout.Slot))
	return isThere && value < watts.EmptyBelow
}

func (p *planning) slotsFilled(empty []string) verdict {
	watts := p.model.Manager.SlotWatts
	switch {
	case len(empty) > 0:
		return no("Empty", "no blade is in the slots of "+listed(empty)+": each keeps name and addresses for the next blade")
	case watts == nil || watts.EmptyBelow == 0:
		return unknown("NotMeasured", fmt.Sprintf("model %s does not say how an empty slot is seen", p.model.Name))
	case p.isManagerUnasked():
		return notYet("NotAsked", "not all chassis managers were asked yet")
	case p.manager == nil:
		return unknown(p.noManager())
	}
	return yes("Filled", "each slot of spec.slots has its blade, as far as is known")
}

// setSlots counts slots, and gives the names of servers whose blade is not there.
func (p *planning) setSlots(next *v1alpha1.ChassisStatus) []string {
	var empty []string
	for _, m := range p.machines {
		if m.isEmpty() {
			empty = append(empty, m.name()+" ("+strconv.Itoa(int(m.layout.Slot))+")")
		}
	}
	next.Slots = v1alpha1.SlotCounts{Server: int32(len(p.machines)), Missing: int32(len(empty))} //nolint:gosec // at most ranges.MaxItems
	if list, err := ranges.ParseNumbers(p.Chassis.Spec.StorageSlots); err == nil && p.Chassis.Spec.StorageSlots != "" {
		next.Slots.Storage = int32(len(names.Numbers(list))) //nolint:gosec // as above
	}
	next.Slots.Empty = max(p.model.Slots.Count-next.Slots.Server-next.Slots.Storage, 0)
	return empty
}
