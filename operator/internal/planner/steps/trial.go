package steps

import (
	"fmt"
	"net/netip"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// TryPod asks the API server whether it would admit a pod, before the one ends whose place it is to take. Nothing is made.
type TryPod struct {
	// Key is that of the trial's result (facts.TrialKey).
	Key       string
	Component string
	Member    string
	Number    int64
	Inputs    resources.Inputs
	Claim     string
	Addresses []netip.Addr
	// InPlaceOf is the pod that is to end: a quota has its resources left then.
	InPlaceOf facts.PodRef
	Why       string
}

func (s TryPod) row() Row {
	return Row{
		Text:   fmt.Sprintf("ask whether the next pod of %s would be admitted: %s", s.Member, s.Why),
		Object: Object{"Pod", s.Member},
	}
}
