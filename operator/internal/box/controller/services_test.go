package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// TestReportsOfHosts: what box hosts report reaches the Chassis that they serve; a report that is not renewed is that of a host that has
// gone, whatever it says and whatever its clock shows.
func TestReportsOfHosts(t *testing.T) {
	t.Parallel()
	h := newHosted(t)
	now := time.Unix(1000, 0)
	h.Now = func() time.Time { return now }
	h.Settings.Hosts = []boxhost.Host{
		{Name: "boxhost2", Address: netip.MustParseAddr("192.168.3.254")},
		{Name: "boxhost1", Address: netip.MustParseAddr("192.168.3.253")},
		{Name: "elsewhere", Address: netip.MustParseAddr("10.0.0.1")},
	}
	want := func(what string, reads bool, hosts ...plan.BoxHost) {
		t.Helper()
		if got := h.hostsOf(h.chassis); got.Read != reads || !slices.Equal(got.Hosts, hosts) || len(got.Without) > 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
	want("before", false)
	reported := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: boxhost.StatusConfigMap}}
	if err := h.Client.Create(t.Context(), reported); err != nil {
		t.Fatal(err)
	}
	report := func(key, address, rest string) {
		t.Helper()
		if reported.Data == nil {
			reported.Data = map[string]string{}
		}
		reported.Data[key] = fmt.Sprintf(`{"network":"192.168.3.0/24","address":%q,"rendering":"a",%s}`, address, rest)
		if err := h.Client.Update(t.Context(), reported); err != nil {
			t.Fatal(err)
		}
	}
	one := plan.BoxHost{Name: "boxhost1", Address: "192.168.3.253", Ready: true}
	other := plan.BoxHost{Name: "boxhost2", Address: "192.168.3.254", Silent: true}
	report("gate1", "192.168.3.253", `"ready":true,"at":"2026-11-26T03:00:00Z"`)
	h.reconcile()
	want("one has not reported", true, one, other)
	report("gate2", "192.168.3.254", `"ready":true,"refused":true,"message":"it is refused","at":"1999-01-01T00:00:00Z"`)
	h.reconcile()
	other = plan.BoxHost{Name: "boxhost2", Address: "192.168.3.254", Ready: true, Refused: true, Message: "it is refused"}
	want("both", true, one, other)
	looked := len(h.looked)
	for range 4 {
		now = now.Add(boxhost.ReportEvery)
		report("gate1", "192.168.3.253", fmt.Sprintf(`"ready":true,"at":%q`, now.UTC().Format(time.RFC3339)))
		h.reconcile()
		want("while one renews its report", true, one, other)
	}
	if len(h.looked) != looked {
		t.Errorf("a report that is renewed has the Chassis looked at %d times", len(h.looked)-looked)
	}
	now = now.Add(time.Second)
	h.reconcile()
	other.Silent = true
	want("one does not renew its report", true, one, other)
	if len(h.looked) != looked+1 {
		t.Errorf("looked at %d times", len(h.looked)-looked)
	}
	// Servers have addresses in a network without a box host; in a network in which they have none, nobody is to serve.
	h.chassis.Spec.Networks = append(h.chassis.Spec.Networks,
		v1alpha1.ChassisNetwork{NIC: 2, CIDR: "192.168.4.0/24", Range: "192.168.4.1+4"},
		v1alpha1.ChassisNetwork{NIC: 3, CIDR: "192.168.6.0/24"})
	if got := h.hostsOf(h.chassis); !slices.Equal(got.Without, []string{"192.168.4.0/24"}) {
		t.Errorf("%+v", got)
	}
}
