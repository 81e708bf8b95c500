package planner

import (
	"fmt"

	"rcbox.dev/rcbox/operator/internal/resources"
)

// Step is one thing to do. It is a value: carrying it out is somebody else's business.
type Step interface {
	// Describe says what is done and why, for events and logs.
	Describe() string
	// Reason is one word for the event that tells of the step; empty for a step that is not told of.
	Reason() string
	// Target is the object that the step is about, if it is not the Store itself.
	Target() (kind, name string)
}

// PodRef names one very pod: a deletion goes only through if the uid and, if there is one, the resource version still match.
type PodRef struct {
	Name            string
	UID             string
	ResourceVersion string
}

// AddFinalizer marks the Store as having pods.
type AddFinalizer struct{ Why string }

// RemoveFinalizer lets the Store go.
type RemoveFinalizer struct{ Why string }

// ApplyObject makes or corrects an object of fixed name. Create is set for one that this Store does not have yet: then somebody else's
// object of that name must not be touched.
type ApplyObject struct {
	Kind   string
	Name   string
	Create bool
	Why    string
}

// CreatePod makes the numberth pod of a member.
type CreatePod struct {
	Component string
	Member    string
	Number    int64
	Inputs    resources.Inputs
	Why       string
}

// DeletePod ends a pod in which no process runs.
type DeletePod struct {
	Member string
	Pod    PodRef
	Why    string
}

// RetireMember asks the coordinator to let a member go and then, only if it did, ends its pod. The coordinator refuses while the member
// holds anything, and gives it nothing once it has agreed: so nothing can be lost between the two.
type RetireMember struct {
	Member string
	// Pod is nil when the member has none.
	Pod *PodRef
	Why string
}

// Describe implements Step.
func (s AddFinalizer) Describe() string { return "add the finalizer: " + s.Why }

// Describe implements Step.
func (s RemoveFinalizer) Describe() string { return "remove the finalizer: " + s.Why }

// Describe implements Step.
func (s ApplyObject) Describe() string { return fmt.Sprintf("apply %s %s: %s", s.Kind, s.Name, s.Why) }

// Describe implements Step.
func (s CreatePod) Describe() string {
	return fmt.Sprintf("create pod %d of %s: %s", s.Number, s.Member, s.Why)
}

// Describe implements Step.
func (s DeletePod) Describe() string {
	return fmt.Sprintf("delete pod %s of %s: %s", s.Pod.Name, s.Member, s.Why)
}

// Describe implements Step.
func (s RetireMember) Describe() string { return fmt.Sprintf("retire %s: %s", s.Member, s.Why) }

// Reason implements Step.
func (AddFinalizer) Reason() string { return "" }

// Reason implements Step.
func (RemoveFinalizer) Reason() string { return "TornDown" }

// Reason implements Step.
func (s ApplyObject) Reason() string {
	if s.Create {
		return s.Kind + "Created"
	}
	return s.Kind + "Corrected"
}

// Reason implements Step.
func (CreatePod) Reason() string { return "PodCreated" }

// Reason implements Step.
func (DeletePod) Reason() string { return "PodDeleted" }

// Reason implements Step.
func (RetireMember) Reason() string { return "MemberRetired" }

// Target implements Step.
func (AddFinalizer) Target() (kind, name string) { return "", "" }

// Target implements Step.
func (RemoveFinalizer) Target() (kind, name string) { return "", "" }

// Target implements Step.
func (s ApplyObject) Target() (kind, name string) { return s.Kind, s.Name }

// Target implements Step. The pod's name is not made here; its member tells it from others just as well.
func (s CreatePod) Target() (kind, name string) { return "Pod", s.Member }

// Target implements Step.
func (s DeletePod) Target() (kind, name string) { return "Pod", s.Pod.Name }

// Target implements Step.
func (s RetireMember) Target() (kind, name string) { return "Pod", s.Member }
