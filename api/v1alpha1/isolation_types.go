package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IsolationSpec says when a node is isolated on which a master fails again and again. Of no effect without copies (replication.factor).
type IsolationSpec struct {
	// How often a master's process has to end by itself on one node, or the node be lost, within the window, before the node is isolated:
	// it gets no more pods of this Store, and the master moves. Only while all other masters are well, and one node at a time. 0: never.
	//
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:validation:XValidation:rule="self != 1",message="recovery.isolation.crashes must be 0 (never), or 2 or more: once is not again and again"
	Crashes int32 `json:"crashes"`

	// The window.
	//
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="recovery.isolation.window must be from 1m to 168h, such as 10m"
	Window string `json:"window,omitempty"`
}

// FailureStatus counts what went wrong with a master on one node lately.
type FailureStatus struct {
	// The node.
	Node string `json:"node"`
	// When it began.
	Since metav1.Time `json:"since"`
	// When it was last so.
	Last metav1.Time `json:"last"`
	// How often its process has ended by itself there, or the node was lost.
	Count int32 `json:"count"`
}

// IsolationCause says why a node is isolated.
//
// +kubebuilder:validation:Enum=Ordered;Failures
type IsolationCause string

const (
	// IsolatedOrdered means that somebody has ordered it.
	IsolatedOrdered IsolationCause = "Ordered"
	// IsolatedFailures means that a master failed there again and again.
	IsolatedFailures IsolationCause = "Failures"
)

// IsolationStatus describes a node that gets no more pods of this Store.
type IsolationStatus struct {
	// The node.
	Node string `json:"node"`
	// Why.
	Cause IsolationCause `json:"cause"`
	// Since when.
	Since metav1.Time `json:"since"`
	// The events that led to it; empty if it was ordered.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
