package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
)

// withPorts is a harness whose Store has a port for each master, one address in quarantine, and a pod as Multus leaves it.
func withPorts(t *testing.T) *harness {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-box-master-0"}}
	node.Status.Allocatable = corev1.ResourceList{"intel.com/rcbox": resource.MustParse("2"), "hugepages-2Mi": resource.MustParse("1Gi")}
	h := newHarness(t, node)
	s := h.storeNow()
	s.Spec.Network = v1alpha1.NetworkSpec{
		Transport: v1alpha1.TransportDPDK, Provider: v1alpha1.NetworkDevicePlugin, Profile: v1alpha1.NetworkVF,
		Attachments: []v1alpha1.NetworkAttachment{{
			NetworkAttachmentDefinition: "vf", ResourceName: "intel.com/rcbox", Addresses: v1alpha1.AddressPool{CIDR: "10.0.0.0/24"},
		}},
		Hugepages: &v1alpha1.NetworkHugepages{PageSize: "2Mi", Size: resource.MustParse("256Mi")},
	}
	if err := h.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAttached, Message: "2 masters",
	})
	s.Status.Masters.Members = []v1alpha1.MemberStatus{
		{
			Name: "box-master-0",
			MemberRecord: v1alpha1.MemberRecord{Addresses: []v1alpha1.MemberAddress{
				{IP: "10.0.0.1", MAC: "02:52:0a:00:00:01", Interface: "net1", PCI: "0000:3b:02.1"},
			}},
		},
		{
			Name:         "box-master-1",
			MemberRecord: v1alpha1.MemberRecord{Addresses: []v1alpha1.MemberAddress{{IP: "10.0.0.2", MAC: "02:52:0a:00:00:02"}}},
		},
	}
	s.Status.Network = &v1alpha1.NetworkStatus{
		Pools: []v1alpha1.PoolStatus{{Range: "10.0.0.0/24", Size: 254, Free: 251}},
		Quarantined: []v1alpha1.QuarantinedAddress{
			{IP: "10.0.0.9", Pod: "box-master-1-former", Node: "gone", Since: metav1.Now(), Reason: "its node does not answer"},
		},
	}
	if err := h.client.Status().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	first := &corev1.Pod{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "box-master-0-bcdfg"}, first); err != nil {
		t.Fatal(err)
	}
	first.Annotations = map[string]string{
		v1alpha1.AnnotationAddresses:        "10.0.0.1",
		"k8s.v1.cni.cncf.io/network-status": `[{"name":"team/vf","interface":"net1","mac":"02:52:0a:00:00:77"}]`,
	}
	first.Status.QOSClass = corev1.PodQOSGuaranteed
	if err := h.client.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestNet(t *testing.T) {
	h := withPorts(t)
	text := h.must("net", "box")
	contains(t, text, "NetworkReady  True Attached", "net1", "0000:3b:02.1", "02:52:0a:00:00:01", "10.0.0.2", "not told", "251",
		"box-master-1-former", "its node does not answer")
	up, numa, cores := true, int32(0), int32(1)
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.Members[0].Network = []*adminv1.NetworkPort{{
			Ip: "10.0.0.1", Driver: "net_iavf", LinkUp: &up, LinkMbps: 10_000, NumaNode: &numa, CoresNumaNode: &cores,
			Pings: []*adminv1.PeerPing{{Member: "box-master-1", Ip: "10.0.0.2", RoundTripNs: 7_100}, {Member: "box-master-2"}},
		}}
	})
	contains(t, h.must("net", "box"), "net_iavf", "up, 10000 Mb/s", "0 (cores on 1)", "7.1 to 7.1 us; no answer from box-master-2")
	contains(t, h.must("net", "box", "-o", "json"), `"driver": "net_iavf"`, `"micros": 7.1`, `"free": 251`)
	h.mayForward = false
	contains(t, h.must("net", "box"), "10.0.0.1", "not told")
	contains(t, newHarness(t).must("net"), "Masters have no ports of their own (network.transport: TCP)")
}

// The list says of each thing what was seen, and of what nobody can see from here, how to find out.
func TestNetCheck(t *testing.T) {
	code, out, errs := withPorts(t).run("net", "check", "box")
	if code != exitFailed || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	for what, want := range map[string]string{
		"NetworkAttachmentDefinitions fit":            "no ",
		"enough nodes have intel.com/rcbox":           "no ",
		"enough nodes have hugepages-2Mi":             "no ",
		"masters' pods are of the class Guaranteed":   "no ",
		"Multus has attached what was asked for":      "no ",
		"addresses are given, and some are left":      "ok",
		"every link is up":                            "not known",
		"every port reaches all of its peers'":        "not known",
		"each virtual function is alone in its IOMMU": "not known",
	} {
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.Contains(line, what) && strings.HasPrefix(line, want)
		}
		if !found {
			t.Errorf("%s is not %s:\n%s", what, want, out)
		}
	}
	contains(t, out, "1 nodes have 1 or more, and there are 2 masters", "net1 has the hardware address 02:52:0a:00:00:77")
}

func TestNetRelease(t *testing.T) {
	h := withPorts(t)
	if got := h.must("net", "release", "box", "box-master-1-former"); got != "10.0.0.9 may be given to others\n" {
		t.Error(got)
	}
	if got := h.storeNow().ReleasedPods(); len(got) != 1 || got[0] != "box-master-1-former" {
		t.Errorf("released are %v", got)
	}
	code, _, errs := h.run("net", "release", "box", "box-master-0-bcdfg")
	if code != exitFailed || !strings.Contains(errs, "no address in quarantine") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if code, _, errs := h.run("net", "release", "box"); code != exitUsage || !strings.Contains(errs, "accepts 2 arg") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
