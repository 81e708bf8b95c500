package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StoreStatus is what the operator last saw.
type StoreStatus struct {
	// The generation of the spec that this status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Available, Progressing, Degraded, DataSafe, Recovering, RecoveryOnTarget and NetworkReady; all of them from the operator's first
	// visit on.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// What a client connects to.
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

	// The one process that the operator ends next, or has just ended, because it is outdated or for a drill; absent mostly. What is not on
	// record here is not ended.
	//
	// +optional
	Turn *TurnStatus `json:"turn,omitempty"`

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

	// What the loss of a failure domain would cost; absent without copies, and while nobody knows.
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

	// What was taken note of for drills.
	//
	// +optional
	DrillNotes DrillNotes `json:"drillNotes,omitempty"`

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

	// Nodes that get no more pods of this Store: those that the annotation rcbox.dev/isolated names.
	//
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=16
	Isolations []IsolationStatus `json:"isolations,omitempty"`

	// What was lost, the last ten times, oldest first.
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

	// How many of the losses that the present coordinator reports are counted in lossCount.
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

	// Who does not read the newest format yet.
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
}

// RecoveryStatus describes how a lost master's tablets come back.
type RecoveryStatus struct {
	// The server that was lost, as index.generation.
	ServerID string `json:"serverId"`
	// Its master.
	//
	// +optional
	Member string `json:"member,omitempty"`
	// When the server was found dead.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Tablets that cannot be read or written yet; 0 once it has ended.
	//
	// +optional
	TabletsLeft int64 `json:"tabletsLeft"`
	// What it waits for, if it cannot go on by itself.
	//
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
	// Bytes of the lost server's log, as far as they are known.
	//
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// How long it should take to replay them, in milliseconds, by what is known of masters and their speed.
	//
	// +optional
	PromisedMs int64 `json:"promisedMs,omitempty"`
	// How long it took until the last tablet was served, in milliseconds; 0 before that.
	//
	// +optional
	MeasuredMs int64 `json:"measuredMs,omitempty"`
}

// CapacityStatus is what the loss of one failure domain would cost.
type CapacityStatus struct {
	// How long it would take until everything is served again, in milliseconds, with what logs have in them now: the worst
	// domain. 0 if nobody could take over.
	//
	// +optional
	ExpectedMs int64 `json:"expectedMs"`
	// The same if all logs were full.
	//
	// +optional
	ExpectedFullMs int64 `json:"expectedFullMs"`
	// How much of a log a core is taken to replay in a second, in MiB.
	//
	// +optional
	CoreMiBps int64 `json:"coreMiBps"`
	// The recovery that has shown it; absent where it is a default.
	//
	// +optional
	Measured *MeasuredRecovery `json:"measured,omitempty"`
}

// MeasuredRecovery is the last recovery that was large enough to tell how fast they are.
type MeasuredRecovery struct {
	// The master that was lost.
	Member string `json:"member"`
	// When its loss was found.
	Since metav1.Time `json:"since"`
	// Bytes of its logs.
	Bytes int64 `json:"bytes"`
	// How long it took until the last tablet was served, in milliseconds.
	Ms int64 `json:"ms"`
	// Cores of the other masters at that time.
	Cores int64 `json:"cores"`
}

// DrillState is how far a drill is, or how it ended.
//
// +kubebuilder:validation:Enum=Waiting;Running;Succeeded;TooSlow;Failed;Missed;Refused
type DrillState string

const (
	// DrillWaiting means that no process was ended yet.
	DrillWaiting DrillState = "Waiting"
	// DrillRunning means that the process was ended, and not everything is as before.
	DrillRunning DrillState = "Running"
	// DrillSucceeded means that everything was served again within the target.
	DrillSucceeded DrillState = "Succeeded"
	// DrillTooSlow means that it was, later than that.
	DrillTooSlow DrillState = "TooSlow"
	// DrillFailed means that it was not, or that nobody knows.
	DrillFailed DrillState = "Failed"
	// DrillMissed means that it was due by the clock, and could not begin in time.
	DrillMissed DrillState = "Missed"
	// DrillRefused means that it was ordered when it could not begin, or while another one was under way.
	DrillRefused DrillState = "Refused"
)

// TurnStatus is a process that serves, and whose end is planned. It is ended only while its pod is as it was seen; whoever changes the pod
// takes the turn back.
type TurnStatus struct {
	Member string `json:"member"`
	Pod    string `json:"pod"`
	PodUID string `json:"podUid"`
	// The state in which the pod was seen: its resource version.
	PodResourceVersion string `json:"podResourceVersion"`
	// When it was put on record.
	Since metav1.Time `json:"since"`
	// Why it is to end.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=500
	Why string `json:"why,omitempty"`
}

