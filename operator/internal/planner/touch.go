package planner

import (
	"strings"
	"time"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	// unboundImmediate is what the scheduler says of a pod whose claim has no volume and would not get one when the pod gets a node.
	unboundImmediate = "unbound immediate PersistentVolumeClaims"
	// touchInterval is longer than the scheduler waits before it looks at a pod again.
	touchInterval = 15 * time.Second
)

// touchClaim: a claim that waited for a default StorageClass gets it from Kubernetes, and the scheduler, which may look before it knows
// that, does not look at the pod again for five minutes. It says of such a claim what cannot be so of one with this class.
func (p *planning) touchClaim(m *facts.Member, name string) {
	claim, pod := p.observed.Claims[name], m.Pod()
	if pod == nil || !claim.BindsLate || claim.Terminating || claim.Node != "" || !strings.Contains(pod.Unschedulable, unboundImmediate) {
		return
	}
	if wait := claim.TouchedAt.Add(touchInterval).Sub(p.observed.Now); wait > 0 {
		p.lookAgainIn(wait)
		return
	}
	p.add(steps.TouchClaim{
		Member: m.Name, Name: name,
		Why: "the scheduler takes it for one without a StorageClass, and it has " + claim.Class,
	})
	p.lookAgainIn(touchInterval)
}
