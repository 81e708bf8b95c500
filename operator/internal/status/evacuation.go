package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// evacuation is what the status says of a member that leaves its node. That it has left goes on record with the step that ends its pod.
func evacuation(o facts.Observed, view planner.MemberView, outcome Outcome) *v1alpha1.EvacuationStatus {
	leaves := view.Evacuation
	if leaves == nil {
		return nil
	}
	entry := &v1alpha1.EvacuationStatus{
		Node: leaves.Node, Cause: leaves.Cause, Since: metav1.NewTime(leaves.Since.Truncate(time.Second)),
		WaitsFor: brief.Fit(leaves.WaitsFor, maxWaitsFor),
	}
	hasMoved := false
	for move := range steps.Of[steps.MoveMember](outcome.Done) {
		hasMoved = hasMoved || move.Drained && move.Member == view.Name
	}
	switch {
	case leaves.Moved():
		movedAt := metav1.NewTime(leaves.MovedAt.Truncate(time.Second))
		entry.MovedAt = &movedAt
	case hasMoved:
		movedAt := now(o)
		entry.MovedAt = &movedAt
	}
	return entry
}

// evacuating says which members leave nodes that are drained, how far the first one is, and what to do if it cannot go.
func evacuating(o facts.Observed, plan planner.Plan, outcome Outcome) *verdict {
	leaving := planner.Evacuating(plan.Masters)
	if len(leaving) == 0 {
		return nil
	}
	isRefused := func(v planner.MemberView) bool { return outcome.Refused != "" && v.Name == outcome.RefusedMember }
	if i := slices.IndexFunc(leaving, isRefused); i >= 0 {
		leaves := leaving[i].Evacuation
		return &verdict{metav1.ConditionFalse, v1alpha1.ReasonEvacuationBlocked, fmt.Sprintf(
			"%s stays on node %s, which is drained (%s); the coordinator says: %s. Raise masters.replicas with a node for the new master, "+
				"or give the node back (uncordon, or kubectl rcbox isolate --undo); until then its pod is not evicted",
			leaving[i].Name, leaves.Node, leaves.Cause, strings.TrimSuffix(outcome.Refused, "."))}
	}
	if held := heldOnDrained(o, plan); held != "" {
		return &verdict{metav1.ConditionFalse, v1alpha1.ReasonEvacuationBlocked, held}
	}
	parts := make([]string, 0, maxNamed)
	isMoving := false
	for i, view := range leaving {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("%d more (record.evacuation of StoreMembers)", len(leaving)-maxNamed))
			break
		}
		parts = append(parts, describeEvacuation(view))
	}
	for _, view := range leaving {
		isMoving = isMoving || view.Evacuation.Moved() || o.Store.MovesFrom(view.Evacuation.Cause)
	}
	if !isMoving {
		return nil // nothing is to happen by itself
	}
	return &verdict{metav1.ConditionTrue, v1alpha1.ReasonEvacuating, strings.Join(parts, "; ")}
}

// heldOnDrained says which members the spec keeps on drained nodes: there, the operator does not move them, and the disruption budget lets
// nobody evict them. Empty if there are none.
func heldOnDrained(o facts.Observed, plan planner.Plan) string {
	var field string
	switch {
	case o.Store.Spec.Paused:
		field = "spec.paused"
	case o.Store.Spec.Recovery.DryRun:
		field = "spec.recovery.dryRun"
	default:
		return ""
	}
	held := filter(plan.Masters, func(v planner.MemberView) bool {
		return v.Evacuation != nil && !v.Evacuation.Moved() && o.Store.MovesFrom(v.Evacuation.Cause)
	})
	if len(held) == 0 {
		return ""
	}
	first, leaves := held[0], held[0].Evacuation
	text := fmt.Sprintf("node %s is drained (%s), but %s: true keeps %s there", leaves.Node, leaves.Cause, field, first.Name)
	if others := len(held) - 1; others > 0 {
		text += fmt.Sprintf(", like %s (record.evacuation of StoreMembers)", count(int64(others), "other master"))
	}
	if o.Store.MovesFromDrained() {
		text += ", and evictions of it are refused: kubectl drain does not end"
	}
	return text + fmt.Sprintf(". Set %s: false, or %s", field, planner.HowToStay(leaves))
}

func describeEvacuation(view planner.MemberView) string {
	leaves := view.Evacuation
	text := fmt.Sprintf("node %s is drained (%s), and %s ", leaves.Node, leaves.Cause, view.Name)
	switch {
	case leaves.Moved():
		return text + "has left; it waits for " + leaves.WaitsFor
	case leaves.WaitsFor != "":
		return text + "waits for " + leaves.WaitsFor
	case view.Reported != nil && view.Reported.Draining != nil:
		draining := view.Reported.Draining
		text += "leaves: " + describeDraining(draining)
		if len(draining.WaitsFor) > 0 {
			text += " (" + strings.Join(draining.WaitsFor, "; ") + ")"
		}
		return text
	default:
		return text + "leaves"
	}
}

// evacuationEvents tells whose node is drained since the last look, and whose is not any more though it has not left.
func evacuationEvents(old, next *v1alpha1.StoreStatus) []Event {
	var list []Event
	for i := range next.Masters.Members {
		member := &next.Masters.Members[i]
		before := find(old.Masters.Members, member.Name)
		var was *v1alpha1.EvacuationStatus
		if before != nil {
			was = before.Evacuation
		}
		is := member.Evacuation
		var told Event
		switch {
		case is != nil && is.MovedAt == nil && (was == nil || was.Node != is.Node || was.Cause != is.Cause):
			told = event(corev1.EventTypeNormal, "NodeDrained",
				fmt.Sprintf("node %s of %s is drained (%s)", is.Node, member.Name, is.Cause))
			progressing := meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionProgressing)
			if progressing != nil && progressing.Reason == v1alpha1.ReasonEvacuationBlocked {
				told = warning("NodeDrained", told.Note+", and its master stays there: the condition Progressing says why, and what to do")
			}
		case is == nil && was != nil && was.MovedAt == nil:
			told = event(corev1.EventTypeNormal, "NodeDrainEnded",
				fmt.Sprintf("node %s is not drained any more, or %s is not there", was.Node, member.Name))
		case is == nil && was != nil:
			told = event(corev1.EventTypeNormal, "MemberArrived",
				fmt.Sprintf("%s, which had left node %s, is up on %s", member.Name, was.Node, member.Node))
		default:
			continue
		}
		told.Action = "Evacuate " + member.Name
		list = append(list, told)
	}
	return list
}
