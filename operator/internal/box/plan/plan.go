// Package plan decides what is done about the power of a chassis' servers, and what their status says. It is pure: it is given the time and
// what was observed, and does nothing itself.
//
// The caller writes each status that differs first, on condition that the Server is still the version that was observed. A
// command is given only if that was so of all of its servers, those included whose status does not differ. Each command comes with at least
// one status that differs: so one that was planned from an outdated view, or that somebody else has given, is not given. It is not begun
// after Step.Until.
package plan

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/model"
)

// Times are the patience of a plan.
type Times struct {
	// Fresh is how long a reading counts.
	Fresh time.Duration
	// Silent is how long a BMC does not answer before it counts as silent.
	Silent time.Duration
	// Step is how long a command may wait for being given.
	Step time.Duration
	// Given is after how long at most a command that was planned is with its controller.
	Given time.Duration
	// Grace is how long after a command was planned it may still take effect, if the model does not know how long a BMC takes. It is given
	// again only after that.
	Grace time.Duration
	// WholeGrace is the same for a command to all servers at once.
	WholeGrace time.Duration
	// Shutdown is how long an operating system has to shut down.
	Shutdown time.Duration
	// Proof is how long a second witness is waited for.
	Proof time.Duration
	// Patience is how long an order waits for a BMC that is silent, or for power.
	Patience time.Duration
	// Gather is how long an order that all servers of the chassis are given waits for the next of them to have it.
	Gather time.Duration
	// Start is how long a server counts as starting, if its model does not know.
	Start time.Duration
}

// DefaultTimes are those of the controller.
var DefaultTimes = Times{
	Fresh: 20 * time.Second, Silent: 20 * time.Second, Step: 5 * time.Second, Given: 15 * time.Second, Grace: 30 * time.Second,
	WholeGrace: 3 * time.Minute, Shutdown: 5 * time.Minute, Proof: time.Minute, Patience: 10 * time.Minute, Start: time.Minute,
	Gather: 3 * time.Second,
}

// Observed is a chassis as it was last seen.
type Observed struct {
	Times   Times
	Chassis *v1alpha1.Chassis
	Layout  *layout.Layout
	// Taken are names that Servers of somebody else have, so that the slot has none. What is in it is neither known nor switched.
	Taken []string
	// Servers are those of the layout, in its order.
	Servers []Server
	// Managers are the chassis managers, in the order of the spec.
	Managers []Manager
	// SwitchBoards are the controllers of switch boards, in the order of the spec.
	SwitchBoards []Manager
	// Switches are those that the servers' NICs are plugged into, in the order of the spec.
	Switches []Switch
	Nodes    []Node
	// Members of Stores that may not be switched off, by the node that they run on.
	Members  map[string][]Blocker
	Requests []FenceRequest
	// JumpedAt is when this operator's clock was set last, in the time that it was set to; zero: this operator knows of no such change.
	// Readings from before that are gone, and earlier recorded times say little about how long ago something happened.
	JumpedAt time.Time
	// Strangers asked box hosts for addresses in networks of this Chassis, and are known by no Server; ordered by MAC.
	Strangers []v1alpha1.StrangerStatus
	// BoxHosts are to serve the networks of this Chassis; nil: the cluster has none.
	BoxHosts *BoxHosts
	// ElsewhereMACs are those of servers of other Chassis, with the name of the server.
	ElsewhereMACs map[string]string
	// ElsewhereGUIDs are the system GUIDs that BMCs of servers of other Chassis report, or have reported last.
	ElsewhereGUIDs []GUIDOf
}

// Contact is how a controller answers.
type Contact struct {
	// AskedAt is when this operator has asked it last; zero: never.
	AskedAt time.Time
	// AnsweredAt is when this operator had an answer last; zero: never.
	AnsweredAt time.Time
	// Err is what became of the last attempt.
	Err error
	// Refused is the login of the last attempt, if the controller refused it.
	Refused *v1alpha1.RefusedLogin
}

// Sight is what a witness has seen, and when it was asked.
type Sight struct {
	Power bmc.Power
	At    time.Time
}

