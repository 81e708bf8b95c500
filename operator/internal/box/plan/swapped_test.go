package plan_test

import (
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// A blade that replaces another one has its own serial number and system GUID, and gets the server's name from the slot. It is not fenced
// before a node with its GUID has joined: neither for the node that ran on the previous blade, nor for another node of the same name.
func TestSwappedBlade(t *testing.T) {
	const own = "99999999-1111-2222-3333-444444444444"
	s := newScene(bmc.PowerOn)
	before := s.Nodes[2].SystemUUID
	expect(t, s.condition("Fenceable"), "True Provable")

	s.pass(time.Minute)
	s.Servers[2].Identity = &bmc.Identity{SystemGUID: own, Serial: "S9", MACs: map[int]string{1: "02:00:00:00:09:09"}, Slot: 3}
	s.fence()
	s.Requests[0].SystemUUID = before
	expect(t, steps(s.plan()), "")
	expect(t, s.condition("AsRecorded"),
		`False BladeSwapped: slot 3 holds the blade "S9" in place of "S3": if that is meant, set spec.acceptedSerial: "S9"`)
	expect(t, s.condition("Fenceable"), "False NoProof: no node has the system GUID "+own+" of atom003")
	expect(t, s.condition("NodeReady"), "Unknown NoNode")
	waits := func(says string, state plan.FenceState) {
		t.Helper()
		if verdict := s.made.Fences[0]; verdict.State != state {
			t.Errorf("%s: %s", verdict.State, verdict.Message)
		}
		expect(t, s.made.Fences[0].Message, says)
	}
	waits("no BMC of Chassis mercury1 reports the system GUID of node atom003", plan.FenceWaiting)

	// spec.acceptedSerial makes it the blade of the slot, but still no node runs on it.
	object := s.Servers[2].Object.DeepCopy()
	object.Spec.AcceptedSerial = "S9"
	s.Servers[2].Object = object
	s.pass(time.Second)
	expect(t, s.condition("AsRecorded"), "True Accepted")
	expect(t, s.condition("Fenceable"), "False NoProof")
	expect(t, steps(s.made), "")

	// Its own node joins under the same name, and is lost: a request that a Store made about the previous machine does not apply to this
	// one.
	s.Nodes[2].SystemUUID = own
	s.pass(time.Second)
	expect(t, s.condition("Fenceable"), "True Provable")
	expect(t, steps(s.made), "")
	waits("node atom003 was machine "+before+" when Store db asked, and is "+own+" now", plan.FenceRefused)
	s.Requests[0].SystemUUID, s.Requests[0].Since = own, s.now
	expect(t, steps(s.plan()), "Off atom003")
}
