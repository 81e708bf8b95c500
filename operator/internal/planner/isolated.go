package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// returnsToIsolated starts a member that is down once more on the isolated node that its volume is on, and says whether it does. The member
// is to leave that node, but it can neither be drained, because it is not up, nor move, because what is in the volume may be needed: by the
// member's own recovery, or since more failure domains are lost than the copies survive. Once it is up, it leaves in order.
func (p *planning) returnsToIsolated(m *facts.Member, view *MemberView, lostDomains int) bool {
	o, lost := p.observed, view.Lost
	isNeeded := lost.ProvenAt.IsZero() || lostDomains > int(o.Store.Copies())
	if lost.Cause != v1alpha1.NodeDrained || o.DrainOf(lost.Node) != v1alpha1.DrainIsolated || !lost.withVolume || !isNeeded {
		return false
	}
	lost.WaitsFor = "its next pod to be up there, because what is in its volume may be needed"
	switch pod := view.Pod; {
	case pod == nil:
		view.AddressWait = p.createPod(m, v1alpha1.ComponentMaster, view.inputs, lost.Node)
	case pod.Node == "" && slices.Contains(pod.Avoids, lost.Node):
		p.add(steps.DeletePod{Member: m.Name, Pod: pod.Ref(), Why: fmt.Sprintf(
			"it may not run on %s, where its volume is: the node is isolated, and the member cannot leave it while it is down", lost.Node)})
	}
	return true
}
