package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeFence asks the box controller to take the power away from the server of a node that a Store has lost, and to keep it off while the
// NodeFence is there. The operator makes it, in the Store's namespace (recovery.fencing.type: BMC), and deletes it once the Store does not
// need the server to be off any more. Whoever may make one can have servers switched off whose Chassis names the namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodefences,scope=Namespaced,categories=rcbox
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`,description="The node that is lost"
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.storeName`,description="The Store that has lost it"
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.status.server`,description="The Server that the node runs on"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`,description="How far it is"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`,description="What it waits for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeFence struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The node that is to be fenced, and why. It cannot be changed: another loss is another NodeFence.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed: delete the NodeFence and make another one"
	Spec NodeFenceSpec `json:"spec"`
	// The result, written by the box controller.
	//
	// +optional
	Status NodeFenceStatus `json:"status,omitempty"`
}

// NodeFenceList is a list of NodeFences.
//
// +kubebuilder:object:root=true
type NodeFenceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeFence `json:"items"`
}

// NodeFenceSpec says which node is lost.
type NodeFenceSpec struct {
	// The Store that has lost it, in the same namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	StoreName string `json:"storeName"`
	// The node.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// The node's status.nodeInfo.systemUUID when it was lost: which machine it is.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	SystemUUID string `json:"systemUUID"` //nolint:tagliatelle // as Kubernetes spells it
	// Since when the Store counts the node as lost, as status.fences[].since of the Store has it: this tells one loss from another.
	LostSince metav1.Time `json:"lostSince"`
}

// NodeFenceState is how far a NodeFence is.
//
// +kubebuilder:validation:Enum=Waiting;Refused;Running;Done
type NodeFenceState string

// States of a NodeFence.
const (
	// NodeFenceWaiting: the power is not taken away yet.
	NodeFenceWaiting NodeFenceState = "Waiting"
	// NodeFenceRefused: it will not be, unless somebody changes something.
	NodeFenceRefused NodeFenceState = "Refused"
	// NodeFenceRunning: the power is being taken away, or proof is waited for.
	NodeFenceRunning NodeFenceState = "Running"
	// NodeFenceDone: the server was proved to be off after the NodeFence was accepted, and is kept off.
	NodeFenceDone NodeFenceState = "Done"
)

// NodeFenceStatus describes what became of a NodeFence.
type NodeFenceStatus struct {
	// How far it is.
	//
	// +optional
	State NodeFenceState `json:"state,omitempty"`
	// The reason why it waits, or was refused.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// The Server that the node runs on.
	//
	// +optional
	Server string `json:"server,omitempty"`
	// When the box controller took it on, by its own clock. Only what witnesses saw later is proof.
	//
	// +optional
	AcceptedAt *metav1.Time `json:"acceptedAt,omitempty"`
	// The proof that the server was off; only with state: Done.
	//
	// +optional
	Off *OffProof `json:"off,omitempty"`
	// The system GUID of the BMC that was ordered; only with state: Done.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=36
	SystemGUID string `json:"guid,omitempty"`
}
