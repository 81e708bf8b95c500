package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MastersStatus describes the masters.
type MastersStatus struct {
	// How many masters there are, those on their way in or out included.
	//
	// +optional
	Replicas int32 `json:"replicas"`
	// How many of them serve.
	//
	// +optional
	Ready int32 `json:"ready"`
	// How many run with something else than the spec asks for (members[].pending says with what).
	//
	// +optional
	Outdated int32 `json:"outdated"`
	// Label selector of the masters' pods, for the scale subresource.
	//
	// +optional
	Selector string `json:"selector,omitempty"`
	// Masters that do not serve, or that have to leave their node; the first 16. Each master has a StoreMember, which says more.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Unwell []UnwellMember `json:"unwell,omitempty"`
	// Former field: status.record.retiredPodNumber has it. An earlier operator wrote it here, and the operator carries it over.
	//
	// +optional
	RetiredPodNumber int64 `json:"retiredPodNumber,omitempty"`
	// Former field: each master has a StoreMember. An earlier operator wrote this list, and the operator carries it over.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=2000
	Members []MemberStatus `json:"members,omitempty"`
}

// UnwellMember is a master that does not serve, or that has to leave its node.
type UnwellMember struct {
	// Its name, which is that of its StoreMember, too.
	Name string `json:"name"`
	// Its state at the moment.
	//
	// +optional
	State MemberState `json:"state,omitempty"`
	// The node that its pod runs on, or that it was lost with.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// What is wrong, or what is waited for, as far as that is known.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=300
	Message string `json:"message,omitempty"`
}

// MemberState is what a master is at the moment.
//
// +kubebuilder:validation:Enum=Up;Unreachable;Starting;Unknown
type MemberState string

const (
	// MemberUp means that all its shards are connected to the coordinator.
	MemberUp MemberState = "Up"
	// MemberUnreachable means that it has enlisted, but the coordinator has no connection to it.
	MemberUnreachable MemberState = "Unreachable"
	// MemberStarting means that its present process has not enlisted yet.
	MemberStarting MemberState = "Starting"
	// MemberUnknown means that the coordinator does not answer.
	MemberUnknown MemberState = "Unknown"
)

// MemberStatus is all that there is of one master: its name, and what its StoreMember has. Earlier operators kept a list of these in the
// Store's status.
type MemberStatus struct {
	// Its name, which outlives its pods: the Store's name, "-master-" and a number.
	Name string `json:"name"`

	MemberFigures `json:",inline"`
	MemberRecord  `json:",inline"`
}

