package resources

import (
	corev1 "k8s.io/api/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// perfContainerName is that of the container of a ClusterPerf's pods.
const perfContainerName = "clusterperf"

// ContainerName is the name of the container in which a pod has the store's process; empty for a pod that is none of the operator's.
// Overlays and webhooks add others, before it and after it.
func ContainerName(pod *corev1.Pod) string {
	switch component := pod.Labels[v1alpha1.LabelComponent]; component {
	case v1alpha1.ComponentCoordinator, v1alpha1.ComponentMaster:
		return component
	case v1alpha1.ComponentPerfClient, v1alpha1.ComponentPerfCleanup:
		return perfContainerName
	default:
		return ""
	}
}

// ProcessStatus is what a kubelet says of that container; nil where it says nothing.
func ProcessStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	name := ContainerName(pod)
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == name {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}
