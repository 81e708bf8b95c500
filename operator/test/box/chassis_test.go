package box_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/box/rack"
	"rcbox.dev/rcbox/operator/test/testbed"
)

// TestChassis runs all tests with the box controller's program. Those of passwords have a rack, an API server and a box controller of their
// own, so that they run beside the others.
func TestChassis(t *testing.T) {
	if os.Getenv("RCBOX_BOX_NETWORK") == "" {
		t.Skip("SKIPPED: it needs a network namespace of its own, with ipmi_sim: hack/box.sh")
	}
	build := testbed.StartBuild(t, "manager", "kubectl-rcbox")
	cluster := testbed.StartAPIServer(t)
	programs := build()
	watchArguments(t)
	t.Run("racks", func(t *testing.T) {
		t.Run("three chassis", func(t *testing.T) {
			t.Parallel()
			threeChassis(start(t, three, cluster, programs))
		})
		t.Run("passwords", func(t *testing.T) {
			t.Parallel()
			passwords(start(t, alone, testbed.StartAPIServer(t), programs))
		})
	})
}

// threeChassis of 44 blades become 132 Servers, which are on and off as ipmitool sees it.
func threeChassis(b *bed) {
	begun := time.Now()
	b.follow("add-chassis.md", nil)
	var all []string
	for number := 1; number <= three.chassis*slots; number++ {
		all = append(all, fmt.Sprintf("atom%03d", number))
	}
	b.power(v1alpha1.PowerOff, all...)
	b.Logf("%d Servers were known to be off %s after their Chassis were made", len(all), time.Since(begun).Round(time.Millisecond))
	for _, test := range []struct {
		name string
		run  func(*bed)
	}{
		{"names, addresses and hardware", hardware},
		{"40 silent BMCs delay nobody else", silence},
		{"side by side", sideBySide},
		{"the box controller ends", boxEnds},
		{"nothing is written while nothing happens", quiet},
		{"the password is nowhere", secrecy},
	} {
		if !b.Run(test.name, func(t *testing.T) {
			mine := b.of(t)
			test.run(mine)
			b.silent, b.box = mine.silent, mine.box
		}) {
			return // what follows finds the rack as this one has left it
		}
	}
}

func hardware(b *bed) {
	b.Eventually(patience, func() string {
		status := b.server("atom050").Status
		if status.Hardware.Serial != "MMS0050" || len(status.Ports) != 2 || status.Ports[1].MAC == "" {
			return fmt.Sprintf("atom050 is %+v", status)
		}
		return ""
	})
	server := b.server("atom050")
	if server.Labels[v1alpha1.LabelChassis] != "mercury2" || server.Labels[v1alpha1.LabelSlot] != "6" ||
		server.Status.Chassis != "mercury2" || server.Status.Slot != 6 {
		b.Errorf("atom050 is at %v, %+v", server.Labels, server.Status)
	}
	want := []v1alpha1.PortStatus{
		{Name: "atom050", NIC: 1, Address: "192.168.3.50", MAC: "52:54:00:03:00:32"},
		{Name: "atom050a", NIC: 2, MAC: "52:54:00:04:00:32"},
	}
	for i := range want {
		if server.Status.Ports[i] != want[i] {
			b.Errorf("port %d is %+v, not %+v", i, server.Status.Ports[i], want[i])
		}
	}
	if server.Status.MMC.Address != bladeAddress(50) || !strings.Contains(server.Status.MMC.SystemGUID, "000000000050") {
		b.Errorf("its BMC: %+v", server.Status.MMC)
	}
	b.Eventually(patience, func() string {
		one := b.chassis("mercury1")
		counts, manager := one.Status.Servers, one.Status.Manager
		if counts.Total != slots || counts.Off != slots || manager.Master != managerAddress(0, 1) || manager.Slave != managerAddress(0, 2) {
			return fmt.Sprintf("mercury1: %+v", one.Status)
		}
		return ""
	})
}

func orders(b *bed) {
	// By somebody else.
	b.ipmitool(orderedBlade, "power", "on")
	b.power(v1alpha1.PowerOn, name(orderedBlade))
	if order := b.order("soft-1", v1alpha1.ActionSoft); order.State != v1alpha1.OrderDone {
		b.Errorf("soft: %+v", order)
	}
	if text := b.ipmitool(orderedBlade, "power", "status"); !strings.HasSuffix(text, "off") {
		b.Errorf("ipmitool says: %s", text)
	}
	b.Eventually(patience, func() string {
		if proof := b.server(name(orderedBlade)).Status.LastOff; proof == nil || len(proof.By) < 2 {
			return fmt.Sprintf("there is no proof that it is off: %+v", proof)
		}
		return ""
	})
	if order := b.order("off-again", v1alpha1.ActionOff); order.State != v1alpha1.OrderDone {
		b.Errorf("off on off: %+v", order)
	}
	if order := b.order("on", v1alpha1.ActionOn); order.State != v1alpha1.OrderDone {
		b.Errorf("on: %+v", order)
	}
	if text := b.ipmitool(orderedBlade, "power", "status"); !strings.HasSuffix(text, "on") {
		b.Errorf("ipmitool says: %s", text)
	}
	if proof := b.server(name(orderedBlade)).Status.LastOff; proof != nil {
		b.Errorf("it is on, and there is proof that it is off: %+v", proof)
	}
	if order := b.order("cycle", v1alpha1.ActionCycle); order.State != v1alpha1.OrderDone {
		b.Errorf("cycle: %+v", order)
	}
	if order := b.order("off", v1alpha1.ActionOff); order.State != v1alpha1.OrderDone {
		b.Errorf("off: %+v", order)
	}
}

// A controller that says yes, and whose blade stays on: the slot's power says what is so.
func liar(b *bed) {
	const slot = liarBlade // of the first chassis
	b.must(b.rack.Set("mercury1", slot, rack.On))
	b.power(v1alpha1.PowerOn, name(liarBlade))
	b.must(b.rack.Lie("mercury1", slot, rack.Off))
	b.power(v1alpha1.PowerUnknown, name(liarBlade))
	b.change(name(liarBlade), func(spec *v1alpha1.ServerSpec) {
		spec.Order = &v1alpha1.PowerOrder{ID: "lies", Action: v1alpha1.ActionOff}
	})
	b.Eventually(patience, func() string {
		order := b.server(name(liarBlade)).Status.Order
		if order == nil || order.State != v1alpha1.OrderRunning && order.State != v1alpha1.OrderFailed {
			return fmt.Sprintf("order: %+v", order)
		}
		return ""
	})
	if server := b.server(name(liarBlade)); server.Status.LastOff != nil || server.Status.Power.State == v1alpha1.PowerOff {
		b.Errorf("believed: %+v", server.Status)
	}
	if power, err := b.rack.Get("mercury1", slot); err != nil || power != rack.On {
		b.Errorf("it is %s: %v", power, err)
	}
	b.must(b.rack.Lie("mercury1", slot, ""))
	b.must(b.rack.Set("mercury1", slot, rack.Off))
	b.power(v1alpha1.PowerOff, name(liarBlade))
}

func quiet(b *bed) {
	b.chassisHas("mercury2", v1alpha1.ConditionDegraded, metav1.ConditionFalse, "AsExpected", "")
	const calm = 2*roundOfQuestions + 2*time.Second
	b.Eventually(patience, func() string {
		to := time.Now()
		if writes := b.Calls.WritesBut(to.Add(-calm), to, "leases"); len(writes) > 0 {
			return fmt.Sprintf("in %s it wrote %v", calm, writes)
		}
		return ""
	})
}
