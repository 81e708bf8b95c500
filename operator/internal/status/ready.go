package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// setReady adds the two conditions that summarize the others for tools that know no Store: kubectl wait, kstatus, Flux.
func setReady(o facts.Observed, plan planner.Plan, outcome Outcome, next *v1alpha1.StoreStatus) {
	set(o, next, v1alpha1.ConditionStalled, stalled(plan, outcome, next))
	set(o, next, v1alpha1.ConditionReady, storeReady(plan, next))
}

// storeReady: every key can be read and written, everything has the copies that the spec asks for, and nothing is left to do.
func storeReady(plan planner.Plan, next *v1alpha1.StoreStatus) verdict {
	available := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionAvailable)
	safe := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionDataSafe)
	progressing := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionProgressing)
	switch {
	case available.Status != metav1.ConditionTrue:
		return verdict{available.Status, available.Reason, available.Message}
	case safe.Status != metav1.ConditionTrue && safe.Reason != v1alpha1.ReasonUnreplicated: // that one is as somebody has asked for
		return verdict{safe.Status, safe.Reason, safe.Message}
	case !isDone(plan, progressing):
		return verdict{metav1.ConditionFalse, progressing.Reason, progressing.Message}
	default:
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonServing, available.Message + "; the Store is as its spec says"}
	}
}

// stalled: nothing goes on without somebody's action. What Progressing says is the reason.
func stalled(plan planner.Plan, outcome Outcome, next *v1alpha1.StoreStatus) verdict {
	available := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionAvailable)
	progressing := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionProgressing)
	isRetried := progressing.Reason == v1alpha1.ReasonApplyFailed && !outcome.FailedForGood
	switch {
	case available.Reason == v1alpha1.ReasonStateUnusable:
		return verdict{metav1.ConditionTrue, available.Reason, available.Message}
	case progressing.Status == metav1.ConditionTrue, isRetried, isDone(plan, progressing),
		progressing.Reason == v1alpha1.ReasonHibernated:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonNotStalled, "nothing waits for a user's action"}
	default:
		return verdict{metav1.ConditionTrue, progressing.Reason, progressing.Message}
	}
}

// isDone: the Store is as its spec says, as far as somebody wants that.
func isDone(plan planner.Plan, progressing *metav1.Condition) bool {
	switch progressing.Reason {
	case v1alpha1.ReasonAsSpecified, v1alpha1.ReasonCanBeFinalized:
		return progressing.Status == metav1.ConditionFalse
	case v1alpha1.ReasonPaused:
		return len(plan.Withheld) == 0
	default:
		return false
	}
}
