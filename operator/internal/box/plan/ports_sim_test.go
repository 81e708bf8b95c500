package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

const (
	portSeeds     = 60
	switchAddress = "192.168.5.211"
)

// wiring is the switch that the blades of an isolating world are plugged into.
type wiring struct {
	ports [blades]struct {
		// isOff: an administrator's doing if byOther, else the operator's.
		isOff, byOther bool
		// touchedAt is when an administrator has switched it last.
		touchedAt int
	}
	// silentUntil is how long the switch does not answer, heardAt when the operator has heard it last, and heard what it has heard.
	silentUntil, heardAt, silentAt int
	heard                          map[string]plan.SwitchPort
	orders                         []plan.PortOrder
}

// newWired is a world in which users isolate servers whose switch can be driven.
func newWired(seed uint64, planted *bug) *sim {
	s := newIsolating(seed, planted)
	s.isolating.wiring = &wiring{heardAt: -1000, silentAt: -1000}
	for i := range s.isolating.wiring.ports {
		s.isolating.wiring.ports[i].touchedAt = -1000
	}
	return s
}

// passWiring is what happens to the switch in a second.
func (s *sim) passWiring(isCalm bool) {
	w := s.isolating.wiring
	if w == nil {
		return
	}
	chance := s.isolating.chance
	switch {
	case isCalm:
		w.silentUntil = 0
	case chance.IntN(40) == 0:
		w.silentUntil = s.now + 1 + chance.IntN(60)
		s.say("the switch is silent until %d", w.silentUntil)
	case chance.IntN(30) == 0:
		i := chance.IntN(blades)
		isolation := s.servers[i].object.Status.Isolation
		// What the operator has switched off is left to it, and so is what it is about to: nobody could tell afterwards who did it.
		if of := &w.ports[i]; (isolation == nil || len(isolation.Ports) == 0) && (!of.isOff || of.byOther) {
			of.isOff = !of.isOff
			of.byOther, of.touchedAt = of.isOff, s.now
			s.say("somebody switches port slot%d: off %v", i+1, of.isOff)
		}
	}
	if s.now < w.silentUntil {
		w.silentAt = s.now
		w.orders = nil // lost
		return
	}
	for _, order := range w.orders {
		of := &w.ports[bladeOf(order.Server)]
		of.isOff, of.byOther = !order.Enabled, false
		s.say("port %s is switched: on %v", order.Name, order.Enabled)
	}
	w.orders = nil
	w.heardAt, w.heard = s.now, map[string]plan.SwitchPort{}
	for i := range w.ports {
		w.heard[fmt.Sprint("slot", i+1)] = plan.SwitchPort{Enabled: !w.ports[i].isOff, Up: !w.ports[i].isOff && s.blades[i].on}
	}
}

func bladeOf(server string) (i int) {
	_, _ = fmt.Sscanf(server, "atom%d", &i)
	return i - 1
}

// seenSwitches is what the operator knows of it.
func (s *sim) seenSwitches(now time.Time) []plan.Switch {
	if s.isolating == nil || s.isolating.wiring == nil {
		return nil
	}
	w := s.isolating.wiring
	of := plan.Switch{NIC: 1, Address: switchAddress, Name: "slot%d", Ports: w.heard}
	if w.heard != nil {
		of.At = now.Add(-time.Duration(s.now-w.heardAt) * time.Second)
	}
	return []plan.Switch{of}
}

// orderPorts is the keeper's part: what the plan orders is done within a second, if the switch answers.
func (s *sim) orderPorts(made *plan.Plan, current map[string]bool) {
	for _, order := range made.Ports {
		if !current[order.Server] {
			continue
		}
		s.checkPort(order)
		s.isolating.wiring.orders = append(s.isolating.wiring.orders, order)
		s.counts[fmt.Sprint("port ", order.Enabled)]++
	}
}

// isNodeKnown: what runs on a blade is known by its BMC.
func (s *sim) isNodeKnown(i int) bool {
	b := s.behind(i)
	return !b.isNameless && !s.hasTwin(b) && !s.isJustSwapped(b) && s.shift == 0
}

