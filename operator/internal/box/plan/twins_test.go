package plan_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// twins are servers of another Chassis whose BMCs claim the system GUID of a node: for some time, any node may really run there.
type twins struct {
	chance *rand.Rand
	// since and until when somebody else has a GUID.
	since, until map[string]int
}

func newTwins(chance *rand.Rand) *twins {
	return &twins{chance: chance, since: map[string]int{}, until: map[string]int{}}
}

// passTwins lets twins come and go.
func (s *sim) passTwins(isCalm bool) {
	if b := s.blades[s.twins.chance.IntN(blades)]; !isCalm && s.twins.chance.IntN(40) == 0 && s.now >= s.twins.until[b.guid] {
		s.twins.since[b.guid], s.twins.until[b.guid] = s.now, s.now+1+s.twins.chance.IntN(30)
		s.say("until %d, a server of another Chassis has the system GUID of node %s", s.twins.until[b.guid], b.node)
	}
	if s.now == chaosSeconds {
		clear(s.twins.until)
	}
}

func (s *sim) elsewhereGUIDs() []plan.GUIDOf {
	var all []plan.GUIDOf
	for _, b := range s.blades {
		if s.now < s.twins.until[b.guid] {
			all = append(all, plan.GUIDOf{Server: "atom077", SystemGUID: b.guid})
		}
	}
	return all
}

// hasTwin: the operator has known for long enough that somebody else has its GUID, for no command to be on its way.
func (s *sim) hasTwin(b *blade) bool {
	return s.now < s.twins.until[b.guid] && s.now-s.twins.since[b.guid] > 2
}

// A server that was fenced stays off when another Chassis reports its GUID, too, but that it was the node's machine is not said any more.
func TestTwinOfFencedServer(t *testing.T) {
	for _, isElsewhere := range []bool{true, false} {
		s := newScene(bmc.PowerOn)
		s.Nodes[2].Ready = false
		s.Servers[2].Object.Spec.Power = v1alpha1.WantOn
		s.Requests = []plan.FenceRequest{
			{Namespace: "default", Store: "db", Node: "atom003", SystemUUID: s.Nodes[2].SystemUUID, Since: s.now},
		}
		expect(t, steps(s.plan()), "Off atom003")
		s.pass(time.Second)
		s.see(2, bmc.PowerOff, bmc.PowerOff)
		s.pass(time.Second)
		s.pass(time.Second)
		if verdict := s.made.Fences[0]; verdict.State != plan.FenceDone || verdict.Server != "atom003" {
			t.Fatalf("%+v", verdict)
		}
		guid := s.Servers[2].Identity.SystemGUID
		if isElsewhere {
			s.ElsewhereGUIDs = []plan.GUIDOf{{Server: "atom077", SystemGUID: guid}}
		} else {
			s.Servers[1].Identity.SystemGUID = guid
		}
		for range 3 {
			s.pass(5 * time.Second)
			expect(t, steps(s.made), "")
		}
		verdict := s.made.Fences[0]
		if verdict.State != plan.FenceWaiting || verdict.Proof != nil || verdict.Server != "" {
			t.Errorf("%+v", verdict)
		}
		expect(t, verdict.Message, "report the same system GUID")
		expect(t, s.condition("Fenceable"), "False GUIDTwice: the BMCs of atom0")
	}
}

// Both Chassis say the same of two servers that share a GUID, or each would write over what the other one has written.
func TestChassisAgreeOnTwins(t *testing.T) {
	var said []plan.FenceVerdict
	for _, isOther := range []bool{false, true} {
		s := newScene(bmc.PowerOn)
		guid, own, other := s.Nodes[2].SystemUUID, "atom003", "atom077"
		if isOther {
			own, other = other, own
			s.Chassis.Spec.Fencing.Namespaces = nil
			s.Layout.Servers[2].Name, s.Servers[2].Object.Name = own, own
		}
		s.Nodes[2].Ready = false
		s.ElsewhereGUIDs = []plan.GUIDOf{{Server: other, SystemGUID: guid}}
		s.Requests = []plan.FenceRequest{{Namespace: "default", Store: "db", Node: "atom003", SystemUUID: guid, Since: s.now}}
		said = append(said, s.plan().Fences[0])
	}
	if said[0] != said[1] {
		t.Errorf("%+v and %+v", said[0], said[1])
	}
}
