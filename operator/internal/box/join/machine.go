package join

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	// maxMessage is the length of a message in a status.
	maxMessage = 300
	// lookAgain is the pause until a request that had to wait is looked at again.
	lookAgain = 5 * time.Second
)

// machine is a Server in the making of a plan.
type machine struct {
	*planning

	server *v1alpha1.Server
	// join is what is to be on record; nil: the Server is not to boot from the network.
	join *v1alpha1.JoinStatus
	// request is the one that join names, if it was seen.
	request *Request
	// mayApprove: that request is good now.
	mayApprove bool
	// stranger is another machine that has become the node of this Server's name.
	stranger string
}

func newMachine(p *planning, server *v1alpha1.Server) *machine {
	return &machine{planning: p, server: server, join: server.Status.Join.DeepCopy()}
}

func (m *machine) name() string { return m.server.Name }

// entry is that of the token, as box hosts have it; nil: there is none.
func (m *machine) entry() *Entry {
	if m.join == nil || m.join.TokenID == "" {
		return nil
	}
	return m.entries[m.join.TokenID]
}

// advance goes on from what is on record, as far as certificate signing requests have nothing to do with it.
func (m *machine) advance() {
	order := m.server.Spec.Boot
	if order == nil || order.Device != v1alpha1.BootNetwork {
		m.join = nil
		return
	}
	if m.join == nil || m.join.Order != order.ID {
		m.begin(order.ID)
	}
	if m.join.State == v1alpha1.JoinJoined {
		return
	}
	m.join.Certified = m.join.Certified || m.join.State == v1alpha1.JoinApproved || m.certified[m.join.TokenID]
	if m.join.Certified && m.isReady() {
		// No node of this machine was ready when the certificate was approved. So the machine has started and joined since then.
		m.join.State, m.join.Message, m.join.SeenOff = v1alpha1.JoinJoined, "", false
		return
	}
	if m.server.Status.Power.State == v1alpha1.PowerOff {
		m.join.SeenOff = true
		if m.join.State != v1alpha1.JoinWaiting { // that start is over, and so is its token
			m.end(v1alpha1.JoinWaiting, "")
		}
	}
	switch m.join.State {
	case v1alpha1.JoinWaiting:
		m.wait()
	case v1alpha1.JoinExpired, v1alpha1.JoinRevoked:
		if m.isStarted() {
			m.wait()
		}
	case v1alpha1.JoinPreparing, v1alpha1.JoinOffered:
		m.offer()
	case v1alpha1.JoinApproved:
		m.lookForNode()
	case v1alpha1.JoinApproving, v1alpha1.JoinJoined: // the request decides; nothing more
	}
}

// begin follows a new order.
func (m *machine) begin(order string) {
	since := m.now
	if boot := m.server.Status.Boot; boot != nil && boot.ID == order && boot.Since.Time.Before(since) {
		since = boot.Since.Time
	}
	m.join = &v1alpha1.JoinStatus{Order: order, State: v1alpha1.JoinWaiting, Since: stamp(since)}
}

// end ends the token.
func (m *machine) end(state v1alpha1.JoinState, message string) {
	m.join.State, m.join.Message = state, message
	m.join.Request, m.join.RequestUID = "", ""
	if state == v1alpha1.JoinWaiting {
		m.join.TokenID, m.join.ExpiresAt = "", nil
	}
}

// wait has a token made once the server has started, and nothing is in the way.
func (m *machine) wait() {
	m.join.State = v1alpha1.JoinWaiting
	m.join.Message = m.whyNotYet()
	if m.join.Message != "" {
		return
	}
	m.join.State = v1alpha1.JoinPreparing
	m.join.Message = "a token is being made"
	// Of the next second on: what has started the server now is in the past then.
	m.join.Since, m.join.SeenOff = stamp(m.now.Add(time.Second)), false
	expires := stamp(m.now.Add(TokenLifetime))
	m.join.TokenID, m.join.ExpiresAt = m.NewTokenID(), &expires
	m.recheck(expires.Time)
}

// whyNotYet says why there is no token yet; empty if there is to be one.
func (m *machine) whyNotYet() string {
	status := &m.server.Status
	switch {
	case m.Blocked != "":
		return cut(m.Blocked)
	case m.server.Spec.Isolated != nil:
		return "it is isolated: kubectl rcbox isolate-server " + m.name() + " --undo"
	case status.Boot == nil || status.Boot.ID != m.join.Order || status.Boot.State == v1alpha1.OrderWaiting ||
		status.Boot.State == v1alpha1.OrderRunning:
		return "its BMC has not confirmed yet that it boots from the network at its next start"
	case status.Boot.State != v1alpha1.OrderDone:
		return cut("its next start is not from the network: " + status.Boot.Message)
	case status.Power.State == v1alpha1.PowerOff:
		return "it is off: kubectl rcbox up " + m.name()
	case status.Power.State != v1alpha1.PowerOn:
		return "whether it is on is not known: see its condition PoweredOn"
	case !m.isStarted():
		return "no start was seen since the order: kubectl rcbox power " + m.name() + " cycle"
	}
	return cut(m.whyNotBound())
}

