package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

var failingNodes = rule{
	name: "nodes on which a member fails again and again",
	blockedBy: []blocker{
		noCopies, noAnswer, dryRun,
		{"spec.recovery.isolation.crashes is 0", func(p *planning) bool { return p.observed.Store.Spec.Recovery.Isolation.Crashes == 0 }},
		{"another failing node is isolated", func(p *planning) bool {
			store := p.observed.Store
			return slices.ContainsFunc(store.Status.Isolations, func(i v1alpha1.IsolationStatus) bool {
				return i.Cause == v1alpha1.IsolatedFailures && slices.Contains(p.observed.IsolatedNodes(), i.Node)
			})
		}},
		{"as many nodes are isolated as may be", func(p *planning) bool {
			return len(p.observed.IsolatedNodes()) >= v1alpha1.MaxIsolated
		}},
	},
	gives: (*planning).isolateFailing,
}

// isolateFailing takes a node out of use on which a member fails again and again, while all others are well: then it is not the spec's, the
// image's or the network's fault. One node at a time, and none where its member's absence would leave too few for the copies.
func (p *planning) isolateFailing() {
	crashes := p.observed.Store.Spec.Recovery.Isolation.Crashes
	i := slices.IndexFunc(p.plan.Masters, func(v MemberView) bool { return v.Failures != nil && v.Failures.Count >= crashes })
	if i < 0 {
		return
	}
	failing := &p.plan.Masters[i]
	if !failing.Wanted || failing.Pod == nil || failing.Evacuation != nil || !p.othersAreWell(failing) {
		return
	}
	p.add(steps.IsolateNode{
		Node: failing.Failures.Node, Member: failing.Name,
		Why: fmt.Sprintf("%s failed there %d times within %s, and no other one anywhere",
			failing.Name, failing.Failures.Count, p.isolationWindow()),
	})
}

// othersAreWell: they are up without a failure, one at least is made from the same spec, and there are enough of them for all copies.
func (p *planning) othersAreWell(failing *MemberView) bool {
	well, alike := 0, false
	for i := range p.plan.Masters {
		other := &p.plan.Masters[i]
		if other.Name == failing.Name || !other.Wanted {
			continue
		}
		if !other.Up || other.Failures != nil || other.Evacuation != nil || other.Reported.Draining != nil {
			return false
		}
		well++
		alike = alike || resources.Diff(other.Pod.Inputs, failing.Pod.Inputs) == ""
	}
	return alike && well > int(p.observed.Store.Copies())
}
