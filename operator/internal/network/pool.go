// Package network knows addresses of masters' own ports: pools, and what is said to Multus and by it. It is pure.
package network

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Pool is the addresses of one network that masters and clients may get.
type Pool struct {
	// Network they are in; its prefix is that of the interfaces.
	Network netip.Prefix
	// Range they are taken from.
	Range    netip.Prefix
	excluded []netip.Prefix
	clients  int
}

// ParsePool reads a pool. The schema has seen to it that there is nothing wrong with it; a Store from elsewhere may have anything.
func ParsePool(spec v1alpha1.AddressPool) (Pool, error) {
	network, err := netip.ParsePrefix(spec.CIDR)
	if err != nil || !network.Addr().Is4() || network != network.Masked() || network.Bits() < 16 || network.Bits() > 30 {
		return Pool{}, fmt.Errorf("addresses.cidr %q is no IPv4 network with a prefix from 16 to 30", spec.CIDR)
	}
	pool := Pool{Network: network, Range: network, clients: int(spec.Clients)}
	if spec.Range != "" {
		part, err := netip.ParsePrefix(spec.Range)
		if err != nil || part.Bits() < network.Bits() || !network.Contains(part.Addr()) {
			return Pool{}, fmt.Errorf("addresses.range %q is no part of %s", spec.Range, spec.CIDR)
		}
		pool.Range = part.Masked()
	}
	for _, text := range spec.Exclude {
		if !strings.Contains(text, "/") {
			text += "/32"
		}
		part, err := netip.ParsePrefix(text)
		if err != nil {
			return Pool{}, fmt.Errorf("addresses.exclude %q is neither an address nor a network", text)
		}
		pool.excluded = append(pool.excluded, part.Masked())
	}
	return pool, nil
}

// Pools are those of a Store's ports, in their order; none for a Store on the pod network.
func Pools(spec *v1alpha1.StoreSpec) ([]Pool, error) {
	if !spec.HasPorts() {
		return nil, nil
	}
	var pools []Pool
	for i := range spec.Network.Attachments {
		pool, err := ParsePool(spec.Network.Attachments[i].Addresses)
		if err != nil {
			return nil, err
		}
		pools = append(pools, pool)
	}
	return pools, nil
}

// usable: neither the network's own address nor its broadcast address, and not excluded.
func (p *Pool) usable(ip netip.Addr) bool {
	return p.Range.Contains(ip) && ip != p.Network.Addr() && ip != last(p.Network) &&
		!slices.ContainsFunc(p.excluded, func(part netip.Prefix) bool { return part.Contains(ip) })
}

// each calls back with each address of the range that anybody may have, in order, until it says no.
func (p *Pool) each(more func(netip.Addr) bool) {
	for n := number(p.Range.Addr()); n <= number(last(p.Range)); n++ {
		if ip := address(n); p.usable(ip) && !more(ip) {
			return
		}
	}
}

// firstOfClients is the lowest address that is for clients; false if none is.
func (p *Pool) firstOfClients() (netip.Addr, bool) {
	var found netip.Addr
	left := p.clients
	for n := number(last(p.Range)) + 1; n > number(p.Range.Addr()) && left > 0; n-- {
		if ip := address(n - 1); p.usable(ip) {
			found = ip
			left--
		}
	}
	return found, found.IsValid()
}

// Contains says whether a master may have the address.
func (p *Pool) Contains(ip netip.Addr) bool {
	clients, some := p.firstOfClients()
	return p.usable(ip) && (!some || ip.Less(clients))
}

// eachOfMasters is each for those that masters may have.
func (p *Pool) eachOfMasters(more func(netip.Addr) bool) {
	clients, some := p.firstOfClients()
	p.each(func(ip netip.Addr) bool { return (!some || ip.Less(clients)) && more(ip) })
}

// First is the lowest address for masters that is not taken.
func (p *Pool) First(isTaken func(netip.Addr) bool) (netip.Addr, bool) {
	var found netip.Addr
	p.eachOfMasters(func(ip netip.Addr) bool {
		if !isTaken(ip) {
			found = ip
		}
		return !found.IsValid()
	})
	return found, found.IsValid()
}

// Size is how many addresses there are for masters, and how many of them are not taken.
func (p *Pool) Size(isTaken func(netip.Addr) bool) (size, free int32) {
	p.eachOfMasters(func(ip netip.Addr) bool {
		size++
		if !isTaken(ip) {
			free++
		}
		return true
	})
	return size, free
}

// Client is the address of a client by its index; false if there are not as many.
func (p *Pool) Client(index int) (netip.Addr, bool) {
	clients, some := p.firstOfClients()
	var found netip.Addr
	if index < 0 || !some {
		return found, false
	}
	p.each(func(ip netip.Addr) bool {
		if !ip.Less(clients) {
			if index == 0 {
				found = ip
			}
			index--
		}
		return !found.IsValid()
	})
	return found, found.IsValid()
}

// Overlaps says whether an address can be in both.
func (p *Pool) Overlaps(other netip.Prefix) bool { return p.Range.Overlaps(other) }

func number(ip netip.Addr) uint64 {
	b := ip.As4()
	return uint64(binary.BigEndian.Uint32(b[:]))
}

func address(n uint64) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(n&math.MaxUint32))
	return netip.AddrFrom4(b)
}

// last address of a network.
func last(network netip.Prefix) netip.Addr {
	return address(number(network.Masked().Addr()) | (1<<(32-network.Bits()) - 1))
}

// MAC of an address: locally administered, and a function of the address. So it stays with the member as long as the address does, a
// fresh address has another one, and two are alike only where the addresses are.
func MAC(ip netip.Addr) string {
	b := ip.As4()
	return fmt.Sprintf("02:52:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

// MACOf is the hardware address that a port gets with an IP address; empty for a whole port, which keeps the one that it was made with.
func MACOf(profile v1alpha1.NetworkProfile, ip netip.Addr) string {
	if profile == v1alpha1.NetworkWholePort {
		return ""
	}
	return MAC(ip)
}

// Join is the text of the annotation that a pod's addresses are in.
func Join(list []netip.Addr) string {
	texts := make([]string, len(list))
	for i, ip := range list {
		texts[i] = ip.String()
	}
	return strings.Join(texts, ",")
}

// Split is its inverse; nil for what is none.
func Split(text string) []netip.Addr {
	var list []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil || !ip.Is4() {
			return nil
		}
		list = append(list, ip)
	}
	return list
}

// IsIn says whether an address, as text, is in a range.
func IsIn(address, part string) bool {
	ip, err := netip.ParseAddr(address)
	prefix, prefixErr := netip.ParsePrefix(part)
	return err == nil && prefixErr == nil && prefix.Contains(ip)
}