// Server is a server as it was last seen.
type Server struct {
	// Object is the Server as it is on record.
	Object *v1alpha1.Server
	// MMC is its BMC, and Power what that says.
	MMC   Contact
	Power Sight
	// Link is that of its port at the switch. One that is up proves nothing: a server that is off may be woken up by it.
	Link Sight
	// Identity is nil until it was read, and IdentityAt is when its BMC was asked for it.
	Identity   *bmc.Identity
	IdentityAt time.Time
	Sensors    []bmc.Sensor
	// Log has the newest entries of the BMC's event log; nil: the log was not read.
	Log []bmc.LogEntry
	// Answer is what the controller said to the last command; nil if that is not known.
	Answer *Answer
	// LightAnswer and BootAnswer are the same of commands about its light, and about what it boots from.
	LightAnswer, BootAnswer *Answer
}

// Manager is a chassis manager, or the controller of a switch board, as it was last seen.
type Manager struct {
	Contact

	// Name is that of a switch board, such as mercury1onm. Managers have none, for which of them is in charge changes.
	Name    string
	Address string
	// Sensors, as read at SensorsAt.
	Sensors   []bmc.Sensor
	SensorsAt time.Time
	// NotGiven are the times (TriedAt) of commands to start all servers that it was never given, of those with Step.IsOnlyStart.
	NotGiven []time.Time
}

// Switch is a switch as it was last seen.
type Switch struct {
	NIC int32
	// Address is that of the switch, and Name that of its ports, in which %d stands for the slot.
	Address, Name string
	// At is when it was asked for Ports; zero: it has not answered. Err is what became of the last attempt.
	At    time.Time
	Err   error
	Ports map[string]SwitchPort
}

// SwitchPort is a port of a switch: what an administrator wants, and whether it has a link.
type SwitchPort struct{ Enabled, Up bool }

// PortOrder is a port of a switch that is to be switched.
type PortOrder struct {
	Server  string
	NIC     int32
	Name    string
	Enabled bool
}

// Node is a node of Kubernetes.
type Node struct {
	Name       string
	SystemUUID string
	// BootID is the start of its system that its kubelet has reported last.
	BootID   string
	Ready    bool
	Cordoned bool
	// Found is what its system has found in its blade; nil without a report.
	Found *Found
	// CordonedFor is the isolated server that the box controller has cordoned it for; empty if it has not.
	CordonedFor string
	// SilentFrom is when its kubelet counts as silent unless it is heard before, by this controller's own clock; zero: that is not known.
	SilentFrom time.Time
	// Alive are processes of Stores on it that no coordinator has declared dead, each with the name of its Store.
	Alive []string
	// Serving are the serving processes of Stores on the node: masters that serve according to their coordinators, and coordinators that
	// answer.
	Serving []Process
}

// Process is a process of a Store: the Store's namespace and name, and a description of the process.
type Process struct{ Store, Name string }

// Blocker is a master or a coordinator of a Store that may not be switched off.
type Blocker struct {
	// Store is its namespace and name, and Member the member's name, or which of the coordinators it is.
	Store, Member string
	IsCoordinator bool
	// Why it may not, and what is to be done.
	Why string
	// WaitsFor is what it waits for while it leaves a node that is drained.
	WaitsFor string
	// Loses is what is lost if it is switched off all the same.
	Loses string
}

// GUIDOf is the system GUID that a server's BMC reports.
type GUIDOf struct{ Server, SystemGUID string }

// Answer is what a controller said to a command.
type Answer struct {
	// TriedAt is that of the status that went with the command.
	TriedAt time.Time
	// Err is nil if the controller said yes, which proves nothing.
	Err error
	// Boot is what it has on record about the next start, asked after a yes about that.
	Boot bmc.NextBoot
	// IsOnlyStart is that of the command's Step.
	IsOnlyStart bool
}

// NotGivenError takes the place of a controller's answer if the controller was never given the command. The command had no effect, and does
// not count as an attempt.
type NotGivenError struct{ Err error }

func (e *NotGivenError) Error() string { return e.Err.Error() }

func (e *NotGivenError) Unwrap() error { return e.Err }

// Step is a command to a controller.
type Step struct {
	// Kind says which of Action, Light and Boot it is about.
	Kind   Kind
	Action bmc.Action
	// Light is how long it blinks; 0: it stops.
	Light time.Duration
	// Boot is what is booted from next.
	Boot v1alpha1.BootDevice
	// Servers that it may have an effect on: one, or all of the chassis.
	Servers []string
	// Manager is the address of the chassis manager that it is given to; empty: the server's own BMC.
	Manager string
	// TriedAt is that of the status that goes with the command.
	TriedAt time.Time
	// For is on whose behalf the power is changed; empty for a command that is not about power.
	For v1alpha1.ChangeReason
	// Why, for the log and the event.
	Why string
	// Until is when it is not begun any more.
	Until time.Time
	// IsOnlyStart: it starts all servers, and no earlier command may still start one of them. If it is not given, none of them starts.
	IsOnlyStart bool
}

