package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RecoverySpec says when a member moves away from a node that is lost or drained. Of no effect without copies (replication.factor): what
// such a member held is nowhere else, and its pod moves when Kubernetes gives the node up.
type RecoverySpec struct {
	// How long a node has to be lost before its member gets a pod elsewhere, with a new volume if its volume is on that node. It
	// happens only if everything that the member served is served by others again, and if no more failure domains are lost than
	// there are copies. 0s: never; somebody has to delete claim and pod.
	//
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="self == '0s' || self.matches('^([0-9]+(s|m|h))+$') && duration(self) >= duration('10s') && duration(self) <= duration('168h')",message="recovery.rescheduleAfter must be 0s (never), or from 10s to 168h, such as 90s or 5m"
	RescheduleAfter string `json:"rescheduleAfter,omitempty"`

	// How many members may be on their way to another node at the same time. What looks like the loss of many nodes is mostly that
	// of a network.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	MaxConcurrentReplacements int32 `json:"maxConcurrentReplacements,omitempty"`

	// The treatment of a member whose node is drained: cordoned, or marked by an autoscaler that is about to remove it. Move: the member
	// is drained, while clients go on, and gets a pod elsewhere, one member at a time; no pod that is ready is evicted. Wait: nothing, and
	// one pod at a time may be evicted, with what it has; copies make up for it.
	//
	// +optional
	// +kubebuilder:default=Move
	DrainedNodes DrainedNodes `json:"drainedNodes,omitempty"`

	// Say what would be done (status.masters.members[].lost and .evacuation, conditions Degraded and Progressing), and do nothing.
	//
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// When a node is taken out of use by itself.
	//
	// +optional
	// +kubebuilder:default={}
	Isolation IsolationSpec `json:"isolation,omitempty"`

	// The way a lost node is fenced, so that its volumes and addresses can be attached elsewhere.
	//
	// +optional
	// +kubebuilder:default={}
	Fencing FencingSpec `json:"fencing,omitempty"`

	// How long it may take until everything is served again that the members of a failure domain held, from when their loss was found.
	// The condition RecoveryOnTarget says whether this store can do that, and what to change where it cannot.
	//
	// +optional
	// +kubebuilder:default="2s"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('500ms') && duration(self) <= duration('24h')",message="recovery.target must be from 500ms to 24h, such as 2s: 250 ms go by before anything is replayed"
	Target string `json:"target,omitempty"`

	// The operator's reaction to it. Warn: it says so. Refuse: it also takes no master out, and gives none less memory, if the store
	// would not be on target afterwards, or would not have the room for what a lost failure domain held. It never touches what runs.
	//
	// +optional
	// +kubebuilder:default=Warn
	CapacityPolicy CapacityPolicy `json:"capacityPolicy,omitempty"`

	// Drills by the clock: a master's process is ended while everything has its copies, and what its recovery took is noted in
	// status.drills. Left empty, there are drills by order only (StoreOperation).
	//
	// +optional
	Drill *DrillSpec `json:"drill,omitempty"`
}

// DrillSpec says when drills are due.
type DrillSpec struct {
	// When, in five fields as cron has them (minute, hour, day, month, day of the week), or @hourly, @daily, @weekly,
	// @monthly, @yearly.
	//
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|weekly|monthly|yearly)|[^ @=]+( [^ @=]+){4})$')",message="recovery.drill.schedule must have the five fields of cron, such as '0 3 * * 6', or be @hourly, @daily, @weekly, @monthly or @yearly"
	Schedule string `json:"schedule"`

	// The time zone of the schedule, such as Europe/Berlin.
	//
	// +optional
	// +kubebuilder:default="Etc/UTC"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+/-]+$') && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",message="recovery.drill.timeZone must be the name of a time zone, such as Etc/UTC or Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`

	// How long after its time a drill may begin, if something keeps it from beginning. After that it is missed.
	//
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="recovery.drill.window must be from 1m to 168h, such as 1h"
	Window string `json:"window,omitempty"`
}

// CapacityPolicy says what the operator does where a change would leave a store too small to recover in time.
//
// +kubebuilder:validation:Enum=Warn;Refuse
type CapacityPolicy string

const (
	// CapacityWarn means that the condition RecoveryOnTarget says so.
	CapacityWarn CapacityPolicy = "Warn"
	// CapacityRefuse means that the change waits as well.
	CapacityRefuse CapacityPolicy = "Refuse"
)

// DrainedNodes says what becomes of members whose nodes are drained.
//
// +kubebuilder:validation:Enum=Move;Wait
type DrainedNodes string

const (
	// DrainedMove means that they move to other nodes.
	DrainedMove DrainedNodes = "Move"
	// DrainedWait means that they stay until somebody ends their pods.
	DrainedWait DrainedNodes = "Wait"
)

// MovesFromDrained says whether members move away from nodes that are drained. A Store from before the field moves them.
func (s *Store) MovesFromDrained() bool {
	return s.Copies() > 0 && s.Spec.Recovery.DrainedNodes != DrainedWait
}

// MovesFrom says whether they do for this cause: isolating a node is an order to leave it.
func (s *Store) MovesFrom(cause NodeDrain) bool {
	return s.MovesFromDrained() || s.Copies() > 0 && cause == DrainIsolated
}

// NodeDrain says who drains a node.
//
// +kubebuilder:validation:Enum=Cordoned;ClusterAutoscaler;Karpenter;Isolated
type NodeDrain string

const (
	// DrainCordoned means that the node is unschedulable, as kubectl cordon and kubectl drain make it.
	DrainCordoned NodeDrain = "Cordoned"
	// DrainClusterAutoscaler means that the cluster autoscaler is about to remove it.
	DrainClusterAutoscaler NodeDrain = "ClusterAutoscaler"
	// DrainKarpenter means that Karpenter is about to replace it.
	DrainKarpenter NodeDrain = "Karpenter"
	// DrainIsolated means that a StoreOperation isolates it for this Store.
	DrainIsolated NodeDrain = "Isolated"
)

// EvacuationStatus says how far a member is with leaving a node that is drained.
type EvacuationStatus struct {
	// The node.
	Node string `json:"node"`
	// The sign of the drain: a cordon, the mark of an autoscaler, or a StoreOperation.
	Cause NodeDrain `json:"cause"`
	// When the operator saw it first.
	Since metav1.Time `json:"since"`
	// When its pod there was told to end, with nothing in it that anybody needs. Its next one is on its way since.
	//
	// +optional
	MovedAt *metav1.Time `json:"movedAt,omitempty"`
	// The reason why it waits; empty while it is under way.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	WaitsFor string `json:"waitsFor,omitempty"`
}
