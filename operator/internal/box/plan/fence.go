package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// silentPart: while so many of a chassis' BMCs are silent, one in silentPart, the network is ill rather than a server.
const silentPart = 4

// FenceRequest is a Store's wish that the server of a lost node is off, and stays so.
type FenceRequest struct {
	Namespace, Store string
	Node             string
	// SystemUUID is that of the node's machine when the Store asked.
	SystemUUID string
	// Since is when this controller put on record that the Store asks for it: only what is seen afterwards proves anything.
	Since time.Time
	// ProvedDead: it is on record in the Store's status that its coordinator has declared its process on the node dead, that nothing is
	// lost by that, and that the operator has decided on this very request.
	ProvedDead bool
}

// by is the Store that requests the fence.
func (r *FenceRequest) by() string { return r.Namespace + "/" + r.Store }

// FenceState is how far a request is.
type FenceState string

// States of a request.
const (
	// FenceRefused: it will not be done unless somebody changes something.
	FenceRefused FenceState = "Refused"
	// FenceWaiting: it may be done later.
	FenceWaiting FenceState = "Waiting"
	// FenceRunning: the server is being switched off, or proof is waited for.
	FenceRunning FenceState = "Running"
	// FenceDone: it is on record that the server was proved to be off after the request.
	FenceDone FenceState = "Done"
)

// FenceVerdict is what became of a request.
type FenceVerdict struct {
	Request FenceRequest
	// Server is empty if the node is that of none.
	Server  string
	State   FenceState
	Message string
	// Proof is there with FenceDone, and SystemGUID is what the server's BMC said.
	Proof      *v1alpha1.OffProof
	SystemGUID string
	// NotYet: this operator has not looked yet, and leaves what an earlier one has said.
	NotYet bool
}

// IsCut says whether a command takes power away on behalf of a Store.
func (s *Step) IsCut() bool {
	return s.Kind == KindPower && s.Action == bmc.ActionOff && s.For == v1alpha1.ForFencing
}

// WhyNotGiven says why a planned command must not be given any more; empty if it may. The command was planned from readings that may be old
// by now; the observation here was made right before the command.
func WhyNotGiven(now time.Time, o *Observed, step *Step) string {
	switch {
	case step.Kind != KindPower || step.Action == bmc.ActionOn:
		return ""
	case step.IsCut():
		return whyNotCut(now, o, step)
	}
	if len(o.Layout.Problems) > 0 {
		return fmt.Sprintf("Chassis %s is not accepted any more", o.Chassis.Name)
	}
	for _, m := range lookAt(now, o).machines {
		if !slices.Contains(step.Servers, m.name()) {
			continue
		}
		if why := m.whyNotWanted(step); why != "" {
			return m.name() + ": " + why
		}
		if isForced(m.Object) {
			continue
		}
		if held := m.held(); held.why != "" {
			return m.name() + ": " + held.why
		}
	}
	return ""
}

// whyNotWanted says why what a command is for is not wanted any more; empty if it is. A command to the whole chassis is also given to
// servers that are as it makes them.
func (m *machine) whyNotWanted(step *Step) string {
	change, order := m.Object.Status.Change, m.spec().Order
	switch {
	case change == nil && step.Manager != "":
		return ""
	case change == nil || change.TriedAt == nil || !change.TriedAt.Time.Equal(step.TriedAt):
		return "another command has taken the place of this one"
	case change.For == v1alpha1.ForOrder && order != nil && (m.next.Order == nil || order.ID != m.next.Order.ID):
		return "another order was given"
	case change.For == v1alpha1.ForIsolation && !m.isIsolated():
		return "the server is not isolated any more"
	case change.For == v1alpha1.ForIsolation:
		return m.whyNotCordoned()
	case change.For == v1alpha1.ForSpec && m.spec().Power != v1alpha1.WantOff:
		return "spec.power is not Off any more"
	}
	return ""
}

// IsForced says whether the order that a command carries out is forced, so that members of Stores do not count.
func (s *Step) IsForced(o *Observed) bool {
	return !slices.ContainsFunc(o.Servers, func(server Server) bool {
		return slices.Contains(s.Servers, server.Object.Name) && !isForced(server.Object)
	})
}

