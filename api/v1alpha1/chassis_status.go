package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ChassisStatus describes what was last seen.
type ChassisStatus struct {
	// The generation of the spec that this is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Its servers, counted.
	//
	// +optional
	Servers ServerCounts `json:"servers,omitempty"`
	// Its managers.
	//
	// +optional
	Manager ManagerStatus `json:"manager,omitempty"`
	// The power that it draws, in watts, rounded to 10; absent where that is not measured. Where the chassis manager shows only what each
	// slot draws, it is the sum of that.
	//
	// +optional
	Watts *int32 `json:"watts,omitempty"`
	// The power that it may draw, in watts: spec.power.budgetWatts, or else what the model says; absent where neither says anything.
	//
	// +optional
	BudgetWatts int32 `json:"budgetWatts,omitempty"`
	// The part of that which is reserved for servers that are on, that start, or of which nobody knows whether they are on.
	//
	// +optional
	ReservedWatts int32 `json:"reservedWatts,omitempty"`
	// Its slots, counted.
	//
	// +optional
	Slots SlotCounts `json:"slots,omitempty"`
	// The logins that its chassis managers and the controllers of its switch boards have refused. Those of servers' BMCs are in the status
	// of each Server.
	//
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=4
	Refused []RefusedLogin `json:"refused,omitempty"`
	// The addresses of BMCs, chassis managers and switch boards in the spec that was accepted last. If the cluster starts to use one of
	// these addresses later, the Chassis stays accepted; an address that an edit adds is refused if the cluster uses it.
	//
	// +optional
	// +listType=atomic
	AcceptedAddresses []string `json:"acceptedAddresses,omitempty"`
	// Machines that asked box hosts for an address in a network of this chassis, and that no Server knows. They get no answer. At most 32
	// are named.
	//
	// +optional
	// +listType=map
	// +listMapKey=mac
	// +kubebuilder:validation:MaxItems=32
	Strangers []StrangerStatus `json:"strangers,omitempty"`
	// How far its management controllers are that are moved to spec.management.vlan.
	//
	// +optional
	VLAN *ChassisVLAN `json:"vlan,omitempty"`
	// Accepted, Available, ManagementReady, ServicesReady, InventoryComplete, Degraded, PowerRedundant, CoolingRedundant, SlotsFilled,
	// LinksUp, ChainSound.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaxStrangers is how many machines a Chassis names that are known by no Server.
const MaxStrangers = 32

// StrangerStatus is a machine that asked box hosts for an address, and is known by no Server.
type StrangerStatus struct {
	// Its hardware address.
	//
	// +kubebuilder:validation:MaxLength=17
	MAC string `json:"mac"`
	// The network in which it asked.
	//
	// +kubebuilder:validation:MaxLength=43
	Network string `json:"network"`
	// When it was first seen.
	Since metav1.Time `json:"since"`
}

// ServerCounts counts the servers of a chassis.
type ServerCounts struct {
	// Servers that the spec names.
	Total int32 `json:"total"`
	// Those that are known to be on.
	On int32 `json:"on"`
	// Those that are known to be off.
	Off int32 `json:"off"`
	// Those whose BMC does not answer: whether they are on is not known from it.
	Silent int32 `json:"silent"`
}

// SlotCounts counts the slots of a chassis by what is in them.
type SlotCounts struct {
	// Slots with a server, as the spec says.
	Server int32 `json:"server"`
	// Slots with a storage board, as the spec says.
	Storage int32 `json:"storage"`
	// Slots that the model has and the spec does not name.
	Empty int32 `json:"empty"`
	// Slots whose blade is not there, though the spec names one.
	Missing int32 `json:"missing"`
}

// ManagerStatus describes the chassis managers.
type ManagerStatus struct {
	// The address of the one in charge; absent while none is.
	//
	// +optional
	Master string `json:"master,omitempty"`
	// The address of the other; absent while it does not answer.
	//
	// +optional
	Slave string `json:"slave,omitempty"`
}
