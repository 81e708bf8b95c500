package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StoreStatus is what the operator last saw.
type StoreStatus struct {
	// The generation of the spec that this status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// When the operator first saw what this status says. It looks at the Store again and again, and notes every 15 seconds in the
	// Lease STORE-observed (renewTime) that it has: at that time the status was still true.
	//
	// +optional
	ObservedAt *metav1.Time `json:"observedAt,omitempty"`

	// Ready, Stalled, Available, Progressing, Degraded, DataSafe, Recovering, RecoveryOnTarget and NetworkReady. All of them are there
	// once the operator has looked at the Store.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Privileges that the Store had before the operator limited them: it keeps these, whatever the chart's values allow.
	//
	// +optional
	Privileges *PrivilegesStatus `json:"privileges,omitempty"`

	// The address that a client connects to.
	//
	// +optional
	Locator string `json:"locator,omitempty"`

	// Identity of the coordinator's state, 16 hexadecimal digits. Another one than before means that the state, and with it
	// every table, was lost.
	//
	// +optional
	ClusterID string `json:"clusterId,omitempty"`

	// When every master was up for the first time. Until then the store is forming and not Available.
	//
	// +optional
	FormedAt *metav1.Time `json:"formedAt,omitempty"`

	// Since when the Store's pods are ended, or have ended, because it is hibernated.
	//
	// +optional
	HibernatedSince *metav1.Time `json:"hibernatedSince,omitempty"`

	// What the operator has to remember of the whole Store. Of each master, its StoreMember has as much.
	//
	// +optional
	Record *StoreRecord `json:"record,omitempty"`

	// Former field: status.record.turn has it. An earlier operator wrote it here, and the operator carries it over.
	//
	// +optional
	DisruptionLock *DisruptionLock `json:"turn,omitempty"`

	// The durability in force: the weakest of what the masters run with.
	//
	// +optional
	Durability Durability `json:"durability,omitempty"`

	// How well the data is replicated.
	//
	// +optional
	Replication ReplicationStatus `json:"replication,omitempty"`

	// Recoveries under way, and the last ones that have ended, oldest first.
	//
	// +optional
	// +listType=map
	// +listMapKey=serverId
	// +kubebuilder:validation:MaxItems=32
	Recoveries []RecoveryStatus `json:"recoveries,omitempty"`

	// The cost of losing a failure domain; absent without copies, and while nobody knows.
	//
	// +optional
	Capacity *CapacityStatus `json:"capacity,omitempty"`

	// The last ten drills, oldest first: ends of masters' processes that were ordered, by somebody or by the clock, and what their
	// recoveries took.
	//
	// +optional
	// +listType=map
	// +listMapKey=number
	// +kubebuilder:validation:MaxItems=10
	Drills []Drill `json:"drills,omitempty"`

	// Former field: status.record.drills has it. An earlier operator wrote it here, and the operator carries it over.
	//
	// +optional
	DrillNotes DrillNotes `json:"drillNotes,omitempty"`

	// Former field: status.record.ordersCarriedOver has it. An earlier operator wrote it here, and the operator carries it over.
	//
	// +optional
	OrdersCarriedOver bool `json:"ordersCarriedOver,omitempty"`

	// The image of new pods.
	//
	// +optional
	Image string `json:"image,omitempty"`

	// The format in force, and whether a newer one can be put in force.
	//
	// +optional
	Format FormatStatus `json:"format,omitempty"`

	// How many tables there were at the last look.
	//
	// +optional
	Tables int64 `json:"tables"`

	// The coordinator's pod.
	//
	// +optional
	Coordinator CoordinatorStatus `json:"coordinator,omitempty"`

	// The masters.
	//
	// +optional
	Masters MastersStatus `json:"masters,omitempty"`

	// Nodes that are fenced by this Store's word, or are to be, until they are back.
	//
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=16
	Fences []FenceStatus `json:"fences,omitempty"`

	// Addresses on the masters' ports; absent for Stores on the pod network.
	//
	// +optional
	Network *NetworkStatus `json:"network,omitempty"`

	// Nodes that get no more pods of this Store: those that StoreOperations isolate.
	//
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=16
	Isolations []IsolationStatus `json:"isolations,omitempty"`

	// The last ten losses, oldest first.
	//
	// +optional
	// +listType=map
	// +listMapKey=number
	// +kubebuilder:validation:MaxItems=10
	Losses []Loss `json:"losses,omitempty"`

	// How many losses there have been; the number of the newest one.
	//
	// +optional
	LossCount int64 `json:"lossCount,omitempty"`

	// Former field: status.record.lossesSeen has it. An earlier operator wrote it here, and the operator carries it over.
	//
	// +optional
	LossesSeen int64 `json:"lossesSeen,omitempty"`
}

