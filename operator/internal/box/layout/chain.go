package layout

import (
	"fmt"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Chain is what follows from the cables between Chassis, as all of them name these.
type Chain struct {
	// Reason is empty for a Chassis without a chain.
	Reason string
	// IsSound: each cable is named at both of its ends, and the Chassis are a tree with one root.
	IsSound bool
	Text    string
}

// Reasons of a Chain.
const (
	ChainConnected = "Connected"
	ChainNoPort    = "NoSuchPort"
	ChainNoPeer    = "NoSuchPeer"
	ChainOneEnd    = "OneEnd"
	ChainModes     = "ModesDiffer"
	ChainLoop      = "Loop"
	ChainNoRoot    = "NoRoot"
	ChainRoots     = "TwoRoots"
)

// chains are all Chassis with the cables between them.
type chains map[string]*v1alpha1.Chassis

// checkChains finds out of each Chassis whether its cables are right.
func checkChains(all []*v1alpha1.Chassis, layouts map[string]*Layout) {
	c := chains{}
	for _, chassis := range all {
		c[chassis.Name] = chassis
	}
	for _, chassis := range all {
		l := layouts[chassis.Name]
		if reason, text := c.whyUnsound(chassis, l); reason != "" {
			l.Chain = Chain{Reason: reason, Text: text}
			continue
		}
		if chassis.Spec.Chain != nil {
			l.Chain = Chain{Reason: ChainConnected, IsSound: true, Text: c.describe(chassis)}
		}
	}
}

// uplinks are the cables of a Chassis that lead to another one.
func (c chains) uplinks(name string) []v1alpha1.ChassisUplink {
	chassis := c[name]
	if chassis == nil || chassis.Spec.Chain == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(chassis.Spec.Chain.Uplinks), func(u v1alpha1.ChassisUplink) bool { return u.Peer == "" })
}

// modesTo are what the cables from one Chassis to another are divided into, in order.
func (c chains) modesTo(from, to string) []string {
	var modes []string
	for _, uplink := range c.uplinks(from) {
		if uplink.Peer == to {
			modes = append(modes, string(uplink.Mode))
		}
	}
	slices.Sort(modes)
	return modes
}

// peers are the Chassis that a Chassis has a cable to, as either of the two says; by name.
func (c chains) peers(name string) []string {
	var found []string
	for other := range c {
		if other != name && len(c.modesTo(name, other))+len(c.modesTo(other, name)) > 0 {
			found = append(found, other)
		}
	}
	slices.Sort(found)
	return found
}

// whyUnsound says what is wrong with the cables of a Chassis; empty if nothing is.
func (c chains) whyUnsound(chassis *v1alpha1.Chassis, l *Layout) (reason, text string) {
	if reason, text := c.whyNoEnds(chassis, l); reason != "" {
		return reason, text
	}
	tree := c.connected(chassis.Name)
	if len(tree.loop) > 0 {
		return ChainLoop, fmt.Sprintf("cables connect %s in a loop, in which frames would go round without end: take one of them away",
			listed(tree.loop))
	}
	if chassis.Spec.Chain == nil {
		return "", ""
	}
	switch {
	case len(tree.roots) == 0 && len(tree.members) == 1:
		return ChainNoRoot, "spec.chain.role is Leaf, and no cable leads to another Chassis: name its uplinks, or set role: Root"
	case len(tree.roots) == 0:
		return ChainNoRoot, listed(tree.members) + " have no root: set spec.chain.role: Root for one of them"
	case len(tree.roots) > 1:
		return ChainRoots, listed(tree.roots) + " are connected, and each has spec.chain.role: Root: leave that to one of them"
	}
	return "", ""
}

