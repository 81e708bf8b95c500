package box_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/box/rack"
)

// The blades of the tests that run side by side. Those of mercury3 are switched all together by another test meanwhile.
const (
	// Blades of mercury1 whose consoles are used; docs/console.md uses atom007.
	consoleBlade, solBlade, scriptBlade = 7, 8, 9
	// The BMC of liarBlade lies about its power; orderedBlade gets each order.
	liarBlade, orderedBlade = 6, 10
	// Users with and without the right to switch power try it on this blade.
	rightsBlade = 20

	frozenBlade   = 11
	refusingBlade = 12
	lossyBlade    = 13
	keptBlade     = 14
	wakingBlade   = 15
	// Those of mercury2 whose BMCs restart.
	restartedFirst, restartedLast = 51, 54
	// The one of mercury2 while one of its managers is dead.
	provedBlade = 60
	// Those of mercury1 that are pulled out, and for which others are put in; the last one stays.
	swappedBlade, twinBlade, stayingBlade = 16, 17, 18
	// The one that ipmitool and FreeIPMI look at, and the one that the page about blades replaces.
	judgedBlade, pageBlade = 19, 43
	silentBlades           = 40
)

func name(number int) string { return fmt.Sprintf("atom%03d", number) }

// place is the chassis and the slot of a server by its number.
func place(number int) (chassis string, slot int) {
	return fmt.Sprintf("mercury%d", (number-1)/slots+1), (number-1)%slots + 1
}

// button switches a blade as somebody does who stands before it.
func (b *bed) button(number int, power rack.Power) {
	b.Helper()
	chassis, slot := place(number)
	b.must(b.rack.Set(chassis, slot, power))
}

// isOn asks the rack itself.
func (b *bed) isOn(number int) bool {
	b.Helper()
	chassis, slot := place(number)
	power, err := b.rack.Get(chassis, slot)
	b.must(err)
	return power == rack.On
}

// give gives an order.
func (b *bed) give(number int, id string, action v1alpha1.PowerAction) {
	b.Helper()
	b.change(name(number), func(spec *v1alpha1.ServerSpec) { spec.Order = &v1alpha1.PowerOrder{ID: id, Action: action} })
}

// orderHas waits until an order is so far, and its message has a text.
func (b *bed) orderHas(number int, id string, state v1alpha1.OrderState, says string) {
	b.Helper()
	b.orderIs(name(number), id, state, says)
}

// orderIs is the same for a server by its name.
func (b *bed) orderIs(server, id string, state v1alpha1.OrderState, says string) {
	b.Helper()
	b.Eventually(patience, func() string {
		order := b.server(server).Status.Order
		if order == nil || order.ID != id || order.State != state || !strings.Contains(order.Message, says) {
			return fmt.Sprintf("order %s of %s is not %s: %q, but %+v", id, server, state, says, order)
		}
		return ""
	})
}

// has waits until a condition of a server is so.
func (b *bed) has(number int, kind string, status metav1.ConditionStatus, reason string) {
	b.Helper()
	b.Eventually(patience, func() string {
		if c := b.condition(name(number), kind); c == nil || c.Status != status || c.Reason != reason {
			return fmt.Sprintf("%s of %s is not %s %s, but %+v", kind, name(number), status, reason, c)
		}
		return ""
	})
}

func (b *bed) chassis(name string) *v1alpha1.Chassis {
	b.Helper()
	chassis := &v1alpha1.Chassis{}
	b.look(chassis, name)
	return chassis
}

// chassisHas waits until a condition of a chassis is so, and its message has a text.
func (b *bed) chassisHas(name, kind string, status metav1.ConditionStatus, reason, says string) {
	b.Helper()
	b.Eventually(patience, func() string {
		c := meta.FindStatusCondition(b.chassis(name).Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, says) {
			return fmt.Sprintf("%s of %s is not %s %s: %q, but %+v", kind, name, status, reason, says, c)
		}
		return ""
	})
}

func (b *bed) proof(number int) *v1alpha1.OffProof {
	b.Helper()
	return b.server(name(number)).Status.LastOff
}

func (b *bed) noProof(number int) {
	b.Helper()
	if proof := b.proof(number); proof != nil {
		b.Errorf("%s counts as proved to be off: %+v", name(number), proof)
	}
}

