package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// The reason why it waits, if it cannot go on by itself.
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
	// The cause of the loss: the end of a process, or an administrator who has accepted it.
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
	// Nobody knows how many objects and bytes were lost: the process had not reported to the coordinator that noted its end.
	//
	// +optional
	Uncounted bool `json:"uncounted,omitempty"`
	// How many bytes of objects were lost, as last reported.
	//
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// The part of the copies that was missing when somebody accepted the loss. How many objects that were, nobody knows.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Missing string `json:"missing,omitempty"`
}
