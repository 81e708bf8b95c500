package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// What one look sees passes often: a process that pauses, a coordinator that changes. Conditions say what is wrong once it has
// lasted longer than the store takes to act by itself; what it does act on, a recovery or a loss, they say at once.
const (
	// grace is longer than the store takes to declare a process dead, or to have another coordinator lead.
	grace = 10 * time.Second
	// strandedAfter is how long a pod finds no node before anybody is told to delete its volume: the scheduler needs a moment for any pod.
	strandedAfter = 30 * time.Second
	timeFormat    = "15:04:05 UTC"
)

// presume has members that a new leader has yet to hear from be as they were: it knows them from the state, and their clients go on.
func presume(o facts.Observed, plan planner.Plan) planner.Plan {
	plan.Masters = slices.Clone(plan.Masters)
	presumed := false
	for i := range plan.Masters {
		view := &plan.Masters[i]
		before := find(o.Store.Status.Masters.Members, view.Name)
		if !view.Unheard || before == nil || before.State != v1alpha1.MemberUp || !view.Reported.Runs(view.Pod) {
			continue
		}
		const percent = 100
		known := *view.Reported
		known.Connected, known.Serving = true, before.NotServingSince == nil
		known.Copies = cmp.Or(known.Copies, before.Copies)
		known.Tablets = max(known.Tablets, before.Tablets)
		if known.CapacityBytes == 0 {
			known.CapacityBytes = before.CapacityBytes
			// The least that is this many percent.
			known.LiveBytes = (known.CapacityBytes*int64(before.UsedPercent) + percent - 1) / percent
		}
		view.Reported, view.Up, presumed = &known, true, true
	}
	if presumed {
		plan.Shortfall = planner.FindShortfall(&o, plan.Masters)
	}
	return plan
}

// isPresuming: some member is taken to be as it was. What masters have room for is not known then.
func isPresuming(plan planner.Plan) bool {
	return slices.ContainsFunc(plan.Masters, func(v planner.MemberView) bool { return v.Up && v.Unheard })
}

// serves says whether the member answers requests, as far as the coordinator has heard.
func serves(view planner.MemberView) bool { return view.Up && !isSilent(view) }

// notServingSince is when it was first seen that a member does not serve; nil while it does, or where nobody has seen it serve.
func notServingSince(o facts.Observed, view planner.MemberView, before *v1alpha1.MemberStatus) *metav1.Time {
	switch {
	case before == nil:
		return nil
	case o.Cluster == nil:
		return before.NotServingSince
	case serves(view):
		return nil
	case before.NotServingSince == nil && before.State == v1alpha1.MemberUp:
		since := now(o)
		return &since
	default:
		return before.NotServingSince
	}
}

// silentSince is when it was first seen that no coordinator answers; nil while one does, or where none was seen to.
func silentSince(o facts.Observed) *metav1.Time {
	old := &o.Store.Status.Coordinator
	switch {
	case o.Cluster != nil:
		return nil
	case old.SilentSince == nil && old.Ready:
		since := now(o)
		return &since
	default:
		return old.SilentSince
	}
}

func isRecent(o facts.Observed, since *metav1.Time) bool {
	return since != nil && o.Now.Sub(since.Time) < grace
}

// mayPass says whether that a member does not serve is so new that the store may get over it: it was not declared dead.
func mayPass(o facts.Observed, next *v1alpha1.StoreStatus) func(planner.MemberView) bool {
	return func(view planner.MemberView) bool {
		// Where its pod is gone, so is the process, for certain.
		if serves(view) || !view.Reported.Runs(view.Pod) || view.Reported.Dead {
			return false
		}
		entry := find(next.Masters.Members, view.Name)
		return entry != nil && isRecent(o, entry.NotServingSince)
	}
}

// isExcess: the spec has no place for it any more.
func isExcess(v planner.MemberView) bool { return !v.Wanted }

// isSilenceNew: no coordinator answers, and another one may lead in a moment.
func isSilenceNew(o facts.Observed, silentSince *metav1.Time) bool {
	return o.Cluster == nil && o.Refusal == "" && o.Store.DeletionTimestamp == nil && isRecent(o, silentSince)
}

// whileSilent is a condition as it was when a coordinator answered last, and says so; false for one that has to be told anew.
func whileSilent(o facts.Observed, plan planner.Plan, next *v1alpha1.StoreStatus, name string) (verdict, bool) {
	before := meta.FindStatusCondition(next.Conditions, name)
	if before == nil || isAsleep(plan) || !isSilenceNew(o, next.Coordinator.SilentSince) {
		return verdict{}, false
	}
	switch name {
	case v1alpha1.ConditionNetworkReady:
		return verdict{}, false
	case v1alpha1.ConditionProgressing:
		isSettled := before.Reason == v1alpha1.ReasonAsSpecified || before.Reason == v1alpha1.ReasonCanBeFinalized
		if !isSettled || len(plan.Steps) > 0 || slices.ContainsFunc(plan.Masters, isExcess) {
			return verdict{}, false
		}
	}
	const silence = "status as last seen: no coordinator has answered since "
	message := before.Message
	if !strings.HasPrefix(message, silence) {
		message = silence + next.Coordinator.SilentSince.UTC().Format(timeFormat) + "; " + message
	}
	return verdict{before.Status, before.Reason, message}, true
}

// upText says how many masters are up, and what of the others is not told of as a failure yet.
func upText(o facts.Observed, plan planner.Plan, next *v1alpha1.StoreStatus) string {
	text := countUp(plan)
	if unheard := filter(plan.Masters, func(v planner.MemberView) bool { return v.Up && v.Unheard }); len(unheard) > 0 {
		text += "; the new coordinator has not heard yet from " + bareNames(unheard)
	}
	if passing := filter(plan.Masters, mayPass(o, next)); len(passing) > 0 {
		entry := find(next.Masters.Members, passing[0].Name)
		text += "; not serving since " + entry.NotServingSince.UTC().Format(timeFormat) + ": " + bareNames(passing)
	}
	return text
}