// silence has 40 BMCs answer nothing; they stay so. All others are seen as they are, as if nothing were wrong.
func silence(b *bed) {
	var silent []string
	var living []string
	for number := 1; number <= 3*slots; number++ {
		if slot := (number-1)%slots + 1; number <= 2*slots && slot > slots/2-2 && slot <= slots/2-2+silentBlades/2 {
			silent = append(silent, bladeAddress(number))
			continue
		}
		living = append(living, name(number))
	}
	b.filter.put("silent", silent...)
	for _, power := range []rack.Power{rack.On, rack.Off} {
		begun := time.Now()
		for number := 1; number <= 3*slots; number++ {
			b.button(number, power)
		}
		b.power(map[rack.Power]v1alpha1.PowerState{rack.On: v1alpha1.PowerOn, rack.Off: v1alpha1.PowerOff}[power], living...)
		b.Logf("with %d silent BMCs, what the other %d servers were switched to by hand was known after %s",
			len(silent), len(living), time.Since(begun).Round(time.Millisecond))
	}
	if len(silent) != silentBlades || len(living) != 3*slots-silentBlades {
		b.Errorf("%d silent BMCs, %d others", len(silent), len(living))
	}
	b.silent = silent
}

// sideBySide are tests that need different blades, or different chassis.
func sideBySide(b *bed) {
	b.Run("all", func(t *testing.T) {
		for _, test := range []struct {
			name string
			run  func(*bed)
		}{
			{"an order, and what others do", orders},
			{"a controller that lies", liar},
			{"a whole chassis up and down", whole},
			{"40 BMCs fall silent", fallSilent},
			{"a BMC freezes", frozen},
			{"a BMC refuses", refusing},
			{"30 of 100 datagrams get lost", lossy},
			{"a BMC says yes, and its blade stays on", kept},
			{"a blade starts by itself", waking},
			{"blades are swapped", swapped},
			{"a MAC address is in two slots", twins},
			{"power supplies and fans fail", partsFail},
			{"links of switch boards are down", linksFail},
			{"others see what the verbs do", verbs},
			{"the pages' commands", pages},
			{"a chassis whose BMCs speak Redfish", redfishChassis},
			{"the front panel", frontPanel},
			{"consoles", userConsoles},
			{"Chassis contradict each other", contradict},
			{"an accepted Chassis is edited", editedAddresses},
			{"BMCs restart", restarted},
			{"the chassis manager in charge fails", managerFails},
			{"both chassis managers fail", managersFail},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				mine := b.of(t)
				test.run(mine)
			})
		}
	})
}

// fallSilent: the 40 count as silent, and nothing is taken to be off because of that.
func fallSilent(b *bed) {
	const one, other = 22, 70
	for _, number := range []int{one, other} {
		b.has(number, v1alpha1.ConditionReachable, metav1.ConditionFalse, "Silent")
	}
	b.chassisHas("mercury1", v1alpha1.ConditionManagementReady, metav1.ConditionFalse, "Silent", "atom021")
	// Only the chassis manager tells of them, which is no proof.
	b.button(one, rack.On)
	b.power(v1alpha1.PowerOn, name(one))
	b.button(one, rack.Off)
	b.power(v1alpha1.PowerOff, name(one))
	b.has(one, v1alpha1.ConditionPoweredOn, metav1.ConditionFalse, "Off")
	b.noProof(one)
	b.filter.take("silent", b.silent...)
	for _, number := range []int{one, other} {
		b.has(number, v1alpha1.ConditionReachable, metav1.ConditionTrue, "Answers")
	}
	b.Eventually(patience, func() string {
		if b.proof(one) == nil {
			return "its BMC answers again, and there is still no proof that it is off"
		}
		return ""
	})
}

func frozen(b *bed) {
	b.button(frozenBlade, rack.On)
	b.power(v1alpha1.PowerOn, name(frozenBlade))
	b.filter.put("silent", bladeAddress(frozenBlade))
	b.has(frozenBlade, v1alpha1.ConditionReachable, metav1.ConditionFalse, "Silent")
	b.power(v1alpha1.PowerOn, name(frozenBlade)) // as the chassis manager says
	b.give(frozenBlade, "frozen", v1alpha1.ActionOff)
	b.orderHas(frozenBlade, "frozen", v1alpha1.OrderWaiting, "does not answer")
	b.noProof(frozenBlade)
	if !b.isOn(frozenBlade) {
		b.Error("it was switched off by nobody, and is off")
	}
	b.filter.take("silent", bladeAddress(frozenBlade))
	b.orderHas(frozenBlade, "frozen", v1alpha1.OrderDone, "the server is off, as MMC and PowerReading say")
	if b.isOn(frozenBlade) {
		b.Error("the order is done, and it is on")
	}
}