func isForced(server *v1alpha1.Server) bool {
	change, order, recorded := server.Status.Change, server.Spec.Order, server.Status.Order
	return change != nil && change.For == v1alpha1.ForOrder && order != nil && recorded != nil && order.ID == recorded.ID && order.Force
}

func whyNotCut(now time.Time, o *Observed, step *Step) string {
	why := "no Store requests a fence of the node of " + step.Servers[0] + " any more"
	for _, verdict := range Make(now, o).Fences {
		if verdict.Server != step.Servers[0] {
			continue
		}
		if verdict.State == FenceRunning {
			return ""
		}
		why = verdict.Message
	}
	return why
}

// judgeFences says what becomes of each request, before anything else is decided.
func (p *planning) judgeFences() {
	for i := range p.Requests {
		request := &p.Requests[i]
		if at := metav1.NewTime(request.Since); p.isToCome(&at) { // the clock was set back since it was accepted: accept it anew
			corrected := *request
			corrected.Since = stamp(p.now).Add(time.Second)
			request = &corrected
		}
		verdict := FenceVerdict{Request: *request}
		m := p.serverOf(request)
		if m == nil {
			verdict.State, verdict.Message = FenceWaiting, fmt.Sprintf(
				"no BMC of Chassis %s reports the system GUID of node %s", p.Chassis.Name, request.Node)
		} else {
			verdict.Server, verdict.NotYet = m.name(), m.Identity == nil
			verdict.State, verdict.Message = m.judge(request)
			if m.guidTwin != "" { // both Chassis may write this verdict, and have to agree
				verdict.Server = ""
			}
		}
		if verdict.State == FenceDone {
			verdict.Proof, verdict.SystemGUID = m.Object.Status.LastOff, strings.ToLower(m.Identity.SystemGUID)
		}
		verdict.Message = cut(verdict.Message)
		p.plan.Fences = append(p.plan.Fences, verdict)
	}
}

// serverOf finds the server that a node runs on: before its BMC has said what it is, the one that is on record. Of two servers with the
// node's GUID, the one that is kept off is it, so that it stays off.
func (p *planning) serverOf(request *FenceRequest) *machine {
	var found *machine
	for _, m := range p.machines {
		isNodes := m.node != nil && m.node.Name == request.Node
		isOnRecord := m.Identity == nil && (m.Object.Status.Node == request.Node || bmc.SameSystem(m.guid(), request.SystemUUID))
		isTwin := m.guidTwin != "" && bmc.SameSystem(m.guid(), request.SystemUUID)
		if (isNodes || isOnRecord || isTwin) && (found == nil || isKeptOff(m.next.Change)) {
			found = m
		}
	}
	return found
}

func (m *machine) judge(request *FenceRequest) (FenceState, string) {
	recorded := &m.Object.Status
	isHeld := isKeptOff(recorded.Change)
	state, why := m.whyNotFenced(request)
	m.isAsked = m.isAsked || state != FenceRefused
	if state == FenceRefused || why != "" && !isHeld {
		return state, why
	}
	if m.fence == nil || request.Since.After(m.fence.Since) {
		m.fence = request
	}
	m.mayCut = m.mayCut || why == ""
	proved := m.next.LastOff // the recorded proof, unless its time is in the future
	isSeenOn := slices.ContainsFunc(m.sights, func(s sight) bool { return s.Power == bmc.PowerOn })
	switch {
	case m.guidTwin != "":
		return FenceWaiting, why
	case isHeld && m.node != nil && proved != nil && !proved.At.Time.Before(request.Since) && !isSeenOn:
		return FenceDone, fmt.Sprintf("%s is off, proved at %s", m.name(), proved.At.UTC().Format(time.RFC3339))
	case why != "":
		return FenceWaiting, why
	}
	return FenceRunning, fmt.Sprintf("%s is being switched off: %s", m.name(), m.whatIsSeen())
}

