package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	// installPrefix begins the ids of orders that this controller gives; the number of the attempt follows.
	installPrefix = "install-"
	// maxInstalls is how often a server is tried.
	maxInstalls = 3
	// installTime is how long a server has to become a node once it was started.
	installTime = 30 * time.Minute
	// installPause is the pause after an attempt that has failed early, for each attempt so far.
	installPause = 2 * time.Minute
	// fewSilent: no server is installed while more than one in so many BMCs of the chassis is silent.
	fewSilent = 4
)

// ServerOrder is an order that the controller gives a server by itself, as a user would: spec.boot first, then spec.order; or
// spec.isolated. It is given only if the Server is still the version that was observed.
type ServerOrder struct {
	Server  string
	Boot    *v1alpha1.BootOrder
	Power   *v1alpha1.PowerOrder
	Isolate *v1alpha1.ServerIsolationSpec
}

// installState is how far a server is.
type installState int

const (
	// installDone: it is a node, or was one.
	installDone installState = iota
	// installOut: somebody wants it to be off, or isolated.
	installOut
	// installHeld: something speaks against installing it, which somebody has to change.
	installHeld
	// installDue: an attempt may begin.
	installDue
	// installRunning: an attempt is under way.
	installRunning
	// installFailed: it was tried often enough.
	installFailed
)

// installation is how far a server is in being installed.
type installation struct {
	state installState
	// why it is held, or has failed.
	why string
	// next is the order that comes next; nil: something is waited for.
	next *ServerOrder
}

// install gives orders to servers that are to be installed without hands, and says how far that is.
func (p *planning) install(next *v1alpha1.ChassisStatus, services verdict) {
	if p.Chassis.Spec.Boot.Install != v1alpha1.InstallNew {
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ConditionInstalled)
		return
	}
	lists := map[installState][]string{}
	var due []*installation
	var started []ServerOrder
	running := 0
	for _, m := range p.machines {
		found := m.installation()
		name := m.name()
		if found.why != "" {
			name += " (" + found.why + ")"
		}
		lists[found.state] = append(lists[found.state], name)
		switch found.state {
		case installRunning:
			running++
			if found.next != nil {
				started = append(started, *found.next)
			}
		case installDue:
			due = append(due, &found)
		case installDone, installOut, installHeld, installFailed:
		}
	}
	gate := p.whyNoInstall(next, services)
	if gate == "" {
		p.plan.Orders = append(p.plan.Orders, started...)
		for _, of := range due[:min(len(due), max(0, int(p.startsAtOnce())-running))] {
			p.plan.Orders = append(p.plan.Orders, *of.next)
		}
	}
	set(&next.Conditions, v1alpha1.ConditionInstalled, p.installed(lists, len(started), gate), next.ObservedGeneration, p.now)
}

// whyNoInstall says why no attempt may begin; empty: one may.
func (p *planning) whyNoInstall(next *v1alpha1.ChassisStatus, services verdict) string {
	switch {
	case len(p.Layout.Problems) > 0:
		return "the Chassis is not accepted"
	case int(next.Servers.Silent)*fewSilent > len(p.machines):
		return fmt.Sprintf("%d of %d BMCs are silent", next.Servers.Silent, len(p.machines))
	case services.status != metav1.ConditionTrue:
		return "box hosts do not serve: " + services.message
	}
	return ""
}

// installed is the condition.
func (p *planning) installed(lists map[installState][]string, started int, gate string) verdict {
	done := fmt.Sprintf("%d of %d servers are nodes", len(lists[installDone]), len(p.machines)-len(lists[installOut]))
	switch {
	case len(lists[installFailed]) > 0:
		return no("Failed", done+"; these did not become nodes: "+listed(lists[installFailed])+"; look at the console (kubectl rcbox "+
			"console SERVER), then kubectl rcbox pxeboot SERVER, and restart it")
	case len(lists[installDue])+started > 0 && gate != "":
		return no("Waits", done+"; others wait, because "+gate)
	case len(lists[installDue])+len(lists[installRunning]) > 0:
		return no("Installing", done+"; others are being installed: "+listed(slices.Concat(lists[installRunning], lists[installDue])))
	case len(lists[installHeld]) > 0:
		return no("Held", done+"; these are not installed: "+listed(lists[installHeld]))
	}
	return yes("AllAreNodes", done)
}

// attempt is the number of the attempt that an order belongs to; 0: it is somebody else's order.
func attempt(id string) int {
	number, isOurs := strings.CutPrefix(id, installPrefix)
	n, err := strconv.Atoi(number)
	if !isOurs || err != nil || n < 1 {
		return 0
	}
	return n
}

