package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// hosted is a Chassis with a server, and a writer of what box hosts serve; it counts writes.
type hosted struct {
	*testing.T
	*Hosts

	writes  int
	looked  []string
	chassis *v1alpha1.Chassis
	server  *v1alpha1.Server
}

func newHosted(t *testing.T) *hosted {
	t.Helper()
	h := &hosted{T: t}
	h.chassis = &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1", UID: "its-uid"}}
	h.chassis.Spec.Networks = []v1alpha1.ChassisNetwork{{NIC: 1, CIDR: "192.168.3.0/24", Range: "192.168.3.1+4"}}
	owners := []metav1.OwnerReference{ownedBy(h.chassis)}
	h.server = &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "atom001", OwnerReferences: owners}}
	h.server.Status = v1alpha1.ServerStatus{
		Slot: 1, Ports: []v1alpha1.PortStatus{{Name: "atom001", NIC: 1, MAC: "52:54:00:03:00:01", Address: "192.168.3.1"}},
	}
	api := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(h.chassis, h.server).
		WithStatusSubresource(h.chassis, h.server).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
				h.writes++
				return api.Create(ctx, object, options...)
			},
			Update: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.UpdateOption) error {
				h.writes++
				return api.Update(ctx, object, options...)
			},
		}).Build()
	h.Hosts = &Hosts{
		Client: api, Live: api, Namespace: "rcbox-system", Settings: &boxhost.Settings{Domain: "box.rcbox", Hosts: []boxhost.Host{}},
		changed: func(chassis string) { h.looked = append(h.looked, chassis) },
	}
	return h
}

func (h *hosted) reconcile() {
	h.Helper()
	if _, err := h.Reconcile(h.Context(), ctrl.Request{}); err != nil {
		h.Fatal(err)
	}
}

func (h *hosted) data() string {
	h.Helper()
	written := &corev1.ConfigMap{}
	if err := h.Client.Get(h.Context(), client.ObjectKey{Namespace: h.Namespace, Name: boxhost.ConfigMap}, written); err != nil {
		h.Fatal(err)
	}
	return written.Data[boxhost.Key]
}

func TestHostsGetWhatIsToBeServed(t *testing.T) {
	t.Parallel()
	h := newHosted(t)
	h.reconcile()
	if _, err := boxhost.Decode([]byte(h.data())); err != nil || !strings.Contains(h.data(), "52:54:00:03:00:01") {
		t.Errorf("%v: %s", err, h.data())
	}
	for range 3 {
		h.reconcile()
	}
	if h.writes != 1 {
		t.Errorf("%d writes while nothing happens", h.writes)
	}
	h.server.Status.Ports[0].MAC = "52:54:00:03:00:77"
	if err := h.Client.Status().Update(t.Context(), h.server); err != nil {
		t.Fatal(err)
	}
	h.reconcile()
	if !strings.Contains(h.data(), "52:54:00:03:00:77") || strings.Contains(h.data(), "52:54:00:03:00:01") || h.writes != 2 {
		t.Errorf("%d writes: %s", h.writes, h.data())
	}
	// Somebody else has written into it.
	spoiled := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: boxhost.ConfigMap}}
	spoiled.Data = map[string]string{boxhost.Key: "{}"}
	if err := h.Client.Update(t.Context(), spoiled); err != nil {
		t.Fatal(err)
	}
	h.reconcile()
	if !strings.Contains(h.data(), "52:54:00:03:00:77") {
		t.Error(h.data())
	}
}

func TestStrangersOfHosts(t *testing.T) {
	t.Parallel()
	h := newHosted(t)
	report := func(network, first string) string {
		return fmt.Sprintf(`{"network":%q,"address":"192.168.3.253","rendering":"a","ready":true,"strangers":[`+
			`{"mac":"52:54:00:03:00:99","since":"2026-11-26T03:00:%s.5Z"},{"mac":"52:54:00:03:00:98","since":"2026-11-26T03:00:00Z"}]}`,
			network, first)
	}
	reported := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: boxhost.StatusConfigMap}}
	reported.Data = map[string]string{
		"host1": report("192.168.3.0/24", "09"), "host2": report("192.168.3.0/24", "02"), "host3": report("10.0.0.0/8", "01"),
		"host4": `{"strangers":[{"mac":"$(reboot)"}]}`, "host5": strings.Repeat(" ", 1<<16),
	}
	if err := h.Client.Create(t.Context(), reported); err != nil {
		t.Fatal(err)
	}
	h.reconcile()
	strangers := h.strangersOf(h.chassis)
	if len(strangers) != 2 || strangers[0].MAC != "52:54:00:03:00:98" || strangers[1].Since.Second() != 2 {
		t.Errorf("%+v", strangers)
	}
	h.reconcile()
	if len(h.looked) != 1 {
		t.Errorf("looked at %v while nothing happens", h.looked)
	}
	reported.Data = nil
	if err := h.Client.Update(t.Context(), reported); err != nil {
		t.Fatal(err)
	}
	h.reconcile()
	if strangers := h.strangersOf(h.chassis); strangers != nil || len(h.looked) != 2 {
		t.Errorf("%+v, %v", strangers, h.looked)
	}
}
