package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/layout"
)

// acceptedIndex finds the NodeFences that were accepted; acceptedValue is its value for each of them.
const (
	acceptedIndex = "status.acceptedAt"
	acceptedValue = "accepted"
)

// acceptedOf computes acceptedIndex.
func acceptedOf(object client.Object) []string {
	if fence, is := object.(*v1alpha1.NodeFence); is && fence.Status.AcceptedAt != nil {
		return []string{acceptedValue}
	}
	return nil
}

// round has the objects that one reconciliation of a Chassis reads: each kind once.
type round struct {
	chassis []v1alpha1.Chassis
	servers []v1alpha1.Server
	nodes   []corev1.Node
	// fences are the NodeFences that may have an effect: those in namespaces that a Chassis names, and those that were accepted while a
	// Chassis named their namespace. NodeFences in other namespaces cost a round nothing.
	fences []v1alpha1.NodeFence
}

// lookAround reads a round from the cache.
func (r *Reconciler) lookAround(ctx context.Context) (*round, error) {
	seen, err := look(ctx, r.Client)
	if err != nil {
		return nil, err
	}
	accepted := &v1alpha1.NodeFenceList{}
	if err := r.Client.List(ctx, accepted, client.MatchingFields{acceptedIndex: acceptedValue}); err != nil {
		return nil, fmt.Errorf("list the NodeFences that were accepted: %w", err)
	}
	named := fencingNamespaces(seen.chassis)
	seen.fences = append(seen.fences, slices.DeleteFunc(accepted.Items, func(f v1alpha1.NodeFence) bool {
		return slices.Contains(named, f.Namespace) // look has read it already
	})...)
	return seen, nil
}

// look reads each kind once. The further namespaces are those that a Chassis named a moment ago.
func look(ctx context.Context, from client.Reader, further ...string) (*round, error) {
	chassis, servers, nodes := &v1alpha1.ChassisList{}, &v1alpha1.ServerList{}, &corev1.NodeList{}
	for _, list := range []client.ObjectList{chassis, servers, nodes} {
		// Nothing of a round is changed: whatever is written is a copy. Copies of hundreds of Servers, several times a second, would keep
		// twice as much memory.
		if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	seen := &round{chassis: chassis.Items, servers: servers.Items, nodes: nodes.Items}
	for _, namespace := range fencingNamespaces(chassis.Items, further...) {
		list := &v1alpha1.NodeFenceList{}
		if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list the NodeFences of namespace %s: %w", namespace, err)
		}
		seen.fences = append(seen.fences, list.Items...)
	}
	return seen, nil
}

// fencingNamespaces are the namespaces that Chassis name, and the further ones, each once.
func fencingNamespaces(all []v1alpha1.Chassis, further ...string) []string {
	names := slices.Clone(further)
	for i := range all {
		names = append(names, all[i].Spec.Fencing.Namespaces...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// cluster has the known addresses that the cluster itself uses.
func (s *round) cluster(server netip.Addr) layout.Cluster {
	known := layout.Cluster{APIServer: server}
	for i := range s.nodes {
		for _, text := range s.nodes[i].Spec.PodCIDRs {
			if pods, err := netip.ParsePrefix(text); err == nil {
				known.Pods = append(known.Pods, pods)
			}
		}
	}
	return known
}
