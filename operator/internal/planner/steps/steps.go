// Package steps has all kinds of steps that a plan may have. What differs between kinds is in their rows, and each kind is one method of
// whoever carries steps out: a kind without either does not compile.
package steps

import (
	"context"
	"fmt"
	"net/netip"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// KindClaim is the kind of volume claims.
const KindClaim = "PersistentVolumeClaim"

// Step is one thing to do. It is a value: an Executor carries it out.
//
//sumtype:decl
type Step interface {
	// Do has the step carried out.
	Do(ctx context.Context, by Executor) error
	row() Row
}

// Executor carries steps out. The caller has read before what the step's row asks for (Row.Look).
type Executor interface {
	// Steps about the Store and its objects.

	AddFinalizer(ctx context.Context, step AddFinalizer) error
	RemoveFinalizer(ctx context.Context, step RemoveFinalizer) error
	ApplyObject(ctx context.Context, step ApplyObject) error
	ReleaseState(ctx context.Context, step ReleaseState) error
	DeleteState(ctx context.Context, step DeleteState) error

	// Steps about StoreOperations.

	CreateOperation(ctx context.Context, step CreateOperation) error
	DeleteOperation(ctx context.Context, step DeleteOperation) error
	DropOrders(ctx context.Context, step DropOrders) error

	// Steps about volume claims.

	CreateClaim(ctx context.Context, step CreateClaim) error
	GrowClaim(ctx context.Context, step GrowClaim) error
	TouchClaim(ctx context.Context, step TouchClaim) error
	DropVolume(ctx context.Context, step DropVolume) error
	DeleteClaim(ctx context.Context, step DeleteClaim) error

	// Steps about pods.

	TryPod(ctx context.Context, step TryPod) error
	CreatePod(ctx context.Context, step CreatePod) error
	UngatePod(ctx context.Context, step UngatePod) error
	SetDomain(ctx context.Context, step SetDomain) error
	CancelPodEnd(ctx context.Context, step CancelPodEnd) error
	DeletePod(ctx context.Context, step DeletePod) error
	ReleasePod(ctx context.Context, step ReleasePod) error

	// Steps about the ends of processes that serve.

	RestartMember(ctx context.Context, step RestartMember) error
	DrillMember(ctx context.Context, step DrillMember) error
	MoveMember(ctx context.Context, step MoveMember) error
	RetireMember(ctx context.Context, step RetireMember) error
	CancelDisruption(ctx context.Context, step CancelDisruption) error

	// Steps about the coordinator.

	SetSettings(ctx context.Context, step SetSettings) error
	DrainMember(ctx context.Context, step DrainMember) error
	UndrainMember(ctx context.Context, step UndrainMember) error
	FinalizeUpgrade(ctx context.Context, step FinalizeUpgrade) error
	SplitTable(ctx context.Context, step SplitTable) error

	// Steps about nodes.

	IsolateNode(ctx context.Context, step IsolateNode) error
	FenceNode(ctx context.Context, step FenceNode) error
	UnfenceNode(ctx context.Context, step UnfenceNode) error
}

// AddFinalizer marks the Store as having pods.
type AddFinalizer struct{ Why string }

func (s AddFinalizer) row() Row {
	return Row{
		Text:      "add the finalizer: " + s.Why,
		StopsRest: true,
	}
}

// Do implements Step.
func (s AddFinalizer) Do(ctx context.Context, by Executor) error { return by.AddFinalizer(ctx, s) }

// RemoveFinalizer lets the Store go.
type RemoveFinalizer struct{ Why string }

func (s RemoveFinalizer) row() Row {
	return Row{
		Text:  "remove the finalizer: " + s.Why,
		Event: "TornDown", StopsRest: true,
	}
}

// Do implements Step.
func (s RemoveFinalizer) Do(ctx context.Context, by Executor) error {
	return by.RemoveFinalizer(ctx, s)
}

// ApplyObject makes or corrects an object of fixed name. Create is set for one that this Store does not have yet: then somebody else's
// object of that name must not be touched.
type ApplyObject struct {
	Kind   string
	Name   string
	Create bool
	Why    string
}

func (s ApplyObject) row() Row {
	event := s.Kind + "Corrected"
	if s.Create {
		event = s.Kind + "Created"
	}
	return Row{
		Text:  fmt.Sprintf("apply %s %s: %s", s.Kind, s.Name, s.Why),
		Event: event, Object: Object{s.Kind, s.Name}, StopsRest: true,
	}
}

// Do implements Step.
func (s ApplyObject) Do(ctx context.Context, by Executor) error { return by.ApplyObject(ctx, s) }

// ReleaseState takes the finalizer from a ConfigMap of the coordinator's state: nobody would once its Store is gone.
type ReleaseState struct {
	Name string
	Why  string
}

func (s ReleaseState) row() Row {
	return Row{
		Text:  fmt.Sprintf("release ConfigMap %s: %s", s.Name, s.Why),
		Event: "StateReleased", Object: Object{"ConfigMap", s.Name}, Look: StoreOnce, StopsRest: true,
	}
}

// Do implements Step.
func (s ReleaseState) Do(ctx context.Context, by Executor) error { return by.ReleaseState(ctx, s) }

// DeleteState deletes a ConfigMap of the coordinator's state, of a Store that is being deleted; the root's finalizer with it.
type DeleteState struct {
	Name string
	Why  string
}

func (s DeleteState) row() Row {
	return Row{
		Text:  fmt.Sprintf("delete ConfigMap %s: %s", s.Name, s.Why),
		Event: "StateDeleted", Object: Object{"ConfigMap", s.Name}, Look: StoreOnce, StopsRest: true,
	}
}

// Do implements Step.
func (s DeleteState) Do(ctx context.Context, by Executor) error { return by.DeleteState(ctx, s) }

// CreateClaim makes a volume claim of a member. It is made before the pod that needs it, and never changed.
type CreateClaim struct {
	Component string
	Member    string
	Name      string
	Why       string
}

func (s CreateClaim) row() Row {
	return Row{
		Text:  fmt.Sprintf("create volume claim %s of %s: %s", s.Name, s.Member, s.Why),
		Event: "ClaimCreated", Object: Object{KindClaim, s.Name}, StopsRest: true,
	}
}

// Do implements Step.
func (s CreateClaim) Do(ctx context.Context, by Executor) error { return by.CreateClaim(ctx, s) }

// GrowClaim has a claim ask for a larger volume.
type GrowClaim struct {
	Component string
	Member    string
	Name      string
	Why       string
}

func (s GrowClaim) row() Row {
	return Row{
		Text:  fmt.Sprintf("grow volume claim %s of %s: %s", s.Name, s.Member, s.Why),
		Event: "ClaimGrown", Object: Object{KindClaim, s.Name},
	}
}

// Do implements Step.
func (s GrowClaim) Do(ctx context.Context, by Executor) error { return by.GrowClaim(ctx, s) }

// TouchClaim changes an annotation of a volume claim, so that the scheduler looks at the claim's pod again.
type TouchClaim struct {
	Member string
	Name   string
	Why    string
}

func (s TouchClaim) row() Row {
	return Row{
		Text:   "have the scheduler look at volume claim " + s.Name + " of " + s.Member + ": " + s.Why,
		Object: Object{KindClaim, s.Name},
	}
}

// Do implements Step.
func (s TouchClaim) Do(ctx context.Context, by Executor) error { return by.TouchClaim(ctx, s) }

// DropVolume deletes the claim of a volume that was lost with a node, once nothing in it is needed.
type DropVolume struct {
	Member string
	Claim  string
	Why    string
}

func (s DropVolume) row() Row {
	return Row{
		Text:  fmt.Sprintf("delete volume claim %s, which %s had before: %s", s.Claim, s.Member, s.Why),
		Event: "VolumeDropped", Object: Object{KindClaim, s.Claim}, Look: Everything,
	}
}

// Do implements Step.
func (s DropVolume) Do(ctx context.Context, by Executor) error { return by.DropVolume(ctx, s) }

// DeleteClaim deletes a volume claim of a Store that is being deleted, and with it what the volume holds.
type DeleteClaim struct {
	Name string
	Why  string
}

func (s DeleteClaim) row() Row {
	return Row{
		Text:  fmt.Sprintf("delete volume claim %s: %s", s.Name, s.Why),
		Event: "ClaimDeleted", Object: Object{KindClaim, s.Name}, Look: StoreOnce, StopsRest: true,
	}
}

// Do implements Step.
func (s DeleteClaim) Do(ctx context.Context, by Executor) error { return by.DeleteClaim(ctx, s) }

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

func (s CreatePod) row() Row {
	return Row{
		Text:  fmt.Sprintf("create pod %d of %s: %s", s.Number, s.Member, s.Why),
		Event: "PodCreated", Object: Object{"Pod", s.Member}, Look: StoreOnce,
	}
}

// Do implements Step.
func (s CreatePod) Do(ctx context.Context, by Executor) error { return by.CreatePod(ctx, s) }

// UngatePod lets a pod be given a node, whose addresses are on record as its own.
type UngatePod struct {
	Member string
	Pod    facts.PodRef
	Why    string
}

func (s UngatePod) row() Row {
	return Row{
		Text:   fmt.Sprintf("ungate pod %s of %s: %s", s.Pod.Name, s.Member, s.Why),
		Object: Object{"Pod", s.Pod.Name},
	}
}

// Do implements Step.
func (s UngatePod) Do(ctx context.Context, by Executor) error { return by.UngatePod(ctx, s) }

// SetDomain writes the failure domain of a pod's node to the pod, from where its process takes it.
type SetDomain struct {
	Member string
	Pod    facts.PodRef
	Domain string
	Why    string
}

func (s SetDomain) row() Row {
	return Row{
		Text:   fmt.Sprintf("set the failure domain of pod %s of %s to %q: %s", s.Pod.Name, s.Member, s.Domain, s.Why),
		Object: Object{"Pod", s.Pod.Name},
	}
}

// Do implements Step.
func (s SetDomain) Do(ctx context.Context, by Executor) error { return by.SetDomain(ctx, s) }

// CancelPodEnd changes a pod of a Store that was woken up, so that nobody ends it who saw it before.
type CancelPodEnd struct {
	Member string
	Pod    facts.PodRef
	// Mark is what is written to it.
	Mark string
}

func (s CancelPodEnd) row() Row {
	return Row{
		Text:  fmt.Sprintf("cancel the planned end of pod %s of %s: the Store was woken up", s.Pod.Name, s.Member),
		Event: "PodEndCancelled", Object: Object{"Pod", s.Pod.Name},
	}
}

// Do implements Step.
func (s CancelPodEnd) Do(ctx context.Context, by Executor) error { return by.CancelPodEnd(ctx, s) }

// DeletePod ends a pod in which no process runs, or one that holds nothing: a coordinator with its state elsewhere.
type DeletePod struct {
	Member string
	Pod    facts.PodRef
	Why    string
	// UnderLock: it runs and serves, and that it ends is on record. Everything is looked at once more right before.
	UnderLock bool
	// Ordered by the spec, whatever runs in it: the order has to be in force still.
	Ordered bool
}

func (s DeletePod) row() Row {
	look := Nothing
	switch {
	case s.UnderLock:
		look = Everything
	case s.Ordered: // each time: somebody may wake the Store up while its pods are ended one after the other
		look = Store
	}
	return Row{
		Text:  fmt.Sprintf("delete pod %s of %s: %s", s.Pod.Name, s.Member, s.Why),
		Event: "PodDeleted", Object: Object{"Pod", s.Pod.Name}, Look: look,
	}
}

// Do implements Step.
func (s DeletePod) Do(ctx context.Context, by Executor) error { return by.DeletePod(ctx, s) }

// ReleasePod lets a pod vanish that was told to end and was kept until it was known that it sends nothing any more.
type ReleasePod struct {
	Member string
	Pod    facts.PodRef
	Why    string
}

func (s ReleasePod) row() Row {
	return Row{
		Text:   fmt.Sprintf("release pod %s of %s: %s", s.Pod.Name, s.Member, s.Why),
		Object: Object{"Pod", s.Pod.Name},
	}
}

// Do implements Step.
func (s ReleasePod) Do(ctx context.Context, by Executor) error { return by.ReleasePod(ctx, s) }

// RestartMember ends the pod of a process whose loss costs nothing at the moment, so that it gets one that is made from the present spec.
type RestartMember struct {
	Member string
	Pod    facts.PodRef
	Why    string
}

func (s RestartMember) row() Row {
	return Row{
		Text:  fmt.Sprintf("restart %s: %s", s.Member, s.Why),
		Event: "MemberRestarted", Object: Object{"Pod", s.Pod.Name}, Look: Everything,
	}
}

// Do implements Step.
func (s RestartMember) Do(ctx context.Context, by Executor) error { return by.RestartMember(ctx, s) }

// DrillMember ends the pod of a process whose loss costs nothing at the moment, to see what its recovery takes. That it is about to is on
// record.
type DrillMember struct {
	Member string
	Pod    facts.PodRef
	// Number of the drill.
	Number int64
	Why    string
}

func (s DrillMember) row() Row {
	return Row{
		Text:  fmt.Sprintf("drill %d: end %s: %s", s.Number, s.Member, s.Why),
		Event: "MemberDrilled", Object: Object{"Pod", s.Pod.Name}, Look: Everything,
	}
}

// Do implements Step.
func (s DrillMember) Do(ctx context.Context, by Executor) error { return by.DrillMember(ctx, s) }

// MoveMember ends the pod of a member whose node is lost or drained, and makes it another volume claim if its volume is on that node: it
// gets a pod elsewhere then.
type MoveMember struct {
	Member string
	Node   string
	// Drained: its process may run, and the coordinator is asked to let it go, as for RetireMember.
	Drained bool
	// Pod is nil when the member has none.
	Pod *facts.PodRef
	// Claim is the name of the new one; empty if it goes with its volume, or has none.
	Claim string
	Why   string
}

func (s MoveMember) row() Row {
	text := fmt.Sprintf("move %s away from node %s", s.Member, s.Node)
	if s.Claim != "" {
		text += ", with the new volume claim " + s.Claim
	}
	return Row{
		Text:  text + ": " + s.Why,
		Event: "MemberMoved", Object: Object{"Pod", s.Member}, Look: Everything,
	}
}

// Do implements Step.
func (s MoveMember) Do(ctx context.Context, by Executor) error { return by.MoveMember(ctx, s) }

// RetireMember asks the coordinator to let a member go and then, only if it did, ends its pod. The coordinator refuses while the member
// holds anything, and gives it nothing once it has agreed: so nothing can be lost between the two.
type RetireMember struct {
	Member string
	// Pod is nil when the member has none.
	Pod *facts.PodRef
	Why string
}

func (s RetireMember) row() Row {
	return Row{
		Text:  fmt.Sprintf("retire %s: %s", s.Member, s.Why),
		Event: "MemberRetired", Object: Object{"Pod", s.Member},
	}
}

// Do implements Step.
func (s RetireMember) Do(ctx context.Context, by Executor) error { return by.RetireMember(ctx, s) }

// CancelDisruption has nobody end the process any more for which there is a disruption lock: the pod is changed, so that operators that
// have read the lock hold an outdated version of the pod.
type CancelDisruption struct {
	Lock v1alpha1.DisruptionLock
	Why  string
}

func (s CancelDisruption) row() Row {
	return Row{
		Text:  fmt.Sprintf("cancel the planned end of pod %s: %s", s.Lock.Pod, s.Why),
		Event: "DisruptionCancelled", Object: Object{"Pod", s.Lock.Pod},
	}
}

// Do implements Step.
func (s CancelDisruption) Do(ctx context.Context, by Executor) error {
	return by.CancelDisruption(ctx, s)
}

// SetSettings has the coordinator change what can be changed while the store runs.
type SetSettings struct {
	Settings facts.Settings
	// Why lists what is in force and differs.
	Why string
}

func (s SetSettings) row() Row {
	return Row{
		Text:  "change settings to what the spec has: " + s.Why,
		Event: "SettingsChanged", Look: Everything,
	}
}

// Do implements Step.
func (s SetSettings) Do(ctx context.Context, by Executor) error { return by.SetSettings(ctx, s) }

// DrainMember asks the coordinator to have everything that a member has go to others. It refuses where that could not end.
type DrainMember struct {
	Member string
	Why    string
	// Ordered by a StoreOperation, which has to be there still.
	Ordered bool
	// Trial is the key of the trial of the member's next pod, which may be repeated right before; empty if there is none. The member is not
	// drained if that pod was refused.
	Trial string
}

func (s DrainMember) row() Row {
	look := Coordinator
	if s.Ordered {
		look = Everything
	}
	return Row{
		Text:  fmt.Sprintf("drain %s: %s", s.Member, s.Why),
		Event: "MemberDraining", Object: Object{"Pod", s.Member}, Look: look,
	}
}

// Do implements Step.
func (s DrainMember) Do(ctx context.Context, by Executor) error { return by.DrainMember(ctx, s) }

// UndrainMember takes that back.
type UndrainMember struct {
	Member string
	Why    string
}

func (s UndrainMember) row() Row {
	return Row{
		Text: fmt.Sprintf("undrain %s: %s", s.Member, s.Why),
		// A StoreOperation that orders the drain may be missing in the cache.
		Event: "MemberUndrained", Object: Object{"Pod", s.Member}, Look: Everything,
	}
}

// Do implements Step.
func (s UndrainMember) Do(ctx context.Context, by Executor) error { return by.UndrainMember(ctx, s) }

// Do implements Step.
func (s IsolateNode) Do(ctx context.Context, by Executor) error { return by.IsolateNode(ctx, s) }

// Do implements Step.
func (s FenceNode) Do(ctx context.Context, by Executor) error { return by.FenceNode(ctx, s) }

// Do implements Step.
func (s UnfenceNode) Do(ctx context.Context, by Executor) error { return by.UnfenceNode(ctx, s) }

// Do implements Step.
func (s CreateOperation) Do(ctx context.Context, by Executor) error {
	return by.CreateOperation(ctx, s)
}

// Do implements Step.
func (s DeleteOperation) Do(ctx context.Context, by Executor) error {
	return by.DeleteOperation(ctx, s)
}

// Do implements Step.
func (s DropOrders) Do(ctx context.Context, by Executor) error { return by.DropOrders(ctx, s) }

// Do implements Step.
func (s FinalizeUpgrade) Do(ctx context.Context, by Executor) error {
	return by.FinalizeUpgrade(ctx, s)
}

// Do implements Step.
func (s TryPod) Do(ctx context.Context, by Executor) error { return by.TryPod(ctx, s) }

// Do implements Step.
func (s SplitTable) Do(ctx context.Context, by Executor) error { return by.SplitTable(ctx, s) }
