package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ServerIsolationSpec is the order to take a server out of use that is broken, but alive.
type ServerIsolationSpec struct {
	// Why; conditions and the panel show it.
	//
	// +kubebuilder:validation:MaxLength=120
	// +kubebuilder:validation:XValidation:rule="self.matches('[^ ]')",message="isolated.reason must say why the server is isolated"
	Reason string `json:"reason"`
}

// ServerIsolationStage is how far the isolation of a server is.
//
// +kubebuilder:validation:Enum=MembersLeave;DisablingPorts;SwitchingOff;Isolated;Returning
type ServerIsolationStage string

const (
	// StageMembersLeave means that its node gets no more pods, and that members of Stores leave it.
	StageMembersLeave ServerIsolationStage = "MembersLeave"
	// StagePortsOff means that its ports at switches are being switched off.
	StagePortsOff ServerIsolationStage = "DisablingPorts"
	// StageIsolationOff means that its operating system is asked to shut down, and that its power is taken away if that does not end in
	// time.
	StageIsolationOff ServerIsolationStage = "SwitchingOff"
	// StageIsolated means that it is off, and stays so.
	StageIsolated ServerIsolationStage = "Isolated"
	// StageReturning means that spec.isolated is gone: it is switched on if it was on before, and its node gets pods again once that is
	// ready and the server qualifies.
	StageReturning ServerIsolationStage = "Returning"
)

// ServerIsolationStatus describes a server that is isolated, or on its way there or back.
type ServerIsolationStatus struct {
	// Since when.
	Since metav1.Time `json:"since"`
	// Why.
	//
	// +kubebuilder:validation:MaxLength=120
	Reason string `json:"reason"`
	// How far it is.
	Stage ServerIsolationStage `json:"stage"`
	// Whether it was on before, so that it is switched on when it returns.
	//
	// +optional
	WasOn bool `json:"wasOn,omitempty"`
	// The start of its system that its node has reported last before it was off. Reports of that start do not count when the server
	// returns.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LastBoot string `json:"lastBoot,omitempty"`
	// Since when its isolation waits for its ports at switches; absent while it does not.
	//
	// +optional
	PortsSince *metav1.Time `json:"portsSince,omitempty"`
	// The ports at switches that are switched off for it. They are switched on again when it returns, and no others.
	//
	// +optional
	// +listType=map
	// +listMapKey=nic
	// +kubebuilder:validation:MaxItems=8
	Ports []IsolatedPort `json:"ports,omitempty"`
}

// IsolatedPort is a port at a switch.
type IsolatedPort struct {
	// The NIC of the server.
	NIC int32 `json:"nic"`
	// The address of the switch.
	//
	// +kubebuilder:validation:MaxLength=45
	Switch string `json:"switch"`
	// The name of the port.
	//
	// +kubebuilder:validation:MaxLength=72
	Name string `json:"name"`
}

// ChassisIsolation says which servers are isolated without anybody's order.
type ChassisIsolation struct {
	// The reasons of the condition Healthy for which the box controller isolates a server by itself, as kubectl rcbox isolate-server does.
	// Nobody but a user brings such a server back. None is isolated while a quarter of the chassis' BMCs is silent, or while several
	// servers, and a quarter of all, have such a reason: then something else is broken. Default: none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=7
	Automatic []UnhealthyReason `json:"automatic,omitempty"`

	// How many servers of the chassis may be isolated, those counted that a user has isolated, for one to be isolated by itself.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	AtMost int32 `json:"atMost,omitempty"`
}

// UnhealthyReason is a reason of the condition Healthy.
//
// +kubebuilder:validation:Enum=BeyondLimits;MemoryErrors;LinkLost;SlowProcessor;SlowMemory;SlowDisk;SlowLink
type UnhealthyReason string

const (
	// UnhealthyBeyondLimits means that a sensor is beyond its limits.
	UnhealthyBeyondLimits UnhealthyReason = "BeyondLimits"
	// UnhealthyMemoryErrors means that the log of its BMC has memory errors.
	UnhealthyMemoryErrors UnhealthyReason = "MemoryErrors"
	// UnhealthyLinkLost means that a network port has lost its link again and again.
	UnhealthyLinkLost UnhealthyReason = "LinkLost"
	// UnhealthySlowProcessor means that its processor is far slower than those of other servers of its kind, or was too hot for much of an
	// hour.
	UnhealthySlowProcessor UnhealthyReason = "SlowProcessor"
	// UnhealthySlowMemory means that its memory is far slower than that of other servers of its kind.
	UnhealthySlowMemory UnhealthyReason = "SlowMemory"
	// UnhealthySlowLink means that the link of a network port has a far lower rate than those of other servers.
	UnhealthySlowLink UnhealthyReason = "SlowLink"
	// UnhealthySlowDisk means that a disk takes far longer for a read or a write than disks do, or is read far slower than those of other
	// servers.
	UnhealthySlowDisk UnhealthyReason = "SlowDisk"
)

// QualificationPolicy says what a server must show before it is in use again.
//
// +kubebuilder:validation:Enum=Required;Waived
type QualificationPolicy string

const (
	// QualificationRequired means that nothing speaks against its health, and that its system has measured it since it was started.
	QualificationRequired QualificationPolicy = "Required"
	// QualificationWaived means that it is used whatever was measured.
	QualificationWaived QualificationPolicy = "Waived"
)

// ConditionQualified means that the processor, the memory, the disk and the links of the server, as its system has measured them at its
// start, are not far slower than those of other servers of its kind in the Chassis. It is Unknown if they were not measured, or not
// compared, and absent if nothing measures them.
const ConditionQualified = "Qualified"

// AnnotationCordonedFor on a node names the Server that is isolated, and for which the box controller has cordoned the node. A node that
// was cordoned before has no such annotation, and stays cordoned.
const AnnotationCordonedFor = "rcbox.dev/cordoned-for"

// ConditionIsolated means that the server is isolated and off. It is False while the server is on its way there or back, and absent if
// nobody has ordered it.
const ConditionIsolated = "Isolated"
