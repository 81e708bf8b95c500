package controller

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/layout"
)

// One Server in the way, or one whose label somebody has changed, keeps nobody from looking after the others.
func TestServersThatAreNotItsOwn(t *testing.T) {
	chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1", UID: "its-uid"}}
	chassis.Spec = v1alpha1.ChassisSpec{
		Model: "EmulatedRack", NamePrefix: "atom", FirstServer: 1, Slots: "1-4",
		Management: v1alpha1.ChassisManagement{MMC: "192.168.5.1+4", CMM: []string{"192.168.5.201"}, CredentialsSecret: "bmc"},
	}
	server := func(name, label string, owner *v1alpha1.Chassis) *v1alpha1.Server {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelChassis: label}}}
		if owner != nil {
			s.OwnerReferences = []metav1.OwnerReference{ownedBy(owner)}
		}
		return s
	}
	api := fake.NewClientBuilder().WithScheme(newScheme(t)).WithIndex(&v1alpha1.NodeFence{}, acceptedIndex, acceptedOf).WithObjects(
		server("atom001", "elsewhere", chassis), server("atom002", "mercury1", nil), server("atom009", "mercury1", nil),
	).Build()
	r := &Reconciler{Client: api, Live: api}
	seen, err := r.lookAround(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	laid := layout.Of([]v1alpha1.Chassis{*chassis})[chassis.Name]
	servers, taken, err := r.makeServers(t.Context(), seen, chassis, laid)
	if err != nil {
		t.Fatal(err)
	}
	var names, places []string
	for i := range servers {
		names = append(names, servers[i].Name)
	}
	for i := range laid.Servers {
		places = append(places, laid.Servers[i].Name)
	}
	want := []string{"atom001", "atom003", "atom004"}
	if !slices.Equal(names, want) || !slices.Equal(places, want) || !slices.Equal(taken, []string{"atom002"}) {
		t.Errorf("it looks after %v, as places has %v, and %v are taken", names, places, taken)
	}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "atom009"}, &v1alpha1.Server{}); err != nil {
		t.Errorf("a Server that it does not own was deleted for its label: %v", err)
	}
}
