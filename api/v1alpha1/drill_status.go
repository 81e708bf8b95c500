package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// DrillTooSlow means that everything was served again, but later than that.
	DrillTooSlow DrillState = "TooSlow"
	// DrillFailed means that not everything was served again within ten minutes, or that nobody knows.
	DrillFailed DrillState = "Failed"
	// DrillMissed means that it was due by the clock, and could not begin in time.
	DrillMissed DrillState = "Missed"
	// DrillRefused means that it was ordered and could not begin within a minute or was withdrawn, or that it was due while another one was
	// under way.
	DrillRefused DrillState = "Refused"
)

// Drill is the end of a master's process that was ordered.
type Drill struct {
	// Counts the drills of this Store from 1.
	Number int64 `json:"number"`
	// How far it is, or how it ended.
	State DrillState `json:"state"`
	// The StoreOperation that ordered it; empty for the schedule.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Order string `json:"order,omitempty"`
	// The uid of that StoreOperation: another one of the same name is another order.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	OrderUID string `json:"orderUid,omitempty"`
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
	// The reason why it waits, or ended as it did.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// HasEnded says whether nothing comes of the drill any more.
func (d *Drill) HasEnded() bool { return d.State != DrillWaiting && d.State != DrillRunning }

// DrillNotes is what the operator has to remember of drills.
type DrillNotes struct {
	// How many drills there have been; the number of the newest one.
	//
	// +optional
	Count int64 `json:"count,omitempty"`
	// The value of annotation rcbox.dev/drill that an operator saw last which took orders by annotation. Empty once
	// ordersCarriedOver is set.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Order string `json:"order,omitempty"`
	// The schedule, with its time zone, from which nextAt was computed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule,omitempty"`
	// When the next drill is due by that schedule.
	//
	// +optional
	NextAt *metav1.Time `json:"nextAt,omitempty"`
}
