package facts

import (
	"net/netip"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/capacity"
)

// Recorded is what the status has of a master; empty if it has nothing.
func (o *Observed) Recorded(member string) *v1alpha1.MemberStatus {
	members := o.Store.Status.Masters.Members
	i := slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Name == member })
	if i < 0 {
		return &v1alpha1.MemberStatus{}
	}
	return &members[i]
}

// OwnsAddresses says whether by the status the pod's addresses are its own.
func (o *Observed) OwnsAddresses(pod *Pod) bool {
	isSame := func(address v1alpha1.MemberAddress, ip netip.Addr) bool {
		return address.IP == ip.String() && address.Pod == pod.Name
	}
	recorded := o.Recorded(pod.Member)
	return recorded.Name != "" && slices.EqualFunc(recorded.Addresses, pod.Addresses, isSame)
}

// MaySend says whether by the status a pod may send under an address.
func (o *Observed) MaySend(pod string) bool {
	for i := range o.Store.Status.Masters.Members {
		has := func(address v1alpha1.MemberAddress) bool { return address.Pod == pod }
		if slices.ContainsFunc(o.Store.Status.Masters.Members[i].Addresses, has) {
			return true
		}
	}
	return o.Store.Status.Network != nil && slices.ContainsFunc(o.Store.Status.Network.Quarantined,
		func(entry v1alpha1.QuarantinedAddress) bool { return entry.Pod == pod })
}

// Measured is what the status has of a recovery that was large enough.
func (o *Observed) Measured() *capacity.Measured {
	if o.Store.Status.Capacity == nil || o.Store.Status.Capacity.Measured == nil {
		return nil
	}
	measured := o.Store.Status.Capacity.Measured
	return &capacity.Measured{Member: measured.Member, Bytes: measured.Bytes, Ms: measured.Ms, Cores: int(measured.Cores)}
}
