package box_test

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/box/rack"
)

// swapped: a slot is emptied while everything runs, and another blade is put in. Name and addresses are those of the slot; that it is
// another blade is said until somebody accepts it.
func swapped(b *bed) {
	const chassis = "mercury1"
	ports := b.server(name(swappedBlade)).Status.Ports
	b.filter.put("silent", bladeAddress(swappedBlade))
	b.must(b.rack.Pull(chassis, swappedBlade))
	b.has(swappedBlade, v1alpha1.ConditionAsRecorded, metav1.ConditionFalse, "SlotEmpty")
	b.chassisHas(chassis, v1alpha1.ConditionSlotsFilled, metav1.ConditionFalse, "Empty", "atom016 (16)")
	b.Eventually(patience, func() string { // another test empties a slot of this chassis, too, and fills it again
		if counts := b.chassis(chassis).Status.Slots; counts != (v1alpha1.SlotCounts{Server: slots, Empty: 2, Missing: 1}) {
			return fmt.Sprintf("slots: %+v", counts)
		}
		return ""
	})
	other := blade(swappedBlade)
	other.Serial, other.MACs = "MMS9016", []string{"52:54:00:03:90:10", "52:54:00:04:90:10"}
	b.must(b.rack.Insert(chassis, swappedBlade, other))
	b.filter.take("silent", bladeAddress(swappedBlade))
	b.has(swappedBlade, v1alpha1.ConditionAsRecorded, metav1.ConditionFalse, "BladeSwapped")
	message := b.condition(name(swappedBlade), v1alpha1.ConditionAsRecorded).Message
	if !strings.Contains(message, `holds the blade "MMS9016" in place of "MMS0016": if that is meant, set spec.acceptedSerial: "MMS9016"`) {
		b.Errorf("AsRecorded says %q", message)
	}
	now := b.server(name(swappedBlade)).Status.Ports
	for i := range now {
		if now[i].Name != ports[i].Name || now[i].Address != ports[i].Address || now[i].MAC == ports[i].MAC || now[i].MAC != other.MACs[i] {
			b.Errorf("port %+v was %+v", now[i], ports[i])
		}
	}
	b.change(name(swappedBlade), func(spec *v1alpha1.ServerSpec) { spec.AcceptedSerial = "MMS9016" })
	b.has(swappedBlade, v1alpha1.ConditionAsRecorded, metav1.ConditionTrue, "Accepted")
	b.chassisHas(chassis, v1alpha1.ConditionSlotsFilled, metav1.ConditionTrue, "Filled", "")
}

// twins: a MAC address that is reported in two slots is shown at both, each with the other's name, until it is reported in one alone.
func twins(b *bed) {
	const chassis = "mercury1"
	twin := blade(twinBlade)
	twin.MACs = blade(stayingBlade).MACs
	b.replace(chassis, twinBlade, twin)
	for number, twin := range map[int]int{twinBlade: stayingBlade, stayingBlade: twinBlade} {
		b.has(number, v1alpha1.ConditionAsRecorded, metav1.ConditionFalse, "MACInTwoSlots")
		if message := b.condition(name(number), v1alpha1.ConditionAsRecorded).Message; !strings.Contains(message, name(twin)) {
			b.Errorf("AsRecorded of %s says %q, without %s", name(number), message, name(twin))
		}
	}
	b.replace(chassis, twinBlade, blade(twinBlade))
	b.has(twinBlade, v1alpha1.ConditionAsRecorded, metav1.ConditionTrue, "Accepted")
	b.has(stayingBlade, v1alpha1.ConditionAsRecorded, metav1.ConditionTrue, "Accepted")
}

// replace puts another blade into a slot. Its BMC answers again once the controller has noticed that it did not.
func (b *bed) replace(chassis string, number int, other rack.Blade) {
	b.Helper()
	_, slot := place(number)
	b.filter.put("silent", bladeAddress(number))
	b.has(number, v1alpha1.ConditionReachable, metav1.ConditionFalse, "Silent")
	b.must(b.rack.Insert(chassis, slot, other))
	b.filter.take("silent", bladeAddress(number))
}