// MemberFigures are what was last seen of a master. Nothing depends on them having been written. Those that the coordinator reports are of
// the last look at which it answered.
type MemberFigures struct {
	// Its state at the moment.
	//
	// +optional
	State MemberState `json:"state,omitempty"`
	// Its pod, while there is one.
	//
	// +optional
	Pod string `json:"pod,omitempty"`
	// How often the container in its present pod was restarted.
	//
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
	// The node that its pod runs on.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// Server ids of its shards, each as index.generation.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ServerIDs []string `json:"serverIds,omitempty"`
	// How many parts of tables it holds.
	//
	// +optional
	Tablets int64 `json:"tablets"`
	// How many bytes its logs can hold.
	//
	// +optional
	CapacityBytes int64 `json:"capacityBytes,omitempty"`
	// How much of that live objects take, in whole percent.
	//
	// +optional
	UsedPercent int32 `json:"usedPercent"`
	// Copies that it keeps of what it holds.
	//
	// +optional
	Copies int32 `json:"copies"`
	// Pieces of its log with fewer copies than that.
	//
	// +optional
	SegmentsShort int64 `json:"segmentsShort,omitempty"`
	// Its storage for copies of what others hold; absent without one.
	//
	// +optional
	Backup *BackupStatus `json:"backup,omitempty"`
	// Its claim of a volume for copies, if there is one.
	//
	// +optional
	Claim string `json:"claim,omitempty"`
	// The failure domain that its process says it is in.
	//
	// +optional
	Domain string `json:"domain,omitempty"`
	// Changes of the spec that the running pod was made without, such as "memory: 1Gi -> 2Gi", or else the StoreOperation that orders
	// its restart.
	//
	// +optional
	Pending string `json:"pending,omitempty"`
	// Why it is not up, where Kubernetes says so.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// MemberRecord is what the operator has to know of a master later. Where an action depends on a part of it, the record is written first:
// an operator that ends in between finds it, and goes on from there.
type MemberRecord struct {
	// The number of its newest pod. A pod's name is derived from this number and never used again.
	//
	// +optional
	PodNumber int64 `json:"podNumber,omitempty"`
	// Since when the operator has seen that it does not serve: it is not connected, or answers no requests. Absent while it
	// serves. Conditions tell of it once it has lasted longer than the store takes to find out whether it is dead.
	//
	// +optional
	NotServingSince *metav1.Time `json:"notServingSince,omitempty"`
	// Since when the operator has seen that the coordinator has declared the process in its pod dead. Absent while the coordinator has not,
	// or does not answer.
	//
	// +optional
	DeadSince *metav1.Time `json:"deadSince,omitempty"`
	// The node that it was lost with, while it has no other; absent while all is well.
	//
	// +optional
	Lost *LostStatus `json:"lost,omitempty"`
	// Its addresses on its ports, in the order of spec.network.attachments; empty for Stores on the pod network.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Addresses []MemberAddress `json:"addresses,omitempty"`
	// How often its pods were not admitted by kubelets, for want of a device, huge pages or CPUs that fit together; absent once one was.
	//
	// +optional
	Refusals *RefusalStatus `json:"refusals,omitempty"`
	// How it leaves its node, which is drained; absent while all is well.
	//
	// +optional
	Evacuation *EvacuationStatus `json:"evacuation,omitempty"`
	// The last trouble that it had where it is; absent if nothing did.
	//
	// +optional
	Failures *FailureStatus `json:"failures,omitempty"`
}

// NodeLoss says how a node is lost.
//
// +kubebuilder:validation:Enum=Deleted;OutOfService;NotReady;Silent;Drained
type NodeLoss string

const (
	// NodeDeleted means that the cluster has no such node any more.
	NodeDeleted NodeLoss = "Deleted"
	// NodeOutOfService means that somebody has said so, by the taint node.kubernetes.io/out-of-service.
	NodeOutOfService NodeLoss = "OutOfService"
	// NodeNotReady means that its kubelet does not answer, or says that it is not ready.
	NodeNotReady NodeLoss = "NotReady"
	// NodeSilent means that its kubelet has missed a renewal of the node's Lease, and the coordinator has declared the member's process
	// dead, while Kubernetes still says that the node is ready. Only with recovery.fencing.type: BMC.
	NodeSilent NodeLoss = "Silent"
	// NodeDrained means that it is drained, and the member's process ended there before the member could leave.
	NodeDrained NodeLoss = "Drained"
)

// LostStatus says what is known of a member that was lost with its node. It is on record before the member moves.
type LostStatus struct {
	// The node.
	Node string `json:"node"`
	// How it is lost.
	Cause NodeLoss `json:"cause"`
	// When the operator saw it first.
	Since metav1.Time `json:"since"`
	// When it was proven that nothing is lost if the member moves: its process is dead by the coordinator's word, and what it served
	// is served by others. Absent while that is not so.
	//
	// +optional
	ProvenAt *metav1.Time `json:"provenAt,omitempty"`
	// The reason why the move waits; empty while it is under way.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	WaitsFor string `json:"waitsFor,omitempty"`
}

// BackupStatus describes a member's storage for copies. A frame holds the copy of one piece of a master's log.
type BackupStatus struct {
	// How many frames it has.
	//
	// +optional
	Frames int64 `json:"frames"`
	// How many of them are in use, in whole percent.
	//
	// +optional
	UsedPercent int32 `json:"usedPercent"`
	// How many of them hold damaged copies.
	//
	// +optional
	Damaged int64 `json:"damaged,omitempty"`
	// Why it takes nothing new any more; empty while all is well.
	//
	// +optional
	Retired string `json:"retired,omitempty"`
}

// DisruptionLock names the one process that serves and whose end is planned. It is ended only while its pod is as it was seen: any change
// of the pod cancels the plan. In JSON the field is called turn, as before: an earlier operator that still works has to see the lock.
type DisruptionLock struct {
	Member string `json:"member"`
	Pod    string `json:"pod"`
	PodUID string `json:"podUid"`
	// The resource version at which the pod was seen.
	PodResourceVersion string `json:"podResourceVersion"`
	// When the plan was written here.
	Since metav1.Time `json:"since"`
	// Why it is to end.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=500
	Why string `json:"why,omitempty"`
}
