package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	// unboundImmediate is what the scheduler says of a pod whose claim has no volume and would not get one when the pod gets a node.
	unboundImmediate = "unbound immediate PersistentVolumeClaims"
	// touchInterval is longer than the scheduler waits before it looks at a pod again.
	touchInterval = 15 * time.Second
)

// A claim is never changed, but for its size, and, while the Store is there, never deleted.
var (
	createClaim = memberRule{name: "volume claim", gives: func(p *planning, s *subject) {
		if s.view.Claim != "" && !p.hasClaim(s.view.Claim) {
			p.add(steps.CreateClaim{Component: s.component, Member: s.Name, Name: s.view.Claim, Why: "the member needs a volume"})
			p.lookAgainIn(UnsettledInterval)
		}
	}}

	touchClaim = memberRule{name: "scheduler's look at a volume claim", gives: (*planning).touchClaim}

	growClaim = rule{name: "size of volume claims", gives: (*planning).growClaim}
)

// touchClaim: a claim that waited for a default StorageClass gets it from Kubernetes, and the scheduler, which may look before it knows
// that, does not look at the pod again for five minutes. It says of such a claim what cannot be so of one with this class.
func (p *planning) touchClaim(s *subject) {
	claim, pod := p.observed.Claims[s.view.Claim], s.view.Pod
	isTouched := p.hasClaim(s.view.Claim) && claim.BindsLate && !claim.Terminating && claim.Node == ""
	if !isTouched || pod == nil || !strings.Contains(pod.Unschedulable, unboundImmediate) {
		return
	}
	if wait := claim.TouchedAt.Add(touchInterval).Sub(p.observed.Now); wait > 0 {
		p.lookAgainIn(wait)
		return
	}
	p.add(steps.TouchClaim{
		Member: s.Name, Name: s.view.Claim,
		Why: "the scheduler takes it for one without a StorageClass, and it has " + claim.Class,
	})
	p.lookAgainIn(touchInterval)
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
