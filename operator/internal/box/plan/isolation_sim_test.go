package plan_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

const (
	// isolatingSeeds is how many worlds there are in which users isolate servers.
	isolatingSeeds = 60
	// releaseAt is when users take back what they have isolated, except for two servers.
	releaseAt = chaosSeconds + 60
	// decisionLag is how long a command may be on its way after its reason has gone.
	decisionLag = 2
)

// isolating is what users do about isolation, and what the API server has of nodes.
type isolating struct {
	chance *rand.Rand
	// cordonedFor is the annotation of a node that is cordoned; empty where somebody else has cordoned it.
	cordonedFor map[string]string
	// changedAt is when spec.isolated of a server was set or taken back last, and wasBefore what it was.
	changedAt [blades]int
	wasBefore [blades]bool
	// onAt is when a slot last had a server that was on, or was said to be; isolatedAt is when its isolation began.
	onAt, isolatedAt [blades]int
	// released are those that were taken back at releaseAt, with whether they were on before.
	released map[int]bool
	kept     int
	// wiring is the switch; nil: there is none.
	wiring *wiring
	// measuring is what the systems of blades measure at each start; nil: nothing.
	measuring *measuring
}

// newIsolating is a world in which users isolate servers.
func newIsolating(seed uint64, planted *bug) *sim {
	s := newSim(seed, planted)
	s.trial = nil
	chance := rand.New(rand.NewPCG(seed, 11))
	s.isolating = &isolating{chance: chance, cordonedFor: map[string]string{}, released: map[int]bool{}, kept: chance.IntN(blades)}
	for i := range s.isolating.changedAt {
		s.isolating.changedAt[i] = -1000
	}
	return s
}

// passIsolation lets users isolate servers and take that back, administrators cordon nodes, and members leave nodes that are cordoned.
func (s *sim) passIsolation(isCalm bool) {
	w := s.isolating
	if w == nil {
		return
	}
	s.passWiring(isCalm)
	s.passMeasuring(isCalm)
	for i, of := range s.servers {
		if s.blades[i].on || s.mayBeLied(s.blades[i]) {
			w.onAt[i] = s.now
		}
		_, isCordoned := w.cordonedFor[s.blades[i].node]
		if of.blockersSince >= 0 && isCordoned && (isCalm || w.chance.IntN(20) == 0) {
			of.blockersSince = -1
			s.say("members leave %s", s.blades[i].node)
		}
		switch {
		case isCalm && s.now == releaseAt && i != w.kept && i != (w.kept+1)%blades && of.object.Spec.Isolated != nil:
			isolation, order, recorded := of.object.Status.Isolation, of.object.Spec.Order, of.object.Status.Order
			if order == nil || recorded != nil && recorded.ID == order.ID { // an order that is open still says whether it is on
				w.released[i] = isolation != nil && isolation.WasOn
			}
			s.isolate(i, false)
		case !isCalm && w.chance.IntN(50) == 0:
			s.isolate(i, of.object.Spec.Isolated == nil)
		case !isCalm && w.chance.IntN(80) == 0:
			s.cordon(i)
		}
	}
}

func (s *sim) isolate(i int, isWanted bool) {
	s.isolating.changedAt[i], s.isolating.wasBefore[i] = s.now, !isWanted
	if isWanted && s.servers[i].object.Status.Isolation == nil {
		s.isolating.isolatedAt[i] = s.now
	}
	s.write(i, func(object *v1alpha1.Server) {
		object.Spec.Isolated = nil
		if isWanted {
			object.Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "it loses packets"}
			s.counts["isolated"]++
		}
	})
	s.say("atom%03d: isolated %v", i+1, isWanted)
}

// cordon is an administrator's: it takes back only what another administrator has cordoned.
func (s *sim) cordon(i int) {
	cordoned, node := s.isolating.cordonedFor, s.blades[i].node
	switch by, isCordoned := cordoned[node]; {
	case !isCordoned:
		cordoned[node] = ""
		s.say("somebody cordons %s", node)
	case by == "":
		delete(cordoned, node)
		s.say("somebody uncordons %s", node)
	}
}

