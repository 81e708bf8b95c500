package facts

import (
	"net/netip"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/capacity"
)

// RecordedLoss is what the status has.
func (o *Observed) RecordedLoss(member string) *v1alpha1.LostStatus {
	members := o.Store.Status.Masters.Members
	i := slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Name == member })
	if i < 0 {
		return nil
	}
	return members[i].Lost
}

// RecordedEvacuation is what the status has.
func (o *Observed) RecordedEvacuation(member string) *v1alpha1.EvacuationStatus {
	members := o.Store.Status.Masters.Members
	i := slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Name == member })
	if i < 0 {
		return nil
	}
	return members[i].Evacuation
}

// RecordedFailures is what the status has.
func (o *Observed) RecordedFailures(member string) *v1alpha1.FailureStatus {
	members := o.Store.Status.Masters.Members
	i := slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Name == member })
	if i < 0 {
		return nil
	}
	return members[i].Failures
}

// IsRecordedFor says whether by the status the pod's addresses are its own.
func (o *Observed) IsRecordedFor(pod *Pod) bool {
	members := o.Store.Status.Masters.Members
	i := slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Name == pod.Member })
	return i >= 0 && slices.EqualFunc(members[i].Addresses, pod.Addresses, func(address v1alpha1.MemberAddress, ip netip.Addr) bool {
		return address.IP == ip.String() && address.Pod == pod.Name
	})
}

// IsOnRecord says whether by the status a pod may send under an address.
func (o *Observed) IsOnRecord(pod string) bool {
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
