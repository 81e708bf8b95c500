package status

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// maxOperationMessage bounds what a StoreOperation says of itself.
const maxOperationMessage = 300

// progress is how far an operation is.
type progress struct {
	phase   v1alpha1.OperationPhase
	reason  string
	message string
	target  string
	// began is when, where something else has that on record.
	began *metav1.Time
	drill *v1alpha1.DrillResult
	split *v1alpha1.SplitResult
}

// Operation is the status of a StoreOperation after a reconcile that gives the Store the status next. One that has ended stays as it is.
func Operation(
	o facts.Observed, plan planner.Plan, outcome Outcome, operation *facts.Operation, next *v1alpha1.StoreStatus,
) v1alpha1.StoreOperationStatus {
	old := operation.Status
	if old.HasEnded() {
		return old
	}
	is := progressOf(o, plan, outcome, operation, next)
	status := *old.DeepCopy()
	status.ObservedGeneration = operation.Generation
	status.Phase, status.Target, status.Drill, status.Split = is.phase, is.target, is.drill, is.split
	if status.StartedAt == nil && is.phase != v1alpha1.OperationPending {
		began := now(o)
		status.StartedAt = &began
	}
	if is.began != nil {
		status.StartedAt = is.began
	}
	if status.HasEnded() {
		ended := now(o)
		status.FinishedAt = &ended
	}
	for condition, isTrue := range map[string]bool{
		v1alpha1.ConditionOperationComplete: is.phase == v1alpha1.OperationSucceeded || is.phase == v1alpha1.OperationInForce,
		v1alpha1.ConditionOperationFailed:   is.phase == v1alpha1.OperationFailed,
	} {
		value := metav1.ConditionFalse
		if isTrue {
			value = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: condition, Status: value, Reason: is.reason, Message: brief.Fit(is.message, maxOperationMessage),
			ObservedGeneration: operation.Generation, LastTransitionTime: now(o),
		})
	}
	return status
}

func progressOf(
	o facts.Observed, plan planner.Plan, outcome Outcome, operation *facts.Operation, next *v1alpha1.StoreStatus,
) progress {
	if o.IsForFormer(operation) {
		return progress{
			phase: v1alpha1.OperationFailed, reason: v1alpha1.ReasonOperationStoreIsNew,
			message: "Store " + o.Store.Name + " was made after this order: if the order is for the present Store, create it again",
		}
	}
	switch operation.Spec.Type {
	case v1alpha1.OperationRestart:
		return restartProgress(o, plan, operation)
	case v1alpha1.OperationFinalize:
		return finalizeProgress(o, outcome, operation)
	case v1alpha1.OperationIsolate:
		return isolateProgress(o, plan, operation)
	case v1alpha1.OperationDrain:
		return drainProgress(o, plan, outcome, operation)
	case v1alpha1.OperationSplit:
		return splitProgress(o, outcome, operation)
	default:
		return drillProgress(o, operation, next)
	}
}

// drainProgress: a drain that has begun stays ordered whatever happens; one that the coordinator refuses at once has failed.
func drainProgress(o facts.Observed, plan planner.Plan, outcome Outcome, operation *facts.Operation) progress {
	member := operation.Spec.Drain.Member
	is := progress{phase: v1alpha1.OperationPending, reason: v1alpha1.ReasonOperationWaits, target: member}
	hasBegun := operation.Status.StartedAt != nil
	if hasBegun {
		is.phase, is.reason = v1alpha1.OperationRunning, v1alpha1.ReasonOperationUnderWay
	}
	i := slices.IndexFunc(plan.Masters, func(v planner.MemberView) bool { return v.Name == member })
	switch {
	case i < 0 && hasBegun:
		is.phase, is.reason = v1alpha1.OperationSucceeded, v1alpha1.ReasonOperationDone
		is.message = fmt.Sprintf("%s was removed: masters.replicas is %d", member, o.Store.Spec.Masters.Replicas)
	case i < 0:
		is.phase, is.reason = v1alpha1.OperationFailed, v1alpha1.ReasonOperationNoMember
		is.message = fmt.Sprintf("Store %s has no master %s: kubectl get storemembers shows their names", o.Store.Name, member)
	case o.Cluster == nil:
		is.message = "the drain waits for the coordinator, which does not answer"
	case outcome.RefusedOrders[member] != "" && hasBegun:
		is.message = "the coordinator says: " + outcome.RefusedOrders[member]
	case outcome.RefusedOrders[member] != "":
		is.phase, is.reason = v1alpha1.OperationFailed, v1alpha1.ReasonOperationRefused
		is.message = "the coordinator says: " + outcome.RefusedOrders[member]
	case plan.Masters[i].Reported == nil:
		is.message = fmt.Sprintf("the drain waits for %s to be up", member)
	case plan.Masters[i].Reported.Draining != nil && plan.Masters[i].Reported.Draining.Drained:
		is.phase, is.reason = v1alpha1.OperationInForce, v1alpha1.ReasonOperationInForce
		is.message = member + " is drained, and stays so until this StoreOperation is deleted: nobody needs anything that it has"
	case plan.Masters[i].Reported.Draining != nil:
		is.phase, is.reason = v1alpha1.OperationRunning, v1alpha1.ReasonOperationUnderWay
		is.message = strings.Join(append([]string{describeDraining(plan.Masters[i].Reported.Draining)},
			plan.Masters[i].Reported.Draining.WaitsFor...), "; ")
	case o.Store.Spec.Paused:
		is.message = "the drain waits for spec.paused: false"
	default:
		is.message = "the drain is about to begin"
	}
	return is
}

