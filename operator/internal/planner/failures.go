package planner

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
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
	recorded := o.Recorded(m.Name).Failures
	isGivenBack := func(i v1alpha1.IsolationStatus) bool { // somebody has: it begins anew
		return i.Node == node && !slices.Contains(o.IsolatedNodes(), node)
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
	if view.Lost.isSudden() && p.observed.Recorded(m.Name).Lost == nil {
		added++
	}
	return added, last
}
