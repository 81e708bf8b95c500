package box_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/box/rack"
)

// The spare chassis has two blades and two managers, whose addresses are counted from these numbers.
const (
	spareChassis             = "venus1"
	spareSlots               = 2
	spareBlade, spareManager = 171, 191
	// spareFirst is a number that no other Chassis has, because other tests name servers by their numbers alone.
	spareFirst = 401
)

const provedBy = "the server is off, as MMC and PowerReading say"

// managerFails: the chassis manager in charge dies, and the other one takes over, and is a witness like the first.
func managerFails(b *bed) {
	const chassis = "mercury2"
	master, slave := managerAddress(1, 1), managerAddress(1, 2)
	b.button(provedBlade, rack.On)
	b.power(v1alpha1.PowerOn, name(provedBlade))
	b.filter.put("silent", master)
	b.must(b.rack.InCharge(chassis, 2))
	b.Eventually(patience, func() string {
		if manager := b.chassis(chassis).Status.Manager; manager.Master != slave || manager.Slave != "" {
			return fmt.Sprintf("the slave does not take over: %+v", manager)
		}
		return ""
	})
	b.chassisHas(chassis, v1alpha1.ConditionDegraded, metav1.ConditionTrue, "OneManager", slave)
	b.give(provedBlade, "proved", v1alpha1.ActionOff)
	b.orderHas(provedBlade, "proved", v1alpha1.OrderDone, provedBy)
	b.must(b.rack.InCharge(chassis, 1))
	b.filter.take("silent", master)
}

// managersFail: both chassis managers die. Nobody but its own BMC says that a server is off, which is no proof, and the order is not done
// before there is one.
func managersFail(b *bed) {
	const server = "venus401"
	managers := []string{three.blade(spareManager), three.blade(spareManager + 1)}
	b.must(b.Client.Create(b.Context(), &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: spareChassis}, Spec: v1alpha1.ChassisSpec{
		Model: "EmulatedRack", NamePrefix: "venus", FirstServer: spareFirst, Slots: fmt.Sprintf("1-%d", spareSlots),
		Management: v1alpha1.ChassisManagement{
			CredentialsSecret: secret, CipherSuite: 3, MMC: fmt.Sprintf("%s+%d", three.blade(spareBlade), spareSlots), CMM: managers,
		},
	}}))
	b.must(b.rack.Set(spareChassis, 1, rack.On))
	b.power(v1alpha1.PowerOn, server)
	b.chassisHas(spareChassis, v1alpha1.ConditionDegraded, metav1.ConditionFalse, "AsExpected", "")
	b.filter.put("silent", managers...)
	b.chassisHas(spareChassis, v1alpha1.ConditionDegraded, metav1.ConditionTrue, "NoManager", "nothing proves that a server is off")
	b.change(server, func(spec *v1alpha1.ServerSpec) {
		spec.Order = &v1alpha1.PowerOrder{ID: "unproved", Action: v1alpha1.ActionOff}
	})
	b.orderIs(server, "unproved", v1alpha1.OrderRunning, "its BMC says that the server is off; waiting for a second witness")
	if proof := b.server(server).Status.LastOff; proof != nil {
		b.Errorf("it counts as proved to be off: %+v", proof)
	}
	b.filter.take("silent", managers...)
	b.orderIs(server, "unproved", v1alpha1.OrderDone, provedBy)
}
