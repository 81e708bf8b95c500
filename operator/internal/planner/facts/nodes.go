package facts

import (
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// IsSilent says whether a node's kubelet has missed a renewal of the node's Lease, though Kubernetes still says that the node is ready.
func (o *Observed) IsSilent(name string) bool {
	node := o.Nodes[name]
	return node.Ready && !node.SilentFrom.IsZero() && !o.Now.Before(node.SilentFrom)
}

// DrainOf says why members are to leave a node; empty if they are not, or nothing is known of it.
func (o *Observed) DrainOf(node string) v1alpha1.NodeDrain {
	seen, known := o.Nodes[node]
	if known && seen.Drained == "" && slices.Contains(o.IsolatedNodes(), node) {
		return v1alpha1.DrainIsolated
	}
	return seen.Drained
}

// IsProvedOff says whether the box controller has proved, by this Store's word, that a node's machine was off after the node was lost.
func (o *Observed) IsProvedOff(node string) bool {
	state := o.Fences[node]
	return state.Requested && state.Done && slices.ContainsFunc(o.Store.Status.Fences, func(f v1alpha1.FenceStatus) bool {
		return f.Node == node && f.Type == v1alpha1.FencingBMC
	})
}
