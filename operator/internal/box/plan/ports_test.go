package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// wired is a scene whose servers are plugged into a switch.
func wired() *scene {
	s := newScene(bmc.PowerOn)
	s.Switches = []plan.Switch{{NIC: 1, Address: switchAddress, Name: "Gi0/%d", Ports: map[string]plan.SwitchPort{}}}
	for n := range 5 {
		s.Switches[0].Ports[fmt.Sprint("Gi0/", n+1)] = plan.SwitchPort{Enabled: true, Up: true}
	}
	s.Switches[0].At = s.now
	s.isolate(true)
	s.plan()
	s.carryOut()
	return s
}

// after lets time pass in which the switch says again what it said.
func (s *scene) after(d time.Duration) {
	s.Switches[0].At = s.now.Add(d)
	s.pass(d)
}

func portOrders(made plan.Plan) string {
	var all []string
	for _, order := range made.Ports {
		all = append(all, fmt.Sprint(order.Server, " ", order.NIC, " ", order.Name, " ", order.Enabled))
	}
	return strings.Join(all, ", ")
}

// First the port, then the power; and back in the opposite order.
func TestPortsOfIsolation(t *testing.T) {
	s := wired()
	s.after(time.Second)
	expect(t, portOrders(s.made), "atom003 1 Gi0/3 false")
	expect(t, steps(s.made), "")
	expect(t, s.condition("Isolated"), "False DisablingPorts: ECC errors; port Gi0/3 of switch 192.168.5.211 is being switched off")
	s.Switches[0].Ports["Gi0/3"] = plan.SwitchPort{}
	s.after(time.Second)
	expect(t, portOrders(s.made), "")
	expect(t, steps(s.made), "Soft atom003")
	s.see(2, bmc.PowerOff, bmc.PowerOff)
	s.after(time.Second)
	expect(t, s.condition("Isolated"), "True Isolated: ECC errors; it is off, as two witnesses say; its switch ports are off: "+
		"Gi0/3; kubectl")

	s.isolate(false)
	s.after(time.Second)
	expect(t, portOrders(s.made), "atom003 1 Gi0/3 true")
	expect(t, steps(s.made), "")
	expect(t, s.condition("Isolated"), "False Returning: ECC errors; port Gi0/3 of switch 192.168.5.211 is being switched on")
	s.Switches[0].Ports["Gi0/3"] = plan.SwitchPort{Enabled: true}
	s.after(3 * time.Second)
	expect(t, portOrders(s.made), "")
	expect(t, steps(s.made), "On atom003")
}

// What speaks against switching a port, or keeps the isolation from waiting for it.
func TestPortsThatAreNotSwitched(t *testing.T) {
	const patience = 11 * time.Minute
	for name, test := range map[string]struct {
		change func(s *scene)
		// says is the condition at first, and ordered what is done to ports and power at once, and after a long time.
		says, ordered, later string
	}{
		"somebody else has switched it off": {
			func(s *scene) { s.Switches[0].Ports["Gi0/3"] = plan.SwitchPort{} }, "False SwitchingOff", " Soft atom003", " Soft atom003",
		},
		"there is none": {
			func(s *scene) { delete(s.Switches[0].Ports, "Gi0/3") }, "False SwitchingOff", " Soft atom003", " Soft atom003",
		},
		"the switch is silent": {
			func(s *scene) { s.Switches[0].At, s.Switches[0].Err = time.Time{}, errors.New("request timeout") },
			"False DisablingPorts: ECC errors; waiting for switch 192.168.5.211, which does not say what its ports are: request timeout",
			" ", " Soft atom003",
		},
		"the switch refuses": {
			func(s *scene) { s.Switches[0].Err = errors.New("noAccess") },
			"False DisablingPorts: ECC errors; port Gi0/3 of switch 192.168.5.211 is being switched off: noAccess",
			"atom003 1 Gi0/3 false ", "atom003 1 Gi0/3 false Soft atom003",
		},
		"a member": {
			leaves(func(*v1alpha1.Store) {}), "False MembersLeave: ECC errors; waiting for db-master-0", " ", " ",
		},
	} {
		s := wired()
		test.change(s)
		isSilent := s.Switches[0].At.IsZero()
		pass := func(d time.Duration) {
			if isSilent {
				s.pass(d)
			} else {
				s.after(d)
			}
		}
		pass(time.Second)
		if got := portOrders(s.made) + " " + steps(s.made); got != test.ordered {
			t.Errorf("%s: %q", name, got)
		}
		if got := s.condition("Isolated"); !strings.HasPrefix(got, test.says) {
			t.Errorf("%s: %s", name, got)
		}
		s.Servers[2].Object = s.Servers[2].Object.DeepCopy()
		if test.ordered != test.later {
			pass(patience)
			if got := portOrders(s.made) + " " + steps(s.made); got != test.later {
				t.Errorf("%s, later: %q", name, got)
			}
		}
	}
}

// A server that returns waits for its switch; one whose switch was taken out of the spec does not.
func TestPortsOfTheReturning(t *testing.T) {
	begin := func() *scene {
		s := wired()
		s.after(time.Second)
		s.Switches[0].Ports["Gi0/3"] = plan.SwitchPort{}
		s.after(time.Second)
		s.see(2, bmc.PowerOff, bmc.PowerOff)
		s.after(time.Second)
		s.isolate(false)
		return s
	}
	s := begin()
	s.pass(time.Hour)
	expect(t, steps(s.made), "")
	expect(t, s.condition("Isolated"), "False Returning: ECC errors; waiting for switch 192.168.5.211, which does not say what "+
		"its ports are")
	s.after(time.Second)
	expect(t, portOrders(s.made), "atom003 1 Gi0/3 true")

	s = begin()
	s.Switches = nil
	s.pass(time.Second)
	expect(t, steps(s.made), "On atom003")

	// The spec names another switch while the server is isolated: its port there is switched off, and on again.
	s = begin()
	s.isolate(true)
	s.Switches[0].Address = "192.168.5.212"
	s.Switches[0].Ports["Gi0/3"] = plan.SwitchPort{Enabled: true}
	s.after(time.Second)
	expect(t, portOrders(s.made), "atom003 1 Gi0/3 false")
	s.Switches[0].Ports["Gi0/3"] = plan.SwitchPort{}
	s.after(time.Second)
	s.isolate(false)
	s.after(time.Second)
	expect(t, portOrders(s.made), "atom003 1 Gi0/3 true")

	// A reading from before proves nothing: an earlier command may be under way.
	s = begin()
	s.Switches[0].Ports["Gi0/3"] = plan.SwitchPort{Enabled: true}
	s.Switches[0].At = s.now
	s.pass(time.Second)
	expect(t, portOrders(s.made), "atom003 1 Gi0/3 true")
}
