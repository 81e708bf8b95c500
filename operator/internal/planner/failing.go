package planner

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fmt"
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// defaultIsolationWindow is that of the schema.
const defaultIsolationWindow = 10 * time.Minute

func (p *planning) isolationWindow() time.Duration {
	window, err := time.ParseDuration(p.observed.Store.Spec.Recovery.Isolation.Window)
	if err != nil {
		return defaultIsolationWindow
	}
	return window
}

// failures counts how often a member's process has ended by itself, or its node was lost, while it was on one node, within the window. Nil
// if there was nothing of the kind lately.
func (p *planning) failures(m *facts.Member, view *MemberView) *v1alpha1.FailureStatus {
	o, window := p.observed, p.isolationWindow()
	node, _ := m.Home()
	recorded := o.RecordedFailures(m.Name)
	isGivenBack := func(i v1alpha1.IsolationStatus) bool { // somebody has: it begins anew
		return i.Node == node && !slices.Contains(o.Store.IsolatedNodes(), node)
	}
	if recorded != nil && (recorded.Node != node || o.Now.Sub(recorded.Last.Time) > window) ||
		slices.ContainsFunc(o.Store.Status.Isolations, isGivenBack) {
		recorded = nil
	}
	if node == "" || o.Cluster == nil {
		return recorded
	}
	next := v1alpha1.FailureStatus{Node: node}
	if recorded != nil {
		next = *recorded
	}
	if added, last := p.newFailures(m, view, recorded); added > 0 {
		next.Last = metav1.NewTime(last.Truncate(time.Second))
		if next.Count == 0 || last.Sub(next.Since.Time) > window {
			next.Since, next.Count = next.Last, 0
		}
		next.Count += added
	}
	if next.Count == 0 {
		return nil
	}
	return &next
}

// newFailures are those since the last look, and when the last one was.
func (p *planning) newFailures(m *facts.Member, view *MemberView, recorded *v1alpha1.FailureStatus) (added int32, last time.Time) {
	last = p.observed.Now
	// By the time of the last end, not by the number of restarts: that is behind while kubelet waits before the next one.
	if pod := m.Pod(); pod != nil && !pod.CrashedAt.IsZero() && last.Sub(pod.CrashedAt) <= p.isolationWindow() &&
		(recorded == nil || pod.CrashedAt.After(recorded.Last.Time)) {
		added, last = 1, pod.CrashedAt
	}
	if view.Lost.isSudden() && p.observed.RecordedLoss(m.Name) == nil {
		added++
	}
	return added, last
}

// isolateFailing takes a node out of use on which a member fails again and again, while all others are well: then it is not the spec's, the
// image's or the network's fault. One node at a time, and none where its member's absence would leave too few for the copies.
func (p *planning) isolateFailing() {
	o := p.observed
	crashes := o.Store.Spec.Recovery.Isolation.Crashes
	if crashes == 0 || o.Store.Copies() == 0 || o.Store.Spec.Recovery.DryRun || o.Cluster == nil {
		return
	}
	isByItself := func(i v1alpha1.IsolationStatus) bool {
		return i.Cause == v1alpha1.IsolatedFailures && slices.Contains(o.Store.IsolatedNodes(), i.Node)
	}
	i := slices.IndexFunc(p.plan.Masters, func(v MemberView) bool { return v.Failures != nil && v.Failures.Count >= crashes })
	if i < 0 || slices.ContainsFunc(o.Store.Status.Isolations, isByItself) || len(o.Store.IsolatedNodes()) >= v1alpha1.MaxIsolated {
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
