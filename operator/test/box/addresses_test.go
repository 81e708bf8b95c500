package box_test

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// editedAddresses: a Chassis that was accepted is edited, and then names addresses that a node gives to pods. It is refused, an event says
// why, and the former addresses are accepted again, although the node now gives these to pods, too.
func editedAddresses(b *bed) {
	const chassis, former, others = "mercury8", "192.168.7.1+2", "192.168.7.129+2"
	b.must(b.Client.Create(b.Context(), &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: chassis}, Spec: v1alpha1.ChassisSpec{
		Model: "EmulatedRack", NamePrefix: "pods", FirstServer: 411, Slots: "1-2",
		Management: v1alpha1.ChassisManagement{CredentialsSecret: "none", CipherSuite: 3, MMC: former},
	}}))
	b.chassisHas(chassis, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted", "")
	b.Eventually(patience, func() string {
		if accepted := b.chassis(chassis).Status.AcceptedAddresses; !slices.Equal(accepted, []string{former}) {
			return fmt.Sprintf("the accepted addresses are not on record: %v", accepted)
		}
		return ""
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gives-addresses-to-pods"}}
	node.Spec.PodCIDR, node.Spec.PodCIDRs = "192.168.7.0/24", []string{"192.168.7.0/24"}
	b.must(b.Client.Create(b.Context(), node))
	b.editAddresses(chassis, others)
	b.chassisHas(chassis, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Contradiction",
		"spec.management.mmc: names addresses 192.168.7.129 and 192.168.7.130: nodes give such addresses to pods (spec.podCIDRs of a "+
			"node); write others")
	b.chassisHas(chassis, v1alpha1.ConditionAvailable, metav1.ConditionFalse, "NotAccepted", "")
	b.Eventually(patience, func() string {
		events, err := b.Clientset.EventsV1().Events("").List(b.Context(), metav1.ListOptions{})
		b.must(err)
		if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == chassis && e.Type == corev1.EventTypeWarning && strings.Contains(e.Note, "192.168.7.129")
		}) {
			return "no event says why the Chassis was refused"
		}
		return ""
	})
	b.editAddresses(chassis, former)
	b.chassisHas(chassis, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted", "192.168.7.1 and 192.168.7.2")
	b.must(b.Client.Delete(b.Context(), node))
	b.must(b.Client.Delete(b.Context(), b.chassis(chassis)))
	for _, name := range []string{"pods411", "pods412"} { // nobody here collects what has lost its owner
		b.must(client.IgnoreNotFound(b.Client.Delete(b.Context(), &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name}})))
	}
}

func (b *bed) editAddresses(chassis, mmc string) {
	b.Helper()
	one := b.chassis(chassis)
	before := one.DeepCopy()
	one.Spec.Management.MMC = mmc
	b.must(b.Client.Patch(b.Context(), one, client.MergeFrom(before)))
}
