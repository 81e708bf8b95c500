package main

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// TestVLAN: the configuration that cuts off BMCs is printed only once all have moved.
func TestVLAN(t *testing.T) {
	h := newHarness(t, mercury()...)
	refuse := func(want string) {
		t.Helper()
		code, out, errs := h.run("vlan", "mercury1", "--config", "noVLAN")
		if code != exitFailed || out != "" || !strings.Contains(errs, want) {
			t.Errorf("noVLAN: %d %s\n%s", code, errs, out)
		}
	}
	refuse("the BMCs of Chassis mercury1 were not moved")
	if code, out, errs := h.run("vlan", "mercury1", "--to", "1"); code != 0 || !strings.Contains(out, "are moved to VLAN 1") {
		t.Errorf("%d %s\n%s", code, errs, out)
	}
	chassis := &v1alpha1.Chassis{}
	says := func(phase, message string) {
		t.Helper()
		if err := h.client.Get(t.Context(), client.ObjectKey{Name: "mercury1"}, chassis); err != nil {
			t.Fatal(err)
		}
		if chassis.Spec.Management.VLAN != 1 {
			t.Errorf("spec.management.vlan is %d", chassis.Spec.Management.VLAN)
		}
		chassis.Status.VLAN = &v1alpha1.ChassisVLAN{Wanted: 1, Phase: phase, Message: message}
		if err := h.client.Update(t.Context(), chassis); err != nil {
			t.Fatal(err)
		}
	}
	refuse("has not looked at the BMCs")
	says("MMCs", "1 of 2 BMCs have moved")
	refuse("not all BMCs of Chassis mercury1 have moved: 1 of 2 BMCs have moved")
	says("Blocked", "atom001: is silent")
	refuse("atom001: is silent")

	code, out, errs := h.run("vlan", "mercury1", "--moved", "atom001")
	if code != 0 || !strings.Contains(out, "atom001: its BMC is in VLAN 1") {
		t.Errorf("%d %s\n%s", code, errs, out)
	}
	server := &v1alpha1.Server{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "atom001"}, server); err != nil {
		t.Fatal(err)
	}
	if server.Annotations[v1alpha1.AnnotationVLANMoved] != "1" {
		t.Errorf("annotations are %v", server.Annotations)
	}
	server.Status.MMC.VLAN = &v1alpha1.BMCVLAN{Wanted: 1, Stage: "Moved", Reported: 4092}
	if err := h.client.Update(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	says("Switch", "all BMCs have moved")
	code, out, errs = h.run("vlan", "mercury1")
	if code != 0 || !strings.Contains(out, "4092") || !strings.Contains(out, "Switch: all BMCs have moved") {
		t.Errorf("%d %s\n%s", code, errs, out)
	}
	for config, want := range map[string]string{
		"noVLAN": "management       untagged 1\n", "initONS": "management       untagged 4092\n",
		"lan40G": "qsfp1            untagged 1, 40 Gbit/s\n",
		"lan10G": "qsfp1-4          untagged 1, 10 Gbit/s\n",
	} {
		code, out, errs := h.run("vlan", "mercury1", "--config", config)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s\n%s", config, code, errs, out)
		}
		if config == "noVLAN" && strings.Contains(out, "4092") {
			t.Errorf("noVLAN leaves VLAN 4092 there:\n%s", out)
		}
	}
	code, _, errs = h.run("vlan", "mercury1", "--config", "noLAN")
	if code != exitFailed || !strings.Contains(errs, "write one of initONS") {
		t.Errorf("an unknown configuration: %d %s", code, errs)
	}
}
