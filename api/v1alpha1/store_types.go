package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Store is a RAMCloud store: one coordinator, and masters that hold objects in memory.
//
// This version keeps one copy of every object, in the memory of one master. Whatever ends that master's process
// (a crash, a deleted pod, a lost node) loses what it held; the end of the coordinator's process loses every table.
// The condition DataSafe says so.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=stores,scope=Namespaced,shortName=rcs,categories=rcbox
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.masters.replicas,statuspath=.status.masters.replicas,selectorpath=.status.masters.selector
// +kubebuilder:printcolumn:name="Masters",type=integer,JSONPath=`.spec.masters.replicas`,description="Masters asked for"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.masters.ready`,description="Masters that serve"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="Whether every key can be read and written"
// +kubebuilder:printcolumn:name="DataSafe",type=string,JSONPath=`.status.conditions[?(@.type=="DataSafe")].reason`,description="What the durability of the data is"
// +kubebuilder:printcolumn:name="Locator",type=string,JSONPath=`.status.locator`,description="What a client connects to"
// +kubebuilder:printcolumn:name="Progressing",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`,description="What the operator is doing"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.status.image`,description="The image of new pods"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="metadata.name must be at most 40 characters long: the names of the Store's pods and Services are made from it"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must start with a letter and consist of lower case letters, digits and '-': clients connect to a Service of that name"
type Store struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is asked for. Every field has a default.
	//
	// +optional
	// +kubebuilder:default={}
	Spec StoreSpec `json:"spec,omitempty"`
	// What was last seen, written by the operator.
	//
	// +optional
	Status StoreStatus `json:"status,omitempty"`
}

// StoreList is a list of Stores.
//
// +kubebuilder:object:root=true
type StoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Store `json:"items"`
}

// StoreSpec says what a Store should be.
type StoreSpec struct {
	// Image of the store's programs. Left empty, it is the one that the operator had as its default when the Store was
	// first seen (status.image), so that an upgrade of the operator restarts nothing.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^ ]*$')",message="image must not contain spaces"
	Image string `json:"image,omitempty"`

	// When kubelet pulls the image.
	//
	// +optional
	// +kubebuilder:default=IfNotPresent
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// Secrets of this namespace for pulling the image.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// The process that knows who owns which keys.
	//
	// +optional
	// +kubebuilder:default={}
	Coordinator CoordinatorSpec `json:"coordinator,omitempty"`

	// The processes that hold the objects.
	//
	// +optional
	// +kubebuilder:default={}
	Masters MastersSpec `json:"masters,omitempty"`

	// How clients and members talk.
	//
	// +optional
	// +kubebuilder:default={}
	Network NetworkSpec `json:"network,omitempty"`

	// Where pods may run.
	//
	// +optional
	// +kubebuilder:default={}
	Placement PlacementSpec `json:"placement,omitempty"`
}

// CoordinatorSpec describes the coordinator's pod.
type CoordinatorSpec struct {
	// What the coordinator's container reserves and may use.
	//
	// +optional
	// +kubebuilder:default={requests: {cpu: "100m", memory: "256Mi"}, limits: {memory: "256Mi"}}
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !('memory' in self.limits) || quantity(string(self.limits['memory'])).compareTo(quantity('64Mi')) >= 0",message="coordinator.resources.limits.memory must be at least 64Mi: a coordinator that is killed for lack of memory loses every table"
	Resources ComputeResources `json:"resources,omitempty"`
}

// MastersSpec describes the masters, which are all alike.
//
// +kubebuilder:validation:XValidation:rule="!has(self.memory) || !has(self.cores) || quantity(string(self.memory)).asApproximateFloat() >= 268435456.0 * double(self.cores)",message="masters.memory must be at least 256Mi for each of masters.cores: below that the process itself leaves no room for objects"
type MastersSpec struct {
	// How many masters. `kubectl scale` sets this field. Scaling out adds masters that new tables spread over. Scaling in
	// removes the masters with the highest numbers, each only once it holds no part of any table.
	//
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:XValidation:rule="self >= 1",message="masters.replicas must be at least 1: a store without masters cannot hold a table; delete the Store to end it"
	// +kubebuilder:validation:XValidation:rule="self <= 1000",message="masters.replicas must be at most 1000: that is what one coordinator is built for"
	Replicas int32 `json:"replicas,omitempty"`

	// Memory of each master's container, request and limit alike. Most of it is the log that holds the objects
	// (status.masters.members[].capacityBytes); the rest is the hash table, buffers and the process itself.
	//
	// +optional
	// +kubebuilder:default="1Gi"
	Memory resource.Quantity `json:"memory,omitempty"`

	// Cores of each master. Each core is a shard with its own port, log and thread. The CPU request is this many CPUs
	// unless masters.resources.requests.cpu says otherwise.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 64",message="masters.cores must be from 1 to 64: each core is a shard with its own port, and a master has 64 ports"
	Cores int32 `json:"cores,omitempty"`

	// Overrides of what each master's container reserves and may use besides memory. There is no CPU limit by default,
	// because throttling shows as latency.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="(!has(self.requests) || !('memory' in self.requests)) && (!has(self.limits) || !('memory' in self.limits))",message="masters.resources must not name memory: set masters.memory, from which the size of the log is derived"
	Resources *ComputeResources `json:"resources,omitempty"`
}

// ComputeResources is what a container reserves and may use.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory'].all(name, !(name in self.requests) || !(name in self.limits) || quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0)",message="resources.requests must not be greater than resources.limits"
type ComputeResources struct {
	// What the scheduler reserves.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// What the container may use at most.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// Transport is how RPCs travel.
//
// +kubebuilder:validation:Enum=TCP
type Transport string

// TransportTCP is RAMCloud's wire format over the kernel's TCP.
const TransportTCP Transport = "TCP"

// NetworkSpec says how clients and members talk.
type NetworkSpec struct {
	// How RPCs travel. This version has one way: TCP, with locators `tcp:host=...,port=...`.
	//
	// +optional
	// +kubebuilder:default=TCP
	Transport Transport `json:"transport,omitempty"`
}

// PlacementSpec says where pods may run.
type PlacementSpec struct {
	// Labels that a node must have.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Taints that the pods tolerate. Kubernetes gives up on a node that does not answer after 300 s; a toleration of
	// node.kubernetes.io/unreachable with another tolerationSeconds changes that.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Label of nodes that fail together. Masters are spread evenly over its values as far as there is room.
	//
	// +optional
	// +kubebuilder:default="kubernetes.io/hostname"
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="placement.failureDomain must be the name of a node label, such as kubernetes.io/hostname or topology.kubernetes.io/zone"
	FailureDomain string `json:"failureDomain,omitempty"`

	// PriorityClass of the pods.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
}
