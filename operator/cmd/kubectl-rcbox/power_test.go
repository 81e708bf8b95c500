package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// mercury is a chassis of ten servers, and its Servers as the box controller makes them.
func mercury() []client.Object {
	objects := []client.Object{&v1alpha1.Chassis{
		ObjectMeta: metav1.ObjectMeta{Name: "mercury1"},
		Spec: v1alpha1.ChassisSpec{
			Model: "EmulatedRack", NamePrefix: "atom", FirstServer: 1, Slots: "1-10",
			Management: v1alpha1.ChassisManagement{CipherSuite: 3, MMC: "192.168.5.1+10", CMM: []string{"192.168.5.201"}},
		},
	}}
	for number := 1; number <= 10; number++ {
		server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("atom%03d", number)}}
		server.Status.Power = v1alpha1.ServerPower{
			State: v1alpha1.PowerOff, Source: v1alpha1.WitnessMMC, Since: new(metav1.NewTime(time.Now())),
		}
		objects = append(objects, server)
	}
	return objects
}

func (h *harness) server(name string) *v1alpha1.Server {
	h.t.Helper()
	server := &v1alpha1.Server{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Name: name}, server); err != nil {
		h.t.Fatal(err)
	}
	return server
}

func TestPowerOrders(t *testing.T) {
	h := newHarness(t, mercury()...)
	h.must("power", "1,5-7", "soft", "--wait=false", "--force")
	for name, isOrdered := range map[string]bool{"atom001": true, "atom002": false, "atom006": true} {
		order := h.server(name).Spec.Order
		if (order != nil) != isOrdered {
			t.Errorf("%s: %+v", name, order)
		}
		if order != nil && (order.Action != v1alpha1.ActionSoft || !order.Force || order.ID == "") {
			t.Errorf("%s: %+v", name, order)
		}
	}
	before := h.server("atom001").Spec.Order.ID
	h.must("up", "mercury1", "--wait=false")
	if order := h.server("atom001").Spec.Order; order.ID == before || order.Action != v1alpha1.ActionOn || order.Force ||
		order.Servers != 10 || order.ID != h.server("atom010").Spec.Order.ID {
		t.Errorf("up: %+v", order)
	}
	if text := h.must("power", "atom003", "status"); !strings.Contains(text, "atom003: off, says its MMC, for ") {
		t.Errorf("status: %s", text)
	}
}

// The box controller is a stand-in that ends each order.
func TestPowerWaits(t *testing.T) {
	h := newHarness(t, mercury()...)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			for _, name := range []string{"atom001", "atom002"} {
				server := &v1alpha1.Server{}
				if h.client.Get(t.Context(), client.ObjectKey{Name: name}, server) != nil || server.Spec.Order == nil {
					continue
				}
				order := &v1alpha1.OrderStatus{ID: server.Spec.Order.ID, State: v1alpha1.OrderDone, Message: "the server is on"}
				if name == "atom002" {
					order.State, order.Message = v1alpha1.OrderRefused, "box-master-0 runs on it"
				}
				server.Status.Order = order
				_ = h.client.Update(t.Context(), server) // a conflict is tried again
			}
		}
	}()
	if text := h.must("power", "1", "on"); text != "atom001: done: the server is on\n" {
		t.Errorf("%q", text)
	}
	code, out, errs := h.run("power", "1-2", "off")
	if code != exitFailed || !strings.Contains(out, "atom002: refused: box-master-0 runs on it") ||
		!strings.Contains(errs, "1 of 2 servers are not as ordered") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	code, _, errs = h.run("power", "3", "on", "--timeout=50ms")
	if code != exitFailed || !strings.Contains(errs, "atom003 are still under way") {
		t.Errorf("%d %q", code, errs)
	}
	for says, change := range map[string]func(*v1alpha1.ServerStatus){
		"the BMC is told again": func(s *v1alpha1.ServerStatus) {
			s.Order = &v1alpha1.OrderStatus{State: v1alpha1.OrderWaiting, Message: "another order, which nobody waits for"}
			s.Light = &v1alpha1.LightStatus{State: v1alpha1.OrderRunning, Message: "the BMC is told again"}
		},
		"its BMC has not answered": func(s *v1alpha1.ServerStatus) {
			s.Light = &v1alpha1.LightStatus{State: v1alpha1.OrderRunning, Message: "the BMC is told again"}
			s.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse, Reason: "Silent", Message: "its BMC has not answered",
			}}
		},
	} {
		server := &v1alpha1.Server{}
		if err := h.client.Get(t.Context(), client.ObjectKey{Name: "atom003"}, server); err != nil {
			t.Fatal(err)
		}
		server.Status = v1alpha1.ServerStatus{}
		change(&server.Status)
		if err := h.client.Update(t.Context(), server); err != nil {
			t.Fatal(err)
		}
		code, _, errs = h.run("led", "3", "off", "--timeout=50ms")
		if code != exitFailed || !strings.Contains(errs, "the orders of atom003 ("+says+") are still under way") {
			t.Errorf("%d %q", code, errs)
		}
	}
}

func TestServersThatAreNotThere(t *testing.T) {
	h := newHarness(t, mercury()...)
	for list, says := range map[string]string{
		"11": "the nearest is atom010", "5-": "5-6, or 5 alone", "1, 2": "write 1,2", "mercury1cmm": "write mercury1 for all",
		"192.168.5.11": "the nearest is 192.168.5.10",
	} {
		if code, _, errs := h.run("power", list, "status"); code != exitFailed || !strings.Contains(errs, says) {
			t.Errorf("%s: %d %s", list, code, errs)
		}
	}
	if code, _, errs := h.run("power", "1", "unplug"); code != exitUsage || !strings.Contains(errs, "none of on, soft") {
		t.Errorf("%d %s", code, errs)
	}
}

// The right is asked for before anything is sent.
func TestIPMITakesARight(t *testing.T) {
	h := newHarness(t, mercury()...)
	h.mayNotIPMI = true
	code, _, errs := h.run("ipmi", "1", "power", "status")
	if code != exitFailed || !strings.Contains(errs, "takes create on servers/ipmi in the API group subresources.rcbox.dev") {
		t.Errorf("%d %s", code, errs)
	}
	h.must("ipmi", "-d", "1", "power", "status") // which sends nothing
}

func TestIPMIDryRun(t *testing.T) {
	h := newHarness(t, mercury()...)
	text := h.must("ipmi", "-d", "--password-file=/p", "1,.7,mercury1cmm", "sol", "set", "it's", "-x")
	want := `ipmitool -I lanplus -H 192.168.5.1 -C 3 -U admin -f /p sol set 'it'\''s' -x
ipmitool -I lanplus -H 192.168.5.7 -C 3 -U admin -f /p sol set 'it'\''s' -x
ipmitool -I lanplus -H 192.168.5.201 -C 3 -U admin -f /p sol set 'it'\''s' -x
`
	if text != want {
		t.Errorf("%s", text)
	}
	// A file that others may read is not used.
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{path: "chmod 600", path + "x": "--password-file"} {
		code, _, errs := h.run("ipmi", "--password-file="+file, "1", "power", "status")
		if code != exitFailed || !strings.Contains(errs, says) {
			t.Errorf("%d %s", code, errs)
		}
	}
}
