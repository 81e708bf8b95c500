package planner

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	// lockInterval is how soon a Store is looked at again where it is on record which process ends.
	lockInterval  = 500 * time.Millisecond
	lockPrecision = time.Second
	// maxLockReason bounds what is kept of why.
	maxLockReason = 500
)

// endUnderLock plans the end of a process that serves. There may be one at a time, for which there is a disruption lock: one reconcile
// records the pod and its version, and a later one ends the pod of the recorded lock, with that version as precondition. An operator that
// looked before the lock was on record sees it in its second look, and the call of one that comes too late finds another version. The
// first process that a plan asks for counts.
func (p *planning) endUnderLock(view *MemberView, why string, step func(facts.PodRef) steps.Step) {
	if !p.requestLock(view, why) {
		return
	}
	if recorded := p.recordedLock(); recorded != nil && recorded.PodUID == view.Pod.UID && p.observed.LockState == facts.LockStands {
		p.add(step(facts.PodRef{Name: recorded.Pod, UID: recorded.PodUID, ResourceVersion: recorded.PodResourceVersion}))
	}
}

// requestLock asks for the disruption lock, unless this plan has asked for another process before.
func (p *planning) requestLock(view *MemberView, why string) bool {
	if p.requested != nil {
		return false
	}
	p.requested = &v1alpha1.DisruptionLock{
		Member: view.Name, Pod: view.Pod.Name, PodUID: view.Pod.UID, PodResourceVersion: view.Pod.ResourceVersion,
		Since: metav1.NewTime(p.observed.Now.Truncate(lockPrecision)), Why: brief.Fit(why, maxLockReason),
	}
	return true
}

// recordedLock is the lock that the status has, unless it is void.
func (p *planning) recordedLock() *v1alpha1.DisruptionLock {
	if p.observed.LockState == facts.LockVoid {
		return nil
	}
	return p.observed.Store.Status.DisruptionLock
}

// settleLock decides which lock is on record after this reconcile. A lock that no rule asks for any more is not just removed, because an
// operator may be about to end its pod: the pod is changed first, and the lock is removed when that was seen.
func (p *planning) settleLock() {
	o, recorded := p.observed, p.recordedLock()
	p.plan.Lock = recorded
	switch {
	case recorded != nil && p.requested != nil && p.requested.PodUID == recorded.PodUID:
		p.lookAgainIn(lockInterval)
	case recorded != nil && o.LockState == facts.LockStands && o.Cluster != nil:
		p.add(steps.CancelDisruption{Lock: *recorded, Why: "its process is not to be ended any more, or not now"})
		p.lookAgainIn(lockInterval)
	case recorded != nil:
		p.lookAgainIn(UnsettledInterval)
	case p.requested != nil && p.plan.NotAllowed == "" && !o.Store.Spec.Paused && !o.Store.Spec.Hibernated:
		p.plan.Lock = p.requested
		p.lookAgainIn(lockInterval)
	}
}