// FormatStatus says how far an upgrade to a version with another format is; docs/upgrade.md.
type FormatStatus struct {
	// The format in force: what is kept is written in it. 0 before the coordinator has said.
	//
	// +optional
	Active int64 `json:"active,omitempty"`

	// The newest format that the coordinator reads. Above active: an upgrade is not finalized.
	//
	// +optional
	Newest int64 `json:"newest,omitempty"`

	// The members that do not read the newest format yet.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Hindrances []string `json:"hindrances,omitempty"`
}

// Durability names which failures the data survives.
//
// +kubebuilder:validation:Enum=Unreplicated;InMemory;Buffered;Flushed
type Durability string

const (
	// DurabilityUnreplicated means one copy, in memory: it survives no failure.
	DurabilityUnreplicated Durability = "Unreplicated"
	// DurabilityInMemory means copies in the memory of processes on other nodes.
	DurabilityInMemory Durability = "InMemory"
	// DurabilityBuffered means copies in the page caches of other nodes, on their way to volumes.
	DurabilityBuffered Durability = "Buffered"
	// DurabilityFlushed means copies on stable storage of other nodes.
	DurabilityFlushed Durability = "Flushed"
)

// ReplicationStatus says how well the data is replicated.
type ReplicationStatus struct {
	// Copies of each object on other nodes that every master keeps: the least of what they run with.
	//
	// +optional
	Factor int32 `json:"factor"`
	// Pieces of masters' logs with fewer copies than they should have.
	//
	// +optional
	SegmentsShort int64 `json:"segmentsShort"`
	// Where the coordinator keeps what it knows.
	//
	// +optional
	CoordinatorState StateType `json:"coordinatorState,omitempty"`
	// What counts where the spec does not say how many copies there are, or how much room for them: decided when the Store was first seen,
	// and not changed by scaling. A value that the spec had is kept here when it is taken out.
	//
	// +optional
	Decided *DecidedCopies `json:"decided,omitempty"`
}

// DecidedCopies is what an operator has decided about copies.
type DecidedCopies struct {
	// Copies of each object besides the one in its master's memory.
	Factor int32 `json:"factor"`
	// How much each member has for copies; absent while there are none.
	//
	// +optional
	StorageSize *resource.Quantity `json:"storageSize,omitempty"`
	// Why it is so many copies.
	//
	// +kubebuilder:validation:MaxLength=300
	Why string `json:"why"`
}

// CoordinatorStatus describes the coordinator's pod.
type CoordinatorStatus struct {
	// Its pod, while there is one: the leader's, if there are several.
	//
	// +optional
	Pod string `json:"pod,omitempty"`
	// Former field: status.record.coordinatorPodNumber has it. An earlier operator wrote it here, and the operator carries it over.
	//
	// +optional
	PodNumber int64 `json:"podNumber,omitempty"`
	// The node that its pod runs on.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// Whether it answered at the last look.
	//
	// +optional
	Ready bool `json:"ready"`
	// Since when no coordinator has answered the operator; absent while one does. Conditions tell of it once it has lasted
	// longer than another coordinator takes to lead.
	//
	// +optional
	SilentSince *metav1.Time `json:"silentSince,omitempty"`
	// Version of its build.
	//
	// +optional
	BuildVersion string `json:"buildVersion,omitempty"`
	// Its claim of a volume for its state, if there is one.
	//
	// +optional
	Claim string `json:"claim,omitempty"`
	// Changes of the spec that the running pod was made without, such as "image: a -> b".
	//
	// +optional
	Pending string `json:"pending,omitempty"`
	// Where it keeps what it knows. Chosen when the Store was made, and never changed but from Memory to Volume.
	//
	// +optional
	State StateType `json:"state,omitempty"`
	// Counts the processes that have led the store; with state Kubernetes.
	//
	// +optional
	Term int64 `json:"term,omitempty"`
	// Why what it does cannot be noted, or why it must not lead; empty while all is well.
	//
	// +optional
	StateTrouble string `json:"stateTrouble,omitempty"`
	// The other coordinators, one of which leads when the leader is gone.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Standbys []StandbyStatus `json:"standbys,omitempty"`
}

// StandbyStatus describes a coordinator that does not lead.
type StandbyStatus struct {
	// Its name, which outlives its pods.
	Name string `json:"name"`
	// Its pod, while there is one.
	//
	// +optional
	Pod string `json:"pod,omitempty"`
	// The node that its pod runs on.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// Whether its process runs, and so could lead.
	//
	// +optional
	Running bool `json:"running"`
	// Changes of the spec that the running pod was made without.
	//
	// +optional
	Pending string `json:"pending,omitempty"`
	// Why it does not run, where Kubernetes says so.
	//
	// +optional
	Message string `json:"message,omitempty"`
}
