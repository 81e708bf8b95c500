package layout

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/box/ranges"
)

// Cluster has the known addresses that the cluster itself uses.
type Cluster struct {
	// APIServer is the address by which pods reach the API server; not valid: it is not known, or pods use a name.
	APIServer netip.Addr
	// Pods are the ranges of addresses that nodes give to pods.
	Pods []netip.Prefix
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	reserved    = netip.MustParsePrefix("240.0.0.0/4")
)

// whyNoHost says why no machine in a network can have this address; empty if one can. Controllers of an emulated chassis may be programs on
// the box controller's own machine.
func (l *Layout) whyNoHost(address netip.Addr) string {
	switch {
	case address.IsLoopback() && l.Model != nil && l.Model.IsEmulated():
		return ""
	case address.IsLoopback():
		return "loopback addresses are those of the box controller's own pod"
	case address.IsUnspecified() || thisNetwork.Contains(address):
		return "no machine has an address that begins with 0"
	case address.IsMulticast():
		return "a multicast address belongs to a group of machines"
	case address.IsLinkLocalUnicast():
		return "link-local addresses do not lead beyond the box controller's own machine"
	case reserved.Contains(address):
		return "addresses from 240.0.0.0 on are reserved, and 255.255.255.255 is the broadcast address"
	}
	return ""
}

// checkHosts refuses addresses that no machine can have. It gives each reason once, with all addresses that the reason applies to.
func (l *Layout) checkHosts(field string, addresses []netip.Addr) {
	l.refuseSome(field, addresses, l.whyNoHost)
}

func (l *Layout) refuseSome(field string, addresses []netip.Addr, why func(netip.Addr) string) {
	var reasons []string
	by := map[string][]string{}
	for _, address := range addresses {
		if reason := why(address); reason != "" {
			if by[reason] == nil {
				reasons = append(reasons, reason)
			}
			by[reason] = append(by[reason], address.String())
		}
	}
	for _, reason := range reasons {
		l.refuse(field, "names %s: %s; write others", some("address", by[reason]), reason)
	}
}

// CheckCluster refuses addresses of BMCs that the cluster itself uses. A growing cluster gets more ranges for pods, and a network plug-in
// may use other ranges. So addresses that were accepted before stay accepted, and the condition of the Chassis only mentions them.
// Addresses that an edit adds are refused.
func (l *Layout) CheckCluster(chassis *v1alpha1.Chassis, cluster Cluster) {
	why := func(address netip.Addr) string {
		if address == cluster.APIServer {
			return "it is the address of the Kubernetes API server"
		}
		if slices.ContainsFunc(cluster.Pods, func(pods netip.Prefix) bool { return pods.Contains(address) }) {
			return "nodes give such addresses to pods (spec.podCIDRs of a node)"
		}
		return ""
	}
	isAccepted := acceptedBefore(chassis)
	whyIf := func(wasAccepted bool) func(netip.Addr) string {
		return func(address netip.Addr) string {
			if isAccepted(address) != wasAccepted {
				return ""
			}
			return why(address)
		}
	}
	for field, addresses := range l.controllers() {
		first := len(l.Problems)
		l.refuseSome(field, addresses, whyIf(true))
		for _, problem := range l.Problems[first:] {
			l.note("%s %s", problem.Field, problem.Text)
		}
		l.Problems = l.Problems[:first]
		l.refuseSome(field, addresses, whyIf(false))
	}
}

// acceptedBefore says which addresses were accepted before. A Chassis that was accepted by a version without a record of the addresses has
// none of them changed since, if its generation is still the one that was accepted.
func acceptedBefore(chassis *v1alpha1.Chassis) func(netip.Addr) bool {
	status := &chassis.Status
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAccepted)
	if len(status.AcceptedAddresses) == 0 {
		isAccepted := condition != nil && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == chassis.Generation
		return func(netip.Addr) bool { return isAccepted }
	}
	accepted := map[netip.Addr]bool{}
	for _, text := range status.AcceptedAddresses {
		if address, err := netip.ParseAddr(text); err == nil { // also one that ends in .0 or .255, which no list has
			accepted[address] = true
		} else if list, err := ranges.ParseAddresses(text, netip.Prefix{}); err == nil {
			for _, address := range names.Addresses(list) {
				accepted[address] = true
			}
		}
	}
	return func(address netip.Addr) bool { return accepted[address.Unmap()] }
}

// listAddresses lists the addresses of all controllers in the form of the status.
func (l *Layout) listAddresses() []string {
	var lists, others []string
	for _, addresses := range l.controllers() {
		sorted := slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)
		var inList []netip.Addr
		for _, address := range slices.Compact(sorted) {
			if address.Is4() {
				inList = append(inList, address)
			} else {
				others = append(others, address.String())
			}
		}
		list := ranges.OfAddresses(inList)
		for i := range list {
			lists = append(lists, list[i:i+1].String())
		}
	}
	return append(lists, others...)
}

// controllers yields the addresses of BMCs for each field that has such addresses, in the order of the fields.
func (l *Layout) controllers() func(func(string, []netip.Addr) bool) {
	var servers, managers, boards []netip.Addr
	for i := range l.Servers {
		if l.Servers[i].MMC.IsValid() {
			servers = append(servers, l.Servers[i].MMC)
		}
	}
	for _, controller := range l.Controllers {
		if isBoard(controller.Role) {
			boards = append(boards, controller.Address)
		} else {
			managers = append(managers, controller.Address)
		}
	}
	return func(yield func(string, []netip.Addr) bool) {
		_ = yield(fieldMMC, servers) && yield(fieldCMM, managers) && yield(fieldONS, boards)
	}
}
