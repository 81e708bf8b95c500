package planner

import (
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/addressbook"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// MemberView is what was seen of a member, and what is to become of it.
type MemberView struct {
	Name string
	// Wanted is false for a member that the spec has no place for any more.
	Wanted bool
	// Pod that counts; nil when there is none.
	Pod *facts.Pod
	// Reported is what the coordinator knows; nil when it knows nothing.
	Reported *facts.MemberReport
	// Up is whether its present process serves.
	Up bool
	// Unheard: the coordinator has begun to lead, and has yet to hear from it. Nothing follows from that it is not up.
	Unheard bool
	// Pending is how the pod differs from the spec; empty when it does not.
	Pending string
	// Claim is the name of its volume claim; empty when it has none.
	Claim string
	// PodNumber is the greatest that a pod of it is known to have had, not counting one that this plan makes.
	PodNumber int64
	// OrderedBy is the StoreOperation by whose order alone the pod is outdated; empty otherwise.
	OrderedBy string
	// Rolls: it is outdated, and the operator restarts it as soon as that costs nothing.
	Rolls bool
	// Lost is set while the node that it was on is lost, and it has no other.
	Lost *Lost
	// Evacuation is set while the node that it is on is drained, and then until it is up on another one.
	Evacuation *Evacuation
	// Failures is what went wrong with it lately where it is.
	Failures *v1alpha1.FailureStatus
	// Addresses on its ports; AddressWait is what it waits for until it gets a pod with some.
	Addresses   []addressbook.Address
	AddressWait string
	// inputs of its next pod.
	inputs resources.Inputs
	// Refusals of its pods by kubelets, one after the other; nil if there were none, or one was admitted since.
	Refusals *v1alpha1.RefusalStatus
}

// Tablets is how many parts of tables the member holds.
func (v *MemberView) Tablets() int64 {
	if v.Reported == nil {
		return 0
	}
	return v.Reported.Tablets
}

// whyOutdated says why the member is to have another pod.
func (v *MemberView) whyOutdated() string {
	if v.OrderedBy != "" {
		return v.Pending
	}
	return "the spec has changed: " + v.Pending
}

// howToKeep says how a member is not to have another pod any more; empty if nobody has asked for another one.
func (v *MemberView) howToKeep() string {
	switch {
	case v.OrderedBy != "":
		return "delete StoreOperation " + v.OrderedBy
	case v.Pending != "":
		return "revert the spec"
	default:
		return ""
	}
}

// Lost is what is known of a member whose node is lost.
type Lost struct {
	Node  string
	Cause v1alpha1.NodeLoss
	// Since when that was seen; ProvenAt is when it was proven that nothing is lost if the member moves, zero while it is not.
	Since    time.Time
	ProvenAt time.Time
	// WaitsFor says why the member does not move yet; empty when it does.
	WaitsFor string
	// ByHand is the command that moves the member, where the operator does not move members; empty where it does, or may not yet.
	ByHand string
	// withVolume: its volume can be used on that node only.
	withVolume bool
}

// isSudden: nobody has said that the node is gone, or is to go.
func (l *Lost) isSudden() bool {
	return l != nil && (l.Cause == v1alpha1.NodeNotReady || l.Cause == v1alpha1.NodeSilent)
}

// Evacuation is how far a member is with leaving a node that is drained.
type Evacuation struct {
	Node  string
	Cause v1alpha1.NodeDrain
	// Since when that was seen; MovedAt is when its pod there was told to end, zero before that.
	Since   time.Time
	MovedAt time.Time
	// WaitsFor says why it does not go on; empty when it does.
	WaitsFor string
	// withVolume: its volume can be used on that node only.
	withVolume bool
}

// Moved says whether the member has left, and its next pod is on its way.
func (e *Evacuation) Moved() bool { return e != nil && !e.MovedAt.IsZero() }

// HowToStay is what takes back that a node is drained.
func HowToStay(leaves *Evacuation) string {
	if leaves.Cause == v1alpha1.DrainIsolated {
		return "delete the StoreOperation that isolates " + leaves.Node
	}
	return "uncordon " + leaves.Node
}

// Shortfall says what keeps the data from having all the copies that the spec asks for.
type Shortfall struct {
	// Reason is that of the condition DataSafe.
	Reason string
	// Message is a sentence for people: what is short, or which recovery waits for what.
	Message string
	// absent is the only member whose absence is to blame, if it is nothing else.
	absent string
	// restart: nothing is wrong but that processes were started for fewer copies, and can only be told by another start.
	restart bool
}

// forbidsRemoving says whether a member must stay, because the copies that it keeps may be the last. One that is away already
// keeps nothing from anybody.
func (s *Shortfall) forbidsRemoving(member string) bool {
	return s != nil && s.absent != member
}

// Hibernation is how far a Store is that is to sleep.
type Hibernation struct {
	// Begun: its pods are being ended, or have ended.
	Begun bool
	// Again: it was woken up meanwhile, and is to sleep once more. That is on record, as a sleep of its own, before a pod ends.
	Again bool
	// PodsLeft have not ended yet.
	PodsLeft int
	// WaitsFor says why it has not begun.
	WaitsFor string
}

// Leaving is what the members that are drained have left, the last member first; those that are not Wanted.
func Leaving(views []MemberView) []MemberView {
	var leaving []MemberView
	for _, view := range slices.Backward(views) {
		if !view.Wanted && view.Reported != nil && view.Reported.Draining != nil {
			leaving = append(leaving, view)
		}
	}
	return leaving
}

// Evacuating are the members that leave nodes which are drained.
func Evacuating(views []MemberView) []MemberView {
	return slices.DeleteFunc(slices.Clone(views), func(v MemberView) bool { return v.Evacuation == nil })
}

// Drills is what becomes of a Store's drills: the list, oldest first, and the notes that the status is to have.
type Drills struct {
	List  []v1alpha1.Drill
	Notes v1alpha1.DrillNotes
}

func drillsOf(store *v1alpha1.Store) Drills {
	status := store.Status.DeepCopy()
	return Drills{List: status.Drills, Notes: status.DrillNotes}
}

// Of is the drill that was made of a StoreOperation; nil if there is none.
func (d *Drills) Of(uid string) *v1alpha1.Drill {
	i := slices.IndexFunc(d.List, func(drill v1alpha1.Drill) bool { return drill.OrderUID == uid })
	if i < 0 {
		return nil
	}
	return &d.List[i]
}

// Current is the drill that has not ended; nil if there is none. There is one at most.
func (d *Drills) Current() *v1alpha1.Drill {
	i := slices.IndexFunc(d.List, func(drill v1alpha1.Drill) bool { return !drill.HasEnded() })
	if i < 0 {
		return nil
	}
	return &d.List[i]
}
