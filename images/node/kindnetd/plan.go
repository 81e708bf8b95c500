package main

import (
	"net"

	corev1 "k8s.io/api/core/v1"
)

// network is what one node needs so that its pods reach all others.
type network struct {
	ownSubnet string            // this node's pod subnet; empty until one is assigned
	routes    map[string]string // other nodes' pod subnets -> their internal IPv4 address
}

// plan derives the network of the node with address hostIP from all nodes.
// Nodes that have no subnet or no IPv4 address yet are left out until they do.
func plan(hostIP string, nodes []*corev1.Node) network {
	n := network{routes: map[string]string{}}
	for _, node := range nodes {
		address := internalIPv4(node)
		switch {
		case address == "" || node.Spec.PodCIDR == "":
		case address == hostIP:
			n.ownSubnet = node.Spec.PodCIDR
		default:
			n.routes[node.Spec.PodCIDR] = address
		}
	}
	return n
}

func internalIPv4(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && net.ParseIP(a.Address).To4() != nil {
			return a.Address
		}
	}
	return ""
}