// restartProgress: what is done is seen by the ages of pods, so that an operator that is interrupted goes on where it was.
func restartProgress(o facts.Observed, plan planner.Plan, operation *facts.Operation) progress {
	is := progress{phase: v1alpha1.OperationPending, reason: v1alpha1.ReasonOperationWaits}
	if operation.Status.StartedAt != nil {
		is.phase, is.reason = v1alpha1.OperationRunning, v1alpha1.ReasonOperationUnderWay
	}
	var left, absent []string
	all := 0
	for i := range plan.Masters {
		view := &plan.Masters[i]
		if !view.Wanted || !operation.Restarts(view.Name) {
			continue
		}
		all++
		switch {
		case view.Pod == nil || !view.Up:
			absent = append(absent, view.Name)
		case operation.IsBefore(view.Pod):
			left = append(left, view.Name)
		}
	}
	if operation.Spec.Restart != nil && len(operation.Spec.Restart.Members) > 0 {
		is.target = strings.Join(operation.Spec.Restart.Members, ", ")
	}
	switch {
	case o.Store.Copies() == 0:
		is.phase, is.reason = v1alpha1.OperationFailed, v1alpha1.ReasonOperationRefused
		is.message = "there are no copies (replication.factor), and what a process holds would be lost: delete pods yourself"
	case all == 0:
		is.phase, is.reason = v1alpha1.OperationFailed, v1alpha1.ReasonOperationNoMember
		is.message = fmt.Sprintf("Store %s has no such master: kubectl get storemembers shows their names", o.Store.Name)
	case o.Cluster == nil:
		is.message = "the restart waits for the coordinator, which does not answer"
	case len(left) == 0 && len(absent) == 0:
		is.phase, is.reason = v1alpha1.OperationSucceeded, v1alpha1.ReasonOperationDone
		is.message = count(int64(all), "master") + " restarted"
	default:
		if len(left) < all {
			is.phase, is.reason = v1alpha1.OperationRunning, v1alpha1.ReasonOperationUnderWay
		}
		if isRefused(plan, left) {
			is.reason = v1alpha1.ReasonPodRefused
		}
		is.message = restartWaits(o, plan, left, absent)
	}
	return is
}

// restartWaits says what is left of a restart, and what keeps the next master from its turn.
func restartWaits(o facts.Observed, plan planner.Plan, left, absent []string) string {
	text := count(int64(len(left)), "master") + " left"
	if len(left) > 0 {
		text += ", first " + left[0]
	}
	switch {
	case o.Store.Spec.Paused:
		return text + ": spec.paused is set"
	case plan.Drills.Current() != nil && plan.Drills.Current().Order != "":
		return text + fmt.Sprintf(": StoreOperation %s comes first", plan.Drills.Current().Order)
	case plan.Drills.Current() != nil:
		return text + fmt.Sprintf(": drill %d comes first", plan.Drills.Current().Number)
	case len(absent) > 0:
		return text + ": " + absent[0] + " is to be up first"
	case plan.Shortfall != nil:
		return text + ": " + plan.Shortfall.Message
	case isRefused(plan, left):
		return text + "; " + plan.PodRefused.Message
	default:
		return text
	}
}

// isRefused says whether one of these masters keeps its pod because the API server refuses the next one.
func isRefused(plan planner.Plan, masters []string) bool {
	return plan.PodRefused != nil && slices.Contains(masters, plan.PodRefused.Member)
}

// finalizeProgress: what is in force is read from the coordinator, whoever has put that in force.
func finalizeProgress(o facts.Observed, outcome Outcome, operation *facts.Operation) progress {
	wanted := operation.Spec.Finalize.Format
	is := progress{
		phase: v1alpha1.OperationPending, reason: v1alpha1.ReasonOperationWaits, target: fmt.Sprintf("format %d", wanted),
	}
	for finalize := range steps.Of[steps.FinalizeUpgrade](outcome.Done) {
		if finalize.Format == wanted {
			is.phase, is.reason = v1alpha1.OperationSucceeded, v1alpha1.ReasonOperationDone
			is.message = fmt.Sprintf("format %d is in force", wanted)
			return is
		}
	}
	if o.Cluster == nil {
		is.message = "the coordinator does not answer"
		return is
	}
	format := o.Cluster.Format
	switch {
	case format.Active >= int64(wanted):
		is.phase, is.reason = v1alpha1.OperationSucceeded, v1alpha1.ReasonOperationDone
		is.message = fmt.Sprintf("format %d is in force", format.Active)
	case outcome.RefusedOrders[""] != "":
		is.message = "the coordinator says: " + outcome.RefusedOrders[""]
	case format.Newest < int64(wanted):
		is.message = fmt.Sprintf("the coordinator reads formats up to %d: set spec.image of the Store to a newer version, or delete this "+
			"StoreOperation", format.Newest)
	case len(format.Hindrances) > 0:
		is.message = "not every process reads the format: " + strings.Join(format.Hindrances, "; ")
	case o.Store.Spec.Paused:
		is.message = "the order waits for spec.paused: false"
	default:
		is.message = fmt.Sprintf("format %d is about to be put in force", wanted)
	}
	return is
}

