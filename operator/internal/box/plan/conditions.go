package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	// maxMessage is the length of a condition's message.
	maxMessage = 300
	// maxDetail is the length of a BMC's words in it.
	maxDetail = 120
	// maxNamed is how many servers or sensors a message names.
	maxNamed = 5
	// maxSensors is what the status has room for, and maxText the room for what hardware says of itself.
	maxSensors = 64
	maxText    = 64
	maxLabel   = 32
	// maxEvents is how many events of a BMC's log the status has, and maxEvent the longest text of one.
	maxEvents = 8
	maxEvent  = 96
	// reasonGUIDTwice of AsRecorded and Fenceable: another server's BMC reports the same system GUID.
	reasonGUIDTwice = "GUIDTwice"
	// ReasonSlotEmpty of AsRecorded: there is no blade in the slot.
	ReasonSlotEmpty = "SlotEmpty"
	// nearPart of a sensor's value is a change that is not told of.
	nearPart = 0.1
)

type verdict struct {
	status  metav1.ConditionStatus
	reason  string
	message string
	// notYet: this operator has not looked yet, and leaves what an earlier one has found out.
	notYet bool
}

func yes(reason, message string) verdict {
	return verdict{status: metav1.ConditionTrue, reason: reason, message: message}
}

func no(reason, message string) verdict {
	return verdict{status: metav1.ConditionFalse, reason: reason, message: message}
}

func unknown(reason, message string) verdict {
	return verdict{status: metav1.ConditionUnknown, reason: reason, message: message}
}

func notYet(reason, message string) verdict {
	return verdict{status: metav1.ConditionUnknown, reason: reason, message: message, notYet: true}
}

// setConditions completes the status of a server.
func (m *machine) setConditions() {
	next := m.next
	next.ObservedGeneration, next.Chassis, next.Slot = m.Object.Generation, m.Chassis.Name, m.layout.Slot
	m.takeIdentity()
	m.takeSensors()
	m.takeEvents()
	for _, c := range []struct {
		name string
		verdict
	}{
		{v1alpha1.ConditionReachable, m.reachable()},
		{v1alpha1.ConditionPoweredOn, m.poweredOn()},
		{v1alpha1.ConditionNodeReady, m.nodeReady()},
		{v1alpha1.ConditionHealthy, m.healthy()},
		{v1alpha1.ConditionAsRecorded, m.asRecorded()},
		{v1alpha1.ConditionFenceable, m.fenceable()},
	} {
		set(&next.Conditions, c.name, c.verdict, next.ObservedGeneration, m.now)
	}
	isolated, isThere := m.isolated()
	m.setIfThere(v1alpha1.ConditionIsolated, isolated, isThere)
	if m.Identity != nil { // until then, what an earlier operator has found out stays
		reported, isThere := m.asReported()
		m.setIfThere(v1alpha1.ConditionAsReported, reported, isThere)
		qualified, isThere := m.qualified()
		m.setIfThere(v1alpha1.ConditionQualified, qualified, isThere)
	}
}

func (m *machine) setIfThere(name string, v verdict, isThere bool) {
	if !isThere {
		meta.RemoveStatusCondition(&m.next.Conditions, name)
		return
	}
	set(&m.next.Conditions, name, v, m.next.ObservedGeneration, m.now)
}

func set(conditions *[]metav1.Condition, name string, v verdict, generation int64, now time.Time) {
	if v.notYet && meta.FindStatusCondition(*conditions, name) != nil {
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: name, Status: v.status, Reason: v.reason, Message: cut(v.message), ObservedGeneration: generation,
		LastTransitionTime: *stamp(now),
	})
}

// takeIdentity takes down what the hardware is. The first serial number that is seen in a slot is accepted.
func (m *machine) takeIdentity() {
	next := m.next
	before := next.Ports
	next.Ports = nil
	for _, port := range m.layout.Ports {
		status := v1alpha1.PortStatus{Name: port.Name, NIC: port.NIC}
		if port.Address.IsValid() {
			status.Address = port.Address.String()
		}
		if i := slices.IndexFunc(before, func(p v1alpha1.PortStatus) bool { return p.NIC == port.NIC }); i >= 0 {
			status.MAC = before[i].MAC
		}
		if m.Identity != nil {
			status.MAC = label(strings.ToLower(m.Identity.MACs[int(port.NIC)]), 17)
		}
		next.Ports = append(next.Ports, status)
	}
	hardware := &next.Hardware
	if of := m.Identity; of != nil {
		hardware.Manufacturer, hardware.Product = label(of.Manufacturer, maxText), label(of.Product, maxText)
		hardware.Serial = label(of.Serial, maxText)
		next.MMC.Firmware, next.MMC.SystemGUID = label(of.Firmware, maxText), label(strings.ToLower(of.SystemGUID), 36)
	}
	switch {
	case m.spec().AcceptedSerial != "":
		hardware.AcceptedSerial = m.spec().AcceptedSerial
	case hardware.AcceptedSerial == "":
		hardware.AcceptedSerial = hardware.Serial
	}
}

