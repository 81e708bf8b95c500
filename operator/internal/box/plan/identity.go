package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// findNodes finds the node of each server: the only one whose systemUUID is the system GUID of the server's BMC, and of no other's.
func (p *planning) findNodes() {
	p.byGUID = map[string][]*machine{}
	for _, m := range p.machines {
		if m.hasGUID() {
			key := bmc.SystemKey(m.Identity.SystemGUID)
			p.byGUID[key] = append(p.byGUID[key], m)
		}
	}
	for i := range p.Nodes {
		if found := p.withGUID(p.Nodes[i].SystemUUID); len(found) == 1 {
			found[0].rivals = append(found[0].rivals, &p.Nodes[i])
		}
	}
	for _, m := range p.machines {
		if len(m.rivals) == 1 {
			m.node = m.rivals[0]
		}
		switch {
		case m.node != nil:
			m.next.Node = m.node.Name
		case m.Identity != nil:
			m.next.Node = ""
		}
	}
}

// labelNodes says where a node is that runs on a server of this Chassis: by the server's hardware, not by what the node says of itself.
func (p *planning) labelNodes() {
	p.plan.NodeLabels = map[string]map[string]string{}
	if len(p.Layout.Problems) > 0 {
		return
	}
	for _, m := range p.machines {
		if m.node == nil || m.guidTwin != "" || m.Identity.Slot != 0 && m.Identity.Slot != int(m.layout.Slot) {
			continue
		}
		p.plan.NodeLabels[m.node.Name] = map[string]string{
			v1alpha1.LabelChassis: p.Chassis.Name, v1alpha1.LabelSlot: strconv.Itoa(int(m.layout.Slot)),
		}
	}
}

// findTwins finds for each server another one, of this Chassis or of another one, whose BMC reports the same system GUID: which of the two
// a node runs on is not known. Before a BMC has said what it is, what is on record counts, unless its slot is empty.
func (p *planning) findTwins() {
	known := map[string][]GUIDOf{}
	add := func(of GUIDOf) { known[bmc.SystemKey(of.SystemGUID)] = append(known[bmc.SystemKey(of.SystemGUID)], of) }
	for _, m := range p.machines {
		if m.Identity != nil || !m.isEmpty() {
			add(GUIDOf{m.name(), m.guid()})
		}
	}
	for _, of := range p.ElsewhereGUIDs {
		add(of)
	}
	for _, m := range p.machines {
		guid := m.guid()
		for _, of := range known[bmc.SystemKey(guid)] {
			if of.Server != m.name() && bmc.SameSystem(of.SystemGUID, guid) {
				m.guidTwin = of.Server
				break
			}
		}
	}
}

// whyTwins says why nothing is proved about a server that shares its GUID: the same of both servers.
func (m *machine) whyTwins(node string) string {
	servers := []string{m.name(), m.guidTwin}
	slices.Sort(servers)
	what := "a node with it"
	if node != "" {
		what = "node " + node
	}
	return fmt.Sprintf("the BMCs of %s and %s report the same system GUID %s, so which of them %s runs on is not known: give each "+
		"its own, or correct spec.management.mmc of their Chassis", servers[0], servers[1], strings.ToLower(m.guid()), what)
}

// guid is what its BMC reports, or has reported last.
func (m *machine) guid() string {
	if m.Identity != nil {
		return m.Identity.SystemGUID
	}
	return m.Object.Status.MMC.SystemGUID
}

// hasGUID: its BMC reports a GUID that identifies it.
func (m *machine) hasGUID() bool {
	return m.Identity != nil && bmc.SameSystem(m.Identity.SystemGUID, m.Identity.SystemGUID)
}

// withGUID finds the servers with a GUID.
func (p *planning) withGUID(guid string) []*machine {
	var found []*machine
	for _, m := range p.byGUID[bmc.SystemKey(guid)] {
		if bmc.SameSystem(m.Identity.SystemGUID, guid) {
			found = append(found, m)
		}
	}
	return found
}
