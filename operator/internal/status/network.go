package status

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// maxQuarantined is what the status has room for.
const maxQuarantined = 4000

// addresses of a member: those of a pod that was just made, or what the planner has found.
func addresses(view planner.MemberView, o facts.Observed, outcome Outcome) []v1alpha1.MemberAddress {
	var list []v1alpha1.MemberAddress
	for create := range steps.Of[steps.CreatePod](outcome.Done) {
		if create.Member != view.Name {
			continue
		}
		for _, ip := range create.Addresses {
			list = append(list, v1alpha1.MemberAddress{
				IP: ip.String(), MAC: macOf(o, ip), Pod: resources.PodName(o.Store.UID, create.Member, create.Number),
			})
		}
		return list
	}
	for _, address := range view.Addresses {
		entry := v1alpha1.MemberAddress{IP: address.IP.String(), MAC: macOf(o, address.IP), Pod: address.Pod}
		if address.Attached != nil {
			entry.Interface, entry.PCI = address.Attached.Interface, address.Attached.PCI
		}
		list = append(list, entry)
	}
	return list
}

func macOf(o facts.Observed, ip netip.Addr) string {
	return network.MACOf(o.Store.Spec.Network.Profile, ip)
}

// networkStatus is nil for a Store that has no addresses, and no one who may send under any.
func networkStatus(o facts.Observed, plan planner.Plan) *v1alpha1.NetworkStatus {
	if o.Store.DeletionTimestamp != nil {
		return o.Store.Status.Network
	}
	next := &v1alpha1.NetworkStatus{}
	for i := range plan.Addresses.Pools {
		next.Pools = append(next.Pools, v1alpha1.PoolStatus{
			Range: plan.Addresses.Pools[i].Range.String(), Size: plan.Addresses.Sizes[i], Free: plan.Addresses.Free[i],
		})
	}
	for _, q := range plan.Addresses.Quarantined[:min(len(plan.Addresses.Quarantined), maxQuarantined)] {
		entry := v1alpha1.QuarantinedAddress{
			IP: q.IP.String(), MAC: macOf(o, q.IP), Pod: q.Pod, Member: q.Member, Node: q.Node, Since: now(o),
			Reason: brief.Fit(q.Reason, maxWaitsFor),
		}
		if before := findQuarantined(o.Store.Status.Network, entry); before != nil {
			entry.Since = before.Since
		}
		next.Quarantined = append(next.Quarantined, entry)
	}
	if len(next.Pools) == 0 && len(next.Quarantined) == 0 {
		return nil
	}
	return next
}

func findQuarantined(status *v1alpha1.NetworkStatus, entry v1alpha1.QuarantinedAddress) *v1alpha1.QuarantinedAddress {
	if status == nil {
		return nil
	}
	i := slices.IndexFunc(status.Quarantined, func(q v1alpha1.QuarantinedAddress) bool { return q.IP == entry.IP && q.Pod == entry.Pod })
	if i < 0 {
		return nil
	}
	return &status.Quarantined[i]
}

// networkReady says whether masters have their ports, and whether there are addresses for those who may need others.
func networkReady(o facts.Observed, plan planner.Plan) verdict {
	no := func(reason, message string) verdict { return verdict{metav1.ConditionFalse, reason, message} }
	if o.Store.DeletionTimestamp != nil {
		return no(v1alpha1.ReasonDeleting, "the Store is being deleted")
	}
	if !o.Store.Spec.HasPorts() {
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonPodNetwork, "masters talk over the pod network"}
	}
	if isAsleep(plan) {
		return no(v1alpha1.ReasonHibernated, asleepMessage(plan))
	}
	if reason, message := addressTrouble(o, plan); reason != "" {
		return no(reason, message)
	}
	if reason, message := portTrouble(o, plan); reason != "" {
		return no(reason, message)
	}
	if reason, message := wayTrouble(plan); reason != "" {
		return no(reason, message)
	}
	return addressesLeft(o, plan)
}

