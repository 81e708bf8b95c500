package planner

import (
	"strings"
	"time"
)

const (
	// unboundImmediate is what the scheduler says of a pod whose claim has no volume and would not get one when the pod gets a node.
	unboundImmediate = "unbound immediate PersistentVolumeClaims"
	// touchInterval is longer than the scheduler waits before it looks at a pod again.
	touchInterval = 15 * time.Second
)

// TouchClaim changes an annotation of a volume claim, so that the scheduler looks at the claim's pod again.
type TouchClaim struct {
	Member string
	Name   string
	Why    string
}

// Describe implements Step.
func (s TouchClaim) Describe() string {
	return "have the scheduler look at volume claim " + s.Name + " of " + s.Member + ": " + s.Why
}

// Reason implements Step.
func (TouchClaim) Reason() string { return "" }

// Target implements Step.
func (s TouchClaim) Target() (kind, name string) { return KindClaim, s.Name }

// touchClaim: a claim that waited for a default StorageClass gets it from Kubernetes, and the scheduler, which may look before it knows
// that, does not look at the pod again for five minutes. It says of such a claim what cannot be so of one with this class.
func (p *planning) touchClaim(m *member, name string) {
	claim, pod := p.observed.Claims[name], m.pod()
	if pod == nil || !claim.BindsLate || claim.Terminating || claim.Node != "" || !strings.Contains(pod.Unschedulable, unboundImmediate) {
		return
	}
	if wait := claim.TouchedAt.Add(touchInterval).Sub(p.observed.Now); wait > 0 {
		p.lookAgainIn(wait)
		return
	}
	p.add(TouchClaim{
		Member: m.name, Name: name,
		Why: "the scheduler takes it for one without a StorageClass, and it has " + claim.Class,
	})
	p.lookAgainIn(touchInterval)
}