// Plan is what is to be done, and what is to be on record before.
type Plan struct {
	Steps []Step
	// Orders are given to Servers whose status stays as it is.
	Orders []ServerOrder
	// Servers are the statuses of the Servers, by name.
	Servers map[string]*v1alpha1.ServerStatus
	Chassis *v1alpha1.ChassisStatus
	// Fences are the verdicts on Observed.Requests, in their order.
	Fences []FenceVerdict
	// NodeLabels are labels that nodes are to have, by node.
	NodeLabels map[string]map[string]string
	// Cordons are nodes that are to get no more pods, or pods again. Each is only for a Server whose status is written.
	Cordons []Cordon
	// Ports are to be switched. Each is only for a Server whose status is written.
	Ports []PortOrder
	// Volumes are to be there.
	Volumes []Volume
	// Watch names the servers whose witnesses are to be asked soon, for something waits for them.
	Watch []string
	// Identify names the servers whose BMCs are to be asked once more what they are, for something waits for that.
	Identify []string
}

// planning is a plan in the making.
type planning struct {
	*Observed

	now      time.Time
	model    *model.Model
	machines []*machine
	manager  *Manager
	// byGUID are the servers by a key of their BMCs' system GUIDs.
	byGUID map[string][]*machine
	// found says which blades have found which MAC addresses.
	found hardware.Index
	// figures are what running systems of the chassis have measured, by figure.key.
	figures map[string]map[*machine]int64
	plan    Plan
	// wanted are machines that wait for power, and commands what is given in this plan.
	wanted   []*machine
	commands []command
}

type command struct {
	m      *machine
	action bmc.Action
}

// machine is a server in the making of a plan.
type machine struct {
	*Server
	*planning

	layout *layout.Server
	next   *v1alpha1.ServerStatus
	sights []sight
	power  v1alpha1.PowerState
	// disagree says who contradicts whom; empty if nobody does.
	disagree string
	// node is the one that runs on it, by its BMC's system GUID; rivals are all, where several have that GUID.
	node   *Node
	rivals []*Node
	// guidTwin is another server whose BMC reports its system GUID, too.
	guidTwin string
	// fence is the request that keeps it off; mayCut: its power may be taken away for that now. isAsked: there is one that may come to.
	fence   *FenceRequest
	mayCut  bool
	isAsked bool
	// mayStart: an earlier command may still start it.
	mayStart bool
	// isDoubted: its BMC is to be asked once more what it is.
	isDoubted bool
	// waits is what a change waits for, for messages.
	waits string
	// isolationWaits is what its isolation waits for, and isolationReason why it does not go on; both for the condition.
	isolationWaits, isolationReason string
	// ill is what speaks against its health; nil: nothing is known.
	ill *illness
	// portsWait is what the ports of a server that returns wait for.
	portsWait string
}

// Make plans.
func Make(now time.Time, o *Observed) Plan {
	p := lookAt(now, o)
	p.judgeFences()
	p.takeBackStarts()
	for _, m := range p.machines {
		m.takeBack()
	}
	for _, m := range p.machines {
		if len(o.Layout.Problems) > 0 {
			m.stopFollowing()
		} else {
			m.follow()
			m.followAside()
		}
	}
	p.grant()
	p.giveCommands()
	p.cordonNodes()
	for _, m := range p.machines {
		m.recordProof()
		m.setConditions()
		if m.next.Change != nil || m.isOrderOpen() {
			p.plan.Watch = append(p.plan.Watch, m.name())
		}
		if m.isDoubted {
			p.plan.Identify = append(p.plan.Identify, m.name())
		}
	}
	p.isolateTheIll()
	p.labelNodes()
	p.plan.Volumes = p.volumes()
	p.setChassis()
	return p.plan
}