// addressTrouble is about who has, or gets, which address; an empty reason where all is well.
func addressTrouble(o facts.Observed, plan planner.Plan) (reason, message string) {
	a := &plan.Addresses
	waiting := filter(plan.Masters, func(v planner.MemberView) bool { return strings.HasPrefix(v.AddressWait, "a free address") })
	switch {
	case a.Error != "":
		return v1alpha1.ReasonAddressesExhausted, "no address can be given to a member: " + a.Error
	case len(a.Conflicts) > 0:
		return v1alpha1.ReasonAddressConflict, strings.Join(a.Conflicts[:min(len(a.Conflicts), maxNamed)], "; ")
	case len(waiting) > 0 && a.Overlap != "":
		return v1alpha1.ReasonPoolsOverlap, fmt.Sprintf("%s for %s: Store %s is older and takes addresses from the same range; give this "+
			"one another addresses.range", waits(waiting), waiting[0].AddressWait, a.Overlap)
	case len(waiting) > 0:
		return v1alpha1.ReasonAddressesExhausted, fmt.Sprintf("make addresses.range larger: %s for %s%s", waits(waiting),
			waiting[0].AddressWait, quarantineHint(o, plan))
	case a.Overlap != "":
		return v1alpha1.ReasonPoolsOverlap, fmt.Sprintf("Store %s is older and takes addresses from the same range; give this one another "+
			"addresses.range", a.Overlap)
	default:
		return "", ""
	}
}

func waits(waiting []planner.MemberView) string {
	if len(waiting) == 1 {
		return names(waiting) + " waits"
	}
	return names(waiting) + " wait"
}

// quarantineHint tells of addresses that somebody could release.
func quarantineHint(o facts.Observed, plan planner.Plan) string {
	if len(plan.Addresses.Quarantined) == 0 {
		return ""
	}
	first := plan.Addresses.Quarantined[0]
	return fmt.Sprintf("; or release those of pods whose machine is off (in quarantine: %d, such as %s: %s): "+
		"kubectl rcbox net release -n %s %s %s", len(plan.Addresses.Quarantined), first.IP, first.Reason, o.Store.Namespace,
		o.Store.Name, first.Pod)
}

// portTrouble is about devices; an empty reason where all is well.
func portTrouble(o facts.Observed, plan planner.Plan) (reason, message string) {
	for i := range plan.Masters {
		if view := &plan.Masters[i]; view.Wanted && view.Refusals != nil {
			return v1alpha1.ReasonDeviceRefused, fmt.Sprintf("node %s rejected the last %s of %s (%s); the operator tries again with "+
				"growing pauses: kubectl rcbox why %s", orNode(view.Refusals.Node), count(int64(view.Refusals.Count), "pod"), view.Name,
				view.Refusals.Message, view.Name)
		}
	}
	for i := range plan.Masters {
		if view := &plan.Masters[i]; view.Wanted && view.Pod != nil && lacksDevice(view.Pod) {
			return v1alpha1.ReasonNoDevice, fmt.Sprintf("no node has what %s needs: %s", view.Name, view.Pod.Trouble)
		}
	}
	attaching := filter(plan.Masters, func(v planner.MemberView) bool {
		return v.Wanted && (v.Pod == nil || len(v.Pod.Addresses) > 0 && !v.Pod.AttachedKnown)
	})
	if len(attaching) > 0 {
		if message := notAttached(o, attaching); message != "" {
			return v1alpha1.ReasonNotAttached, message
		}
		return v1alpha1.ReasonAttaching, "the ports of " + names(attaching) + " are not attached yet, as far as Multus says"
	}
	return "", ""
}

