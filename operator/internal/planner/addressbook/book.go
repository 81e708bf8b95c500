// Package addressbook has who may send under which address of a Store's ports, and gives members theirs.
package addressbook

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// addressPatience is how long past its time a pod may take to end before its member gets a fresh address: it is worth some waiting, and
// nobody waits for a node that does not answer.
const addressPatience = 15 * time.Second

// Address is what a member has on one of its ports.
type Address struct {
	IP netip.Addr
	// Pod that has it, or had it last and may still send under it; empty if there is none such.
	Pod string
	// Attached is what Multus says of the port; nil if it has said nothing.
	Attached *network.Attached
}

// Quarantined is an address that nobody gets.
type Quarantined struct {
	IP     netip.Addr
	Pod    string
	Member string
	Node   string
	Reason string
}

// Book is all that a plan needs to know of addresses.
type Book struct {
	observed *facts.Observed
	pools    []network.Pool
	// holders may send under an address, as far as is known: pods that have not ended, and pods of which nobody saw how they ended.
	holders map[netip.Addr][]holder
	// owners are the members whose address it is, whoever has it.
	owners map[netip.Addr]string
	// foreign addresses, by whose they are.
	foreign     map[netip.Addr]bool
	olderRanges []netip.Prefix
}

// holder is a pod that may send under an address.
type holder struct {
	member, pod, node string
	// seen is nil for one that is not there any more, and that nobody saw end.
	seen *facts.Pod
}

// New is empty for a Store on the pod network, but for what pods have that were made when it was on another one.
func New(o *facts.Observed, pools []network.Pool) *Book {
	b := &Book{
		observed: o, pools: pools, holders: map[netip.Addr][]holder{}, owners: map[netip.Addr]string{}, foreign: map[netip.Addr]bool{},
	}
	for i := range o.Pods {
		if pod := &o.Pods[i]; !b.IsSilent(pod) {
			for _, ip := range pod.Addresses {
				b.holders[ip] = append(b.holders[ip], holder{pod.Member, pod.Name, pod.Node, pod})
			}
		}
	}
	for i := range o.Store.Status.Masters.Members {
		member := &o.Store.Status.Masters.Members[i]
		for _, address := range member.Addresses {
			node := ""
			if member.Pod == address.Pod {
				node = member.Node
			}
			b.recall(address.IP, address.Pod, member.Name, node)
			if ip, err := netip.ParseAddr(address.IP); err == nil {
				b.claim(ip, member.Name)
			}
		}
	}
	if o.Store.Status.Network != nil {
		for _, entry := range o.Store.Status.Network.Quarantined {
			b.recall(entry.IP, entry.Pod, entry.Member, entry.Node)
		}
	}
	for _, foreign := range o.Foreign {
		for _, ip := range foreign.Addresses {
			b.foreign[ip] = true
		}
		if foreign.IsOlder {
			b.olderRanges = append(b.olderRanges, foreign.Ranges...)
		}
	}
	return b
}

// claim notes that an address is a member's by its record. Records of members are written one by one, so that two operators may give two
// members the same address: then it is that member's whose pod was started with it, else the first one's, and the other member gets
// another. No pod is started while another one has its address, so that at most one of the two was.
func (b *Book) claim(ip netip.Addr, member string) {
	if _, isOwned := b.owners[ip]; isOwned && !b.isStarted(ip, member) {
		return
	}
	b.owners[ip] = member
}

// isStarted says whether a pod of the member has the address, and waits for nothing.
func (b *Book) isStarted(ip netip.Addr, member string) bool {
	return slices.ContainsFunc(b.holders[ip], func(h holder) bool { return h.member == member && h.seen != nil && !h.seen.Gated })
}

// Owns says whether the pod's addresses are its own: they are on record, and no other member's.
func (b *Book) Owns(pod *facts.Pod) bool {
	isIts := func(ip netip.Addr) bool { return b.owners[ip] == pod.Member }
	return b.observed.OwnsAddresses(pod) && !slices.ContainsFunc(pod.Addresses, func(ip netip.Addr) bool { return !isIts(ip) })
}

// recall notes a pod that is on record, and is not there any more without that anybody saw it end.
func (b *Book) recall(address, pod, member, node string) {
	ip, err := netip.ParseAddr(address)
	isIt := func(h holder) bool { return h.pod == pod }
	isThere := func(p facts.Pod) bool { return p.Name == pod }
	if err != nil || pod == "" || slices.ContainsFunc(b.holders[ip], isIt) || slices.ContainsFunc(b.observed.Pods, isThere) ||
		slices.Contains(b.observed.Store.ReleasedPods(), pod) || b.isOff(node) {
		return
	}
	b.holders[ip] = append(b.holders[ip], holder{member: member, pod: pod, node: node})
}

