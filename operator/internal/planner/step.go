package planner

import (
	"fmt"
	"net/netip"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// KindClaim is the kind of volume claims.
const KindClaim = "PersistentVolumeClaim"

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
	// Claim is the name of its volume claim; empty if it needs none.
	Claim string
	// Addresses of its ports, if it has any.
	Addresses []netip.Addr
	// ReturnsTo is an isolated node on which it may run all the same, because its volume is there; empty for none.
	ReturnsTo string
	Why       string
}

// UngatePod lets a pod be given a node, whose addresses are on record as its own.
type UngatePod struct {
	Member string
	Pod    PodRef
	Why    string
}

// RecallPod changes a pod of a Store that was woken up, so that nobody ends it who saw it before.
type RecallPod struct {
	Member string
	Pod    PodRef
	// Mark is what is written to it.
	Mark string
}

// ReleasePod lets a pod vanish that was told to end and was kept until it was known that it sends nothing any more.
type ReleasePod struct {
	Member string
	Pod    PodRef
	Why    string
}

// CreateClaim makes a volume claim of a member. It is made before the pod that needs it, and never changed.
type CreateClaim struct {
	Component string
	Member    string
	Name      string
	Why       string
}

// GrowClaim has a claim ask for a larger volume.
type GrowClaim struct {
	Component string
	Member    string
	Name      string
	Why       string
}

// DeleteClaim deletes a volume claim of a Store that is being deleted, and with it what the volume holds.
type DeleteClaim struct {
	Name string
	Why  string
}

// RestartMember ends the pod of a process whose loss costs nothing at the moment, so that it gets one that is made from the present spec.
// Everything is looked at once more right before.
type RestartMember struct {
	Member string
	Pod    PodRef
	Why    string
}

// DrillMember ends the pod of a process whose loss costs nothing at the moment, to see what its recovery takes. That it is about to is on
// record, and everything is looked at once more right before.
type DrillMember struct {
	Member string
	Pod    PodRef
	// Number of the drill.
	Number int64
	Why    string
}

// MoveMember ends the pod of a member whose node is lost or drained, and makes it another volume claim if its volume is on that node: it
// gets a pod elsewhere then. Everything is looked at once more right before.
type MoveMember struct {
	Member string
	Node   string
	// Drained: its process may run, and the coordinator is asked to let it go, as for RetireMember.
	Drained bool
	// Pod is nil when the member has none.
	Pod *PodRef
	// Claim is the name of the new one; empty if it goes with its volume, or has none.
	Claim string
	Why   string
}

// DropVolume deletes the claim of a volume that was lost with a node, once nothing in it is needed. Everything is looked at once more right
// before.
type DropVolume struct {
	Member string
	Claim  string
	Why    string
}

// IsolateNode notes on the Store that a node gets no more pods of it. Everything is looked at once more right before.
type IsolateNode struct {
	Node   string
	Member string
	Why    string
}

// FenceNode has a node be fenced that is lost. Everything is looked at once more right before.
type FenceNode struct {
	Fence v1alpha1.FenceStatus
	Why   string
}

// UnfenceNode takes that back.
type UnfenceNode struct {
	Fence v1alpha1.FenceStatus
	Why   string
}

// RecallTurn takes back what is on record as the next process to end: its pod is changed, so that nobody can end it who has seen the
// record.
type RecallTurn struct {
	Turn v1alpha1.TurnStatus
	Why  string
}

// ReleaseState takes the finalizer from a ConfigMap of the coordinator's state that outlives its Store: from then on nobody is there who
// would take it away when the ConfigMap, or its namespace, is to go.
type ReleaseState struct {
	Name string
	Why  string
}

// DeleteState deletes a ConfigMap of the coordinator's state, of a Store that is being deleted; the root's finalizer with it.
type DeleteState struct {
	Name string
	Why  string
}

// TellDomain writes the failure domain of a pod's node to the pod, from where its process takes it.
type TellDomain struct {
	Member string
	Pod    PodRef
	Domain string
	Why    string
}

// DeletePod ends a pod in which no process runs, or one that holds nothing: a coordinator with its state elsewhere.
type DeletePod struct {
	Member string
	Pod    PodRef
	Why    string
	// InTurn: it runs and serves, and that it ends is on record. Everything is looked at once more right before.
	InTurn bool
	// Ordered by the spec, whatever runs in it: the order has to be in force still.
	Ordered bool
}

// RetireMember asks the coordinator to let a member go and then, only if it did, ends its pod. The coordinator refuses while the member
// holds anything, and gives it nothing once it has agreed: so nothing can be lost between the two.
type RetireMember struct {
	Member string
	// Pod is nil when the member has none.
	Pod *PodRef
	Why string
}