// isStarted says whether the server has started since join.Since.
func (m *machine) isStarted() bool {
	if m.server.Status.Power.State != v1alpha1.PowerOn {
		return false
	}
	if m.join.SeenOff {
		return true
	}
	order := m.server.Status.Order
	if order == nil || order.State != v1alpha1.OrderDone || order.Since == nil || order.Since.Time.Before(m.join.Since.Time) {
		return false
	}
	switch order.Action {
	case v1alpha1.ActionOn, v1alpha1.ActionCycle, v1alpha1.ActionReset:
		return true
	case v1alpha1.ActionSoft, v1alpha1.ActionOff:
	}
	return false
}

// whyNotBound says why a token cannot be bound to the machine in the slot; empty if it can.
func (m *machine) whyNotBound() string {
	status := &m.server.Status
	guid := status.MMC.SystemGUID
	switch recorded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAsRecorded); {
	case recorded != nil && recorded.Status == metav1.ConditionFalse:
		return "the blade in the slot is not the one on record: " + recorded.Message
	case !bmc.SameSystem(guid, guid):
		return "its BMC reports no system GUID, and a token is given only to the machine that has it as its UUID"
	case len(portsOf(m.server)) == 0:
		return "its BMC reports no hardware address of its ports, and a token is given only to them"
	}
	for _, other := range m.withGUID(guid) {
		if other != m.name() {
			return fmt.Sprintf("the BMC of Server %s reports the same system GUID %s: which of both asks is not known", other, guid)
		}
	}
	return ""
}

// offer looks after a token that nobody has used yet.
func (m *machine) offer() {
	expires := m.join.ExpiresAt
	entry := m.entry()
	switch {
	case expires == nil || !m.now.Before(expires.Time) || expires.After(m.now.Add(TokenLifetime+time.Second)): // the clock was set back
		m.end(v1alpha1.JoinExpired, m.whyUnused())
		return
	case m.join.State == v1alpha1.JoinOffered && entry == nil:
		m.end(v1alpha1.JoinRevoked, "somebody has deleted the token: "+forAnother(m.name()))
		return
	case entry != nil && !entry.isOf(m.server):
		m.end(v1alpha1.JoinRevoked, "its BMC reports another GUID or other hardware addresses than when the token was made, or its "+
			"Chassis has other addresses for it: see condition AsRecorded. "+forAnother(m.name()))
		return
	}
	if m.join.State == v1alpha1.JoinPreparing && entry != nil && entry.State == EntryOffered {
		m.join.State = v1alpha1.JoinOffered
		m.join.Message = "the machine with its UUID and one of its hardware addresses may fetch the token"
	}
	m.recheck(expires.Time)
}

// whyUnused says why nobody may have used the token.
func (m *machine) whyUnused() string {
	if m.isReady() {
		return "nobody used the token in time, and node " + m.name() + " is ready: the server has started from its disk, and was not " +
			"installed again. See on its console why it did not boot from the network; " + forAnother(m.name())
	}
	return "nobody used the token in time: see the server's console. " + forAnother(m.name())
}

// isReady says whether this very machine is a ready node of the Server's name.
func (m *machine) isReady() bool {
	node := m.readyNode()
	return node != nil && bmc.SameSystem(node.SystemUUID, m.server.Status.MMC.SystemGUID)
}

// readyNode is the ready node of the Server's name, on whatever machine; nil if there is none.
func (m *machine) readyNode() *Node {
	at := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.Name == m.name() && n.Ready })
	if at < 0 {
		return nil
	}
	return &m.Nodes[at]
}

// lookForNode says what the node is waited for.
func (m *machine) lookForNode() {
	if m.join.ExpiresAt != nil {
		m.recheck(m.join.ExpiresAt.Time)
	}
	node := m.readyNode()
	if node == nil {
		m.join.Message = "its certificate was approved; its node is not ready yet"
		return
	}
	m.stranger = node.SystemUUID
	m.join.Message = cut(fmt.Sprintf("another machine has this Server's certificate: docs/join.md says how to shut it out. Node %s says "+
		"that its UUID is %s, and the BMC reports %s", node.Name, quoted(node.SystemUUID), m.server.Status.MMC.SystemGUID))
}

// accept has the token serve for this request, and for no other one.
func (m *machine) accept(r *Request, state v1alpha1.JoinState) {
	m.join.State, m.join.Request, m.join.RequestUID, m.request = state, r.Name, string(r.UID), r
	m.mayApprove = state == v1alpha1.JoinApproving
	m.join.Message = "certificate signing request " + r.Name + " is being approved"
	if state == v1alpha1.JoinApproved {
		m.lookForNode()
	}
}

// keepsToken says whether there has to be a token.
func (m *machine) keepsToken() bool {
	return m.join != nil && m.join.State.HasToken() && m.join.ExpiresAt != nil && m.now.Before(m.join.ExpiresAt.Time)
}

