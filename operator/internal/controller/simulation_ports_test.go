package controller

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
)

// portsOfSimulation: two ports, one with few addresses.
func portsOfSimulation() v1alpha1.NetworkSpec {
	attachment := func(name string, pool v1alpha1.AddressPool) v1alpha1.NetworkAttachment {
		return v1alpha1.NetworkAttachment{NetworkAttachmentDefinition: name, ResourceName: "rcbox.dev/port", Addresses: pool}
	}
	return v1alpha1.NetworkSpec{
		Transport: v1alpha1.TransportFastUDP, Provider: v1alpha1.NetworkDevicePlugin, Profile: v1alpha1.NetworkInterface, MTU: 1500,
		Attachments: []v1alpha1.NetworkAttachment{
			attachment("a", v1alpha1.AddressPool{CIDR: "10.0.0.0/24", Range: "10.0.0.16/28"}),
			attachment("b", v1alpha1.AddressPool{CIDR: "10.1.0.0/24"}),
		},
	}
}

// endPod is a kubelet's last word: all has ended. Then the pod goes, unless somebody keeps it.
func (s *simulation) endPod(pod *corev1.Pod) {
	edit(s.api, pod.Name, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0, FinishedAt: metav1.NewTime(s.now)}}},
		}
	})
	if len(pod.Finalizers) == 0 {
		delete(s.api.objects, keyOf(pod))
	}
}

// hasEndedForGood: what nobody keeps any more goes.
func hasEndedForGood(object client.Object) bool {
	pod, isPod := object.(*corev1.Pod)
	return isPod && (pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed)
}

// checkAddresses: none is started under an address under which another process may send; one that was started may, until its kubelet has
// ended it.
func (s *simulation) checkAddresses(pod *corev1.Pod) {
	if !isMaster(pod) || !s.store().Spec.HasPorts() {
		return
	}
	addresses := network.Split(pod.Annotations[v1alpha1.AnnotationAddresses])
	if len(addresses) != len(s.store().Spec.Network.Attachments) {
		s.violate("%s has the addresses %v", pod.Name, addresses)
	}
	for _, other := range s.pods() {
		if other.UID == pod.UID {
			continue
		}
		has := func(ip netip.Addr) bool {
			return slices.Contains(network.Split(other.Annotations[v1alpha1.AnnotationAddresses]), ip)
		}
		if s.processes[other.UID] != nil && slices.ContainsFunc(addresses, has) {
			s.violate("%s is started with %v, and %s may send under one of them", pod.Name, addresses, other.Name)
		}
	}
}