// SetSettings has the coordinator change what can be changed while the store runs.
type SetSettings struct {
	Settings Settings
	// Why lists what is in force and differs.
	Why string
}

// DrainMember asks the coordinator to have everything that a member has go to others. It refuses where that could not end.
type DrainMember struct {
	Member string
	Why    string
}

// UndrainMember takes that back.
type UndrainMember struct {
	Member string
	Why    string
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
func (s UngatePod) Describe() string {
	return fmt.Sprintf("ungate pod %s of %s: %s", s.Pod.Name, s.Member, s.Why)
}

// Describe implements Step.
func (s RecallPod) Describe() string {
	return fmt.Sprintf("cancel the planned end of pod %s of %s: the Store was woken up", s.Pod.Name, s.Member)
}

// Describe implements Step.
func (s ReleasePod) Describe() string {
	return fmt.Sprintf("release pod %s of %s: %s", s.Pod.Name, s.Member, s.Why)
}

// Describe implements Step.
func (s CreateClaim) Describe() string {
	return fmt.Sprintf("create volume claim %s of %s: %s", s.Name, s.Member, s.Why)
}

// Describe implements Step.
func (s DeleteClaim) Describe() string {
	return fmt.Sprintf("delete volume claim %s: %s", s.Name, s.Why)
}

// Describe implements Step.
func (s RestartMember) Describe() string { return fmt.Sprintf("restart %s: %s", s.Member, s.Why) }

// Describe implements Step.
func (s MoveMember) Describe() string {
	text := fmt.Sprintf("move %s away from node %s", s.Member, s.Node)
	if s.Claim != "" {
		text += ", with the new volume claim " + s.Claim
	}
	return text + ": " + s.Why
}

// Describe implements Step.
func (s DrillMember) Describe() string {
	return fmt.Sprintf("drill %d: end %s: %s", s.Number, s.Member, s.Why)
}

// Describe implements Step.
func (s DropVolume) Describe() string {
	return fmt.Sprintf("delete volume claim %s, which %s had before: %s", s.Claim, s.Member, s.Why)
}

// Describe implements Step.
func (s IsolateNode) Describe() string { return fmt.Sprintf("isolate node %s: %s", s.Node, s.Why) }

// Describe implements Step.
func (s RecallTurn) Describe() string {
	return fmt.Sprintf("cancel the planned end of pod %s: %s", s.Turn.Pod, s.Why)
}

// Describe implements Step.
func (s FenceNode) Describe() string {
	return fmt.Sprintf("fence node %s (%s): %s", s.Fence.Node, s.Fence.Type, s.Why)
}

// Describe implements Step.
func (s UnfenceNode) Describe() string {
	return fmt.Sprintf("release node %s (%s): %s", s.Fence.Node, s.Fence.Type, s.Why)
}

// Describe implements Step.
func (s ReleaseState) Describe() string {
	return fmt.Sprintf("release ConfigMap %s: %s", s.Name, s.Why)
}

// Describe implements Step.
func (s DeleteState) Describe() string { return fmt.Sprintf("delete ConfigMap %s: %s", s.Name, s.Why) }

// Describe implements Step.
func (s TellDomain) Describe() string {
	return fmt.Sprintf("tell pod %s of %s its failure domain, %q: %s", s.Pod.Name, s.Member, s.Domain, s.Why)
}

// Describe implements Step.
func (s GrowClaim) Describe() string {
	return fmt.Sprintf("grow volume claim %s of %s: %s", s.Name, s.Member, s.Why)
}

// Describe implements Step.
func (s DeletePod) Describe() string {
	return fmt.Sprintf("delete pod %s of %s: %s", s.Pod.Name, s.Member, s.Why)
}

// Describe implements Step.
func (s RetireMember) Describe() string { return fmt.Sprintf("retire %s: %s", s.Member, s.Why) }

// Describe implements Step.
func (s SetSettings) Describe() string { return "change settings to what the spec has: " + s.Why }

// Describe implements Step.
func (s DrainMember) Describe() string { return fmt.Sprintf("drain %s: %s", s.Member, s.Why) }

// Describe implements Step.
func (s UndrainMember) Describe() string { return fmt.Sprintf("undrain %s: %s", s.Member, s.Why) }

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
func (RecallPod) Reason() string { return "PodRecalled" }

// Reason implements Step. It is a part of a pod's making, which was told of.
func (UngatePod) Reason() string { return "" }

// Reason implements Step. It is a part of a pod's end, which was told of.
func (ReleasePod) Reason() string { return "" }

// Reason implements Step.
func (CreateClaim) Reason() string { return "ClaimCreated" }

// Reason implements Step.
func (GrowClaim) Reason() string { return "ClaimGrown" }

// Reason implements Step.
func (DeleteClaim) Reason() string { return "ClaimDeleted" }

// Reason implements Step.
func (RestartMember) Reason() string { return "MemberRestarted" }

// Reason implements Step.
func (DrillMember) Reason() string { return "MemberDrilled" }

// Reason implements Step.
func (MoveMember) Reason() string { return "MemberMoved" }

// Reason implements Step.
func (DropVolume) Reason() string { return "VolumeDropped" }

// Reason implements Step.
func (IsolateNode) Reason() string { return "NodeIsolated" }

// Reason implements Step.
func (RecallTurn) Reason() string { return "TurnRecalled" }

// Reason implements Step.
func (FenceNode) Reason() string { return "NodeFenced" }

// Reason implements Step.
func (UnfenceNode) Reason() string { return "NodeReleased" }

// Reason implements Step.
func (ReleaseState) Reason() string { return "StateReleased" }

// Reason implements Step.
func (DeleteState) Reason() string { return "StateDeleted" }

// Reason implements Step. It is a part of making a pod, which was told of.
func (TellDomain) Reason() string { return "" }

// Reason implements Step.
func (DeletePod) Reason() string { return "PodDeleted" }

// Reason implements Step.
func (RetireMember) Reason() string { return "MemberRetired" }

// Reason implements Step.
func (SetSettings) Reason() string { return "SettingsChanged" }

// Reason implements Step.
func (DrainMember) Reason() string { return "MemberDraining" }

// Reason implements Step.
func (UndrainMember) Reason() string { return "MemberUndrained" }

// Target implements Step.
func (AddFinalizer) Target() (kind, name string) { return "", "" }

// Target implements Step.
func (RemoveFinalizer) Target() (kind, name string) { return "", "" }

// Target implements Step.
func (s ApplyObject) Target() (kind, name string) { return s.Kind, s.Name }

// Target implements Step. The pod's name is not made here; its member tells it from others just as well.
func (s CreatePod) Target() (kind, name string) { return "Pod", s.Member }

// Target implements Step.
func (s UngatePod) Target() (kind, name string) { return "Pod", s.Pod.Name }

// Target implements Step.
func (s RecallPod) Target() (kind, name string) { return "Pod", s.Pod.Name }

// Target implements Step.
func (s ReleasePod) Target() (kind, name string) { return "Pod", s.Pod.Name }

// Target implements Step.
func (s CreateClaim) Target() (kind, name string) { return KindClaim, s.Name }

// Target implements Step.
func (s GrowClaim) Target() (kind, name string) { return KindClaim, s.Name }

// Target implements Step.
func (s DeleteClaim) Target() (kind, name string) { return KindClaim, s.Name }

// Target implements Step.
func (s RestartMember) Target() (kind, name string) { return "Pod", s.Pod.Name }

// Target implements Step.
func (s DrillMember) Target() (kind, name string) { return "Pod", s.Pod.Name }

// Target implements Step.
func (s MoveMember) Target() (kind, name string) { return "Pod", s.Member }

// Target implements Step.
func (s DropVolume) Target() (kind, name string) { return KindClaim, s.Claim }

// Target implements Step.
func (s IsolateNode) Target() (kind, name string) { return "Node", s.Node }

// Target implements Step.
func (s RecallTurn) Target() (kind, name string) { return "Pod", s.Turn.Pod }

// Target implements Step.
func (s FenceNode) Target() (kind, name string) { return "Node", s.Fence.Node }

// Target implements Step.
func (s UnfenceNode) Target() (kind, name string) { return "Node", s.Fence.Node }

// Target implements Step.
func (s ReleaseState) Target() (kind, name string) { return "ConfigMap", s.Name }

// Target implements Step.
func (s DeleteState) Target() (kind, name string) { return "ConfigMap", s.Name }

// Target implements Step.
func (s TellDomain) Target() (kind, name string) { return "Pod", s.Pod.Name }

// Target implements Step.
func (s DeletePod) Target() (kind, name string) { return "Pod", s.Pod.Name }

// Target implements Step.
func (s RetireMember) Target() (kind, name string) { return "Pod", s.Member }

// Target implements Step.
func (SetSettings) Target() (kind, name string) { return "", "" }

// Target implements Step.
func (s DrainMember) Target() (kind, name string) { return "Pod", s.Member }

// Target implements Step.
func (s UndrainMember) Target() (kind, name string) { return "Pod", s.Member }