// finish plans the status and the steps.
func (m *machine) finish() {
	if m.join != nil && m.join.State == v1alpha1.JoinApproving && m.request == nil {
		m.end(v1alpha1.JoinRevoked, "the certificate signing request was deleted before it was approved: "+forAnother(m.name()))
	}
	next := m.server.Status.DeepCopy()
	next.Join = m.join
	m.setCondition(next)
	if !equality.Semantic.DeepEqual(next, &m.server.Status) {
		m.plan.Servers[m.name()] = next
	}
	// The token on record may be there, whatever becomes of it now.
	if before := m.server.Status.Join; before != nil && before.TokenID != "" && m.entries[before.TokenID] != nil {
		if !m.keepsToken() || m.join.TokenID != before.TokenID {
			m.step(Step{Kind: StepDrop, TokenID: before.TokenID, Why: "the token has served, or has ended"})
		}
	}
	if m.keepsToken() {
		m.takeSteps()
	}
}

func (m *machine) takeSteps() {
	entry := m.entry()
	switch m.join.State {
	case v1alpha1.JoinPreparing:
		m.step(Step{Kind: StepOffer, TokenID: m.join.TokenID, Entry: m.newEntry()})
	case v1alpha1.JoinApproving, v1alpha1.JoinApproved:
		if entry != nil && entry.State != EntryUsed {
			m.step(Step{Kind: StepWithhold, TokenID: m.join.TokenID})
		}
		if m.mayApprove {
			m.step(Step{
				Kind: StepApprove, TokenID: m.join.TokenID, Request: m.join.Request, UID: types.UID(m.join.RequestUID),
				Why: "the token of Server " + m.name() + ", which boots from the network, serves for this request",
			})
		}
	case v1alpha1.JoinWaiting, v1alpha1.JoinOffered, v1alpha1.JoinJoined, v1alpha1.JoinExpired, v1alpha1.JoinRevoked:
	}
}

func (m *machine) step(step Step) {
	step.Server = m.name()
	m.plan.Steps = append(m.plan.Steps, step)
}

// setCondition sets Joined.
func (m *machine) setCondition(next *v1alpha1.ServerStatus) {
	if m.join == nil {
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ConditionJoined)
		return
	}
	status, reason, message := metav1.ConditionFalse, string(m.join.State), m.join.Message
	switch {
	case m.join.State == v1alpha1.JoinJoined:
		status, message = metav1.ConditionTrue, "node "+m.name()+" is ready on the machine in this slot"
	case m.stranger != "":
		reason = "OtherMachine"
	}
	meta.SetStatusCondition(&next.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionJoined, Status: status, Reason: reason, Message: message,
		ObservedGeneration: m.server.Generation, LastTransitionTime: stamp(m.now),
	})
}

// newEntry is what box hosts are told, without the secret part of the token.
func (m *machine) newEntry() *Entry {
	status := &m.server.Status
	entry := &Entry{
		Node: m.name(), TokenID: m.join.TokenID, UUID: status.MMC.SystemGUID, Ports: portsOf(m.server), ExpiresAt: m.join.ExpiresAt.Time,
		Labels: map[string]string{v1alpha1.LabelChassis: status.Chassis, v1alpha1.LabelSlot: strconv.Itoa(int(status.Slot))},
	}
	if class := m.server.Labels[v1alpha1.LabelNodeClass]; class != "" {
		entry.Labels[v1alpha1.LabelNodeClass] = class
	}
	return entry
}

// isOf says whether the entry is bound to the machine that the Server's BMC reports, with the addresses that it has now.
func (e *Entry) isOf(server *v1alpha1.Server) bool {
	return bmc.SameSystem(e.UUID, server.Status.MMC.SystemGUID) && slices.Equal(e.Ports, portsOf(server))
}

// portsOf are a Server's ports whose hardware addresses its BMC reports.
func portsOf(server *v1alpha1.Server) []Port {
	addresses := map[string]string{}
	for _, port := range server.Status.Ports {
		if mac, isOne := parseMAC(port.MAC); isOne && addresses[mac] == "" {
			addresses[mac] = port.Address
		}
	}
	ports := make([]Port, 0, len(addresses))
	for _, mac := range slices.Sorted(maps.Keys(addresses)) {
		ports = append(ports, Port{MAC: mac, Address: addresses[mac]})
	}
	return ports
}

// withGUID are the names of the Servers whose BMC reports this system GUID.
func (p *planning) withGUID(guid string) []string {
	if p.guids == nil {
		p.guids = map[string][]*v1alpha1.Server{}
		for _, server := range p.Servers {
			key := bmc.SystemKey(server.Status.MMC.SystemGUID)
			p.guids[key] = append(p.guids[key], server)
		}
	}
	var found []string
	for _, server := range p.guids[bmc.SystemKey(guid)] {
		if bmc.SameSystem(server.Status.MMC.SystemGUID, guid) {
			found = append(found, server.Name)
		}
	}
	return found
}

// isRequest says whether this is the request that the token serves for.
func (m *machine) isRequest(uid types.UID) bool {
	return m.join.RequestUID != "" && m.join.RequestUID == string(uid)
}

// stamp is a time as a status holds it.
func stamp(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second)) }

func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") // it may end in half a letter
}
