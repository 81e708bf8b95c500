package layout

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/box/ranges"
)

const (
	// maxNamed is how many slots or addresses a text names.
	maxNamed = 4
	// maxElement is how much of a list a text repeats.
	maxElement = 48

	fieldMMC = "spec.management.mmc"
	fieldCMM = "spec.management.cmm"
	fieldONS = "spec.management.ons"
)

func (l *Layout) refuse(field, text string, values ...any) {
	l.Problems = append(l.Problems, Problem{Field: field, Text: fmt.Sprintf(text, values...)})
}

// shortened leaves out most of a long list: a condition has little room.
func shortened(err error) error {
	var refused *ranges.Error
	if !errors.As(err, &refused) || len(refused.Element) <= maxElement {
		return err
	}
	return &ranges.Error{Element: refused.Element[:maxElement] + "...", Reason: refused.Reason, Hint: refused.Hint}
}

func (l *Layout) note(text string, values ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(text, values...))
}

// checkSlots: each slot once, with a server or a storage board, and one that the model has.
func (l *Layout) checkSlots(chassis *v1alpha1.Chassis) {
	seen := map[int32]string{}
	for _, of := range []struct{ field, text string }{
		{"spec.slots", chassis.Spec.Slots},
		{"spec.storageSlots", chassis.Spec.StorageSlots},
	} {
		if of.text == "" && of.field != "spec.slots" {
			continue
		}
		list, err := ranges.ParseNumbers(of.text)
		if err != nil {
			l.refuse(of.field, "%v", shortened(err))
			continue
		}
		var twice, inBoth, beyond []string
		for at := range list {
			for _, slot := range names.Numbers(list[at : at+1]) {
				text := strconv.Itoa(int(slot))
				switch {
				case seen[slot] == of.field:
					twice = append(twice, text)
				case seen[slot] != "":
					inBoth = append(inBoth, text)
				case slot < 1 || l.Model != nil && !l.Model.HasSlot(slot):
					beyond = append(beyond, text)
				}
				seen[slot] = of.field
			}
		}
		if len(twice) > 0 {
			l.refuse(of.field, "names %s twice: name each slot once", some("slot", twice))
		}
		if len(inBoth) > 0 {
			l.refuse(of.field, "names %s, as does spec.slots: a slot has a server or a storage board", some("slot", inBoth))
		}
		if len(beyond) > 0 {
			l.refuse(of.field, "names %s: %s", some("slot", beyond), l.slotsThereAre())
		}
	}
}

func (l *Layout) slotsThereAre() string {
	if l.Model == nil || l.Model.Slots.Count == 0 {
		return "slots are counted from 1"
	}
	return fmt.Sprintf("model %s has slots 1-%d", l.Model.Name, l.Model.Slots.Count)
}

// checkBMCs: an address for each server, and each address once.
func (l *Layout) checkBMCs(chassis *v1alpha1.Chassis) {
	l.checkAddresses(fieldMMC, chassis.Spec.Management.MMC, netip.Prefix{})
	for field, addresses := range l.controllers() {
		if field != fieldMMC { // the addresses of that list were checked together
			l.checkHosts(field, addresses)
		}
	}
}

// checkAddresses reads a list in which the n-th address is that of the n-th server; nil if it is of no use.
func (l *Layout) checkAddresses(field, text string, network netip.Prefix) []netip.Addr {
	list, err := ranges.ParseAddresses(text, network)
	if err != nil {
		l.refuse(field, "%v", shortened(err))
		return nil
	}
	addresses, have := names.Addresses(list), 0
	for at := range list {
		have += len(list[at : at+1].Items())
	}
	want := len(l.Servers)
	switch {
	case have > len(addresses):
		l.refuse(field, "names %s twice: name each address once", some("address", repeated(list)))
	case len(addresses) < want:
		l.refuse(field, "has %s for %s: write %s", count(len(addresses), "address", "addresses"), count(want, "server", "servers"),
			enough(addresses, want))
	case len(addresses) > want && want > 0:
		l.note("%s has %s more than there are servers: those from %s on are not used",
			field, count(len(addresses)-want, "address", "addresses"), addresses[want])
	}
	l.checkHosts(field, addresses)
	l.noteHoles(field, list, addresses[:min(want, len(addresses))])
	return addresses
}