// checkPort: only ports of isolated servers without members are switched off, and only those of the operator are switched on.
func (s *sim) checkPort(order plan.PortOrder) {
	i, of := bladeOf(order.Server), s.isolating.wiring
	b := s.behind(i)
	since := s.servers[i].blockersSince
	switch {
	case order.Name != fmt.Sprint("slot", i+1):
		s.violate("port %s is switched for %s", order.Name, order.Server)
	case order.Enabled && of.ports[i].byOther:
		s.violate("port %s is switched on, and somebody else has switched it off", order.Name)
	case order.Enabled && !s.isIsolatedNow(i, false):
		s.violate("port %s is switched on, and %s is isolated", order.Name, order.Server)
	case !order.Enabled && !s.isIsolatedNow(i, true):
		s.violate("port %s is switched off, and %s is in use", order.Name, order.Server)
	case !order.Enabled && since >= 0 && s.now-since > settle && b.on && s.isNodeKnown(i):
		s.violate("port %s is switched off, and members run on %s", order.Name, order.Server)
	}
}

// checkPower: a server that is isolated loses its port before its power, if the switch answers.
func (s *sim) checkPower(i int, step *plan.Step) {
	w := s.isolating.wiring
	if w == nil || step.Action != bmc.ActionSoft || s.now-w.silentAt <= freshSeconds+2 || s.now-w.ports[i].touchedAt <= decisionLag {
		return
	}
	if change := s.servers[i].object.Status.Change; change.Tries == 1 && !s.isSent && !w.ports[i].isOff {
		s.violate("%s is told %s, and its port is on", s.servers[i].object.Name, step.Action)
	}
}

// checkPortsEnd: the port of an isolated server is off, and that of one in use is as others have left it.
func (s *sim) checkPortsEnd() {
	if s.isolating == nil || s.isolating.wiring == nil || s.shift > 0 {
		return
	}
	for i, of := range s.servers {
		port, isolated := s.isolating.wiring.ports[i], of.object.Spec.Isolated != nil
		status := of.object.Status.Isolation
		isDone := status != nil && status.Stage == v1alpha1.StageIsolated
		switch {
		case isolated && isDone && !port.isOff && s.isNodeKnown(i):
			s.violate("%s is isolated, and its port is on", of.object.Name)
		case !isolated && port.isOff && !port.byOther:
			s.violate("%s is in use, and its port is off: %+v", of.object.Name, status)
		}
	}
}

// TestSimulationOfPorts: whatever fails, and whoever switches ports meanwhile.
func TestSimulationOfPorts(t *testing.T) {
	counts := runSeeds(t, 0, portSeeds, newWired)
	expectMet(t, counts, 20, "port true", "port false", "at the end isolated", "returned")
}

var portBugs = []bug{
	{
		name:     "CutOff: members are not waited for",
		before:   func(_ *sim, o *plan.Observed) { o.Members = nil },
		reported: "members", within: 40, // the port is switched off, or the power after a port that was off
	},
	{
		name: "Forget: nobody records which ports were switched off",
		before: func(_ *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) {
				if isolation := of.Object.Status.Isolation; isolation != nil {
					isolation.Ports = nil
				}
			})
		},
		reported: "is in use, and its port is off", within: 40,
	},
	{
		name: "OpenAll: whatever is off is taken for the operator's doing",
		before: func(_ *sim, o *plan.Observed) {
			servers(o, func(of *plan.Server) {
				if isolation := of.Object.Status.Isolation; isolation != nil && of.Object.Spec.Isolated == nil {
					name := fmt.Sprint("slot", bladeOf(of.Object.Name)+1)
					isolation.Ports = []v1alpha1.IsolatedPort{{NIC: 1, Switch: switchAddress, Name: name}}
				}
			})
		},
		reported: "somebody else has switched it off", within: 60,
	},
	{
		name: "NoOrders: nobody switches ports off",
		after: func(_ *sim, _ *plan.Observed, made *plan.Plan) {
			made.Ports = slices.DeleteFunc(made.Ports, func(p plan.PortOrder) bool { return !p.Enabled })
		},
		reported: "port", within: 40,
	},
	{
		name: "PowerFirst: the port is not waited for",
		before: func(_ *sim, o *plan.Observed) {
			for i := range o.Switches {
				o.Switches[i].At = time.Time{}
			}
			servers(o, func(of *plan.Server) {
				if isolation := of.Object.Status.Isolation; isolation != nil && isolation.PortsSince != nil {
					isolation.PortsSince.Time = isolation.PortsSince.Add(-time.Hour)
				}
			})
		},
		reported: "its port is on", within: 40,
	},
}

// TestPlantedBugsOfPorts: the simulation finds operators that break a rule about ports.
func TestPlantedBugsOfPorts(t *testing.T) { findPlanted(t, portBugs, false, newWired) }