// takeSensors takes down what sensors say. A value that has hardly changed stays as it is on record.
func (m *machine) takeSensors() {
	if m.Sensors == nil {
		return
	}
	before := map[string]v1alpha1.SensorStatus{}
	for _, s := range m.next.Sensors {
		before[s.Name] = s
	}
	m.next.Sensors = nil
	seen := map[string]bool{}
	for i := range m.Sensors {
		s := &m.Sensors[i]
		name := label(s.Name, maxLabel)
		if name == "" || seen[name] || len(m.next.Sensors) == maxSensors {
			continue
		}
		seen[name] = true
		next := v1alpha1.SensorStatus{Name: name, Value: valueOf(s), Beyond: s.Beyond}
		if old := before[name]; !s.Discrete && old.Beyond == s.Beyond && isNear(old.Value, s) {
			next.Value = old.Value
		}
		m.next.Sensors = append(m.next.Sensors, next)
	}
}

// takeEvents puts the newest events of the BMC's log into the status.
func (m *machine) takeEvents() {
	if m.Log == nil {
		return
	}
	m.next.Events = nil
	for _, of := range m.Log[max(len(m.Log)-maxEvents, 0):] {
		event := v1alpha1.EventStatus{
			ID: int32(of.ID), Sensor: label(of.Sensor, maxLabel), //nolint:gosec // BMCs count to 65535, and others only name it
			Text: label(of.Text, maxEvent), Ended: !of.Asserted,
		}
		if !of.At.IsZero() {
			event.At = stamp(of.At)
		}
		m.next.Events = append(m.next.Events, event)
	}
}

func valueOf(s *bmc.Sensor) string {
	if s.Discrete {
		return label(fmt.Sprintf("%#x", int64(s.Value)), maxLabel)
	}
	return label(rounded(s.Value)+" "+s.Unit, maxLabel)
}

// isNear: it differs from what is on record by less than anybody wants to know.
func isNear(recorded string, s *bmc.Sensor) bool {
	text, unit, _ := strings.Cut(recorded, " ")
	old, err := strconv.ParseFloat(text, 64)
	return err == nil && unit == label(s.Unit, maxLabel) && math.Abs(old-s.Value) <= nearPart*math.Abs(old)
}

// rounded to two digits, or to whole numbers up to 99.
func rounded(value float64) string {
	text := strconv.FormatFloat(value, 'g', 2, 64)
	exact, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	return strconv.FormatFloat(exact, 'f', -1, 64)
}

func (m *machine) reachable() verdict {
	switch {
	case m.whyNobody() != "":
		return no("Refused", m.whyNobody()+"; "+m.whatToDo())
	case m.answers(&m.MMC):
		return yes("Answers", "its BMC answers")
	case m.isSilent():
		return no("Silent", fmt.Sprintf("its BMC %s has not answered since %s", m.next.MMC.Address,
			m.next.MMC.SilentSince.UTC().Format(time.RFC3339)))
	}
	return notYet("NotAsked", "its BMC was not asked yet")
}

func (m *machine) poweredOn() verdict {
	suffix := ""
	if m.waits != "" && (m.next.Change == nil || m.next.Change.For != v1alpha1.ForOrder) {
		suffix = "; " + m.waits
	}
	switch {
	case m.disagree != "":
		return unknown("WitnessesDisagree", m.disagree+suffix)
	case m.power == v1alpha1.PowerOn:
		return yes("On", whoIs(m.next.Power.Source)+" says that the server is on"+suffix)
	case m.power == v1alpha1.PowerOff && m.next.LastOff != nil:
		return no("ProvedOff", "two witnesses have seen that it is off"+suffix)
	case m.power == v1alpha1.PowerOff:
		return no("Off", whoIs(m.next.Power.Source)+" says that the server is off, which is no proof"+suffix)
	}
	if len(m.sights) == 0 && !m.hasLooked(&m.MMC) {
		return notYet("NotAsked", "its BMC was not asked yet")
	}
	return unknown("NotSeen", "no witness has said lately whether the server is on"+suffix)
}

