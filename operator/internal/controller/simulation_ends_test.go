package controller

import (
	"testing"
	"time"
)

// Of two masters that operators end, the second one is a violation, unless its process has just begun and holds no tablets: the operator
// saw a pod without a process.
func TestSimulationSeesMastersThatEndTogether(t *testing.T) {
	for name, test := range map[string]struct {
		tablets    uint64
		age        time.Duration
		isViolated bool
	}{
		"it holds tablets":                 {tablets: 1, isViolated: true},
		"it ran when the operator looked":  {age: second, isViolated: true},
		"it has begun since, and is empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			const withCopies = 1
			s := newSimulation(t, withCopies, nil)
			if !s.until(time.Minute, s.isAsSpecified) {
				t.Fatalf("the Store does not come up: %+v", s.store().Status.Conditions)
			}
			s.stop(s.enlisted("sim-master-0"), false)
			s.ended["sim-master-0"] = true
			member, pod := s.cluster.members["sim-master-1"], s.enlisted("sim-master-1")
			s.operator.reconcilingSince = s.now
			member.tablets, member.since = test.tablets, s.now.Add(-test.age)
			s.checkEndsAlone(s.operator, pod)
			if isViolated := len(s.violations) > 0; isViolated != test.isViolated {
				t.Errorf("violations: %v", s.violations)
			}
		})
	}
}
