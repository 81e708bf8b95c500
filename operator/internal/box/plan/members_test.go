package plan_test

import (
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

const elsewhere = "elsewhere"

// withMembers has a member of a Store run on a node that is none of the chassis'.
func withMembers(s *scene) {
	s.Nodes = append(s.Nodes, plan.Node{Name: elsewhere, SystemUUID: "99999999-1111-2222-3333-444444444444", Ready: true})
	s.Members = map[string][]plan.Blocker{elsewhere: {{Store: "default/db", Member: "db-3", Why: "drain it", Loses: "12 objects"}}}
}

// withoutNodes: the chassis is fresh, and nobody in the cluster runs on it.
func withoutNodes(s *scene) {
	s.Nodes = nil
	withMembers(s)
}

// An order that switches off is given only where it is proved that no member of a Store runs.
func TestMembersThatMayRunOnAServer(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *scene)
		steps  string
		says   string
	}{
		"a fresh chassis": {withoutNodes, "Off atom003", "Running"},
		"no Stores":       {func(s *scene) { s.Servers[2].Identity = nil }, "Off atom003", "Running"},
		"no GUID": {
			func(s *scene) { withoutNodes(s); s.Servers[2].Identity.SystemGUID = "" }, "",
			"Refused: db-3 of Store default/db may run on it, for its BMC reports no system GUID that identifies it: drain it, " +
				"or force if it runs on another machine; force may lose 12 objects",
		},
		"a GUID that many boards have": {
			func(s *scene) {
				withoutNodes(s)
				s.Servers[2].Identity.SystemGUID = "00000000-0000-0000-0000-000000000000"
			}, "",
			"Refused: db-3 of Store default/db may run on it",
		},
		"no GUID, and members run on another server": {func(s *scene) {
			s.Members = map[string][]plan.Blocker{"atom004": {{Store: "default/db", Member: "db-3"}}}
			s.Servers[2].Identity.SystemGUID = ""
		}, "Off atom003", "Running"},
		"a node that does not say which machine it is": {
			func(s *scene) { withoutNodes(s); s.Nodes[0].SystemUUID = "" }, "",
			"may run on it, for node elsewhere reports no systemUUID that identifies its machine",
		},
		"such a node, and another one runs there": {
			func(s *scene) { withMembers(s); s.Nodes[len(s.Nodes)-1].SystemUUID = "" }, "Off atom003", "Running",
		},
		"a node that was deleted": {
			func(s *scene) { withoutNodes(s); s.Nodes = nil }, "", "there is no node elsewhere any more that could say which machine it is",
		},
		"two nodes with its GUID": {func(s *scene) {
			withMembers(s)
			s.Nodes[len(s.Nodes)-1].SystemUUID = s.Nodes[2].SystemUUID
		}, "", "Refused: db-3 of Store default/db runs on it"},
		"two servers with that GUID": {func(s *scene) {
			members(s)
			s.Servers[3].Identity.SystemGUID = s.Servers[2].Identity.SystemGUID
		}, "", "Refused: db-3 of Store default/db runs on it"},
		"not read yet": {
			func(s *scene) { withoutNodes(s); s.Servers[2].Identity = nil }, "",
			"Waiting: its BMC is asked for the system GUID, which says whether a node with members of Stores runs on it",
		},
		"not read yet, and a member was there": {
			func(s *scene) { members(s); s.Servers[2].Identity = nil }, "", "Refused: db-3 of Store default/db runs on it",
		},
		"read long ago": {
			func(s *scene) { withoutNodes(s); s.Servers[2].IdentityAt = s.now.Add(-time.Minute) }, "", "Waiting: its BMC is asked",
		},
		"force": {func(s *scene) {
			withoutNodes(s)
			s.Servers[2].Identity = nil
			s.Servers[2].Object.Spec.Order.Force = true
		}, "Off atom003", "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.order(2, v1alpha1.ActionOff)
			test.change(s)
			expect(t, steps(s.plan()), test.steps)
			expect(t, s.orderOf(2), test.says)
		})
	}
}

// A BMC is asked once more what it is, for another blade may be in the slot; an order does not wait for that for ever.
func TestIdentityThatIsWaitedFor(t *testing.T) {
	s := newScene(bmc.PowerOn)
	withoutNodes(s)
	s.Servers[2].IdentityAt = s.now.Add(-time.Hour)
	s.order(2, v1alpha1.ActionSoft)
	if s.plan(); len(s.made.Identify) != 1 || s.made.Identify[0] != "atom003" {
		t.Errorf("asked are %v", s.made.Identify)
	}
	s.Servers[2].IdentityAt = s.now
	expect(t, steps(s.plan()), "Soft atom003")

	s = newScene(bmc.PowerOn)
	withoutNodes(s)
	s.order(2, v1alpha1.ActionSoft)
	for range 140 {
		s.Servers[2].IdentityAt = s.now.Add(-time.Hour)
		s.plan()
		s.now = s.now.Add(5 * time.Second)
		s.see(2, bmc.PowerOn, bmc.PowerOn)
	}
	expect(t, s.orderOf(2), "Refused: whether a member of a Store runs on it is not known: its BMC did not say its system GUID within "+
		"10m0s; force")
}

// spec.power: Off waits, and the condition says for what.
func TestSpecWaitsForMembers(t *testing.T) {
	s := newScene(bmc.PowerOn)
	withoutNodes(s)
	want(v1alpha1.WantOff)(s)
	s.Servers[2].Identity.SystemGUID = ""
	expect(t, steps(s.plan()), "")
	expect(t, s.condition("PoweredOn"), "True On: its BMC says that the server is on; db-3 of Store default/db may run on it")
	s.Members = nil
	expect(t, steps(s.plan()), "Soft atom003")
}
