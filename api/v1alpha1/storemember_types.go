package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StoreMember is what the operator knows of one master of a Store: its record, on which actions depend, and what was last seen of the
// master. Only the operator writes StoreMembers. One that is deleted is made anew from what can be seen; it is deleted with its Store, and
// when its master has left the Store.
//
// There is no status subresource: a StoreMember is created with its record in one write, so that none exists without its record.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=storemembers,scope=Namespaced,shortName=sm,categories=rcbox
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.storeRef.name`,description="The Store that the master belongs to"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`,description="The node that the master's pod runs on"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`,description="Up: all shards of the master are connected to the coordinator"
// +kubebuilder:printcolumn:name="Servers",type=string,JSONPath=`.status.serverIds`,description="Server ids of the master's shards"
// +kubebuilder:printcolumn:name="Restarts",type=integer,JSONPath=`.status.restarts`,description="How often the container in the present pod was restarted"
// +kubebuilder:printcolumn:name="Pod",type=string,priority=1,JSONPath=`.status.pod`,description="The master's pod"
// +kubebuilder:printcolumn:name="Pending",type=string,priority=1,JSONPath=`.status.pending`,description="Changes of the spec that the running pod was made without"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`,description="Why the master is not up"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type StoreMember struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The Store that the master belongs to.
	//
	// +required
	Spec StoreMemberSpec `json:"spec"`
	// What the operator has to know of the master later. Actions depend on it, and it is written before them.
	//
	// +optional
	Record MemberRecord `json:"record,omitempty"`
	// What was last seen of the master.
	//
	// +optional
	Status MemberFigures `json:"status,omitempty"`
}

// StoreMemberSpec says whose member it is.
//
// +kubebuilder:validation:XValidation:rule="self.storeRef == oldSelf.storeRef",message="spec.storeRef cannot be changed: the name of a StoreMember begins with that of its Store"
type StoreMemberSpec struct {
	// The Store, in the same namespace.
	//
	// +required
	StoreRef StoreReference `json:"storeRef"`
}

// StoreMemberList is a list of members.
//
// +kubebuilder:object:root=true
type StoreMemberList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StoreMember `json:"items"`
}

// StoreRecord is what the operator has to remember of a whole Store.
type StoreRecord struct {
	// The disruption lock: the one process that serves and that the operator ends next, or has just ended, to restart it or for a drill;
	// mostly absent. No process is ended for these reasons before it is named here.
	//
	// +optional
	DisruptionLock *DisruptionLock `json:"turn,omitempty"`
	// What has to be remembered of drills.
	//
	// +optional
	Drills DrillNotes `json:"drills,omitempty"`
	// The highest number of any coordinator's pod so far. Pods' names are derived from it and never used again.
	//
	// +optional
	CoordinatorPodNumber int64 `json:"coordinatorPodNumber,omitempty"`
	// The greatest podNumber of any master that has left the Store. A master of the same name goes on from there.
	//
	// +optional
	RetiredPodNumber int64 `json:"retiredPodNumber,omitempty"`
	// The greatest podNumber of any master so far. A master goes on from there whose StoreMember was deleted by somebody.
	//
	// +optional
	HighestPodNumber int64 `json:"highestPodNumber,omitempty"`
	// The masters that have a StoreMember, or are about to get one, by their numbers.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Members []OrdinalRange `json:"members,omitempty"`
	// Whether orders by annotation, which earlier versions took, have become StoreOperations. From then on such annotations mean
	// nothing.
	//
	// +optional
	OrdersCarriedOver bool `json:"ordersCarriedOver,omitempty"`
	// How many of the losses that the present coordinator reports are counted in lossCount.
	//
	// +optional
	LossesSeen int64 `json:"lossesSeen,omitempty"`
}

// OrdinalRange is some masters with successive numbers.
type OrdinalRange struct {
	// The number of the first one.
	//
	// +kubebuilder:validation:Minimum=0
	First int32 `json:"first"`
	// The number of the last one.
	//
	// +kubebuilder:validation:Minimum=0
	Last int32 `json:"last"`
}