func refusing(b *bed) {
	chassis, slot := place(refusingBlade)
	b.must(b.rack.Refuse(chassis, slot, true))
	b.give(refusingBlade, "refused", v1alpha1.ActionOn)
	b.Eventually(patience, func() string {
		change := b.server(name(refusingBlade)).Status.Change
		if change == nil || change.Tries < 2 {
			return fmt.Sprintf("it was not told twice to switch on: %+v", change)
		}
		return ""
	})
	if order := b.server(name(refusingBlade)).Status.Order; order.State == v1alpha1.OrderDone {
		b.Errorf("a refused order is done: %+v", order)
	}
	b.must(b.rack.Refuse(chassis, slot, false))
	b.orderHas(refusingBlade, "refused", v1alpha1.OrderDone, "the server is on")
	if !b.isOn(refusingBlade) {
		b.Error("the order is done, and it is off")
	}
}

// lossy: an order is done only if the server has the ordered power state. If messages are lost for so long that the proof is late, the
// order fails and says so, and is given again.
func lossy(b *bed) {
	b.filter.put("lossy", bladeAddress(lossyBlade))
	for _, action := range []v1alpha1.PowerAction{v1alpha1.ActionOn, v1alpha1.ActionOff} {
		given := 0
		b.Eventually(patience, func() string {
			order := b.server(name(lossyBlade)).Status.Order
			id := fmt.Sprintf("lossy-%s-%d", action, given)
			switch {
			case given > 0 && (order == nil || order.ID != id):
				return fmt.Sprintf("order %s is not taken", id)
			case given > 0 && order.State == v1alpha1.OrderDone:
				return ""
			case given == 0 || order.State == v1alpha1.OrderFailed && strings.Contains(order.Message, "no second witness"):
				given++
				b.give(lossyBlade, fmt.Sprintf("lossy-%s-%d", action, given), action)
			case order.State == v1alpha1.OrderFailed:
				b.Fatalf("order %s: %+v", id, order)
			}
			return fmt.Sprintf("order %s: %+v", id, order)
		})
		if b.isOn(lossyBlade) != (action == v1alpha1.ActionOn) {
			b.Errorf("order %s is done, and it is not so", action)
		}
	}
	b.filter.take("lossy", bladeAddress(lossyBlade))
}

func kept(b *bed) {
	chassis, slot := place(keptBlade)
	b.button(keptBlade, rack.On)
	b.power(v1alpha1.PowerOn, name(keptBlade))
	b.must(b.rack.Keep(chassis, slot, true))
	b.change(name(keptBlade), func(spec *v1alpha1.ServerSpec) {
		spec.Boot = &v1alpha1.BootOrder{ID: "kept", Device: v1alpha1.BootNetwork}
	})
	b.Eventually(patience, func() string {
		boot := b.server(name(keptBlade)).Status.Boot
		if boot == nil || boot.State != v1alpha1.OrderFailed || !strings.Contains(boot.Message, "the next start is from") {
			return fmt.Sprintf("a BMC that says yes and forgets what to boot from: %+v", boot)
		}
		return ""
	})
	b.give(keptBlade, "kept", v1alpha1.ActionOff)
	b.Eventually(patience, func() string {
		change := b.server(name(keptBlade)).Status.Change
		if change == nil || change.Tries < 2 {
			return fmt.Sprintf("it was not told twice to switch off: %+v", change)
		}
		return ""
	})
	b.orderHas(keptBlade, "kept", v1alpha1.OrderRunning, "")
	b.power(v1alpha1.PowerOn, name(keptBlade))
	b.noProof(keptBlade)
	b.must(b.rack.Keep(chassis, slot, false))
	b.orderHas(keptBlade, "kept", v1alpha1.OrderDone, "the server is off, as MMC and PowerReading say")
}

// waking: a blade that is proved to be off starts by itself. The proof is gone, and the wish is carried out again.
func waking(b *bed) {
	b.change(name(wakingBlade), func(spec *v1alpha1.ServerSpec) { spec.Power = v1alpha1.WantOff })
	b.Eventually(patience, func() string {
		if b.proof(wakingBlade) == nil {
			return "it is off, and there is no proof"
		}
		return ""
	})
	before := b.proof(wakingBlade).At
	b.button(wakingBlade, rack.On)
	b.Eventually(patience, func() string {
		// It is shut down again as soon as it is seen: what is looked for is a proof of later.
		if proof := b.proof(wakingBlade); proof == nil || !proof.At.After(before.Time) || b.isOn(wakingBlade) {
			return fmt.Sprintf("there is no new proof that it is off: %+v", proof)
		}
		return ""
	})
	b.change(name(wakingBlade), func(spec *v1alpha1.ServerSpec) { spec.Power = v1alpha1.WantUnmanaged })
}

// restarted: BMCs that restart forget sessions in the middle of orders.
func restarted(b *bed) {
	for number := restartedFirst; number <= restartedLast; number++ {
		b.give(number, "restart", v1alpha1.ActionOn)
	}
	b.must(b.rack.Reboot("mercury2"))
	for number := restartedFirst; number <= restartedLast; number++ {
		b.orderHas(number, "restart", v1alpha1.OrderDone, "the server is on")
		if !b.isOn(number) {
			b.Errorf("%s is off", name(number))
		}
	}
}

