package status

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/capacity"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// sameLoss is how far apart the recoveries of one process' cores are found, at most.
const sameLoss = 5 * time.Second

// capacityStatus leaves what was there last while nobody knows better: a recovery that was measured stays measured.
func capacityStatus(o facts.Observed, plan planner.Plan, next *v1alpha1.StoreStatus) *v1alpha1.CapacityStatus {
	old := o.Store.Status.Capacity
	if plan.Capacity == nil || old != nil && isPresuming(plan) {
		if o.Store.Copies() == 0 {
			return nil
		}
		return old
	}
	entry := &v1alpha1.CapacityStatus{CoreMiBps: plan.Capacity.MiBPerSecond}
	if plan.Capacity.Now.Cores > 0 {
		entry.ExpectedMs, entry.ExpectedFullMs = plan.Capacity.Now.Ms, plan.Capacity.Full.Ms
	}
	if old != nil {
		entry.Measured = old.Measured
	}
	if measured := measure(plan, next); measured != nil && (entry.Measured == nil || entry.Measured.Since.Before(&measured.Since)) {
		entry.Measured = measured
	}
	return entry
}

// measure finds the last recovery that says something of speed. The cores of a process are servers of their own, which are lost and
// recovered together. Nil if there is none, or it has not ended.
func measure(plan planner.Plan, next *v1alpha1.StoreStatus) *v1alpha1.MeasuredRecovery {
	for _, last := range slices.Backward(next.Recoveries) {
		if last.Since == nil {
			continue
		}
		found := &v1alpha1.MeasuredRecovery{Member: last.Member, Since: *last.Since, Cores: coresBut(plan, last.Member)}
		ended := true
		for _, recovery := range next.Recoveries {
			if recovery.Member != last.Member || recovery.Since == nil || recovery.Since.Sub(last.Since.Time).Abs() > sameLoss {
				continue
			}
			ended = ended && recovery.TabletsLeft == 0 && recovery.MeasuredMs > 0
			found.Bytes += recovery.Bytes
			found.Ms = max(found.Ms, recovery.MeasuredMs)
		}
		if ended && found.Bytes >= capacity.LeastMeasuredBytes && found.Cores > 0 {
			return found
		}
	}
	return nil
}

// coresBut are those of the masters that are up, but for one.
func coresBut(plan planner.Plan, member string) int64 {
	cores := int64(0)
	for i := range plan.Masters {
		if view := &plan.Masters[i]; view.Up && view.Name != member {
			cores += int64(max(len(view.Reported.ServerIDs), 1))
		}
	}
	return cores
}

// onTarget is about what the loss of a failure domain would cost.
func onTarget(o facts.Observed, plan planner.Plan, next *v1alpha1.StoreStatus) verdict {
	no := func(reason, message string) verdict { return verdict{metav1.ConditionFalse, reason, message} }
	switch {
	case o.Store.DeletionTimestamp != nil:
		return no(v1alpha1.ReasonDeleting, "the Store is being deleted")
	case o.Store.Copies() == 0:
		return no(v1alpha1.ReasonUnreplicated, "there are no copies to recover anything from: set replication.factor")
	case next.HibernatedSince != nil:
		return verdict{metav1.ConditionUnknown, v1alpha1.ReasonHibernated, "nothing runs"}
	case o.Cluster == nil:
		return verdict{
			metav1.ConditionUnknown, v1alpha1.ReasonCoordinatorDown,
			"the size of the masters' data is not known, since the coordinator does not answer: " + o.ClusterError,
		}
	}
	if before := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionRecoveryOnTarget); before != nil && isPresuming(plan) {
		return verdict{before.Status, before.Reason, before.Message}
	}
	if plan.Capacity == nil {
		return verdict{metav1.ConditionUnknown, v1alpha1.ReasonForming, "no master is up"}
	}
	return verdict{onTargetStatus(plan.Capacity.Verdict), onTargetReasons[plan.Capacity.Verdict], plan.Capacity.Describe()}
}

var onTargetReasons = map[capacity.Verdict]string{
	capacity.OnTarget:        v1alpha1.ReasonOnTarget,
	capacity.OnTargetSoFar:   v1alpha1.ReasonOnTargetSoFar,
	capacity.TooSlow:         v1alpha1.ReasonTooSlow,
	capacity.NoRoomForCopies: v1alpha1.ReasonNoRoomForCopies,
	capacity.NoRoomForData:   v1alpha1.ReasonNoRoomForData,
}

func onTargetStatus(found capacity.Verdict) metav1.ConditionStatus {
	if slices.Contains([]capacity.Verdict{capacity.OnTarget, capacity.OnTargetSoFar}, found) {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