func (m *machine) isNode() bool {
	status := &m.Object.Status
	return status.Join != nil && status.Join.State == v1alpha1.JoinJoined || status.Node != "" ||
		slices.ContainsFunc(m.Nodes, func(node Node) bool { return node.Name == m.name() })
}

// installation finds out how far a server is: all of that is on record in its spec and its status.
func (m *machine) installation() installation {
	spec, status := m.spec(), &m.Object.Status
	switch {
	case m.isNode():
		return installation{state: installDone}
	case spec.Isolated != nil || status.Isolation != nil || spec.Power == v1alpha1.WantOff:
		return installation{state: installOut}
	case m.isOrderedOff():
		return installation{state: installHeld, why: "somebody has ordered " + string(spec.Order.Action)}
	case !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAsRecorded):
		return installation{state: installHeld, why: "its blade is not known to be the accepted one"}
	case spec.Boot == nil:
		return m.firstInstall()
	case attempt(spec.Boot.ID) == 0:
		return installation{state: installHeld, why: "somebody has ordered what it boots from"}
	}
	return m.followInstall(attempt(spec.Boot.ID))
}

// isOrderedOff: the last order about its power is a person's, to switch it off. It stays off until somebody orders something else.
func (m *machine) isOrderedOff() bool {
	order := m.spec().Order
	return order != nil && attempt(order.ID) == 0 && (order.Action == v1alpha1.ActionOff || order.Action == v1alpha1.ActionSoft)
}

// firstInstall: nobody has ordered anything yet.
func (m *machine) firstInstall() installation {
	held := func(why string) installation { return installation{state: installHeld, why: why} }
	switch {
	case !m.answers(&m.MMC):
		return held("its BMC does not answer")
	case !slices.ContainsFunc(m.Object.Status.Ports, func(port v1alpha1.PortStatus) bool { return port.MAC != "" && port.Address != "" }):
		return held("no port has both an address and a known MAC")
	case m.next.Power.State != v1alpha1.PowerOff:
		return held("it is not off, so somebody may use it: switch it off, or kubectl rcbox pxeboot it")
	}
	return installation{state: installDue, next: m.beginInstall(1)}
}

func (m *machine) beginInstall(n int) *ServerOrder {
	return &ServerOrder{Server: m.name(), Boot: &v1alpha1.BootOrder{ID: installPrefix + strconv.Itoa(n), Device: v1alpha1.BootNetwork}}
}

// followInstall: the order to boot from the network first, then the order to start, then a node.
func (m *machine) followInstall(n int) installation {
	spec, status := m.spec(), &m.Object.Status
	running := installation{state: installRunning}
	if status.Boot == nil || status.Boot.ID != spec.Boot.ID {
		return running
	}
	switch status.Boot.State {
	case v1alpha1.OrderWaiting, v1alpha1.OrderRunning:
		return running
	case v1alpha1.OrderFailed, v1alpha1.OrderRefused:
		return m.installAgain(n, "its BMC was not told to boot from the network: "+status.Boot.Message, status.Boot.Since.Time)
	case v1alpha1.OrderDone:
	}
	switch {
	case m.isOrderOpen():
		return running
	case spec.Order == nil || attempt(spec.Order.ID) != n:
		if by := status.Order; spec.Order != nil && by != nil && by.Since != nil && by.Since.After(status.Boot.Since.Time) {
			return installation{state: installHeld, why: "somebody has ordered " + string(spec.Order.Action) + " meanwhile"}
		}
		running.next = &ServerOrder{Server: m.name(), Power: &v1alpha1.PowerOrder{ID: spec.Boot.ID, Action: m.startAction()}}
		return running
	case status.Order == nil || status.Order.ID != spec.Order.ID || status.Order.Since == nil:
		return running
	case status.Order.State == v1alpha1.OrderFailed || status.Order.State == v1alpha1.OrderRefused:
		return m.installAgain(n, "it was not started: "+status.Order.Message, status.Order.Since.Time)
	case m.now.Before(status.Order.Since.Add(installTime)):
		return running
	}
	return m.installAgain(n, fmt.Sprintf("it is no node %s after it was started", installTime), status.Order.Since.Time)
}

// startAction: a server that is on from an attempt before is started anew.
func (m *machine) startAction() v1alpha1.PowerAction {
	if m.next.Power.State == v1alpha1.PowerOff {
		return v1alpha1.ActionOn
	}
	return v1alpha1.ActionCycle
}

// installAgain: an attempt has failed.
func (m *machine) installAgain(n int, why string, since time.Time) installation {
	switch {
	case n >= maxInstalls:
		return installation{state: installFailed, why: why}
	case m.now.Before(since.Add(time.Duration(n) * installPause)):
		return installation{state: installRunning, why: why}
	}
	return installation{state: installDue, why: why, next: m.beginInstall(n + 1)}
}
