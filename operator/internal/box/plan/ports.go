package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// portOf is the port of a switch that one of the server's NICs is plugged into.
func (m *machine) portOf(of *Switch) (name string, port SwitchPort, isThere bool) {
	name = strings.Replace(of.Name, "%d", strconv.Itoa(int(m.layout.Slot)), 1)
	port, isThere = of.Ports[name]
	return name, port, isThere
}

// isHeard: the switch has said lately what its ports are.
func (p *planning) isHeard(of *Switch) bool { return !of.At.IsZero() && p.isFresh(of.At) }

func (m *machine) hasClosedPorts() bool {
	return m.next.Isolation != nil && len(m.next.Isolation.Ports) > 0
}

// closePorts switches off the ports of a server that is isolated, and says what it waits for. Each port is on record before it is switched.
// A port that somebody else has switched off is left alone. A switch that does not answer is waited for, but not for ever: the power
// counts.
func (m *machine) closePorts() string {
	isolation := m.next.Isolation
	var waits string
	for i := range m.Switches {
		of := &m.Switches[i]
		name, port, isThere := m.portOf(of)
		at := slices.IndexFunc(isolation.Ports, func(p v1alpha1.IsolatedPort) bool { return p.NIC == of.NIC })
		switch {
		case !m.isHeard(of):
			waits = fmt.Sprintf("waiting for switch %s, which does not say what its ports are%s", of.Address, because(of.Err))
		case !isThere || !port.Enabled:
		default:
			recorded := v1alpha1.IsolatedPort{NIC: of.NIC, Switch: label(of.Address, maxText), Name: name}
			switch {
			case at < 0:
				isolation.Ports = append(isolation.Ports, recorded)
				isolation.PortsSince = stamp(m.now) // a silence that is over does not count
			case isolation.Ports[at] != recorded: // the spec names another switch now
				isolation.Ports[at], isolation.PortsSince = recorded, stamp(m.now)
			}
			m.plan.Ports = append(m.plan.Ports, PortOrder{Server: m.name(), NIC: of.NIC, Name: name})
			waits = fmt.Sprintf("port %s of switch %s is being switched off%s", name, of.Address, because(of.Err))
		}
	}
	switch {
	case waits == "":
		isolation.PortsSince = nil
	case isolation.PortsSince == nil:
		isolation.PortsSince = stamp(m.now)
	case m.elapsed(isolation.PortsSince.Time) > m.Times.Patience:
		return ""
	}
	return waits
}

// openPorts switches on again what was switched off for a server that returns. A port is struck off the record if its switch has no such
// port any more, or the spec no such switch, or once it was seen on. That must be later than the order to return: until then, an earlier
// command to switch it off may be under way.
func (m *machine) openPorts() {
	isolation := m.next.Isolation
	isolation.PortsSince = nil
	isolation.Ports = slices.DeleteFunc(isolation.Ports, func(recorded v1alpha1.IsolatedPort) bool {
		i := slices.IndexFunc(m.Switches, func(of Switch) bool { return of.NIC == recorded.NIC && of.Address == recorded.Switch })
		if i < 0 {
			return true
		}
		of := &m.Switches[i]
		port, isThere := of.Ports[recorded.Name]
		switch {
		case !m.isHeard(of):
			m.portsWait = fmt.Sprintf("waiting for switch %s, which does not say what its ports are%s", of.Address, because(of.Err))
			return false
		case !isThere || port.Enabled && m.next.ReturnedAt != nil && of.At.After(m.next.ReturnedAt.Add(time.Second)):
			return true
		}
		m.plan.Ports = append(m.plan.Ports, PortOrder{Server: m.name(), NIC: of.NIC, Name: recorded.Name, Enabled: true})
		m.portsWait = fmt.Sprintf("port %s of switch %s is being switched on%s", recorded.Name, of.Address, because(of.Err))
		return false
	})
}

// whatOfPorts says what became of the ports of a server that is isolated.
func (m *machine) whatOfPorts() string {
	if len(m.Switches) == 0 {
		return "its switch ports stay on, because spec.switchPorts of the Chassis names none"
	}
	var off, on []string
	for i := range m.Switches {
		of := &m.Switches[i]
		switch name, port, isThere := m.portOf(of); {
		case !m.isHeard(of):
			on = append(on, name+" (its switch does not answer)")
		case !isThere:
			on = append(on, name+" (its switch has no such port)")
		case port.Enabled:
			on = append(on, name)
		default:
			off = append(off, name)
		}
	}
	var all []string
	if len(off) > 0 {
		all = append(all, "its switch ports are off: "+listed(off))
	}
	if len(on) > 0 {
		all = append(all, "its switch ports are not known to be off: "+listed(on))
	}
	return strings.Join(all, "; ")
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + label(err.Error(), maxDetail)
}