// IsSilent says whether it is proven that a pod sends nothing any more: its kubelet says so, somebody else says that its node is out of
// service, or somebody says it of the pod.
func (b *Book) IsSilent(pod *facts.Pod) bool {
	return pod.Ended || pod.Terminating() && (b.isOff(pod.Node) || slices.Contains(b.observed.Store.ReleasedPods(), pod.Name))
}

// isOff says whether a node is known to be off. That this Store has put it out of service itself tells nothing more than that it is not
// ready: then its network may work.
func (b *Book) isOff(node string) bool {
	if node == "" {
		return false
	}
	isIt := func(f v1alpha1.FenceStatus) bool { return f.Node == node }
	i := slices.IndexFunc(b.observed.Store.Status.Fences, isIt)
	if i >= 0 && b.observed.Store.Status.Fences[i].Type == v1alpha1.FencingRemediation && b.observed.Fences[node].Done ||
		b.observed.IsProvedOff(node) {
		return true
	}
	isOwn := i >= 0 && b.observed.Fences[node].Requested
	return b.observed.Nodes[node].OutOfService && !isOwn
}

// isTaken says whether a member must not get an address that is in the pool.
func (b *Book) isTaken(ip netip.Addr, member string) bool {
	owner, isOwned := b.owners[ip]
	return len(b.holders[ip]) > 0 || isOwned && owner != member || b.foreign[ip] ||
		slices.ContainsFunc(b.olderRanges, func(part netip.Prefix) bool { return part.Contains(ip) })
}

// own is what the member had last: by the status, or else by its newest pod.
func (b *Book) own(member string) []netip.Addr {
	list := b.recorded(member)
	var newest int64
	for j := range b.observed.Pods {
		pod := &b.observed.Pods[j]
		if pod.Member == member && len(pod.Addresses) > 0 && (len(list) == 0 || newest > 0) && pod.Number > newest {
			list, newest = pod.Addresses, pod.Number
		}
	}
	return list
}

// recorded is what the status has of a member.
func (b *Book) recorded(member string) []netip.Addr {
	var list []netip.Addr
	for _, address := range b.observed.Recorded(member).Addresses {
		if ip, err := netip.ParseAddr(address.IP); err == nil {
			list = append(list, ip)
		}
	}
	return list
}

// Allot gives a member that is to get a pod an address for each port: its own if nobody may still send under it, else a fresh one. Where
// that cannot be, it says what is waited for.
func (b *Book) Allot(member string) (addresses []netip.Addr, waitsFor string) {
	own := b.own(member)
	for _, ip := range own {
		if pod := b.ending(ip, member); pod != nil {
			return nil, fmt.Sprintf("pod %s to end, which has the address %s", pod.Name, ip)
		}
	}
	for port := range b.pools {
		pool := &b.pools[port]
		isTaken := func(ip netip.Addr) bool { return b.isTaken(ip, member) || slices.Contains(addresses, ip) }
		if port < len(own) && pool.Contains(own[port]) && !isTaken(own[port]) {
			addresses = append(addresses, own[port])
			continue
		}
		// Of members without a pod the address is kept: they come back.
		ip, found := pool.First(isTaken)
		if !found {
			return nil, fmt.Sprintf("a free address of %s", pool.Range)
		}
		addresses = append(addresses, ip)
	}
	for _, ip := range addresses {
		b.owners[ip] = member
		b.holders[ip] = append(b.holders[ip], holder{member: member}) // a pod of this plan
	}
	return addresses, ""
}

// ending is a pod of the member that has the address, and may be expected to end: it was told to, and its node answers.
func (b *Book) ending(ip netip.Addr, member string) *facts.Pod {
	for _, h := range b.holders[ip] {
		if h.member != member || h.seen == nil || !h.seen.Terminating() {
			continue
		}
		node, isKnown := b.observed.Nodes[h.node]
		if b.observed.Now.Before(h.seen.EndsAt.Add(addressPatience)) && (!isKnown || node.Ready) {
			return h.seen
		}
	}
	return nil
}

// AddressesOf is what the member has, with whoever may still send under it.
func (b *Book) AddressesOf(m *facts.Member) []Address {
	own, pod := b.own(m.Name), m.Pod()
	if pod != nil && len(pod.Addresses) > 0 {
		own = pod.Addresses
		if b.WhyInVain(pod) != "" {
			own, pod = b.recorded(m.Name), nil
		}
	}
	var list []Address
	for port, ip := range own {
		address := Address{IP: ip}
		for _, h := range b.holders[ip] {
			if h.member == m.Name {
				address.Pod = h.pod
			}
		}
		if pod != nil && slices.Contains(pod.Addresses, ip) {
			if !b.IsSilent(pod) {
				address.Pod = pod.Name
			}
			for i := range pod.Attached {
				if pod.Attached[i].Interface == network.Interface(port) {
					address.Attached = &pod.Attached[i]
				}
			}
		}
		list = append(list, address)
	}
	return list
}

