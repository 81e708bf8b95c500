package status

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
)

// Event is something for a user to read.
type Event struct {
	// Type is Normal or Warning.
	Type   string
	Reason string
	// Action tells events apart that are alike otherwise.
	Action string
	Note   string
}

const observe = "Observe"

// Events tells what is new in a status: each loss, each condition that changed its status or reason.
func Events(old, next *v1alpha1.StoreStatus) []Event {
	var list []Event
	for _, loss := range next.Losses {
		if loss.Number > old.LossCount {
			lost := warning(v1alpha1.ReasonDataLost, DescribeLoss(loss))
			lost.Action = fmt.Sprintf("CountLoss%d", loss.Number)
			list = append(list, lost)
		}
	}
	if old.ClusterID != "" && next.ClusterID != old.ClusterID && old.Tables == 0 {
		list = append(list, warning("CoordinatorRestarted",
			"the coordinator's process ended; it had no tables when it was last looked at"))
	}
	list = append(list, recoveryEvents(old, next)...)
	list = append(list, evacuationEvents(old, next)...)
	list = append(list, drillEvents(old, next)...)
	list = append(list, quarantineEvents(old, next)...)
	for i := range next.Conditions {
		condition := &next.Conditions[i]
		before := meta.FindStatusCondition(old.Conditions, condition.Type)
		if before != nil && before.Status == condition.Status && before.Reason == condition.Reason {
			continue
		}
		switch {
		case condition.Type == v1alpha1.ConditionReady, condition.Type == v1alpha1.ConditionStalled: // the others have said it
		case isToldOtherwise(condition, before):
		case isBad(condition):
			list = append(list, warning(condition.Reason, condition.Message))
		case before != nil && condition.Reason != v1alpha1.ReasonApplying && condition.Reason != v1alpha1.ReasonWaiting:
			list = append(list, event(corev1.EventTypeNormal, condition.Reason, condition.Message))
		}
	}
	return list
}

// recoveryEvents tells of recoveries that have begun or ended since. Most begin and end between two reconciles.
func recoveryEvents(old, next *v1alpha1.StoreStatus) []Event {
	if old.ClusterID == "" {
		return nil // the first look: whatever there is happened before
	}
	var list []Event
	for _, recovery := range next.Recoveries {
		before := findRecovery(old.Recoveries, recovery.ServerID)
		id := "Recovery of " + recovery.ServerID
		switch {
		case recovery.TabletsLeft > 0 && before == nil:
			began := warning("RecoveryBegan", fmt.Sprintf("%s (%s) is dead; other masters recover %s of it",
				recovery.Member, recovery.ServerID, count(recovery.TabletsLeft, "tablet")))
			began.Action = id
			list = append(list, began)
		case recovery.TabletsLeft == 0 && (before == nil || before.TabletsLeft > 0):
			ended := event(corev1.EventTypeNormal, "Recovered", describeEnded(recovery))
			ended.Action = id
			list = append(list, ended)
		}
	}
	return list
}

// drillEvents tells of each drill that has begun, or has ended in whatever way.
func drillEvents(old, next *v1alpha1.StoreStatus) []Event {
	var list []Event
	for _, drill := range next.Drills {
		i := slices.IndexFunc(old.Drills, func(before v1alpha1.Drill) bool { return before.Number == drill.Number })
		if drill.State == v1alpha1.DrillWaiting || i >= 0 && old.Drills[i].State == drill.State {
			continue
		}
		text := fmt.Sprintf("drill %d", drill.Number)
		if drill.Member != "" {
			text += " of " + drill.Member
		}
		told := event(corev1.EventTypeNormal, "Drill"+string(drill.State), text+": "+drill.Message)
		switch drill.State {
		case v1alpha1.DrillWaiting, v1alpha1.DrillSucceeded:
		case v1alpha1.DrillRunning:
			told.Note = text + ": its process was told to end, to see what the recovery takes"
		case v1alpha1.DrillTooSlow, v1alpha1.DrillFailed, v1alpha1.DrillMissed, v1alpha1.DrillRefused:
			told.Type = corev1.EventTypeWarning
		}
		told.Action = text
		list = append(list, told)
	}
	return list
}

// isToldOtherwise: losses and recoveries have events of their own, and a store that is not safe yet is only told of once it was.
func isToldOtherwise(condition, before *metav1.Condition) bool {
	switch condition.Type {
	case v1alpha1.ConditionDataSafe:
		wasSafe := before != nil && before.Status == metav1.ConditionTrue
		return condition.Reason == v1alpha1.ReasonDataLost ||
			!wasSafe && condition.Status != metav1.ConditionTrue && condition.Reason != v1alpha1.ReasonUnreplicated
	case v1alpha1.ConditionRecovering:
		return condition.Reason != v1alpha1.ReasonRecoveryBlocked
	case v1alpha1.ConditionAvailable:
		// That Degraded is True with this reason is the event; and nothing was unavailable.
		return condition.Reason == v1alpha1.ReasonMemoryFull || before != nil && before.Reason == v1alpha1.ReasonMemoryFull &&
			condition.Status == metav1.ConditionTrue
	default:
		return false
	}
}

func isBad(condition *metav1.Condition) bool {
	switch condition.Type {
	case v1alpha1.ConditionAvailable:
		return condition.Status != metav1.ConditionTrue &&
			condition.Reason != v1alpha1.ReasonForming && condition.Reason != v1alpha1.ReasonDeleting
	case v1alpha1.ConditionProgressing:
		return condition.Status == metav1.ConditionFalse &&
			condition.Reason != v1alpha1.ReasonAsSpecified && condition.Reason != v1alpha1.ReasonCanBeFinalized
	case v1alpha1.ConditionDegraded, v1alpha1.ConditionRecovering:
		return condition.Status == metav1.ConditionTrue
	case v1alpha1.ConditionDataSafe:
		return condition.Status != metav1.ConditionTrue && condition.Reason != v1alpha1.ReasonUnreplicated &&
			condition.Reason != v1alpha1.ReasonDeleting
	case v1alpha1.ConditionRecoveryOnTarget:
		return condition.Status == metav1.ConditionFalse && condition.Reason != v1alpha1.ReasonUnreplicated &&
			condition.Reason != v1alpha1.ReasonDeleting
	case v1alpha1.ConditionNetworkReady:
		return condition.Reason == v1alpha1.ReasonAddressesLow ||
			condition.Status == metav1.ConditionFalse && condition.Reason != v1alpha1.ReasonAttaching &&
				condition.Reason != v1alpha1.ReasonDeleting
	default:
		return false
	}
}

func warning(reason, note string) Event {
	return event(corev1.EventTypeWarning, reason, note)
}

func event(kind, reason, note string) Event {
	return Event{Type: kind, Reason: reason, Action: observe, Note: brief.Fit(note, maxMessage)}
}
