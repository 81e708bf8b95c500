package plan_test

import (
	"math/rand/v2"
	"time"

	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// clocks has the operator's clock, which is set now and then, and times by the simulation's own clock, which is never set.
type clocks struct {
	chance *rand.Rand
	// isSet: the operator's clock is set now and then in this world.
	isSet bool
	// skew is by how many seconds the operator's clock is ahead of the simulation's, since jumpedAt.
	skew, jumpedAt int
	// askedAt is when the fence of each node was requested, or accepted anew.
	askedAt map[string]int
	// decidedAt is the same for the requests that the last verdicts answer.
	decidedAt map[string]int
}

// Bounds of a jump, in seconds. A change of less than leastJump is no jump: clocks are corrected by so much at any time.
const (
	leastJump = 3
	mostJump  = 300
)

func newClocks(chance *rand.Rand) *clocks {
	return &clocks{chance: chance, isSet: chance.IntN(3) == 0, jumpedAt: -1, askedAt: map[string]int{}}
}

// clock is the time on the operator's clock.
func (s *sim) clock() time.Time { return at(s.now + s.clocks.skew) }

// setClock sets the operator's clock, forward or back. The operator notices that by its monotonic clock, and forgets its readings.
func (s *sim) setClock(isCalm bool) {
	c := s.clocks
	if !c.isSet || isCalm || s.memory == nil || s.deadFor > 0 || c.chance.IntN(30) > 0 {
		return
	}
	by := leastJump + c.chance.IntN(mostJump)
	if c.chance.IntN(2) == 0 {
		by = -by
	}
	c.skew, c.jumpedAt = c.skew+by, s.now
	s.counts["jump"]++
	s.say("the operator's clock is set by %d s", by)
	if s.bug != nil && s.bug.keepsReadings {
		s.memory.jumpedAt = s.clock()
		return
	}
	s.memory = &memory{identify: map[string]bool{}, jumpedAt: s.clock()}
}

// acceptAnew records the times from which requests count. The plan may have corrected them.
func (s *sim) acceptAnew(verdicts []plan.FenceVerdict) {
	for i := range verdicts {
		if request := &s.requests[i]; !request.Since.Equal(verdicts[i].Request.Since) {
			request.Since = verdicts[i].Request.Since
			s.clocks.askedAt[request.Node] = s.now
		}
	}
}