func (s *sim) isCordoned(i int) bool {
	if s.isolating == nil {
		return false
	}
	_, isCordoned := s.isolating.cordonedFor[s.blades[i].node]
	return isCordoned
}

// isIsolatedNow says whether a server is isolated, or was until a moment ago.
func (s *sim) isIsolatedNow(i int, isWanted bool) bool {
	if s.isolating == nil {
		return !isWanted
	}
	is := s.servers[i].object.Spec.Isolated != nil
	return is == isWanted || s.now-s.isolating.changedAt[i] <= decisionLag && s.isolating.wasBefore[i] == isWanted
}

// mayIsolate: a command on behalf of an isolation is one to shut down, or one to switch a server on again that was on before.
func (s *sim) mayIsolate(i int, action bmc.Action) bool {
	if action == bmc.ActionOn {
		isolation := s.servers[i].object.Status.Isolation
		return s.isIsolatedNow(i, false) && isolation != nil && isolation.WasOn
	}
	return s.isIsolatedNow(i, true) && (action == bmc.ActionSoft || action == bmc.ActionOff)
}

// checkIsolated: nobody switches on a server that is isolated, none is shut down for that while its node gets pods, and one that was off
// before stays off when it returns.
func (s *sim) checkIsolated(i int, step *plan.Step) {
	if s.isolating == nil {
		return
	}
	if isStart := step.Action == bmc.ActionOn || step.Action == bmc.ActionReset; isStart && !s.isIsolatedNow(i, false) {
		s.violate("atom%03d is told %s, and is isolated", i+1, step.Action)
	}
	if change := s.servers[i].object.Status.Change; change != nil && change.For == v1alpha1.ForIsolation {
		s.counts["for isolation"]++
		wasOff := !s.isFencing && s.isolating.onAt[i] < s.isolating.isolatedAt[i]-settle
		b := s.behind(i)
		isNodeKnown := !b.isNameless && !s.hasTwin(b) && !s.isJustSwapped(b) && s.shift == 0
		if step.Action != bmc.ActionOn && change.Tries == 1 && !s.isSent && isNodeKnown && !s.isCordoned(i) {
			s.violate("%s is told %s, and its node gets pods", name(b), step.Action)
		}
		if wasOff && step.Action == bmc.ActionOn {
			s.violate("atom%03d is told On, and was off before it was isolated", i+1)
		}
		s.checkPower(i, step)
	}
}

// setCordons is the API server's part.
func (s *sim) setCordons(made *plan.Plan, current map[string]bool) {
	if s.isolating == nil {
		return
	}
	s.orderPorts(made, current)
	cordoned := s.isolating.cordonedFor
	for _, of := range made.Cordons {
		by, isCordoned := cordoned[of.Node]
		switch {
		case !current[of.Server]:
		case !of.IsUndo:
			if isCordoned && by == "" {
				s.violate("node %s is taken for cordoned by the operator, and somebody else has cordoned it", of.Node)
			}
			cordoned[of.Node] = of.Server
			s.counts["cordoned"]++
		default:
			if isCordoned && by == "" {
				s.violate("node %s is uncordoned, and somebody else has cordoned it", of.Node)
			}
			s.checkQualified(bladeOf(of.Server), of.Node)
			delete(cordoned, of.Node)
			s.counts["uncordoned"]++
		}
	}
}

// isAnotherStartAwaited: a witness has lied, so that a start counts as one from before the server was off. The condition says what to do.
func (s *sim) isAnotherStartAwaited(i int) bool {
	status := &s.servers[i].object.Status
	found := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionIsolated)
	return status.Isolation != nil && status.Isolation.LastBoot == bootOf(s.blades[i]) && s.blades[i].faults.liedUntil > 0 &&
		found != nil && strings.Contains(found.Message, "--undo --force")
}

