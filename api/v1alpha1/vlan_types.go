package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AnnotationVLANMoved on a Server is somebody's word that its BMC, which does not answer, is in this VLAN: he has seen that through the
// chassis manager.
const AnnotationVLANMoved = "rcbox.dev/vlan-moved"

// VLANStage is how far a BMC is that is moved to another VLAN.
//
// +kubebuilder:validation:Enum="";Elsewhere;Told;Moved;Arrived;Stuck
type VLANStage string

// BMCVLAN describes how far a BMC is that is moved to another VLAN. It is on record before the BMC is told.
type BMCVLAN struct {
	// The VLAN that it is to be in: spec.management.vlan of its Chassis.
	Wanted int32 `json:"wanted"`
	// Elsewhere: it says that it is in another one. Told: it was told to move. Moved: it has said yes, and does not answer where it was.
	// Arrived: it says that it is in the wanted one. Stuck: it says yes, and stays where it is. Empty: it has not answered yet.
	//
	// +optional
	Stage VLANStage `json:"stage,omitempty"`
	// The VLAN that it has last said it is in.
	//
	// +optional
	Reported int32 `json:"reported,omitempty"`
	// When it was told last.
	//
	// +optional
	TriedAt *metav1.Time `json:"triedAt,omitempty"`
	// How often.
	//
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// It has said yes to that.
	//
	// +optional
	Agreed bool `json:"agreed,omitempty"`
}

// ChassisVLAN describes how far the management controllers of a chassis are that are moved to another VLAN.
type ChassisVLAN struct {
	// The VLAN: spec.management.vlan.
	Wanted int32 `json:"wanted"`
	// MMCs: BMCs are being moved. Blocked: somebody has to look at a BMC. Switch: all have moved, and the switch boards come next.
	// Done: all were seen in the wanted VLAN.
	//
	// +kubebuilder:validation:Enum=MMCs;Blocked;Switch;Done
	Phase string `json:"phase"`
	// The reason for the wait, and what to do.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
