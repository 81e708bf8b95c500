package view

import (
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// staleAfter is how long the operator may not have looked: it notes each look that is so long after the last one that it noted, and
// one may be missed.
const staleAfter = 2*v1alpha1.LookInterval + 5*time.Second

// isStale: nobody looks at the Store any more, or cannot write down what it sees. What the status says was so once.
func (s *Snapshot) isStale() bool { return !s.LookedAt.IsZero() && s.Now.Sub(s.LookedAt) > staleAfter }

func (s *Snapshot) lookAge() string {
	if s.LookedAt.IsZero() {
		return "unknown time"
	}
	return Ago(max(s.Now.Sub(s.LookedAt), 0))
}

func (s *Snapshot) lookText() string {
	switch {
	case s.LookedAt.IsZero():
		return "has not said when it looked"
	case s.isStale():
		return "has not looked for " + s.lookAge()
	default:
		return "looked " + s.lookAge() + " ago"
	}
}

// isNewLeader: the coordinator still waits for members that it knows from the state.
func (s *Snapshot) isNewLeader() bool {
	leader := s.Cluster.GetLeader()
	return leader != nil && leader.LeadingMs != nil && leader.PatienceMs != nil && leader.GetLeadingMs() < leader.GetPatienceMs()
}
