package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodSettings are what the pods of one component have beyond what the operator gives them. A change restarts these pods one after the
// other, as spec.updateStrategy says. The ServiceAccount of the pods is the operator's, and the Secrets for pulling images are in
// spec.imagePullSecrets.
type PodSettings struct {
	// Labels and annotations besides those that the operator sets.
	//
	// +optional
	Metadata PodMetadata `json:"metadata,omitzero"`

	// Rules for nodes, and for pods that are to be near or far. They hold together with the operator's own: masters with copies are on
	// different nodes, and no pod is on an isolated node.
	//
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Rules for spreading the pods besides the operator's, which spread them over placement.failureDomain as far as there is room. A
	// constraint with the topologyKey and whenUnsatisfiable of one of the operator's takes its place. One without a labelSelector is
	// about the pods of the same component.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// Taints that the pods tolerate besides those of placement.tolerations.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// PriorityClass of the pods. Left empty, it is placement.priorityClassName.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// RuntimeClass of the pods. Left empty, it is the node's default runtime.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// The scheduler that places the pods. Left empty, it is the cluster's default scheduler.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`

	// A strategic merge patch of a pod template, applied last, for fields of pods that nothing else sets, such as sidecars:
	// {spec: {containers: [{name: agent, image: agent:1}]}}. The installation of the operator has to allow it (allow.overlays of the
	// chart), because an overlay can give a pod the rights of its node. Fields that the operator relies on cannot be changed so; the
	// condition Progressing then names the field, and what to set instead.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Overlay *runtime.RawExtension `json:"overlay,omitempty"`
}

// PodMetadata is what pods carry for others than the operator.
type PodMetadata struct {
	// Labels.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('rcbox.dev/') && !(key in ['app.kubernetes.io/name', 'app.kubernetes.io/instance', 'app.kubernetes.io/component', 'app.kubernetes.io/managed-by']))",message="pod.metadata.labels must not have rcbox.dev/..., or app.kubernetes.io/name, instance, component or managed-by: these are the operator's, and Services and budgets select pods by them"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('rcbox.dev/') && !(key in ['k8s.v1.cni.cncf.io/networks', 'k8s.v1.cni.cncf.io/network-status', 'cluster-autoscaler.kubernetes.io/safe-to-evict']))",message="pod.metadata.annotations must not have rcbox.dev/..., k8s.v1.cni.cncf.io/networks, k8s.v1.cni.cncf.io/network-status or cluster-autoscaler.kubernetes.io/safe-to-evict: these are the operator's; networks of masters are set by spec.network"
	Annotations map[string]string `json:"annotations,omitempty"`
}
