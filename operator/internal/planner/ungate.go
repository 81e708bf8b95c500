package planner

import (
	"fmt"
	"net/netip"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// ungatePods lets pods be started whose addresses are on record as their own. A pod may be made late, by an operator that stood still
// meanwhile, with addresses that another pod has by now, and no precondition keeps it from that. So it is made with a gate, and is nothing
// but an offer. The status says whose an address is, and of two operators that write it one wins. A gate is opened in the version of
// the pod that was seen, by who has seen record and pods without the cache; and an offer that comes too late is deleted.
func (p *planning) ungatePods(masters []*member) {
	for _, m := range masters {
		for i, pod := range m.live {
			if !pod.Gated || p.isEnded(pod) {
				continue
			}
			p.lookAgainIn(turnInterval)
			rivals, isRecorded := p.book.rivals(pod), p.observed.isRecordedFor(pod)
			why := p.book.whyInVain(pod)
			switch {
			case why != "":
				p.add(DeletePod{Member: m.name, Pod: pod.Ref(), Why: why})
			case i == 0 && isRecorded && len(rivals) == 0:
				p.add(UngatePod{Member: m.name, Pod: pod.Ref(), Why: "its addresses are on record"})
			}
		}
	}
}

// isEnded says whether this plan ends the pod.
func (p *planning) isEnded(pod *Pod) bool {
	return slices.ContainsFunc(p.plan.Steps, func(step Step) bool {
		end, isEnd := step.(DeletePod)
		return isEnd && end.Pod.UID == pod.UID
	})
}

// whyInVain says why a pod that was not started yet never will be with its addresses; empty for any other.
func (b *addressBook) whyInVain(pod *Pod) string {
	if !pod.Gated || pod.Terminating() || b.observed.isRecordedFor(pod) {
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
	if rivals := b.rivals(pod); len(rivals) > 0 {
		return fmt.Sprintf("it was made too late: pod %s has one of its addresses", rivals[0])
	}
	return ""
}

// rivals are other pods that may send under an address of this one, or will when they are ungated.
func (b *addressBook) rivals(pod *Pod) []string {
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

// isRecordedFor says whether by the status the pod's addresses are its own.
func (o *Observed) isRecordedFor(pod *Pod) bool {
	members := o.Store.Status.Masters.Members
	i := slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Name == pod.Member })
	return i >= 0 && slices.EqualFunc(members[i].Addresses, pod.Addresses, func(address v1alpha1.MemberAddress, ip netip.Addr) bool {
		return address.IP == ip.String() && address.Pod == pod.Name
	})
}
