package planner

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// asFarAsThereIsRoom are the inputs with the size that the member's volume has, while that has not grown to what the spec asks for: so its
// pod is outdated by that, and restarted, only when there is something to be had by it.
func (p *planning) asFarAsThereIsRoom(m *facts.Member, claimed string, inputs resources.Inputs) resources.Inputs {
	claim, found := p.observed.Claims[claimed]
	if !found || inputs.Replication == nil || inputs.Replication.Storage != v1alpha1.StorageVolume {
		return inputs
	}
	wanted, there := inputs.Replication.StorageSize, claim.Size
	if there.IsZero() || claim.GrowsWithPod || there.Cmp(wanted) >= 0 {
		return inputs
	}
	// A volume is often a little larger than what was asked for: what its pod was made with is as good.
	if pod := m.Pod(); pod != nil && pod.Inputs.Replication != nil && pod.Inputs.Replication.StorageSize.Cmp(there) <= 0 {
		there = pod.Inputs.Replication.StorageSize
	}
	// The schema sees to it; but a volume may be that of a Store of the same name from before.
	if resources.SegmentMiB(there, inputs.Cores) != resources.SegmentMiB(wanted, inputs.Cores) {
		return inputs
	}
	replication := *inputs.Replication
	replication.StorageSize = there
	inputs.Replication = &replication
	return inputs
}

// growClaim has one claim at a time ask for the size that the spec has: where the class of volumes does not allow that, one refusal is
// enough.
func (p *planning) growClaim() {
	storage, state := p.observed.Store.CopiesStorage(), p.observed.Store.Spec.Coordinator.State
	views := slices.Concat(p.plan.Masters, p.plan.Coordinators)
	for i := range views {
		view := &views[i]
		component, size := v1alpha1.ComponentMaster, storage
		if i >= len(p.plan.Masters) {
			component, size = v1alpha1.ComponentCoordinator, state.Size
		}
		claim, found := p.observed.Claims[view.Claim]
		if !found || !view.Wanted || claim.Terminating || !isLess(claim.AskedFor, size) {
			continue
		}
		p.add(steps.GrowClaim{
			Component: component, Member: view.Name, Name: claim.Name,
			Why: fmt.Sprintf("it asks for %s, and the spec for %s", claim.AskedFor.String(), size.String()),
		})
		p.lookAgainIn(UnsettledInterval)
		return
	}
}

// isLess is false for what is not known.
func isLess(size, wanted resource.Quantity) bool { return !size.IsZero() && size.Cmp(wanted) < 0 }