// wayTrouble is about what does not go by the ports, as processes tell; an empty reason where everything does. The store works all the
// same, for they speak over the pod network then.
func wayTrouble(plan planner.Plan) (reason, message string) {
	tell := map[string]bool{}
	for i := range plan.Masters {
		view := &plan.Masters[i]
		tell[view.Name] = view.Wanted && view.Up && view.Reported != nil && len(view.Reported.Ports) > 0
	}
	var down, apart []string
	for i := range plan.Masters {
		view := &plan.Masters[i]
		if !tell[view.Name] {
			continue
		}
		for _, port := range view.Reported.Ports {
			if port.LinkDown {
				down = append(down, fmt.Sprintf("%s (%s)", view.Name, port.IP))
			}
			// A peer that is not up, or has no port any more, is another trouble.
			unreached := slices.DeleteFunc(slices.Clone(port.Unreached), func(peer string) bool { return !tell[peer] })
			if len(unreached) > 0 {
				apart = append(apart, fmt.Sprintf("%s (%s) to %s", view.Name, port.IP, strings.Join(firstNamed(unreached), ", ")))
			}
		}
	}
	switch {
	case len(down) > 0:
		return v1alpha1.ReasonLinkDown, "ports without a link: " + strings.Join(firstNamed(down), ", ") +
			"; their traffic takes another port, or the pod network if there is none. Check cable, switch and interface"
	case len(apart) > 0:
		return v1alpha1.ReasonPeersUnreached, "masters that reach each other by the pod network only, though both have ports: " +
			strings.Join(firstNamed(apart), "; ") + "; check the network between these ports"
	default:
		return "", ""
	}
}

// firstNamed are as many as a message names, and how many more there are.
func firstNamed(list []string) []string {
	if len(list) <= maxNamed {
		return list
	}
	return append(slices.Clone(list[:maxNamed]), fmt.Sprintf("%d more", len(list)-maxNamed))
}

func orNode(node string) string {
	if node == "" {
		return "unknown"
	}
	return node
}

// lacksDevice: the scheduler says that there is not enough of an extended resource, or of huge pages, that the pod asks for.
func lacksDevice(pod *facts.Pod) bool {
	if pod.Inputs.Network == nil {
		return false
	}
	lacks := func(name string) bool { return strings.Contains(pod.Trouble, "Insufficient "+name) }
	return lacks(corev1.ResourceHugePagesPrefix) ||
		slices.ContainsFunc(pod.Inputs.Network.Ports, func(port resources.Port) bool {
			return port.ResourceName != "" && lacks(port.ResourceName)
		})
}

// addressesLeft warns before it hurts: each member that is lost with its node needs an address while its former one is in quarantine.
func addressesLeft(o facts.Observed, plan planner.Plan) verdict {
	spare := planner.SpareAddresses(o.Store)
	var left strings.Builder
	left.WriteString(count(int64(len(plan.Masters)), "master") + " have their ports")
	low := false
	for i, free := range plan.Addresses.Free {
		low = low || free < spare
		fmt.Fprintf(&left, "; %d of %d addresses of %s are free", free, plan.Addresses.Sizes[i], plan.Addresses.Pools[i].Range)
	}
	if low {
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonAddressesLow, fmt.Sprintf("members that are lost with their nodes may need %d "+
			"addresses of each range: make addresses.range larger; %s%s", spare, left.String(), quarantineHint(o, plan))}
	}
	return verdict{metav1.ConditionTrue, v1alpha1.ReasonAttached, left.String()}
}

// quarantineEvents tells of addresses that nobody gets any more, and of those that somebody may get again.
func quarantineEvents(old, next *v1alpha1.StoreStatus) []Event {
	var list []Event
	if next.Network != nil {
		for _, entry := range next.Network.Quarantined {
			if findQuarantined(old.Network, entry) == nil {
				event := warning("AddressQuarantined", fmt.Sprintf("address %s of pod %s (%s) is in quarantine, and given to no other "+
					"pod: %s", entry.IP, entry.Pod, entry.Member, entry.Reason))
				event.Action = "Quarantine " + entry.IP
				list = append(list, event)
			}
		}
	}
	if old.Network != nil {
		for _, entry := range old.Network.Quarantined {
			if findQuarantined(next.Network, entry) == nil {
				free := event(corev1.EventTypeNormal, "AddressReleased", fmt.Sprintf("address %s is free again: pod %s does not "+
					"use it any more", entry.IP, entry.Pod))
				free.Action = "Release " + entry.IP
				list = append(list, free)
			}
		}
	}
	return list
}
