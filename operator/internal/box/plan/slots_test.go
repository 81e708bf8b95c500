package plan_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// hideSlots makes some blades, with every third seed or so, whose hardware does not report its slot.
func (s *sim) hideSlots(seed uint64) {
	chance := rand.New(rand.NewPCG(seed, 7))
	if chance.IntN(3) > 0 {
		return
	}
	for _, b := range s.blades {
		b.isSlotless = chance.IntN(3) == 0
	}
}

// shiftAddresses makes a world in which the address of each server's BMC is that of the BMC in the next slot. With every other seed, no
// hardware reports its slot. In these worlds, Stores lose nodes, and nobody gives orders.
func (s *sim) shiftAddresses(seed uint64) {
	s.shift, s.isFencing = 1, true
	for _, b := range s.blades {
		b.isSlotless = seed%2 == 0
	}
}

// TestSimulationOfShiftedAddresses: where the BMC and the slot of a server belong to two different blades, nothing is proved, and no power
// is taken away.
func TestSimulationOfShiftedAddresses(t *testing.T) {
	from, to := seedsToRun(t, seeds)
	for seed := from; seed < to; seed++ {
		s := newSim(seed, nil)
		s.shiftAddresses(seed)
		s.run()
		for _, what := range []string{"Off", "proof", "fenced"} {
			if s.counts[what] > 0 {
				s.violate("%s happened %d times", what, s.counts[what])
			}
		}
		if s.violation != "" {
			t.Fatalf("seed %d: %s\n%s", seed, s.violation, strings.Join(s.log, "\n"))
		}
	}
}

// If a server's hardware does not report its slot, an order is done when its BMC says so, nothing is proved, and its power is not taken
// away for any Store.
func TestSlotNotNamed(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.Servers[2].Identity.Slot = 0
	s.order(2, v1alpha1.ActionOff)
	expect(t, steps(s.plan()), "Off atom003")
	s.pass(time.Second)
	s.see(2, bmc.PowerOff, bmc.PowerOff)
	s.pass(time.Second)
	const why = "no second witness: the server's hardware does not report its slot"
	expect(t, s.orderOf(2), "Done: the server is off according to its BMC; there is "+why)
	if last := s.Servers[2].Object.Status.LastOff; last != nil {
		t.Errorf("it is proved by %v", last.By)
	}
	expect(t, s.condition("Fenceable"), "False NoProof: atom003 has "+why)
}

// Until the hardware was read, which takes a moment, an order waits for its second witness, and nothing is proved.
func TestSlotNotReadYet(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.order(2, v1alpha1.ActionOff)
	expect(t, steps(s.plan()), "Off atom003")
	identity := s.Servers[2].Identity
	s.Servers[2].Identity = nil
	s.pass(time.Second)
	s.see(2, bmc.PowerOff, bmc.PowerOff)
	s.pass(time.Second)
	expect(t, s.orderOf(2), "Running: its BMC says that the server is off; waiting for a second witness")
	s.Servers[2].Identity = identity
	s.pass(time.Second)
	expect(t, s.orderOf(2), "Done: the server is off, as MMC and PowerReading say")
}
