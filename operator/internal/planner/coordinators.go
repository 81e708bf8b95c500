package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

var outdatedCoordinators = rule{
	name: "outdated and surplus coordinators",
	blockedBy: []blocker{
		{"the coordinator's state is not in Kubernetes", func(p *planning) bool {
			return p.observed.StateType() != v1alpha1.StateKubernetes
		}},
		noAnswer,
		{"a coordinator is ending", func(p *planning) bool {
			return slices.ContainsFunc(p.observed.Pods, func(pod facts.Pod) bool {
				return pod.Component == v1alpha1.ComponentCoordinator && p.isEnding(pod)
			})
		}},
		{"a coordinator is away", func(p *planning) bool {
			return slices.ContainsFunc(p.plan.Coordinators, func(v MemberView) bool {
				return v.Wanted && (v.Pod == nil || v.Pod.Process != facts.ProcessRunning)
			})
		}},
	},
	gives: (*planning).rollCoordinators,
}

// rollCoordinators replaces outdated coordinators and ends those too many, one at a time and standbys first: they hold nothing. The leader
// goes only where another one can follow it at once; an outdated one that is alone is the user's to restart.
func (p *planning) rollCoordinators() {
	o := p.observed
	canFollow := func(v MemberView) bool { return v.Wanted && v.Pending == "" && v.Pod.Name != o.LeaderPod }
	var leaves *MemberView
	for i := range p.plan.Coordinators {
		view := &p.plan.Coordinators[i]
		if view.Pod == nil || view.Wanted && view.Pending == "" {
			continue
		}
		if view.Pod.Name != o.LeaderPod {
			leaves = view
			break
		}
		if slices.ContainsFunc(p.plan.Coordinators, canFollow) {
			leaves = view
		}
	}
	if leaves == nil {
		return
	}
	why, end := fmt.Sprintf("coordinator.replicas is %d", o.WantedCoordinators()), p.endUnderLock
	if leaves.Wanted {
		end = p.replaceUnderLock
		why = "the spec has changed, and another coordinator can lead: " + leaves.Pending
	}
	end(leaves, why, func(ref facts.PodRef) steps.Step {
		return steps.DeletePod{Member: leaves.Name, Pod: ref, Why: why, UnderLock: true}
	})
	p.lookAgainIn(UnsettledInterval)
}
