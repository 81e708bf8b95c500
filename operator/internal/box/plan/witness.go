package plan

import (
	"fmt"
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// sight is what a witness says, as far as it counts now.
type sight struct {
	Sight

	witness v1alpha1.Witness
}

// source is who stands behind a witness: what the chassis manager says of a slot's state and of its power is the word of one.
type source int

const (
	ownBMC source = iota
	chassisManager
	switchBoard
)

func (s sight) source() source {
	switch s.witness {
	case v1alpha1.WitnessMMC:
		return ownBMC
	case v1alpha1.WitnessSwitchLink:
		return switchBoard
	case v1alpha1.WitnessCMM, v1alpha1.WitnessPowerReading:
	}
	return chassisManager
}

// answers says whether a controller has answered lately.
func (p *planning) answers(c *Contact) bool {
	return !c.AnsweredAt.IsZero() && p.now.Sub(c.AnsweredAt) <= p.Times.Silent
}

// isSilent says whether its BMC does not answer, as far as this operator has tried.
func (m *machine) isSilent() bool {
	return !m.MMC.AskedAt.IsZero() && !m.answers(&m.MMC) && m.MMC.Err != nil && m.whyNobody() == ""
}

func (p *planning) isFresh(at time.Time) bool { return !at.IsZero() && p.now.Sub(at) <= p.Times.Fresh }

// inCharge is the chassis manager that is in charge: the one that says so, or else the one on record, or else the first that answers.
func (p *planning) inCharge() *Manager {
	var found *Manager
	for i := range p.Managers {
		m := &p.Managers[i]
		if !p.answers(&m.Contact) || m.Err != nil && !p.isFresh(m.SensorsAt) {
			continue
		}
		switch {
		case p.model.Manager.InCharge != "":
			if value, isThere := m.read(p.model.Manager.InCharge); isThere && value > 0 && p.isFresh(m.SensorsAt) && found == nil {
				found = m
			}
		case found == nil || m.Address == p.Chassis.Status.Manager.Master:
			found = m
		}
	}
	return found
}

func (m *Manager) read(sensor string) (float64, bool) {
	for i := range m.Sensors {
		if m.Sensors[i].Name == sensor {
			return m.Sensors[i].Value, true
		}
	}
	return 0, false
}

// lookAtContact takes down how its BMC is reached, and since when it is silent.
func (m *machine) lookAtContact() {
	m.next.MMC.Address = ""
	if m.layout.MMC.IsValid() {
		m.next.MMC.Address = m.layout.MMC.String()
	}
	m.next.MMC.Refused = m.MMC.refused(m.next.MMC.Refused)
	switch {
	case m.answers(&m.MMC):
		m.next.MMC.SilentSince = nil
	case m.isSilent() && m.next.MMC.SilentSince == nil:
		m.next.MMC.SilentSince = stamp(m.now)
		if !m.MMC.AnsweredAt.IsZero() {
			m.next.MMC.SilentSince = stamp(m.MMC.AnsweredAt)
		}
	}
}

// look takes down what the witnesses say.
func (m *machine) look() {
	m.lookAtContact()
	if m.Power.Power != bmc.PowerUnknown && m.isFresh(m.Power.At) {
		m.sights = append(m.sights, sight{m.Power, v1alpha1.WitnessMMC})
	}
	if m.manager != nil && m.isFresh(m.manager.SensorsAt) {
		m.lookAtManager()
	}
	if m.Link.Power == bmc.PowerOff && m.isFresh(m.Link.At) {
		m.sights = append(m.sights, sight{m.Link, v1alpha1.WitnessSwitchLink})
	}
	on := slices.IndexFunc(m.sights, func(s sight) bool { return s.Power == bmc.PowerOn })
	off := slices.IndexFunc(m.sights, func(s sight) bool { return s.Power == bmc.PowerOff && s.witness != v1alpha1.WitnessSwitchLink })
	power := &m.next.Power
	before, source := power.State, power.Source
	m.power, power.Source = v1alpha1.PowerUnknown, ""
	switch {
	case on >= 0 && off >= 0:
		m.disagree = fmt.Sprintf("%s says On, and %s says Off", whoIs(m.sights[on].witness),
			whoIs(m.sights[off].witness))
	case on >= 0:
		m.power, power.Source = v1alpha1.PowerOn, m.sights[on].witness
	case off >= 0:
		m.power, power.Source = v1alpha1.PowerOff, m.sights[off].witness
	}
	if len(m.sights) == 0 && !m.hasLooked(&m.MMC) && before != "" { // unknown, and the record of an earlier operator is not changed yet
		power.Source = source
		return
	}
	power.State = m.power
	if before != m.power || power.Since == nil {
		power.Since = stamp(m.now)
	}
}

// lookAtManager takes down what the chassis manager says of the slot.
func (m *machine) lookAtManager() {
	add := func(power bmc.Power, witness v1alpha1.Witness) {
		if power != bmc.PowerUnknown {
			m.sights = append(m.sights, sight{Sight{power, m.manager.SensorsAt}, witness})
		}
	}
	if of := m.model.Manager.SlotState; of != nil {
		if value, isThere := m.manager.read(fmt.Sprintf(of.Sensor, m.layout.Slot)); isThere {
			power := bmc.PowerUnknown
			switch int64(value) {
			case of.On:
				power = bmc.PowerOn
			case of.Off:
				power = bmc.PowerOff
			}
			add(power, v1alpha1.WitnessCMM)
		}
	}
	if of := m.model.Manager.SlotWatts; of != nil {
		if value, isThere := m.manager.read(fmt.Sprintf(of.Sensor, m.layout.Slot)); isThere {
			power := bmc.PowerUnknown
			switch {
			case value < of.OffBelow:
				power = bmc.PowerOff
			case value >= of.OnFrom:
				power = bmc.PowerOn
			}
			add(power, v1alpha1.WitnessPowerReading)
		}
	}
}

func whoIs(witness v1alpha1.Witness) string {
	switch witness {
	case v1alpha1.WitnessMMC:
		return "its BMC"
	case v1alpha1.WitnessCMM:
		return "the chassis manager"
	case v1alpha1.WitnessPowerReading:
		return "the power reading of its slot"
	case v1alpha1.WitnessSwitchLink:
	}
	return "the link at the switch"
}

// isSeen says whether it was seen to be so after a command was given, and nobody contradicts.
func (m *machine) isSeen(power v1alpha1.PowerState, want bmc.Power) bool {
	if m.power != power {
		return false
	}
	change := m.next.Change
	return change == nil || change.Tries == 0 || slices.ContainsFunc(m.sights, func(s sight) bool {
		return s.Power == want && isAfter(s.At, change.TriedAt)
	})
}

// whyNoWitness says why the server has no second witness beside its BMC; empty if it has one, or that is not known yet. The second witness
// observes a slot, and the BMC is found by its address. Only hardware that reports its slot proves that both speak of the same blade. A
// power reading that falls after a command is weaker evidence: the blade in the slot may have shut down by itself.
func (m *machine) whyNoWitness() string {
	switch {
	case (len(m.Managers) == 0 || !m.model.HasSlotSensor()) && m.Link.At.IsZero():
		return fmt.Sprintf("model %s names no sensor for the power of slots (set spec.modelOverrides.manager), and the server's switch "+
			"link is not known", m.Chassis.Spec.Model)
	case m.Identity == nil:
		return ""
	case m.Identity.Slot == 0:
		return fmt.Sprintf("the server's hardware does not report its slot, so the power of slot %d may be that of another server (write "+
			"SLOT=%d into a custom field of its FRU)", m.layout.Slot, m.layout.Slot)
	case m.Identity.Slot != int(m.layout.Slot):
		return fmt.Sprintf("the server's hardware reports slot %d, not slot %d: correct spec.management.mmc", m.Identity.Slot,
			m.layout.Slot)
	}
	return ""
}

// isProvable says whether there is a second witness, or may be one.
func (m *machine) isProvable() bool { return m.whyNoWitness() == "" }

// proof returns the witnesses that have seen the server off, and the time of the last observation: if the first witness was wrong, the
// server was off only then. A proof needs two witnesses of different sources that are known to observe the same blade. They must not have
// looked while a command to switch the server on could still take effect, and no witness may have seen the server on.
func (m *machine) proof() ([]v1alpha1.Witness, time.Time) {
	var by []v1alpha1.Witness
	var at time.Time
	var sources []source
	for _, s := range m.sights {
		if s.Power == bmc.PowerOn {
			return nil, time.Time{}
		}
		if !m.isSettled(s.At) || m.fence != nil && s.At.Before(m.fence.Since) {
			continue
		}
		if by = append(by, s.witness); s.At.After(at) {
			at = s.At
		}
		if !slices.Contains(sources, s.source()) {
			sources = append(sources, s.source())
		}
	}
	change := m.next.Change
	isToldToStart := change != nil && change.Tries > 0 &&
		(change.Stage == v1alpha1.StageSwitchingOn || change.Stage == v1alpha1.StageRestarting)
	if len(sources) < 2 || isToldToStart || m.Identity == nil || !m.isProvable() {
		return nil, time.Time{}
	}
	return by, at
}

// isSettled says whether no command to switch it on could still take effect at a time.
func (m *machine) isSettled(at time.Time) bool { return isAfter(at, m.next.Power.MayStartUntil) }

// recordProof keeps status.lastOff true: it is there once it is proved, and not any more once it may be on.
func (m *machine) recordProof() {
	if slices.ContainsFunc(m.sights, func(s sight) bool { return s.Power == bmc.PowerOn }) {
		m.next.LastOff = nil
		return
	}
	by, at := m.proof()
	last := m.next.LastOff
	if len(by) == 0 || last != nil && (m.fence == nil || !last.At.Time.Before(m.fence.Since)) {
		return
	}
	m.next.LastOff = &v1alpha1.OffProof{At: *stamp(at), By: by}
}
