package planner

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// How a Store goes to sleep, and is woken up. While it sleeps, nothing else is done to its pods and volumes.
var (
	startHibernation = rule{
		name:      "beginning of hibernation",
		blockedBy: []blocker{notHibernated},
		gives:     (*planning).beginHibernation,
	}

	hibernatedPods = rule{
		name: "pods of a hibernated Store",
		blockedBy: []blocker{
			notHibernated,
			{"status.hibernatedSince is not set", func(p *planning) bool { return p.observed.Store.Status.HibernatedSince == nil }},
		},
		gives: (*planning).endHibernated,
	}

	wakeUp = rule{
		name: "pods of a Store that was woken up",
		blockedBy: []blocker{
			{"spec.hibernated is set", func(p *planning) bool { return p.observed.Store.Spec.Hibernated }},
			{"the Store did not sleep", func(p *planning) bool { return p.observed.Store.Status.HibernatedSince == nil }},
		},
		gives: (*planning).wake,
	}

	notHibernated = blocker{"spec.hibernated is not set", func(p *planning) bool { return !p.observed.Store.Spec.Hibernated }}
)

// beginHibernation waits until nothing is short of copies: whatever is wrong is better put right while processes run. That hibernation has
// begun is on record before the first pod ends, for afterwards it cannot be seen any more. Until then, all else is as ever.
func (p *planning) beginHibernation() {
	state := &Hibernation{Begun: p.observed.Store.Status.HibernatedSince != nil}
	p.plan.Hibernation, p.plan.Next = state, UnsettledInterval
	if !state.Begun {
		state.WaitsFor = p.whyAwake()
		state.Begun = state.WaitsFor == ""
	}
}

// endHibernated ends all pods: first those of masters, which write out what their volumes do not have yet, and those of coordinators when
// they are gone.
func (p *planning) endHibernated() {
	o, state := p.observed, p.plan.Hibernation
	p.plan.Steps = slices.DeleteFunc(p.plan.Steps, func(step steps.Step) bool {
		_, isFinalizer := step.(steps.AddFinalizer)
		_, isObject := step.(steps.ApplyObject)
		return !isFinalizer && !isObject
	})
	if state.Again = slices.ContainsFunc(o.Pods, p.isEndCancelled); state.Again {
		state.PodsLeft = len(o.Pods)
		return
	}
	p.releaseAll()
	if state.PodsLeft = p.endAll(v1alpha1.ComponentMaster); state.PodsLeft == 0 {
		state.PodsLeft = p.endAll(v1alpha1.ComponentCoordinator)
	}
	if state.PodsLeft == 0 {
		p.plan.Next = SettledInterval
	}
}

// whyAwake says what keeps the Store from going to sleep; empty if nothing does.
func (p *planning) whyAwake() string {
	isAway := func(v MemberView) bool { return v.Wanted && !v.Up }
	switch {
	case p.observed.StateType() == v1alpha1.StateMemory:
		return "the coordinator keeps its state in memory, and all tables would be lost"
	case p.plan.Shortfall != nil:
		return p.plan.Shortfall.Message
	case slices.ContainsFunc(p.plan.Masters, isAway):
		return "not all masters are up"
	default:
		return ""
	}
}

// isEndCancelled says whether the pod was marked when the Store was woken up from the sleep that is on record. If it were ended for that
// sleep all the same, a Store that is woken up once more would not change it, so that a late operator could still end it.
func (p *planning) isEndCancelled(pod facts.Pod) bool {
	return !pod.Terminating() && pod.EndCancelled == markOf(p.observed.Store.Status.HibernatedSince)
}

// markOf is what a pod is marked with when the Store is woken up.
func markOf(hibernatedSince *metav1.Time) string { return hibernatedSince.UTC().Format(time.RFC3339) }

// endAll ends the pods of a component, and gives how many have not ended. One on a node that does not answer keeps nobody waiting.
func (p *planning) endAll(component string) int {
	left := 0
	for i := range p.observed.Pods {
		pod := &p.observed.Pods[i]
		if pod.Component != component {
			continue
		}
		switch {
		case !pod.Terminating():
			p.add(steps.DeletePod{Member: pod.Member, Pod: pod.Ref(), Why: "the Store is hibernated", Ordered: true})
			left++
		case p.observed.Now.Before(pod.EndsAt.Add(goneAfter)):
			left++
		}
	}
	return left
}

// wake keeps on record that the Store was hibernated until all pods that were not ended have changed since: an operator that stands still
// before it ends one ends a pod that it saw before. The pods are those that the API server has, not a cache, which may lack one.
func (p *planning) wake() {
	since := p.observed.Store.Status.HibernatedSince
	for i := range p.observed.Pods {
		if pod := &p.observed.Pods[i]; !pod.Terminating() && !p.isEndCancelled(*pod) {
			p.plan.IsWaking = true
			p.add(steps.CancelPodEnd{Member: pod.Member, Pod: pod.Ref(), Mark: markOf(since)})
			p.lookAgainIn(lockInterval)
		}
	}
}