func (m *machine) nodeReady() verdict {
	switch {
	case m.Identity == nil:
		return notYet("NotRead", "the system GUID of its BMC was not read yet")
	case m.node == nil:
		return unknown("NoNode", "no node has the system GUID of its BMC")
	case m.node.Ready:
		return yes("Ready", "node "+m.node.Name+" is ready")
	}
	return no("NotReady", "node "+m.node.Name+" is not ready")
}

func (m *machine) healthy() verdict {
	m.ill = m.illness()
	switch {
	case m.ill != nil:
		return no(string(m.ill.cause), m.ill.message())
	case m.Log == nil && m.hadMemoryErrors():
		return notYet("NotRead", "the log of its BMC was not read yet")
	case m.Sensors == nil:
		return notYet("NotRead", "its sensors were not read yet")
	}
	return yes("WithinLimits", "no sensor is beyond its limits, and nothing else speaks against it")
}

// asRecorded compares what is in the slot with what was accepted there.
func (m *machine) asRecorded() verdict {
	hardware := &m.next.Hardware
	switch twin, mac := m.twin(); {
	case m.isEmpty():
		return no(ReasonSlotEmpty, fmt.Sprintf("slot %d has no blade: its BMC does not answer, and the slot draws nothing", m.layout.Slot))
	case m.Identity == nil:
		return notYet("NotRead", "what is in slot "+strconv.Itoa(int(m.layout.Slot))+" was not read yet")
	case twin != "":
		return no("MACInTwoSlots", fmt.Sprintf("the MAC address %s of slot %d is that of %s, too", mac, m.layout.Slot, twin))
	case m.Identity.Slot != 0 && m.Identity.Slot != int(m.layout.Slot):
		return no("AnotherSlot", fmt.Sprintf("the hardware says that it is in slot %d, and its BMC's address is that of slot %d: correct "+
			"spec.management.mmc of Chassis %s, or the address", m.Identity.Slot, m.layout.Slot, m.Chassis.Name))
	case m.guidTwin != "":
		return no(reasonGUIDTwice, fmt.Sprintf("the system GUID %s is that of %s, too", m.next.MMC.SystemGUID, m.guidTwin))
	case hardware.Serial != hardware.AcceptedSerial:
		return no("BladeSwapped", fmt.Sprintf("slot %d holds the blade %q in place of %q: if that is meant, set spec.acceptedSerial: %q",
			m.layout.Slot, hardware.Serial, hardware.AcceptedSerial, hardware.Serial))
	case hardware.Serial == "":
		return unknown("NoSerial", "the hardware reports no serial number")
	}
	return yes("Accepted", "the blade is the one that was accepted")
}

// twin is another server that reports one of its MAC addresses.
func (m *machine) twin() (server, mac string) {
	if m.Identity == nil {
		return "", ""
	}
	for nic := 1; nic <= 8; nic++ {
		mac := strings.ToLower(m.Identity.MACs[nic])
		if mac == "" {
			continue
		}
		for _, other := range m.machines {
			if other != m && other.Identity != nil && other.hasMAC(mac) {
				return other.name(), mac
			}
		}
		if other := m.ElsewhereMACs[mac]; other != "" && other != m.name() {
			return other, mac
		}
	}
	return "", ""
}

func (m *machine) hasMAC(mac string) bool {
	for _, own := range m.Identity.MACs {
		if strings.EqualFold(own, mac) {
			return true
		}
	}
	return false
}

func (m *machine) fenceable() verdict {
	switch why := m.whyNotFenceable(); {
	case m.Identity == nil:
		return notYet("NotRead", why)
	case m.guidTwin != "":
		return no(reasonGUIDTwice, why)
	case why != "":
		return no("NoProof", why)
	case len(m.Chassis.Spec.Fencing.Namespaces) == 0:
		return no("NobodyMay", "spec.fencing.namespaces of Chassis "+m.Chassis.Name+" names no namespace")
	}
	return yes("Provable", "the BMC's server is node "+m.node.Name+", and there is a second witness")
}

// listed names a few of them.
func listed(all []string) string {
	if len(all) > maxNamed {
		all = append(slices.Clone(all[:maxNamed]), fmt.Sprintf("and %d more", len(all)-maxNamed))
	}
	return strings.Join(all, ", ")
}

// cut keeps what foreign texts make of a message within bounds; our own fit.
func cut(text string) string { return label(text, maxMessage) }

// label is what hardware says of itself, not longer than its field.
func label(text string, room int) string {
	text = bmc.Printable(text)
	return strings.TrimSpace(text[:min(len(text), room)])
}