// Drill is the end of a master's process that was ordered.
type Drill struct {
	// Counts the drills of this Store from 1.
	Number int64 `json:"number"`
	// How far it is, or how it ended.
	State DrillState `json:"state"`
	// What ordered it: the annotation's value, or empty for the schedule.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Order string `json:"order,omitempty"`
	// When it was due, or its order seen.
	DueAt metav1.Time `json:"dueAt"`
	// The master whose process is or was ended.
	//
	// +optional
	Member string `json:"member,omitempty"`
	// Server ids of that process.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ServerIDs []string `json:"serverIds,omitempty"`
	// When the process was told to end, and when everything was as before, or the drill was given up.
	//
	// +optional
	BeganAt *metav1.Time `json:"beganAt,omitempty"`
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// Bytes of its logs.
	//
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// How long replay should have taken, how long it took until the last tablet was served, and how long it may take
	// (recovery.target), in milliseconds.
	//
	// +optional
	PromisedMs int64 `json:"promisedMs,omitempty"`
	// +optional
	MeasuredMs int64 `json:"measuredMs,omitempty"`
	// +optional
	TargetMs int64 `json:"targetMs,omitempty"`
	// What it waits for, or why it ended as it did.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// HasEnded says whether nothing comes of the drill any more.
func (d *Drill) HasEnded() bool { return d.State != DrillWaiting && d.State != DrillRunning }

// DrillNotes is what was taken note of for drills.
type DrillNotes struct {
	// How many drills there have been; the number of the newest one.
	//
	// +optional
	Count int64 `json:"count,omitempty"`
	// The annotation's value that was seen last.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Order string `json:"order,omitempty"`
	// The schedule and its time zone that nextAt is of.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule,omitempty"`
	// When the next drill is due by it.
	//
	// +optional
	NextAt *metav1.Time `json:"nextAt,omitempty"`
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

// CoordinatorStatus describes the coordinator's pod.
type CoordinatorStatus struct {
	// Its pod, while there is one: the leader's, if there are several.
	//
	// +optional
	Pod string `json:"pod,omitempty"`
	// The highest number of any coordinator's pod so far. Pods' names are derived from it and never used again.
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
	// Version of its build.
	//
	// +optional
	BuildVersion string `json:"buildVersion,omitempty"`
	// Its claim of a volume for its state, if there is one.
	//
	// +optional
	Claim string `json:"claim,omitempty"`
	// What the spec asks for that the running pod was not made with, such as "image: a -> b".
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
	// What the spec asks for that the running pod was not made with.
	//
	// +optional
	Pending string `json:"pending,omitempty"`
	// Why it does not run, where Kubernetes says so.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

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
	// The greatest podNumber of any member that was removed. A member of the same name goes on from there.
	//
	// +optional
	RetiredPodNumber int64 `json:"retiredPodNumber,omitempty"`
	// Each master.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=2000
	Members []MemberStatus `json:"members,omitempty"`
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

// MemberStatus describes one master. Figures are those of the last look at which the coordinator answered.
type MemberStatus struct {
	// Its name, which outlives its pods: the Store's name, "-master-" and a number.
	Name string `json:"name"`
	// What it is at the moment.
	//
	// +optional
	State MemberState `json:"state,omitempty"`
	// Its pod, while there is one.
	//
	// +optional
	Pod string `json:"pod,omitempty"`
	// How many pods it has had. A pod's name is derived from this number and never used again.
	//
	// +optional
	PodNumber int64 `json:"podNumber,omitempty"`
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
	// What the spec asks for that the running pod was not made with, such as "memory: 1Gi -> 2Gi".
	//
	// +optional
	Pending string `json:"pending,omitempty"`
	// Why it is not up, where Kubernetes says so.
	//
	// +optional
	Message string `json:"message,omitempty"`
	// The node that it was lost with, while it has no other; absent while all is well.
	//
	// +optional
	Lost *LostStatus `json:"lost,omitempty"`
	// What it has on its ports, in the order of spec.network.attachments; empty for Stores on the pod network.
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
	// What went wrong with it lately where it is; absent if nothing did.
	//
	// +optional
	Failures *FailureStatus `json:"failures,omitempty"`
}

// NodeLoss says how a node is lost.
//
// +kubebuilder:validation:Enum=Deleted;OutOfService;NotReady;Drained
type NodeLoss string

const (
	// NodeDeleted means that the cluster has no such node any more.
	NodeDeleted NodeLoss = "Deleted"
	// NodeOutOfService means that somebody has said so, by the taint node.kubernetes.io/out-of-service.
	NodeOutOfService NodeLoss = "OutOfService"
	// NodeNotReady means that its kubelet does not answer, or says that it is not ready.
	NodeNotReady NodeLoss = "NotReady"
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
	// What the move waits for; empty while it is under way.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	WaitsFor string `json:"waitsFor,omitempty"`
}

// LossCause says what ended.
//
// +kubebuilder:validation:Enum=Coordinator;Member;Accepted
type LossCause string

const (
	// LossOfCoordinator is the end of the coordinator's process: every table is gone.
	LossOfCoordinator LossCause = "Coordinator"
	// LossOfMember is the end of a master's process: what it held is gone, its part of each table is empty.
	LossOfMember LossCause = "Member"
	// LossAccepted is somebody's word that a recovery shall go on without copies that are gone for ever.
	LossAccepted LossCause = "Accepted"
)

// Loss is the death of a process that held the only copy of something, or a loss that somebody has accepted.
type Loss struct {
	// Counts the losses of this Store from 1. Annotation rcbox.dev/acknowledged-losses takes this number.
	Number int64 `json:"number"`
	// What ended.
	Cause LossCause `json:"cause"`
	// When the operator saw it.
	Time metav1.Time `json:"time"`
	// The member that held it: a master, or the coordinator.
	Member string `json:"member"`
	// Server ids that ended, each as index.generation.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ServerIDs []string `json:"serverIds,omitempty"`
	// Names of tables that lost something; the first ten.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Tables []string `json:"tables,omitempty"`
	// How many tables lost something.
	//
	// +optional
	TableCount int64 `json:"tableCount,omitempty"`
	// How many parts of tables were lost.
	//
	// +optional
	Tablets int64 `json:"tablets,omitempty"`
	// How many objects were lost, as last reported.
	//
	// +optional
	Objects int64 `json:"objects,omitempty"`
	// How many bytes of objects were lost, as last reported.
	//
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// What was missing of the copies when somebody accepted that. How many objects that were, nobody knows.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Missing string `json:"missing,omitempty"`
}
