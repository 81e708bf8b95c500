package planner

import (
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// outdated is how a pod differs from the spec by more than its process can be told while it runs.
func (p *planning) outdated(have, want resources.Inputs) string {
	cluster := p.observed.Cluster
	if takesSettings := cluster == nil || cluster.Settings != nil; takesSettings && have.Replication != nil && want.Replication != nil {
		told := *have.Replication
		told.Factor, told.Min = want.Replication.Factor, want.Replication.Min
		have.Replication = &told
	}
	return resources.Diff(have, want)
}

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

// rolls says whether the operator restarts an outdated process that runs: nothing that it holds is lost by that.
func (p *planning) rolls(view *MemberView, component string) bool {
	pod, strategy := view.Pod, p.observed.Store.Spec.UpdateStrategy
	isLeft := strategy == v1alpha1.UpdateOnDelete && !isEmpty(view, component) && p.observed.OrderedRestart(view.Name, pod) == nil
	if view.Pending == "" || !view.Wanted || pod.Process != facts.ProcessRunning || isLeft {
		return false
	}
	if component == v1alpha1.ComponentCoordinator {
		// One that is alone is restarted with the masters, and without copies these are not: then its restart is the user's, too.
		isRestarted := p.observed.Store.Spec.Coordinator.Replicas > 1 || p.observed.Store.Copies() > 0
		return isRestarted && pod.Inputs.State != "" && pod.Inputs.State != v1alpha1.StateMemory
	}
	return pod.Inputs.Replication != nil && p.observed.Store.Copies() > 0
}

// isEmpty says whether a master holds no part of any table: whoever restarts the others himself has nothing to do with that one.
func isEmpty(view *MemberView, component string) bool {
	return component == v1alpha1.ComponentMaster && view.Reported.Runs(view.Pod) && view.Tablets() == 0
}
