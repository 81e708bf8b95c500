package layout_test

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/layout"
)

// The controllers of an emulated chassis may be programs on this machine; in any other chassis a loopback address is refused.
func TestLoopbackIsForEmulatedChassis(t *testing.T) {
	c := chassis(1)
	c.Spec.Model, c.Spec.Management.MMC, c.Spec.Management.CMM = "EmulatedRack", "127.5.0.1+44", []string{"127.5.0.201"}
	if l := layout.Of([]v1alpha1.Chassis{c})["mercury1"]; len(l.Problems) > 0 {
		t.Error(l.Problems)
	}
	c.Spec.Model = "Generic"
	if l := layout.Of([]v1alpha1.Chassis{c})["mercury1"]; len(l.Problems) != 2 {
		t.Error(l.Problems)
	}
}

// No BMC has an address that the cluster itself uses. Addresses stay accepted if they were accepted before a node got the address range.
func TestAddressesOfTheCluster(t *testing.T) {
	for name, test := range map[string]struct {
		cluster layout.Cluster
		says    []string
	}{
		"others": {layout.Cluster{
			APIServer: netip.MustParseAddr("10.96.0.1"), Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")},
		}, nil},
		"unknown": {layout.Cluster{}, nil},
		"API server": {layout.Cluster{APIServer: netip.MustParseAddr("192.168.5.7")}, []string{
			"spec.management.mmc: names address 192.168.5.7: it is the address of the Kubernetes API server; write others",
		}},
		"pods": {layout.Cluster{Pods: []netip.Prefix{netip.MustParsePrefix("192.168.5.192/26")}}, []string{
			"spec.management.cmm: names addresses 192.168.5.201 and 192.168.5.211: nodes give such addresses to pods",
			"spec.management.ons: names addresses 192.168.5.221 and 192.168.5.231: nodes give such addresses to pods",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := chassis(1)
			l := layout.Of([]v1alpha1.Chassis{c})["mercury1"]
			l.CheckCluster(&c, test.cluster)
			text := l.Message(1000)
			for _, says := range test.says {
				if !strings.Contains(text, says) || len(l.Problems) != len(test.says) {
					t.Errorf("%d problems: %q, which does not say %q", len(l.Problems), text, says)
				}
			}
			if len(test.says) == 0 && len(l.Problems) > 0 {
				t.Error(l.Problems)
			}
			// The cluster uses them only since the Chassis was accepted.
			c.Status.AcceptedAddresses = l.Addresses
			l = layout.Of([]v1alpha1.Chassis{c})["mercury1"]
			l.CheckCluster(&c, test.cluster)
			if len(l.Problems) > 0 || len(l.Notes) != len(test.says) {
				t.Errorf("accepted before: %v, %v", l.Problems, l.Notes)
			}
		})
	}
}

// An accepted Chassis is edited: addresses that the cluster uses are refused, and addresses that were accepted before are not.
func TestEditedAddresses(t *testing.T) {
	cluster := layout.Cluster{
		APIServer: netip.MustParseAddr("192.168.5.240"), Pods: []netip.Prefix{netip.MustParsePrefix("192.168.5.0/26")},
	}
	for name, test := range map[string]struct {
		edit func(*v1alpha1.Chassis)
		says string
	}{
		"another field": {func(c *v1alpha1.Chassis) { c.Spec.Power.StartsAtOnce = 2 }, ""},
		"fewer":         {func(c *v1alpha1.Chassis) { c.Spec.Slots, c.Spec.Management.MMC = "1-10", "192.168.5.1+10" }, ""},
		"other order":   {func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.5.21+24,192.168.5.1+20" }, ""},
		"API server": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.CMM = []string{"192.168.5.201", "192.168.5.240"} },
			"spec.management.cmm: names address 192.168.5.240: it is the address of the Kubernetes API server; write others",
		},
		"pods": {
			func(c *v1alpha1.Chassis) { c.Spec.Management.MMC = "192.168.5.2+44" },
			"spec.management.mmc: names address 192.168.5.45: nodes give such addresses to pods (spec.podCIDRs of a node); write others",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := chassis(1)
			l := layout.Of([]v1alpha1.Chassis{c})["mercury1"]
			c.Status.AcceptedAddresses = l.Addresses
			test.edit(&c)
			l = layout.Of([]v1alpha1.Chassis{c})["mercury1"]
			l.CheckCluster(&c, cluster)
			if (len(l.Problems) > 0) != (test.says != "") || test.says != "" && !strings.Contains(l.Message(1000), test.says) {
				t.Errorf("%v", l.Problems)
			}
		})
	}
}

// A Chassis that an earlier version accepted has no record of its addresses: they are those of the generation that was accepted.
func TestAddressesAcceptedWithoutRecord(t *testing.T) {
	cluster := layout.Cluster{APIServer: netip.MustParseAddr("192.168.5.7")}
	c := chassis(1)
	c.Generation = 3
	for generation, isAccepted := range map[int64]bool{3: true, 2: false} {
		c.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		}}
		l := layout.Of([]v1alpha1.Chassis{c})["mercury1"]
		if l.CheckCluster(&c, cluster); (len(l.Problems) == 0) != isAccepted {
			t.Errorf("generation %d: %v", generation, l.Problems)
		}
	}
}
