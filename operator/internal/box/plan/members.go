package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

// hold is why a server is not switched off for the sake of Stores; the zero value: nothing is known against it.
type hold struct {
	why string
	// here are the members that are known to run there.
	here []Blocker
	// passes: what is missing may come to be known by itself.
	passes bool
}

// held says which member of a Store runs on a server, or may run there as far as is known. A server is let go only if it is proved that no
// member does: by its BMC's system GUID, read lately, and the systemUUID of each node that has members. A server that is off has none.
func (m *machine) held() hold {
	if len(m.Members) == 0 || m.power == v1alpha1.PowerOff {
		return hold{}
	}
	var here, maybe []Blocker
	var doubt string
	for _, name := range slices.Sorted(maps.Keys(m.Members)) {
		switch isHere, why := m.mayRun(name); {
		case isHere:
			here = append(here, m.Members[name]...)
		case why != "":
			maybe = append(maybe, m.Members[name]...)
			doubt = cmp.Or(doubt, why)
		}
	}
	switch {
	case len(here) > 0:
		return hold{why: describe(here), here: here}
	case m.Identity == nil, !m.isFresh(m.IdentityAt):
		// Another blade may be in the slot by now.
		m.isDoubted = true
		return hold{why: "its BMC is asked for the system GUID, which says whether a node with members of Stores runs on it", passes: true}
	case len(maybe) > 0:
		return hold{why: describeDoubt(maybe, doubt)}
	}
	return hold{}
}

// mayRun says whether a node with members runs on a server, or why that may be so though it is not known; empty if it does not.
func (m *machine) mayRun(name string) (isHere bool, why string) {
	i := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.Name == name })
	isUsable := i >= 0 && bmc.SameSystem(m.Nodes[i].SystemUUID, m.Nodes[i].SystemUUID)
	switch {
	case isUsable && m.hasGUID():
		return bmc.SameSystem(m.Identity.SystemGUID, m.Nodes[i].SystemUUID), ""
	case len(m.rivals) > 0 && m.guidTwin == "": // another node does
		return false, ""
	case m.Object.Status.Node == name && m.Identity == nil:
		return true, "" // as it was on record last
	case i < 0:
		return false, fmt.Sprintf("there is no node %s any more that could say which machine it is", name)
	case !isUsable:
		return false, fmt.Sprintf("node %s reports no systemUUID that identifies its machine", name)
	case len(m.withGUID(m.Nodes[i].SystemUUID)) > 0: // it runs on another server
		return false, ""
	}
	return false, "its BMC reports no system GUID that identifies it"
}

// describe names the members that keep a server from being switched off.
func describe(all []Blocker) string {
	first := mostLost(all)
	text := fmt.Sprintf("%s of Store %s runs on it: %s", first.Member, first.Store, first.Why) + more(all)
	if first.Loses != "" {
		text += "; force loses " + first.Loses
	}
	return cut(text)
}

// mostLost is the member of whose loss a message is to speak: the first that loses anything, coordinators before masters.
func mostLost(all []Blocker) *Blocker {
	first := &all[0]
	for i := range all {
		if all[i].Loses != "" && (first.Loses == "" || all[i].IsCoordinator && !first.IsCoordinator) {
			first = &all[i]
		}
	}
	return first
}

// describeDoubt names the members that may run on a server.
func describeDoubt(all []Blocker, doubt string) string {
	first := mostLost(all)
	text := fmt.Sprintf("%s of Store %s may run on it, for %s: %s, or force if it runs on another machine", first.Member, first.Store,
		doubt, first.Why) + more(all)
	if first.Loses != "" {
		text += "; force may lose " + first.Loses
	}
	return cut(text)
}

func more(all []Blocker) string {
	if len(all) == 1 {
		return ""
	}
	return fmt.Sprintf("; and %d more members", len(all)-1)
}

// isHeldBack ends an order that would switch off a member of a Store, and has one wait of which that is not known yet.
func (m *machine) isHeldBack() bool {
	order := m.next.Order
	if order.Action == v1alpha1.ActionOn || m.isForced() {
		return false
	}
	held := m.held()
	switch {
	case held.why == "":
		return false
	case !held.passes:
		m.endOrder(v1alpha1.OrderRefused, "%s", held.why)
	case m.elapsed(order.Since.Time) > m.Times.Patience:
		m.endOrder(v1alpha1.OrderRefused, "whether a member of a Store runs on it is not known: its BMC did not say its system GUID "+
			"within %s; force carries out the order all the same, and may lose what such a member holds", m.Times.Patience)
	default:
		order.Message = held.why
	}
	return true
}
