package why

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// again is what becomes of a pod that a kubelet refused.
const again = "The operator makes another one, after 10 s, then 20 s, and so on up to 5 minutes; the member keeps its addresses."

// refused is about a pod that has ended because its kubelet did not admit it: the scheduler took the node to have what it asks for.
func (e *Evidence) refused() (Finding, bool) {
	status := &e.Pod.Status
	words := refusalWords(status.Reason, status.Message)
	if words == "" {
		return Finding{}, false
	}
	finding := Finding{
		Sentence: fmt.Sprintf("Node %s did not admit pod %s: %s.", cmp.Or(e.Pod.Spec.NodeName, "unknown"), e.Pod.Name, words),
		Details:  append([]string{"kubelet: " + status.Reason + ": " + status.Message, again}, e.refusals()...),
	}
	if node := e.Pod.Spec.NodeName; node != "" {
		finding.Commands = []string{"kubectl describe node " + node, "kubectl get node " + node + " -o jsonpath='{.status.allocatable}'"}
	}
	return finding, true
}

// refusalWords say what a kubelet's reason means; empty for what is none.
func refusalWords(reason, message string) string {
	lower := strings.ToLower(message)
	switch {
	case reason == "TopologyAffinityError":
		return "no NUMA node of it has enough free CPUs, memory, huge pages and a port together, although it has in all"
	case reason == "SMTAlignmentError":
		return "it gives CPUs away by whole cores, and masters.cores is no multiple of the threads of one (full-pcpus-only)"
	case reason == "UnexpectedAdmissionError" && strings.Contains(lower, "devices unavailable"):
		return "it has no free port to hand out; after a restart of the node the device plugin may not have registered yet"
	case reason == "UnexpectedAdmissionError" && strings.Contains(lower, "no healthy devices"):
		return "its device plugin says that no port there is healthy: look at the link, and at the driver of the device"
	case reason == "UnexpectedAdmissionError" && strings.Contains(lower, "memory"):
		return "its memory manager cannot give memory or huge pages of one NUMA node"
	case reason == "UnexpectedAdmissionError":
		return "a device, CPUs or memory could not be given to it"
	case strings.HasPrefix(reason, "OutOfhugepages"):
		return "it has no huge pages left; those that were reserved after its kubelet started, the kubelet does not count"
	case strings.HasPrefix(reason, "OutOf"):
		return "it has not enough " + strings.TrimPrefix(reason, "OutOf") + " left by now"
	case reason == "NodeAffinity":
		return "its labels are not those any more that the pod asks for"
	case reason == "UnschedulableTaint":
		return "it got a taint that the Store does not tolerate"
	default:
		return ""
	}
}

// refusals are what the operator has counted.
func (e *Evidence) refusals() []string {
	if e.Store == nil {
		return nil
	}
	for i := range e.Store.Status.Masters.Members {
		if member := &e.Store.Status.Masters.Members[i]; member.Name == e.Member && member.Refusals != nil {
			return []string{fmt.Sprintf("%d pods of %s in a row were refused since %s.", member.Refusals.Count, member.Name,
				member.Refusals.Since.UTC().Format("2006-01-02 15:04:05 UTC"))}
		}
	}
	return nil
}

// waitsForAddress is about a member that has no pod because no address of its ports is free.
func (e *Evidence) waitsForAddress() string {
	if !e.Store.Spec.HasPorts() {
		return ""
	}
	for _, condition := range e.Store.Status.Conditions {
		isTrouble := condition.Reason == v1alpha1.ReasonAddressesExhausted || condition.Reason == v1alpha1.ReasonPoolsOverlap
		if condition.Type == v1alpha1.ConditionNetworkReady && isTrouble && strings.Contains(condition.Message, e.Member) {
			return condition.Message
		}
	}
	return ""
}

// portWords say what it means that nodes lack something that ports need; empty for anything else.
func (e *Evidence) portWords(resource string) string {
	if e.Store == nil || !e.Store.Spec.HasPorts() {
		return ""
	}
	if strings.HasPrefix(resource, corev1.ResourceHugePagesPrefix) {
		return fmt.Sprintf("has not enough huge pages left (%s: it asks for %s; reserve them before the kubelet starts)",
			resource, e.request(corev1.ResourceName(resource)))
	}
	for i := range e.Store.Spec.Network.Attachments {
		if e.Store.Spec.Network.Attachments[i].ResourceName == resource {
			return fmt.Sprintf("has no free port (%s: it asks for %s; is the device plugin up there, and is the device bound?)",
				resource, e.request(corev1.ResourceName(resource)))
		}
	}
	return ""
}
