package layout

import (
	"fmt"
	"net/netip"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/names"
)

// claim is who has a name or an address.
type claim struct {
	chassis string
	// what it is for, such as the BMC of atom007.
	what string
	// number of the server, if it is the name of one.
	number int32
}

// claims are names and addresses that are taken, by their text.
type claims map[string]claim

// clash is what a Chassis claims though somebody else has it.
type clash struct {
	text, what string
	taken      claim
}

// claimAll takes what a Chassis claims, and refuses what is taken.
func (c claims) claimAll(chassis *v1alpha1.Chassis, l *Layout) {
	byField := map[string][]clash{}
	var fields []string
	take := func(field, text string, by claim) {
		by.chassis = chassis.Name
		taken, isTaken := c[text]
		if !isTaken {
			c[text] = by
			return
		}
		key := field + "\x00" + taken.chassis
		if byField[key] == nil {
			fields = append(fields, key)
		}
		byField[key] = append(byField[key], clash{text: text, what: by.what, taken: taken})
	}
	takeAddress := func(field string, address netip.Addr, what string) {
		if address.IsValid() {
			take(field, address.Unmap().String(), claim{what: what})
		}
	}
	take("metadata.name", chassis.Name, claim{what: "Chassis " + chassis.Name})
	for i := range l.Servers {
		s := &l.Servers[i]
		take("spec.firstServer", s.Name, claim{what: fmt.Sprintf("the server in slot %d", s.Slot), number: s.Number})
		takeAddress(fieldMMC, s.MMC, "the BMC of "+s.Name)
		for _, port := range s.Ports {
			takeAddress(fmt.Sprintf("spec.networks[nic=%d].range", port.NIC), port.Address, "port "+port.Name)
		}
	}
	for _, controller := range l.Controllers {
		field := fieldCMM
		if isBoard(controller.Role) {
			field = fieldONS
		}
		take("metadata.name", controller.Name, claim{what: "a controller of Chassis " + chassis.Name})
		takeAddress(field, controller.Address, "controller "+controller.Name)
	}
	for _, key := range fields {
		l.addClashes(chassis, key, byField[key], c)
	}
}

func (l *Layout) addClashes(chassis *v1alpha1.Chassis, key string, clashes []clash, c claims) {
	taken := clashes[0].taken
	field := key[:len(key)-len(taken.chassis)-1]
	problem := Problem{Field: field}
	if taken.chassis != chassis.Name {
		problem.Other = taken.chassis
	}
	var texts []string
	for _, clash := range clashes {
		texts = append(texts, clash.text)
	}
	switch {
	case field == "spec.firstServer" && taken.number > 0 && problem.Other != "":
		problem.Text = fmt.Sprintf("%s belong to Chassis %s, which is older: make this Chassis with firstServer: %d",
			some("name", texts), taken.chassis, c.firstFree(chassis, len(l.Servers)))
		if len(texts) == 1 {
			problem.Text = fmt.Sprintf("%s belongs to Chassis %s, which is older: make this Chassis with firstServer: %d",
				some("name", texts), taken.chassis, c.firstFree(chassis, len(l.Servers)))
		}
	case problem.Other != "":
		problem.Text = fmt.Sprintf("%s, for %s, is that of %s in Chassis %s, which is older", clashes[0].text, clashes[0].what, taken.what,
			taken.chassis)
	default:
		problem.Text = fmt.Sprintf("%s is that of %s, and of %s", clashes[0].text, taken.what, clashes[0].what)
	}
	if more := len(clashes) - 1; more > 0 && field != "spec.firstServer" {
		problem.Text += fmt.Sprintf("; so are %d more", more)
	}
	l.Problems = append(l.Problems, problem)
}

func isBoard(role names.Role) bool { return role == names.ONM || role == names.ONS }

// firstFree is the least number from which on there is room for so many servers, after all that are taken.
func (c claims) firstFree(chassis *v1alpha1.Chassis, servers int) int32 {
	var numbers []int32
	for text, by := range c {
		name, isOne := names.Parse(text)
		if isOne && by.number > 0 && name.Prefix == chassis.Spec.NamePrefix && by.chassis != chassis.Name {
			numbers = append(numbers, by.number)
		}
	}
	slices.Sort(numbers)
	first := int32(1)
	for _, number := range numbers {
		if number >= first+int32(servers) { //nolint:gosec // at most ranges.MaxItems
			break
		}
		first = number + 1
	}
	return first
}