// whyNoEnds says which cable has no end, or two that differ.
func (c chains) whyNoEnds(chassis *v1alpha1.Chassis, l *Layout) (reason, text string) {
	var uplinks []v1alpha1.ChassisUplink
	if chassis.Spec.Chain != nil {
		uplinks = chassis.Spec.Chain.Uplinks
	}
	for _, uplink := range uplinks {
		switch {
		case l.Model != nil && l.Model.SwitchBoards.Uplinks > 0 && uplink.QSFP > l.Model.SwitchBoards.Uplinks:
			return ChainNoPort, fmt.Sprintf("spec.chain.uplinks names QSFP %d, and model %s has QSFP 1 to %d", uplink.QSFP, l.Model.Name,
				l.Model.SwitchBoards.Uplinks)
		case uplink.Peer == chassis.Name:
			return ChainLoop, fmt.Sprintf("QSFP %d leads back to %s itself", uplink.QSFP, chassis.Name)
		case uplink.Peer != "" && c[uplink.Peer] == nil:
			return ChainNoPeer, fmt.Sprintf("QSFP %d leads to %s, and there is no Chassis of that name", uplink.QSFP, uplink.Peer)
		}
	}
	for _, peer := range c.peers(chassis.Name) {
		mine, theirs := c.modesTo(chassis.Name, peer), c.modesTo(peer, chassis.Name)
		switch {
		case len(mine) != len(theirs):
			return ChainOneEnd, fmt.Sprintf("%s to %s, which has %s back: name each cable in spec.chain.uplinks of both",
				count(len(mine), "cable leads", "cables lead"), peer, count(len(theirs), "cable", "cables"))
		case !slices.Equal(mine, theirs):
			return ChainModes, fmt.Sprintf("the cables to %s are %s here, and %s there: a cable has the same mode at both ends", peer,
				strings.Join(mine, " and "), strings.Join(theirs, " and "))
		}
	}
	return "", ""
}

// tree is all Chassis that are connected with one, or a loop among them.
type tree struct{ members, roots, loop []string }

// connected walks along all cables. Cables between the same two Chassis are one way: the switch boards of both are connected one by one.
func (c chains) connected(name string) tree {
	found := tree{}
	from := map[string]string{name: ""}
	waiting := []string{name}
	for len(waiting) > 0 {
		at := waiting[0]
		waiting = waiting[1:]
		found.members = append(found.members, at)
		if chain := c[at].Spec.Chain; chain != nil && chain.Role == v1alpha1.ChainRoot {
			found.roots = append(found.roots, at)
		}
		for _, peer := range c.peers(at) {
			if _, isSeen := from[peer]; !isSeen {
				from[peer] = at
				waiting = append(waiting, peer)
			} else if peer != from[at] && found.loop == nil {
				found.loop = loopOf(from, at, peer)
			}
		}
	}
	slices.Sort(found.members)
	slices.Sort(found.roots)
	return found
}

// loopOf are the Chassis on the two ways back from the ends of a cable to where these meet.
func loopOf(from map[string]string, a, b string) []string {
	wayOf := func(at string) (way []string) {
		for ; at != ""; at = from[at] {
			way = append(way, at)
		}
		return way
	}
	one, other := wayOf(a), wayOf(b)
	for len(one) > 1 && len(other) > 1 && one[len(one)-2] == other[len(other)-2] {
		one, other = one[:len(one)-1], other[:len(other)-1]
	}
	loop := append(slices.Clone(one), other[:len(other)-1]...)
	slices.Sort(loop)
	return slices.Compact(loop)
}

func (c chains) describe(chassis *v1alpha1.Chassis) string {
	tree := c.connected(chassis.Name)
	if len(tree.members) == 1 {
		return "it is the root, and no cable leads to another Chassis"
	}
	if chassis.Spec.Chain.Role == v1alpha1.ChainRoot {
		return fmt.Sprintf("it is the root of %d Chassis", len(tree.members))
	}
	return fmt.Sprintf("it is one of %d Chassis, with %s as the root", len(tree.members), tree.roots[0])
}

// listed names things in a sentence.
func listed(all []string) string {
	switch {
	case len(all) == 1:
		return all[0]
	case len(all) > maxNamed:
		return strings.Join(all[:maxNamed], ", ") + fmt.Sprintf(" and %d more", len(all)-maxNamed)
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}
