package planner

import (
	"maps"
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/addressbook"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// goneAfter is how long past its time a pod may take to end before a Store's deletion no longer waits for it: its node is dead.
const goneAfter = 30 * time.Second

// How a Store that is being deleted is taken down: all pods end, but those on dead nodes are not waited for.
var (
	endedPods = rule{name: "pods that have ended", gives: (*planning).releaseAll}

	livePods = rule{name: "all other pods", blockedBy: []blocker{noFinalizer}, gives: (*planning).endEverything}

	reclaimedClaims = rule{
		name:      "volume claims",
		blockedBy: []blocker{noFinalizer, podsLeft, claimsAreRetained},
		gives:     (*planning).deleteClaims,
	}

	coordinatorState = rule{name: "the coordinator's state", blockedBy: []blocker{noFinalizer, podsLeft}, gives: (*planning).reclaimState}

	allFences = rule{name: "fenced nodes", blockedBy: []blocker{noFinalizer, podsLeft}, gives: (*planning).releaseFences}

	lastFinalizer = rule{name: "release of the Store", blockedBy: []blocker{noFinalizer, podsLeft}, gives: func(p *planning) {
		p.add(steps.RemoveFinalizer{Why: "its pods have ended"})
	}}

	noFinalizer = blocker{"the finalizer is gone", func(p *planning) bool { return !hasFinalizer(p.observed.Store) }}

	podsLeft = blocker{"a pod has not ended", func(p *planning) bool {
		return slices.ContainsFunc(p.observed.Pods, func(pod facts.Pod) bool {
			return !pod.Terminating() || p.observed.Now.Before(pod.EndsAt.Add(goneAfter))
		})
	}}

	claimsAreRetained = blocker{"spec.reclaimPolicy is Retain", func(p *planning) bool {
		return p.observed.Store.Spec.ReclaimPolicy != v1alpha1.ReclaimDelete
	}}
)

// releaseAll is for a Store that is being deleted, or sleeps: pods that have ended go, and so do, when it is deleted, those whose time is
// up. What they may send is nobody's concern then but that of other Stores in the same network.
func (p *planning) releaseAll() {
	o := p.observed
	book := addressbook.New(o, nil)
	for i := range o.Pods {
		pod := &o.Pods[i]
		isLate := (o.Store.DeletionTimestamp != nil || o.NamespaceEnds) && !o.Now.Before(pod.EndsAt.Add(goneAfter))
		if pod.Terminating() && pod.IsHeld && (isLate || book.IsSilent(pod)) {
			p.add(steps.ReleasePod{Member: pod.Member, Pod: facts.PodRef{Name: pod.Name, UID: pod.UID}, Why: "it has ended"})
		}
	}
}

func (p *planning) endEverything() {
	for i := range p.observed.Pods {
		if pod := &p.observed.Pods[i]; !pod.Terminating() {
			ref := pod.Ref()
			ref.ResourceVersion = "" // whatever it does meanwhile, it goes
			p.add(steps.DeletePod{Member: pod.Member, Pod: ref, Why: "the Store is being deleted"})
		}
	}
}

func (p *planning) deleteClaims() {
	for _, name := range slices.Sorted(maps.Keys(p.observed.Claims)) {
		if !p.observed.Claims[name].Terminating {
			p.add(steps.DeleteClaim{Name: name, Why: "the Store is being deleted, and its reclaimPolicy is Delete"})
		}
	}
}

func (p *planning) reclaimState() {
	for _, object := range p.observed.StateObjects {
		switch {
		case !claimsAreRetained.holds(p):
			p.add(steps.DeleteState{Name: object.Name, Why: "the Store is being deleted, and its reclaimPolicy is Delete"})
		case object.Held:
			p.add(steps.ReleaseState{Name: object.Name, Why: "the Store is being deleted; the ConfigMap stays as long as its namespace"})
		}
	}
}
