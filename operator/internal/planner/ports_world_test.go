package planner_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// sender is a process that may send under addresses: one that was started in a pod with ports, until its kubelet has ended it.
type sender struct {
	addresses []netip.Addr
	node      string
}

// newPortsWorld has masters with two ports each, and copies in volumes.
func newPortsWorld(replicas int32, pool string) *world {
	w := newReplicatedWorld(replicas)
	w.isLocal, w.allowed = true, facts.Allowed{Capabilities: []string{"IPC_LOCK"}}
	attachment := func(name, cidr string) v1alpha1.NetworkAttachment {
		return v1alpha1.NetworkAttachment{
			NetworkAttachmentDefinition: name, ResourceName: "intel.com/rcbox", Addresses: v1alpha1.AddressPool{CIDR: cidr, Range: pool},
		}
	}
	w.store.Spec.Network = v1alpha1.NetworkSpec{
		Transport: v1alpha1.TransportDPDK, Provider: v1alpha1.NetworkDevicePlugin, Profile: v1alpha1.NetworkVF, MTU: 1500,
		Attachments: []v1alpha1.NetworkAttachment{attachment("a", "10.0.0.0/24"), attachment("b", "10.1.0.0/24")},
		Hugepages:   &v1alpha1.NetworkHugepages{PageSize: "2Mi", Size: resource.MustParse("128Mi")},
	}
	w.store.Spec.Network.Attachments[1].Addresses.Range = ""
	return w
}

func (w *world) observePorts(o *facts.Observed) {
	o.Foreign = w.foreigners
	if len(w.released) > 0 {
		if o.Store.Annotations == nil {
			o.Store.Annotations = map[string]string{}
		}
		o.Store.Annotations[v1alpha1.AnnotationReleasedAddresses] = strings.Join(w.released, ",")
	}
}

// checkAddresses: nobody else may send under them.
func (w *world) checkAddresses(pod *fakePod) {
	for name, other := range w.senders {
		for _, ip := range pod.Addresses {
			if name != pod.Name && slices.Contains(other.addresses, ip) {
				w.broken = append(w.broken, fmt.Sprintf("%s gets %s, under which %s may send", pod.Name, ip, name))
			}
		}
	}
	if ports := pod.Inputs.Network; ports != nil && pod.Component == v1alpha1.ComponentMaster && len(pod.Addresses) != len(ports.Ports) {
		w.broken = append(w.broken, fmt.Sprintf("%s has the addresses %v for %d ports", pod.Name, pod.Addresses, len(ports.Ports)))
	}
}

// send: the process was started.
func (w *world) send(pod *fakePod) {
	if len(pod.Addresses) == 0 {
		return
	}
	w.checkAddresses(pod)
	w.senders[pod.Name] = sender{pod.Addresses, pod.Node}
	pod.AttachedKnown, pod.Attached = true, nil
	for port, ip := range pod.Addresses {
		pod.Attached = append(pod.Attached, network.Attached{
			Definition: "default/" + pod.Inputs.Network.Ports[port].Definition, Interface: network.Interface(port),
			MAC: network.MAC(ip), IPs: []netip.Addr{ip}, PCI: fmt.Sprintf("0000:3b:02.%d", port),
		})
	}
}

// removeByForce takes a pod away, finalizer and all, while its process runs on.
func (w *world) removeByForce(pod *fakePod) {
	w.stop(pod)
	delete(w.pods, pod.Name)
}

// killOrphaned: a kubelet ends what it has no pod for.
func (w *world) killOrphaned(node string) {
	for name, orphaned := range w.senders {
		if orphaned.node == node && w.pods[name] == nil {
			delete(w.senders, name)
		}
	}
}

// sayWhatIsSilent releases all pods in quarantine that send nothing.
func (w *world) sayWhatIsSilent() {
	if w.store.Status.Network == nil {
		return
	}
	for _, entry := range w.store.Status.Network.Quarantined {
		if _, sends := w.senders[entry.Pod]; !sends && !slices.Contains(w.released, entry.Pod) {
			w.released = append(w.released, entry.Pod)
		}
	}
}

// releasePod: of one that sends nothing, as far as anybody can know.
func (w *world) releasePod(step steps.ReleasePod) {
	pod := w.pods[step.Pod.Name]
	_, sends := w.senders[pod.Name]
	if !pod.Terminating() || sends && w.store.DeletionTimestamp == nil && !slices.Contains(w.released, pod.Name) {
		panic(pod.Name + " is let go, and may send")
	}
	pod.IsHeld = false
	if pod.Ended {
		delete(w.pods, pod.Name)
	}
}

// orphanedNodes are those on which a process runs whose pod is gone.
func (w *world) orphanedNodes() map[string]bool {
	nodes := map[string]bool{}
	for name, orphaned := range w.senders {
		if w.pods[name] == nil && !w.dead[orphaned.node] {
			nodes[orphaned.node] = true
		}
	}
	return nodes
}