// whyNotFenced says why its power may not be taken away for a request; empty if it may.
func (m *machine) whyNotFenced(request *FenceRequest) (FenceState, string) {
	switch {
	case m.guidTwin != "":
		return FenceWaiting, m.whyTwins(request.Node)
	case len(m.Layout.Problems) > 0:
		return FenceRefused, fmt.Sprintf("Chassis %s is not accepted", m.Chassis.Name)
	case !slices.Contains(m.Chassis.Spec.Fencing.Namespaces, request.Namespace):
		return FenceRefused, fmt.Sprintf("spec.fencing.namespaces of Chassis %s does not list namespace %s", m.Chassis.Name,
			request.Namespace)
	}
	if why := m.whyNotFenceable(); why != "" {
		return FenceWaiting, why
	}
	if request.SystemUUID != "" && !bmc.SameSystem(request.SystemUUID, m.node.SystemUUID) {
		return FenceRefused, fmt.Sprintf("node %s was machine %s when Store %s asked, and is %s now", m.node.Name, request.SystemUUID,
			request.Store, m.node.SystemUUID)
	}
	if !m.isFresh(m.IdentityAt) { // another blade may be in the slot by now
		m.isDoubted = true
		return FenceWaiting, fmt.Sprintf("the BMC of %s is asked for the system GUID once more", m.name())
	}
	if why := m.whyAlive(request); why != "" {
		return FenceWaiting, why
	}
	if silent := m.countSilent(); silent*silentPart >= len(m.machines) {
		return FenceWaiting, fmt.Sprintf("%d of %d BMCs of Chassis %s do not answer, which points to a fault of the network, not of a "+
			"server", silent, len(m.machines), m.Chassis.Name)
	}
	return "", ""
}

// whyAlive says why a node may still be alive; empty if nothing indicates that. On a node that is not Ready, perhaps only the kubelet has
// failed. So while a process of another Store serves there, the node keeps its power, unless that Store requests the fence, too.
//
// A node that is still Ready needs more evidence. The coordinator's verdict alone is not enough, because perhaps only the network between
// two processes has failed. The silence of the kubelet alone is not enough either, because it may be restarting. And the node must be
// silent, not the network: another node counts as heard only if a renewal of its Lease was seen, by the clock as it is set now.
func (m *machine) whyAlive(request *FenceRequest) string {
	node := m.node
	switch {
	case !node.Ready:
		return m.whyServing(request)
	case !request.ProvedDead:
		return fmt.Sprintf("node %s is Ready, and the status of Store %s does not say that its member there is proved dead", node.Name,
			request.Store)
	case node.Cordoned:
		return fmt.Sprintf("node %s is Ready, and cordoned: somebody may be working on it", node.Name)
	case !m.isSilentNode(node):
		return fmt.Sprintf("node %s is Ready, and its kubelet renews its Lease", node.Name)
	case len(node.Alive) > 0:
		return fmt.Sprintf("node %s is Ready, and %s there is not declared dead", node.Name, node.Alive[0])
	}
	others := 0
	for i := range m.Nodes {
		other := &m.Nodes[i]
		if other != node && other.Ready && (other.SilentFrom.IsZero() || m.isSilentNode(other)) {
			others++
		}
	}
	if others*silentPart >= len(m.Nodes) {
		return fmt.Sprintf("node %s is Ready, and other Ready nodes are not heard either (%d), which points to a fault of the network, "+
			"not of a node", node.Name, others)
	}
	return ""
}

// whyServing names a serving process of another Store on a node that is not Ready, unless that Store requests the fence, too; empty if
// there is none.
func (m *machine) whyServing(request *FenceRequest) string {
	for _, process := range m.node.Serving {
		isAsked := process.Store == request.by() || slices.ContainsFunc(m.Requests, func(other FenceRequest) bool {
			return other.Node == m.node.Name && other.by() == process.Store &&
				slices.Contains(m.Chassis.Spec.Fencing.Namespaces, other.Namespace)
		})
		if !isAsked {
			return fmt.Sprintf("node %s is not Ready, and %s of Store %s there serves, as its coordinator says", m.node.Name, process.Name,
				process.Store)
		}
	}
	return ""
}