// lookAt evaluates the observation: the power of each server, and the node that runs on it.
func lookAt(now time.Time, o *Observed) *planning {
	p := &planning{Observed: o, now: now, model: o.Layout.Model}
	if p.model == nil {
		p.model = &model.Model{}
	}
	p.plan.Servers = make(map[string]*v1alpha1.ServerStatus, len(o.Servers))
	p.manager = p.inCharge()
	for i := range o.Servers {
		m := &machine{Server: &o.Servers[i], planning: p, layout: &o.Layout.Servers[i], next: o.Servers[i].Object.Status.DeepCopy()}
		m.correctTimes()
		m.look()
		p.machines = append(p.machines, m)
		p.plan.Servers[m.name()] = m.next
	}
	p.findNodes()
	p.findTwins()
	p.indexFound()
	p.indexFigures()
	return p
}

func (m *machine) name() string { return m.layout.Name }

func (m *machine) spec() *v1alpha1.ServerSpec { return &m.Object.Spec }

// stamp is a time as a status holds it.
func stamp(at time.Time) *metav1.Time {
	t := metav1.NewTime(at.Truncate(time.Second))
	return &t
}

// isAfter says whether something was later than a time on record, which has no fractions of a second.
func isAfter(at time.Time, recorded *metav1.Time) bool {
	return recorded == nil || at.After(recorded.Time)
}

// bySlot is the order in which servers are served.
func bySlot(a, b *machine) int { return cmp.Compare(a.layout.Slot, b.layout.Slot) }

// giveCommands turns commands into steps: one to the chassis manager where that does the same as one to each server.
func (p *planning) giveCommands() {
	if p.isForAll() {
		step := p.newStep(p.commands[0])
		step.Manager, step.Servers = p.manager.Address, nil
		step.IsOnlyStart = step.Action == bmc.ActionOn && !slices.ContainsFunc(p.machines, func(m *machine) bool { return m.mayStart })
		for _, c := range p.commands {
			c.m.next.Change.By = v1alpha1.WitnessCMM
		}
		for _, m := range p.machines { // it may start one that has shut down meanwhile, too
			if step.Action == bmc.ActionOn {
				m.next.Power.MayStartUntil, m.next.LastOff = p.startsUntil(step.TriedAt), nil
			}
			step.Servers = append(step.Servers, m.name())
		}
		p.plan.Steps = append(p.plan.Steps, step)
		return
	}
	for _, c := range p.commands {
		p.plan.Steps = append(p.plan.Steps, p.newStep(c))
	}
}

func (p *planning) newStep(c command) Step {
	change := c.m.next.Change
	return Step{
		Action: c.action, Servers: []string{c.m.name()}, Until: p.now.Add(p.Times.Step), TriedAt: change.TriedAt.Time,
		For: change.For,
		Why: string(change.Stage) + " for " + string(change.For),
	}
}

// isForAll: one action, for the first time, that is asked for of all servers of the chassis, and that the chassis manager knows.
func (p *planning) isForAll() bool {
	if p.manager == nil || len(p.commands) < 2 {
		return false
	}
	action := p.commands[0].action
	given := map[*machine]bool{}
	for _, c := range p.commands {
		// The last look before power is taken away is for one reason.
		isOther := action != bmc.ActionOn && c.m.next.Change.For != p.commands[0].m.next.Change.For
		if c.action != action || c.m.next.Change.Tries != 1 || isOther {
			return false
		}
		given[c.m] = true
	}
	return p.model.SwitchesAll(v1alpha1.PowerAction(action.String())) && p.suitsAll(action, given)
}

// suitsAll: those that the command is not meant for are so already as it makes them, and somebody wants that.
func (p *planning) suitsAll(action bmc.Action, given map[*machine]bool) bool {
	if len(p.Taken) > 0 { // it would have an effect on these, too
		return false
	}
	for _, m := range p.machines {
		isMeant := given[m] || action == bmc.ActionOn && m.power == v1alpha1.PowerOn && m.isWanted(v1alpha1.WantOn, v1alpha1.ActionOn) ||
			action == bmc.ActionSoft && m.power == v1alpha1.PowerOff && m.isWanted(
				v1alpha1.WantOff,
				v1alpha1.ActionSoft,
				v1alpha1.ActionOff,
			)
		if !isMeant {
			return false
		}
	}
	return true
}

// isWanted: its spec or its last order says so, and nothing else is going on.
func (m *machine) isWanted(spec v1alpha1.WantedPower, actions ...v1alpha1.PowerAction) bool {
	if m.next.Change != nil || m.fence != nil || m.isIsolated() {
		return false
	}
	order := m.spec().Order
	return m.spec().Power == spec || m.spec().Power == v1alpha1.WantUnmanaged && order != nil && slices.Contains(actions, order.Action)
}
