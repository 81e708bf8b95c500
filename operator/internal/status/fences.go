package status

import (
	"fmt"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// fences are those of the plan, with what has just been done about them.
func fences(o facts.Observed, plan planner.Plan, outcome Outcome) []v1alpha1.FenceStatus {
	list := slices.Clone(plan.Fences)
	for step := range steps.Of[steps.FenceNode](outcome.Done) {
		if i := indexOfFence(list, step.Fence.Node); i >= 0 {
			requestedAt := now(o)
			list[i].RequestedAt = &requestedAt
		}
	}
	for step := range steps.Of[steps.UnfenceNode](outcome.Done) {
		list = slices.DeleteFunc(list, func(f v1alpha1.FenceStatus) bool { return f.Node == step.Fence.Node })
	}
	for i := range list {
		list[i].Message = brief.Fit(list[i].Message, maxWaitsFor)
	}
	return list
}

func indexOfFence(list []v1alpha1.FenceStatus, node string) int {
	return slices.IndexFunc(list, func(f v1alpha1.FenceStatus) bool { return f.Node == node })
}

// describeFence says how far the fencing of a node is; empty if nobody is to fence it.
func describeFence(plan planner.Plan, node string) string {
	i := indexOfFence(plan.Fences, node)
	if i < 0 {
		return ""
	}
	fence := &plan.Fences[i]
	text := fmt.Sprintf("; fencing (%s) ", fence.Type)
	switch {
	case fence.Done:
		return text + "is done"
	case fence.RequestedAt != nil && len(fence.Message) > maxFenceText:
		return text + "is under way, and status.fences says more: " + brief.Head(fence.Message, maxFenceText)
	case fence.RequestedAt != nil:
		return strings.TrimSuffix(text+"is under way: "+fence.Message, ": ")
	case fence.Message != "":
		return text + "waits for " + fence.Message
	default:
		return text + "begins"
	}
}