// isSilentNode: its kubelet has missed a renewal of its Lease.
func (p *planning) isSilentNode(node *Node) bool {
	return !node.SilentFrom.IsZero() && !p.now.Before(node.SilentFrom)
}

// countSilent counts BMCs that have not answered lately; one that this operator has not asked yet is one of them.
func (p *planning) countSilent() int {
	silent := 0
	for _, m := range p.machines {
		if !p.answers(&m.MMC) {
			silent++
		}
	}
	return silent
}

// whyNotFenceable says why its power can never be taken away with proof; empty if it can.
func (m *machine) whyNotFenceable() string {
	switch {
	case m.Identity == nil:
		return fmt.Sprintf("the system GUID of the BMC of %s has not been read yet", m.name())
	case !m.hasGUID():
		return fmt.Sprintf("the BMC of %s reports no system GUID that identifies it", m.name())
	case m.guidTwin != "":
		return m.whyTwins("")
	case len(m.rivals) > 1:
		return fmt.Sprintf("%d nodes, such as %s and %s, have the system GUID %s of %s", len(m.rivals), m.rivals[0].Name, m.rivals[1].Name,
			m.Identity.SystemGUID, m.name())
	case m.node == nil:
		return fmt.Sprintf("no node has the system GUID %s of %s", m.Identity.SystemGUID, m.name())
	case !m.isProvable():
		return fmt.Sprintf("%s has no second witness: %s", m.name(), m.whyNoWitness())
	}
	return ""
}

// followFence takes the power away, and keeps it away until nobody asks for that any more.
func (m *machine) followFence() {
	by := m.fence.by()
	if m.isOrderOpen() {
		state := v1alpha1.OrderFailed
		if m.next.Order.State == v1alpha1.OrderWaiting {
			state = v1alpha1.OrderRefused
		}
		if m.isReached(m.next.Order.Action) {
			state = v1alpha1.OrderDone
		}
		m.endOrder(
			state,
			"Store %s keeps the server off, because its node is lost: give the order again after the Store has recovered",
			by,
		)
	}
	if !isKeptOff(m.next.Change) {
		m.begin(v1alpha1.ForFencing, v1alpha1.StageSwitchingOff)
	}
	m.waits = "Store " + by + " keeps the server off, because its node is lost"
	if m.mayCut {
		m.drive()
	}
}

// isKeptOff: the power is taken away, or was, on behalf of a Store.
func isKeptOff(change *v1alpha1.PowerChange) bool {
	return change != nil && change.For == v1alpha1.ForFencing && change.Stage == v1alpha1.StageSwitchingOff
}

// isToReturn says whether a server that no Store asks to be kept off any more is to be switched on for that: one whose power was taken away
// by a Store's word, unless the Chassis or spec.power says otherwise. One that was off before stays so, and so does another blade.
func (m *machine) isToReturn() bool {
	change := m.next.Change
	switch {
	case change == nil || change.For != v1alpha1.ForFencing || m.isOrderOpen():
		return false
	case m.spec().Power == v1alpha1.WantOff || m.Chassis.Spec.Fencing.Afterwards == v1alpha1.FencedStaysOff:
		return false
	case m.Identity != nil && m.node == nil:
		return false
	}
	return change.Stage == v1alpha1.StageSwitchingOn || change.Tries > 0
}

// followReturn switches it on.
func (m *machine) followReturn() {
	if m.Identity == nil || m.isAsked { // what is in the slot is not known yet, or a Store waits for its power to be taken away
		return
	}
	if !m.isFresh(m.IdentityAt) {
		m.isDoubted = true // another blade may be in the slot by now, whose node a Store has lost
		return
	}
	if m.next.Change.Stage != v1alpha1.StageSwitchingOn {
		m.begin(v1alpha1.ForFencing, v1alpha1.StageSwitchingOn)
	}
	result, text := m.drive()
	m.waits = text
	if result == reached {
		m.next.Change = nil
	}
}