// isolateProgress: the node gets no more pods at once, and masters take their time to leave it.
func isolateProgress(o facts.Observed, plan planner.Plan, operation *facts.Operation) progress {
	node := operation.Spec.Isolate.Node
	is := progress{phase: v1alpha1.OperationInForce, reason: v1alpha1.ReasonOperationInForce, target: node}
	i := slices.IndexFunc(plan.Masters, func(v planner.MemberView) bool { return v.Pod != nil && v.Pod.Node == node })
	switch {
	case !slices.Contains(o.IsolatedNodes(), node):
		is.phase, is.reason = v1alpha1.OperationPending, v1alpha1.ReasonOperationTooMany
		is.message = fmt.Sprintf("%d nodes are isolated, and there can be no more: delete another StoreOperation that isolates one, or "+
			"use placement.nodeSelector", v1alpha1.MaxIsolated)
	case i < 0:
		is.message = fmt.Sprintf("node %s gets no more pods of the Store until this StoreOperation is deleted; no master is there", node)
	case !o.Store.MovesFrom(v1alpha1.DrainIsolated):
		is.message = fmt.Sprintf("node %s gets no more pods of the Store; %s stays there, for masters without copies are not moved",
			node, plan.Masters[i].Name)
	default:
		is.phase, is.reason = v1alpha1.OperationRunning, v1alpha1.ReasonOperationUnderWay
		is.message = fmt.Sprintf("node %s gets no more pods of the Store, and %s leaves it", node, plan.Masters[i].Name)
		if leaves := plan.Masters[i].Evacuation; leaves != nil && leaves.WaitsFor != "" {
			is.message += ", which waits for " + leaves.WaitsFor
		}
	}
	return is
}

func drillProgress(o facts.Observed, operation *facts.Operation, next *v1alpha1.StoreStatus) progress {
	drills := planner.Drills{List: next.Drills}
	drill := drills.Of(operation.UID)
	if drill == nil {
		return progress{
			phase: v1alpha1.OperationPending, reason: v1alpha1.ReasonOperationWaits, message: waitsForDrill(o, drills.Current()),
		}
	}
	is := progress{target: drill.Member, message: drill.Message, began: drill.BeganAt}
	switch drill.State {
	case v1alpha1.DrillWaiting:
		is.phase, is.reason = v1alpha1.OperationPending, v1alpha1.ReasonOperationWaits
		if is.message == "" {
			is.message = fmt.Sprintf("drill %d is about to begin", drill.Number)
		}
	case v1alpha1.DrillRunning:
		is.phase, is.reason = v1alpha1.OperationRunning, v1alpha1.ReasonOperationUnderWay
		if is.message == "" {
			is.message = fmt.Sprintf("the process of %s was ended, and what it held is being recovered", drill.Member)
		}
	case v1alpha1.DrillSucceeded:
		is.phase, is.reason = v1alpha1.OperationSucceeded, v1alpha1.ReasonOperationDone
	case v1alpha1.DrillTooSlow:
		is.phase, is.reason = v1alpha1.OperationFailed, v1alpha1.ReasonDrillTooSlow
	case v1alpha1.DrillFailed:
		is.phase, is.reason = v1alpha1.OperationFailed, v1alpha1.ReasonDrillUnfinished
	case v1alpha1.DrillRefused, v1alpha1.DrillMissed:
		is.phase, is.reason = v1alpha1.OperationFailed, v1alpha1.ReasonOperationRefused
	}
	if drill.BeganAt != nil {
		is.drill = &v1alpha1.DrillResult{
			Number: drill.Number, Bytes: drill.Bytes, PromisedMs: drill.PromisedMs, MeasuredMs: drill.MeasuredMs, TargetMs: drill.TargetMs,
		}
	}
	return is
}

// waitsForDrill says what an order waits for of which no drill was made yet.
func waitsForDrill(o facts.Observed, current *v1alpha1.Drill) string {
	restarts := o.OpenOperations(v1alpha1.OperationRestart)
	switch {
	case current == nil && len(restarts) > 0:
		return fmt.Sprintf("the drill waits until StoreOperation %s has ended", restarts[0].Name)
	case current == nil:
		return "the operator has seen the order"
	case current.Order == "":
		return fmt.Sprintf("the drill waits until drill %d, which was due by recovery.drill.schedule, has ended", current.Number)
	default:
		return fmt.Sprintf("the drill waits until StoreOperation %s has ended", current.Order)
	}
}