// checkIsolationsEnd: who is isolated is off, with its node cordoned; who was released is as it was before.
func (s *sim) checkIsolationsEnd() {
	if s.isolating == nil || s.shift > 0 {
		return
	}
	for i, of := range s.servers {
		b, status := s.blades[i], &of.object.Status
		by, isCordoned := s.isolating.cordonedFor[b.node]
		isKnown := !b.isNameless && !s.hasTwin(b)
		switch {
		case of.object.Spec.Isolated != nil && isKnown && len(s.requests) == 0:
			isDone := status.Isolation != nil && status.Isolation.Stage == v1alpha1.StageIsolated &&
				meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionIsolated)
			if b.on || !isCordoned || !isDone && !b.isSlotless {
				s.violate("%s is to be isolated: on %v, node cordoned %v, %+v, %+v", name(b), b.on, isCordoned, status.Isolation,
					status.Change)
			}
			s.counts["at the end isolated"]++
		case s.isHeldBack(i), s.isAnotherStartAwaited(i):
		case of.object.Spec.Isolated == nil && isKnown && s.isReady(b) && isCordoned && by == name(b):
			s.violate("%s is in use again, and node %s is still cordoned for it: %+v, %+v", name(b), b.node, status.Isolation,
				meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionIsolated))
		}
		wasOn, isReleased := s.isolating.released[i]
		isOthers := of.object.Spec.Power != v1alpha1.WantUnmanaged || len(s.requests) > 0 || s.budget > 0
		if isReleased && wasOn && !b.on && !isOthers {
			s.violate("%s was on before it was isolated, and is off after it: %+v", name(b), status.Change)
		}
		if isReleased && wasOn && b.on {
			s.counts["returned"]++
		}
	}
}

// TestSimulationOfIsolation: whatever fails, and whoever cordons nodes and gives orders meanwhile.
func TestSimulationOfIsolation(t *testing.T) {
	from, to := seedsToRun(t, isolatingSeeds)
	counts := runSeeds(t, from, to, newIsolating)
	expectMet(t, counts, 20, "isolated", "for isolation", "cordoned", "uncordoned", "at the end isolated", "returned")
}

var isolationBugs = []bug{
	{
		name: "CutUnderMembers: members are not waited for",
		before: func(_ *sim, o *plan.Observed) {
			o.Members = nil
		},
		reported: "members of Stores run on it", within: 40,
	},
	{
		name: "ShutDownAtOnce: nobody waits until the node is cordoned",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Nodes {
				o.Nodes[i].Cordoned = true
			}
		},
		reported: "its node gets pods", within: 40,
	},
	{
		name: "StartTheIsolated: policies and orders do not know that a server is isolated",
		before: func(_ *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) { of.Object.Spec.Isolated, of.Object.Status.Isolation = nil, nil })
		},
		reported: "and is isolated", within: 40,
	},
	{
		name: "TakeAnyCordon: whatever is cordoned counts as cordoned by the operator",
		before: func(s *sim, o *plan.Observed) {
			for i := range o.Nodes {
				if o.Nodes[i].Cordoned {
					o.Nodes[i].CordonedFor = o.Servers[i].Object.Name
				}
			}
		},
		reported: "somebody else has cordoned it", within: 40,
	},
	{
		name: "StayCordoned: nobody uncordons the node of a server that is in use again",
		after: func(_ *sim, _ *plan.Observed, made *plan.Plan) {
			made.Cordons = slices.DeleteFunc(made.Cordons, func(c plan.Cordon) bool { return c.IsUndo })
		},
		reported: "still cordoned for it", within: 40,
	},
	{
		name: "ForgetThePower: a server that returns stays off",
		before: func(_ *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) {
				if isolation := of.Object.Status.Isolation; isolation != nil && of.Object.Spec.Isolated == nil {
					isolation.WasOn = false
				}
			})
		},
		reported: "was on before it was isolated", within: 40,
	},
	{
		name: "StartWhatWasOff: a server that was off before is switched on when it returns",
		before: func(_ *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) {
				if isolation := of.Object.Status.Isolation; isolation != nil && of.Object.Spec.Isolated == nil {
					isolation.WasOn = true
				}
			})
		},
		reported: "was off before it was isolated", within: 40,
	},
}

// TestPlantedBugsOfIsolation: the simulation finds operators that break a rule of isolation.
func TestPlantedBugsOfIsolation(t *testing.T) { findPlanted(t, isolationBugs, false, newIsolating) }