// enough is a list that is long enough.
func enough(addresses []netip.Addr, want int) string {
	if len(addresses) == 0 {
		return "one for each of them"
	}
	text := fmt.Sprintf("%s+%d", addresses[0], want)
	if _, err := ranges.ParseAddresses(text, netip.Prefix{}); err != nil {
		return fmt.Sprintf("%d more", want-len(addresses))
	}
	return text + ", if they follow each other"
}

func repeated(list ranges.List) []string {
	var twice []string
	seen := map[string]bool{}
	for at := range list {
		for _, item := range list[at : at+1].Items() {
			if seen[item.Text] && !slices.Contains(twice, item.Text) {
				twice = append(twice, item.Text)
			}
			seen[item.Text] = true
		}
	}
	return twice
}

// noteHoles tells of addresses that are left out, for from there on the numbers of servers and addresses differ; .0 and .255 are always.
func (l *Layout) noteHoles(field string, list ranges.List, addresses []netip.Addr) {
	if len(list) < 2 {
		return
	}
	for at := 1; at < len(addresses); at++ {
		after := ranges.List{{Kind: ranges.Address, First: toNumber(addresses[at-1]), Count: 2}}.Items()[1].Address
		if after.Less(addresses[at]) || addresses[at].Less(addresses[at-1]) {
			l.note("%s goes from %s to %s: slot %d has the latter", field, addresses[at-1], addresses[at], l.Servers[at].Slot)
		}
	}
}

// addPorts gives each server the ports of the networks.
func (l *Layout) addPorts(chassis *v1alpha1.Chassis) {
	suffixes := map[string]int32{}
	for i := range chassis.Spec.Networks {
		of := &chassis.Spec.Networks[i]
		field := fmt.Sprintf("spec.networks[nic=%d]", of.NIC)
		if other, isTaken := suffixes[of.Suffix]; isTaken {
			l.refuse(field+".suffix",
				"%q is that of NIC %d: two ports of a server would have one name; write another of a to e", of.Suffix, other)
		}
		suffixes[of.Suffix] = of.NIC
		if l.Model != nil && l.Model.Server.NICs.Count > 0 && of.NIC > l.Model.Server.NICs.Count {
			l.refuse(field, "servers of model %s have NICs 1-%d", l.Model.Name, l.Model.Server.NICs.Count)
		}
		addresses := l.checkNetwork(field, of)
		for at := range l.Servers {
			port := Port{Name: names.Port(l.Servers[at].Name, of.Suffix), NIC: of.NIC}
			if at < len(addresses) {
				port.Address = addresses[at]
			}
			l.Servers[at].Ports = append(l.Servers[at].Ports, port)
		}
	}
}

func (l *Layout) checkNetwork(field string, of *v1alpha1.ChassisNetwork) []netip.Addr {
	if of.Range == "" {
		return nil
	}
	network, err := netip.ParsePrefix(of.CIDR)
	if err != nil || !network.Addr().Is4() {
		l.refuse(field+".cidr", "%q is no IPv4 network, and the range needs one: write one such as 192.168.3.0/24", of.CIDR)
		return nil
	}
	network = network.Masked()
	addresses := l.checkAddresses(field+".range", of.Range, network)
	var outside []string
	for _, address := range addresses {
		if !network.Contains(address) || isEdge(network, address) {
			outside = append(outside, address.String())
		}
	}
	if len(outside) > 0 {
		l.refuse(field+".range", "names %s, which no host in %s can have", some("address", outside), network)
	}
	return addresses
}

// isEdge: the first address of a network is its own, and the last is everybody's.
func isEdge(network netip.Prefix, address netip.Addr) bool {
	if network.Bits() >= 31 {
		return false
	}
	return address == network.Addr() || !network.Contains(address.Next())
}

func toNumber(of netip.Addr) uint32 {
	b := of.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// some names a few of them.
func some(what string, all []string) string {
	switch {
	case len(all) == 1:
		return what + " " + all[0]
	case strings.HasSuffix(what, "s"):
		what += "es"
	default:
		what += "s"
	}
	if len(all) > maxNamed {
		all = append(slices.Clone(all[:maxNamed-1]), strconv.Itoa(len(all)-maxNamed+1)+" more")
	}
	return what + " " + strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