// Quarantined are the addresses under which somebody may still send that is not, or will not be, the member's pod any more. One that was
// just told to end is given its time.
func (b *Book) Quarantined(masters []*facts.Member) []Quarantined {
	live := map[string]bool{}
	for _, m := range masters {
		if pod := m.Pod(); pod != nil {
			live[pod.Name] = true
		}
	}
	var list []Quarantined
	for ip, holders := range b.holders {
		for _, h := range holders {
			if h.pod == "" || live[h.pod] || b.ending(ip, h.member) != nil {
				continue
			}
			list = append(list, Quarantined{IP: ip, Pod: h.pod, Member: h.member, Node: h.node, Reason: b.whyQuarantined(h)})
		}
	}
	slices.SortFunc(list, func(x, y Quarantined) int {
		if order := x.IP.Compare(y.IP); order != 0 {
			return order
		}
		return strings.Compare(x.Pod, y.Pod)
	})
	return list
}

// Room is how many addresses each pool has, and how many of these are free.
func (b *Book) Room() (sizes, free []int32) {
	for i := range b.pools {
		size, left := b.pools[i].Size(func(ip netip.Addr) bool { return b.isTaken(ip, "") })
		sizes, free = append(sizes, size), append(free, left)
	}
	return sizes, free
}

func (b *Book) whyQuarantined(h holder) string {
	node, isKnown := b.observed.Nodes[h.node]
	switch {
	case h.seen == nil:
		return "the pod was removed by force, and nobody saw it end"
	case isKnown && node.Deleted:
		return "its node was deleted, which does not stop a machine"
	case isKnown && !node.Ready:
		return "its node does not answer"
	default:
		return "its kubelet has not said that it has ended"
	}
}

// Conflicts says what of the pods' ports is not as it was asked for, and which pods have the same address.
func (b *Book) Conflicts(masters []*facts.Member) []string {
	var list []string
	attachments := network.Attachments(&b.observed.Store.Spec)
	seen := map[netip.Addr]string{}
	for _, m := range masters {
		pod := m.Pod()
		if pod == nil {
			continue
		}
		for port, ip := range pod.Addresses {
			if other, twice := seen[ip]; twice {
				list = append(list, fmt.Sprintf("pods %s and %s both have %s", other, pod.Name, ip))
			}
			seen[ip] = pod.Name
			if pod.AttachedKnown && port < len(attachments) && pod.Inputs.Network != nil {
				asked := network.Asked{
					Definition: network.Qualified(attachments[port].Definition, b.observed.Store.Namespace),
					IP:         ip, MAC: network.MACOf(pod.Inputs.Network.Profile, ip),
				}
				if differs := network.Differs(pod.Attached, port, asked); differs != "" {
					list = append(list, fmt.Sprintf("pod %s: %s", pod.Name, differs))
				}
			}
		}
	}
	return list
}

// Overlap names the first older Store that takes addresses from the same range.
func (b *Book) Overlap() string {
	for _, foreign := range b.observed.Foreign {
		for _, part := range foreign.Ranges {
			if foreign.IsOlder && slices.ContainsFunc(b.pools, func(pool network.Pool) bool { return pool.Overlaps(part) }) {
				return fmt.Sprintf("%s (%s)", foreign.Store, part)
			}
		}
	}
	return ""
}

// WhyInVain says why a pod that was not started yet never will be with its addresses; empty for any other.
func (b *Book) WhyInVain(pod *facts.Pod) string {
	if !pod.Gated || pod.Terminating() || b.Owns(pod) {
		return ""
	}
	for _, ip := range pod.Addresses {
		if owner, isOwned := b.owners[ip]; isOwned && owner != pod.Member {
			return fmt.Sprintf("it was made too late: %s is the address of %s", ip, owner)
		}
		if b.foreign[ip] {
			return fmt.Sprintf("it was made too late: %s is the address of another Store", ip)
		}
	}
	if rivals := b.Rivals(pod); len(rivals) > 0 {
		return fmt.Sprintf("it was made too late: pod %s has one of its addresses", rivals[0])
	}
	return ""
}

// Rivals are other pods that may send under an address of this one, or will when they are ungated.
func (b *Book) Rivals(pod *facts.Pod) []string {
	var names []string
	for _, ip := range pod.Addresses {
		for _, h := range b.holders[ip] {
			if h.pod != "" && h.pod != pod.Name {
				names = append(names, h.pod)
			}
		}
	}
	return names
}
