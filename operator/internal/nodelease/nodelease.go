// Package nodelease says from a node's Lease when its kubelet counts as silent, which is earlier than Kubernetes says that the node is not
// ready. It does not say what follows from that.
package nodelease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// shortest keeps a Lease of a short duration from making a node silent by a short pause.
const shortest = 5 * time.Second

// Patience is how long a kubelet may leave its Lease as it is: three eighths of the Lease's duration, 15 s where that is 40 s, which is the
// default. Kubelets renew a Lease after a quarter of its duration, and Kubernetes counts the node as not ready after all of it.
func Patience(lease *coordinationv1.Lease) time.Duration {
	const part, of = 3, 8
	if lease.Spec.LeaseDurationSeconds == nil {
		return shortest
	}
	return max(shortest, time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second*part/of)
}

// SilentFrom is when the kubelet counts as silent unless it renews its Lease before, by the kubelet's own clock; zero where the Lease was
// never renewed.
func SilentFrom(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(Patience(lease))
}
