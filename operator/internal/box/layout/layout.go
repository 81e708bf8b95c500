// Package layout says which servers a Chassis has: their names, slots and addresses, and whether that contradicts itself, the model or
// another Chassis. It does not know what is really in the slots.
package layout

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/model"
	"rcbox.dev/rcbox/operator/internal/box/names"
)

// Server is what a slot's server is called and reached by.
type Server struct {
	names.Place

	Ports []Port
}

// Port is a NIC of a server.
type Port struct {
	Name string
	NIC  int32
	// Address is not valid for a port that has none.
	Address netip.Addr
}

// Problem is a contradiction. Nothing is made from a Chassis that has one.
type Problem struct {
	// Field is its path in YAML.
	Field string
	// Text says what is wrong, and what to write.
	Text string
	// Other is the Chassis that it contradicts; empty if it contradicts itself or its model.
	Other string
}

// Layout is what follows from the spec of a Chassis.
type Layout struct {
	Chassis string
	// Model is nil if there is none of that name.
	Model       *model.Model
	Servers     []Server
	Controllers []names.Management
	Problems    []Problem
	// Addresses are those of all controllers, as status.acceptedAddresses lists them.
	Addresses []string
	// Chain is what its cables to other Chassis are.
	Chain Chain
	// Notes are what somebody may not have meant, and what contradicts nothing.
	Notes []string
}

// Of lays out all Chassis. Of two that claim the same, the older has it, and of two of one age the one with the lesser name; an older one
// that is refused for something else keeps its claims, so that a correction of it takes nothing from the younger one.
func Of(all []v1alpha1.Chassis) map[string]*Layout {
	ordered := make([]*v1alpha1.Chassis, len(all))
	for i := range all {
		ordered[i] = &all[i]
	}
	slices.SortFunc(ordered, compareAge)
	layouts := make(map[string]*Layout, len(all))
	c := claims{}
	for _, chassis := range ordered {
		l := newLayout(chassis)
		c.claimAll(chassis, l)
		layouts[chassis.Name] = l
	}
	checkChains(ordered, layouts)
	return layouts
}

func compareAge(a, b *v1alpha1.Chassis) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// Message is what condition Accepted says: all problems, or as many as there is room for.
func (l *Layout) Message(room int) string {
	var texts []string
	for _, problem := range l.Problems {
		texts = append(texts, problem.Field+": "+problem.Text)
	}
	if len(texts) == 0 {
		texts = l.Notes
	}
	return joined(texts, room)
}

// joined puts texts after each other, and says how many there was no room for.
func joined(texts []string, room int) string {
	text := strings.Join(texts, "; ")
	for left := len(texts) - 1; len(text) > room && left > 0; left-- {
		text = strings.Join(texts[:left], "; ") + "; and " + count(len(texts)-left, "more", "more")
	}
	return text
}

// ManagerSensors are the names of the sensors of the chassis manager that say something about the servers and about the chassis.
func (l *Layout) ManagerSensors() []string {
	slots := make([]int32, len(l.Servers))
	for i := range l.Servers {
		slots[i] = l.Servers[i].Slot
	}
	return l.Model.ManagerSensors(slots)
}

func newLayout(chassis *v1alpha1.Chassis) *Layout {
	l := &Layout{Chassis: chassis.Name, Controllers: names.Controllers(chassis)}
	found, err := model.Of(&chassis.Spec)
	if wrong := (*model.OverridesError)(nil); errors.As(err, &wrong) {
		l.refuse("spec.modelOverrides", "%v", err)
	} else if err != nil {
		l.refuse("spec.model", "%v", err)
	}
	l.Model = found
	for _, place := range names.Places(chassis) {
		l.Servers = append(l.Servers, Server{Place: place})
	}
	l.checkSlots(chassis)
	l.checkBMCs(chassis)
	l.addPorts(chassis)
	l.Addresses = l.listAddresses()
	return l
}