// partsFail: a power supply and a fan fail, and are replaced.
func partsFail(b *bed) {
	const chassis = "mercury3"
	for _, test := range []struct {
		part      rack.Part
		n         int
		condition string
		says      string
	}{
		{rack.PowerSupply, 2, v1alpha1.ConditionPowerRedundant, "1 of 2 power supplies do not work or are not there: PSU 2"},
		{rack.Fan, 3, v1alpha1.ConditionCoolingRedundant, "1 of 4 fans do not work or are not there: Fan 3"},
	} {
		b.must(b.rack.Break(chassis, test.part, test.n, true))
		b.chassisHas(chassis, test.condition, metav1.ConditionFalse, "Failed", test.says)
		b.chassisHas(chassis, v1alpha1.ConditionDegraded, metav1.ConditionTrue, "PartsFailed", "")
		b.must(b.rack.Break(chassis, test.part, test.n, false))
		b.chassisHas(chassis, test.condition, metav1.ConditionTrue, "AllWork", "")
	}
	b.chassisHas(chassis, v1alpha1.ConditionDegraded, metav1.ConditionFalse, "AsExpected", "")
}

// linksFail: the cable of an uplink is pulled, then the switch board's controller falls silent.
func linksFail(b *bed) {
	const chassis, of = "mercury1", 0
	b.chassisHas(chassis, v1alpha1.ConditionLinksUp, metav1.ConditionTrue, "AllUp", "")
	b.must(b.rack.Link(chassis, 2, "QSFP 3 Link", false))
	b.chassisHas(chassis, v1alpha1.ConditionLinksUp, metav1.ConditionFalse, "Down", "QSFP 3 at mercury1ons, to mercury3")
	b.chassisHas(chassis, v1alpha1.ConditionDegraded, metav1.ConditionTrue, "LinksDown", "")
	b.must(b.rack.Link(chassis, 2, "QSFP 3 Link", true))
	b.chassisHas(chassis, v1alpha1.ConditionLinksUp, metav1.ConditionTrue, "AllUp", "")
	b.filter.put("silent", boardAddress(of, 1))
	b.chassisHas(chassis, v1alpha1.ConditionLinksUp, metav1.ConditionFalse, "Silent", "mercury1onm ("+boardAddress(of, 1)+")")
	b.filter.take("silent", boardAddress(of, 1))
	b.chassisHas(chassis, v1alpha1.ConditionLinksUp, metav1.ConditionTrue, "AllUp", "")
}

// contradict: what an older Chassis has is refused to a younger one, with the other's name; a hole in a list of addresses is shown.
func contradict(b *bed) {
	for _, test := range []struct {
		change     func(*v1alpha1.ChassisSpec)
		reason     string
		isAccepted metav1.ConditionStatus
		says       string
	}{
		{
			func(spec *v1alpha1.ChassisSpec) { spec.FirstServer = 130 },
			"Contradiction", metav1.ConditionFalse,
			"names atom130, atom131 and atom132 belong to Chassis mercury3, which is older: make this Chassis with firstServer: 133",
		},
		{
			func(spec *v1alpha1.ChassisSpec) { spec.Management.MMC = "192.168.5.44+4" },
			"Contradiction", metav1.ConditionFalse,
			"192.168.5.44, for the BMC of atom201, is that of the BMC of atom044 in Chassis mercury1, which is older",
		},
		{
			func(spec *v1alpha1.ChassisSpec) { spec.Management.MMC = "192.168.6.1+2,192.168.6.5+2" },
			"Accepted", metav1.ConditionTrue,
			"spec.management.mmc goes from 192.168.6.2 to 192.168.6.5: slot 3 has the latter",
		},
	} {
		one := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury9"}, Spec: v1alpha1.ChassisSpec{
			Model: "EmulatedRack", FirstServer: 201, Slots: "1-4",
			Management: v1alpha1.ChassisManagement{CredentialsSecret: "none", CipherSuite: 3, MMC: "192.168.6.1+4"},
		}}
		test.change(&one.Spec)
		b.must(b.Client.Create(b.Context(), one))
		b.chassisHas(one.Name, v1alpha1.ConditionAccepted, test.isAccepted, test.reason, test.says)
		b.must(b.Client.Delete(b.Context(), one))
	}
	// Nobody here collects what has lost its owner.
	for number := 201; number <= 204; number++ {
		server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name(number)}}
		b.must(client.IgnoreNotFound(b.Client.Delete(b.Context(), server)))
	}
}
