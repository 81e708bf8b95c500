package names

import (
	"net/netip"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/ranges"
)

// Place is a server by its slot.
type Place struct {
	Name    string
	Chassis string
	Number  int32
	Slot    int32
	// MMC is the address of its BMC; not valid where the Chassis gives it none.
	MMC netip.Addr
}

// Management is a controller of a chassis.
type Management struct {
	Name    string
	Chassis string
	Role    Role
	Address netip.Addr
}

// Places gives the servers of a Chassis, in the order of its slots. What is wrong with its lists is not said here; a list that cannot be
// read has no items.
func Places(chassis *v1alpha1.Chassis) []Place {
	slots, err := ranges.ParseNumbers(chassis.Spec.Slots)
	if err != nil {
		return nil
	}
	var addresses []netip.Addr
	if list, err := ranges.ParseAddresses(chassis.Spec.Management.MMC, netip.Prefix{}); err == nil {
		addresses = Addresses(list)
	}
	var places []Place
	for at, slot := range Numbers(slots) {
		number := chassis.Spec.FirstServer + int32(at)
		place := Place{Chassis: chassis.Name, Number: number, Slot: slot}
		place.Name = Server(chassis.Spec.NamePrefix, place.Number)
		if at < len(addresses) {
			place.MMC = addresses[at]
		}
		places = append(places, place)
	}
	return places
}

// Numbers gives each number of a list once, in its order: 7 and 007 are the same.
func Numbers(list ranges.List) []int32 {
	var numbers []int32
	seen := map[uint32]bool{}
	for _, item := range list.Items() {
		if !seen[item.Number] {
			seen[item.Number] = true
			numbers = append(numbers, int32(item.Number)) //nolint:gosec // ranges reads at most nine digits
		}
	}
	return numbers
}

// Addresses gives each address of a list once, in its order.
func Addresses(list ranges.List) []netip.Addr {
	var addresses []netip.Addr
	for _, item := range list.Items() {
		addresses = append(addresses, item.Address)
	}
	return addresses
}

// Controllers gives the controllers of a Chassis. The chassis manager that was last seen in charge is the cmm, and the other one the cms;
// before one was seen, the first of the spec is.
func Controllers(chassis *v1alpha1.Chassis) []Management {
	var all []Management
	add := func(texts []string, roles ...Role) {
		for i, text := range texts {
			if address, err := netip.ParseAddr(text); err == nil && i < len(roles) {
				all = append(all, Management{
					Name: Controller(chassis.Name, roles[i]), Chassis: chassis.Name, Role: roles[i], Address: address.Unmap(),
				})
			}
		}
	}
	managers := chassis.Spec.Management.CMM
	if len(managers) == 2 && chassis.Status.Manager.Master == managers[1] {
		managers = []string{managers[1], managers[0]}
	}
	add(managers, CMM, CMS)
	add(chassis.Spec.Management.ONS, ONM, ONS)
	return all
}
