package main

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func node(subnet string, addresses ...string) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: subnet}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func TestPlan(t *testing.T) {
	got := plan("172.18.0.2", []*corev1.Node{
		node("10.244.0.0/24", "172.18.0.2"),
		node("10.244.1.0/24", "fc00::3", "172.18.0.3"),
		node("", "172.18.0.4"),
		node("10.244.3.0/24"),
	})
	want := network{
		ownSubnet: "10.244.0.0/24",
		routes:    map[string]string{"10.244.1.0/24": "172.18.0.3"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("plan = %+v, want %+v", got, want)
	}
}
