package status

import (
	"cmp"
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

const (
	// maxHindrances is how many sentences there can be about an upgrade.
	maxHindrances = 16
	maxUnwell     = 16
	// maxMessage bounds a message's length in bytes, maxWaitsFor that of a sentence on what a lost member waits for.
	maxMessage = 300
	maxCommand = 150 // longer ones are only referred to
	// maxFenceText bounds what is said of a fencing beside other things.
	maxFenceText = 110
	maxWaitsFor  = 500
)

type verdict struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

func setConditions(o facts.Observed, plan planner.Plan, outcome Outcome, next *v1alpha1.StoreStatus) {
	for _, condition := range []struct {
		name    string
		verdict verdict
	}{
		{v1alpha1.ConditionAvailable, available(o, plan, next)},
		{v1alpha1.ConditionProgressing, progressing(o, plan, outcome)},
		{v1alpha1.ConditionDegraded, degraded(o, plan, outcome, next)},
		{v1alpha1.ConditionDataSafe, dataSafe(o, plan, next)},
		{v1alpha1.ConditionRecovering, recovering(o, next)},
		{v1alpha1.ConditionRecoveryOnTarget, onTarget(o, plan, next)},
		{v1alpha1.ConditionNetworkReady, networkReady(o, plan)},
	} {
		if before, isSo := whileSilent(o, plan, next, condition.name); isSo {
			condition.verdict = before
		}
		set(o, next, condition.name, condition.verdict)
	}
	setReady(o, plan, outcome, next)
}

func set(o facts.Observed, next *v1alpha1.StoreStatus, name string, v verdict) {
	v.message = brief.Fit(v.message, maxMessage)
	changed := now(o)
	if before := meta.FindStatusCondition(next.Conditions, name); before != nil && before.Status == v.status {
		changed = before.LastTransitionTime
	}
	meta.SetStatusCondition(&next.Conditions, metav1.Condition{
		Type: name, Status: v.status, Reason: v.reason, Message: v.message,
		ObservedGeneration: o.Store.Generation, LastTransitionTime: changed,
	})
}

func available(o facts.Observed, plan planner.Plan, next *v1alpha1.StoreStatus) verdict {
	no := func(reason, message string) verdict { return verdict{metav1.ConditionFalse, reason, message} }
	if o.Store.DeletionTimestamp != nil {
		return no(v1alpha1.ReasonDeleting, "the Store is being deleted")
	}
	if isAsleep(plan) {
		return no(v1alpha1.ReasonHibernated, asleepMessage(plan))
	}
	if waits, is := strings.CutPrefix(o.Refusal, "Rebuilding: "); is {
		return no(v1alpha1.ReasonRebuilding, "the store is being made again from its volumes: "+waits)
	}
	if o.Refusal != "" {
		return no(v1alpha1.ReasonStateUnusable, "the coordinator refuses to lead: "+o.Refusal+
			"; clients go on with keys whose master they know, and wait for all others")
	}
	if o.Cluster == nil {
		return unanswered(o, plan, next)
	}
	up, passes := upText(o, plan, next), mayPass(o, next)
	if v := recovering(o, next); v.status == metav1.ConditionTrue {
		// In this order, for a message that is too long keeps its end, which says what to do.
		return no(v.reason, "some keys cannot be read or written yet; "+up+"; "+v.message)
	}
	isAway := func(v planner.MemberView) bool { return v.Tablets() > 0 && !v.Up && !passes(v) }
	if owners := filter(plan.Masters, isAway); len(owners) > 0 {
		return no(v1alpha1.ReasonMembersDown, "the keys that "+bareNames(owners)+" had cannot be read or written; "+up)
	}
	// A master's log must have a head on backups, and their promise not to give it to others: without, it answers nothing.
	isMute := func(v planner.MemberView) bool { return isSilent(v) && !passes(v) }
	if silent := filter(plan.Masters, isMute); len(silent) > 0 {
		return no(v1alpha1.ReasonMembersDown, bareNames(silent)+" does not answer, because too few other masters are up to keep "+
			"copies; "+up)
	}
	if waiting := filter(plan.Masters, isMissing); next.FormedAt == nil && len(waiting) > 0 {
		return no(v1alpha1.ReasonForming, up+"; waiting for "+bareNames(waiting)+seeDegraded(slices.ContainsFunc(waiting, isTroubled)))
	}
	if ready(plan) == 0 && !slices.ContainsFunc(plan.Masters, passes) {
		return no(v1alpha1.ReasonMembersDown, "no master is up")
	}
	if full := filter(plan.Masters, isFull); len(full) > 0 {
		return verdict{
			metav1.ConditionTrue, v1alpha1.ReasonMemoryFull,
			"every key can be read, but " + bareNames(full) + " refuses writes that need memory: Degraded says what to do; " + up,
		}
	}
	return verdict{metav1.ConditionTrue, v1alpha1.ReasonServing, up}
}

// unanswered is what there is to say while no coordinator answers the operator.
func unanswered(o facts.Observed, plan planner.Plan, next *v1alpha1.StoreStatus) verdict {
	no := func(reason, message string) verdict { return verdict{metav1.ConditionFalse, reason, message} }
	pod := plan.Coordinator.Pod
	// One of several is ready whether it leads or not.
	if pod != nil && pod.Ready && len(plan.Coordinators) <= 1 {
		return verdict{
			metav1.ConditionUnknown, v1alpha1.ReasonCoordinatorDown,
			"the coordinator's pod " + pod.Name + " is ready, but the operator gets no answer from it: " + o.ClusterError,
		}
	}
	if next.FormedAt == nil {
		return no(v1alpha1.ReasonForming, "waiting for the coordinator"+seeDegraded(coordinatorTrouble(plan) != ""))
	}
	return no(v1alpha1.ReasonCoordinatorDown, "the coordinator is down"+seeDegraded(coordinatorTrouble(plan) != "")+
		"; clients go on with keys whose master they know, and wait for all others")
}

// isSilent: it is up, has tablets and copies of them, and serves nothing.
func isSilent(v planner.MemberView) bool {
	return v.Up && v.Tablets() > 0 && v.Reported.Copies > 0 && !v.Reported.Serving
}

func progressing(o facts.Observed, plan planner.Plan, outcome Outcome) verdict {
	stuck := func(reason, message string) verdict { return verdict{metav1.ConditionFalse, reason, message} }
	moving := func(reason, message string) verdict { return verdict{metav1.ConditionTrue, reason, message} }
	excess := filter(plan.Masters, isExcess)
	waiting := filter(plan.Masters, isMissing)
	switch {
	case outcome.NameTaken != "":
		return stuck(v1alpha1.ReasonNameTaken, outcome.NameTaken)
	case outcome.Failed != "":
		return stuck(v1alpha1.ReasonApplyFailed, failedMessage(outcome.Failed))
	case o.Store.DeletionTimestamp != nil:
		return moving(v1alpha1.ReasonDeleting, "waiting for the Store's pods to end")
	case plan.NotAllowed != "":
		return stuck(v1alpha1.ReasonNotAllowed, plan.NotAllowed)
	case o.Store.Spec.Paused:
		if held := heldOnDrained(o, plan); held != "" {
			return stuck(v1alpha1.ReasonEvacuationBlocked, held)
		}
		return stuck(v1alpha1.ReasonPaused, pausedMessage(plan))
	case plan.Hibernation != nil:
		return hibernating(plan)
	case len(excess) > 0 && outcome.Refused != "":
		return stuck(v1alpha1.ReasonScaleInBlocked, scaleInMessage(o.Store, outcome))
	}
	if reason, message := withheld(o, plan); reason != "" {
		return stuck(reason, message)
	}
	if leaving := planner.Leaving(plan.Masters); len(leaving) > 0 {
		return moving(v1alpha1.ReasonDraining, drainingMessage(leaving))
	}
	if changing := evacuatingOrRolling(o, plan, outcome); changing != nil {
		return *changing
	}
	if pending := pendingMembers(plan, outcome); len(pending) > 0 {
		return stuck(v1alpha1.ReasonRestartPending, pendingMessage(o.Store, pending))
	}
	if reason, message := blocked(o, plan); reason != "" {
		return stuck(reason, message)
	}
	return settling(o, plan, excess, waiting)
}

// failedMessage has the beginning of what Kubernetes or the coordinator says, which names the object.
func failedMessage(failed string) string {
	const more = "; the operator's log has all of it"
	if len(failed) <= maxMessage {
		return failed
	}
	return brief.Head(failed, maxMessage-len(more)) + more
}

// settling is how far a Store has come that nothing keeps from getting there.
func settling(o facts.Observed, plan planner.Plan, excess, waiting []planner.MemberView) verdict {
	stuck := func(reason, message string) verdict { return verdict{metav1.ConditionFalse, reason, message} }
	moving := func(reason, message string) verdict { return verdict{metav1.ConditionTrue, reason, message} }
	switch {
	case len(excess) > 0 && o.Cluster == nil:
		return moving(v1alpha1.ReasonWaiting, "scaling in waits for the coordinator, without which no master is removed")
	case len(excess) > 0 && plan.Shortfall != nil:
		return moving(v1alpha1.ReasonWaiting, "scaling in waits until all copies are there: "+plan.Shortfall.Message)
	case len(aboutStore(plan.Steps)) > 0:
		return moving(v1alpha1.ReasonApplying, describe(aboutStore(plan.Steps)))
	case o.Cluster == nil:
		return moving(v1alpha1.ReasonWaiting, "waiting for the coordinator"+seeDegraded(coordinatorTrouble(plan) != ""))
	case len(waiting) > 0:
		return moving(v1alpha1.ReasonWaiting, "waiting for "+bareNames(waiting)+seeDegraded(slices.ContainsFunc(waiting, isTroubled)))
	case o.Cluster.Format.CanBeFinalized():
		return stuck(v1alpha1.ReasonCanBeFinalized, fmt.Sprintf(
			"the Store is as its spec says; format %d is in force, and every process reads %d: `kubectl rcbox finalize` puts that in force",
			o.Cluster.Format.Active, o.Cluster.Format.Newest))
	default:
		return stuck(v1alpha1.ReasonAsSpecified, "the Store is as its spec says")
	}
}

// withheld is what the operator does not do, though the spec asks for it; an empty reason where there is no such thing.
func withheld(o facts.Observed, plan planner.Plan) (reason, message string) {
	if plan.HeldBack != "" {
		return v1alpha1.ReasonHeldBack, plan.HeldBack
	}
	if plan.PodRefused != nil {
		return v1alpha1.ReasonPodRefused, plan.PodRefused.Message
	}
	if refused := o.StateRefused(); refused != "" {
		return v1alpha1.ReasonStateFixed, refused
	}
	return "", ""
}

func evacuatingOrRolling(o facts.Observed, plan planner.Plan, outcome Outcome) *verdict {
	if leaving := evacuating(o, plan, outcome); leaving != nil {
		return leaving
	}
	if reason, message := restarting(plan); reason != "" {
		return &verdict{metav1.ConditionTrue, reason, message}
	}
	return nil
}

// isAsleep: its pods are being ended, or have ended, because it is hibernated.
func isAsleep(plan planner.Plan) bool { return plan.Hibernation != nil && plan.Hibernation.Begun }

func hibernating(plan planner.Plan) verdict {
	if isAsleep(plan) && plan.Hibernation.PodsLeft == 0 {
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonHibernated, asleepMessage(plan)}
	}
	return verdict{metav1.ConditionTrue, v1alpha1.ReasonHibernating, asleepMessage(plan)}
}

func asleepMessage(plan planner.Plan) string {
	switch state := plan.Hibernation; {
	case !state.Begun:
		return "the Store is not hibernated yet: " + state.WaitsFor
	case state.PodsLeft > 0:
		return "the Store is being hibernated; still to end: " + count(int64(state.PodsLeft), "pod")
	default:
		return "the Store is hibernated, with all its data in its volumes; to wake the store, set spec.hibernated: false"
	}
}

func pausedMessage(plan planner.Plan) string {
	if len(plan.Withheld) == 0 {
		return "spec.paused is set; there is nothing to do"
	}
	return "spec.paused is set; without it: " + describe(plan.Withheld)
}

// restarting is the drill or the rolling restart that is under way; an empty reason where there is none.
func restarting(plan planner.Plan) (reason, message string) {
	if drill := plan.Drills.Current(); drill != nil && drill.State == v1alpha1.DrillRunning {
		return v1alpha1.ReasonDrilling, fmt.Sprintf("drill %d: the process of %s was ended; %s", drill.Number, drill.Member, drill.Message)
	}
	if rolling := rollingMessage(plan); rolling != "" {
		return v1alpha1.ReasonRolling, rolling
	}
	return "", ""
}

// rollingMessage says which process is restarted, or what that waits for, and how many come after it; empty if none does.
func rollingMessage(plan planner.Plan) string {
	views := append(append([]planner.MemberView{}, plan.Masters...), plan.Coordinators...)
	outdated := filter(views, func(v planner.MemberView) bool { return v.Rolls })
	if len(outdated) == 0 {
		return ""
	}
	left := fmt.Sprintf("%s left to restart, first %s (%s)", count(int64(len(outdated)), "pod"), outdated[0].Name, outdated[0].Pending)
	for restart := range steps.Of[steps.RestartMember](plan.Steps) {
		return steps.Describe(restart) + "; " + left
	}
	if plan.Shortfall != nil {
		return left + "; the next one restarts when all copies are there: " + plan.Shortfall.Message
	}
	if missing := filter(plan.Masters, isMissing); len(missing) > 0 {
		return left + "; the next one restarts when all masters are up: waiting for " + names(missing)
	}
	return left
}

// drainingMessage says what the members that leave have left, and what the first of them that is not drained waits for.
func drainingMessage(leaving []planner.MemberView) string {
	parts := make([]string, 0, maxNamed)
	for i, view := range leaving {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("%d more", len(leaving)-maxNamed))
			break
		}
		parts = append(parts, view.Name+": "+describeDraining(view.Reported.Draining))
	}
	message := "draining " + strings.Join(parts, ", ")
	for _, view := range leaving {
		if waits := view.Reported.Draining.WaitsFor; len(waits) > 0 {
			return message + ". " + view.Name + ": " + strings.Join(waits, "; ")
		}
	}
	return message
}

func describeDraining(draining *facts.Draining) string {
	if draining.Drained {
		return "drained"
	}
	return fmt.Sprintf("%s, %d copies left", count(draining.Tablets, "tablet"), draining.Copies)
}

func scaleInMessage(store *v1alpha1.Store, outcome Outcome) string {
	ordinal, _ := v1alpha1.MasterOrdinal(store.Name, outcome.RefusedMember)
	return fmt.Sprintf("%s stays; the coordinator says: %s. To keep it, set masters.replicas to %d",
		outcome.RefusedMember, strings.TrimSuffix(outcome.Refused, "."), ordinal+1)
}

// pendingMembers are those whose pods differ from the spec and which only the user may restart.
func pendingMembers(plan planner.Plan, outcome Outcome) []planner.MemberView {
	replaced := map[string]bool{}
	for end := range steps.Of[steps.DeletePod](plan.Steps) {
		replaced[end.Member] = true
	}
	for retire := range steps.Of[steps.RetireMember](plan.Steps) {
		replaced[retire.Member] = retire.Member != outcome.RefusedMember
	}
	views := plan.Masters
	if len(plan.Coordinators) <= 1 {
		// Of several, the operator replaces one after the other.
		views = append([]planner.MemberView{plan.Coordinator}, views...)
	}
	return filter(views, func(v planner.MemberView) bool {
		if v.Pending == "" || v.Rolls || replaced[v.Name] {
			return false
		}
		// An empty master has only to wait for its turn.
		return v.Name == plan.Coordinator.Name || v.Tablets() > 0 || v.Reported == nil
	})
}

// pendingMessage names the pods that are outdated, each with the fields by which it is, and what the user has to do about it.
func pendingMessage(store *v1alpha1.Store, pending []planner.MemberView) string {
	first := pending[0]
	consequence := "restarting a master loses its data"
	switch inputs := first.Pod.Inputs; {
	case inputs.Replication != nil:
		consequence = "while a master restarts, its data cannot be read or written until it is recovered from copies"
	case inputs.State != "":
		consequence = "while the coordinator restarts, no table can be made and no lost master recovered"
	}
	which := "it yourself"
	if len(pending) > 1 {
		which = "them yourself, one at a time"
		if store.Copies() > 0 {
			which += ", each while DataSafe is True"
		}
	}
	outdated := make([]string, 0, maxNamed)
	for i, view := range pending {
		if i == maxNamed {
			outdated = append(outdated, fmt.Sprintf("%d more (status.pending of StoreMembers)", len(pending)-maxNamed))
			break
		}
		outdated = append(outdated, fmt.Sprintf("%s (%s)", view.Pod.Name, view.Pending))
	}
	return fmt.Sprintf("outdated pods: %s; %s. Delete %s: kubectl delete pod -n %s %s",
		strings.Join(outdated, ", "), consequence, which, store.Namespace, first.Pod.Name)
}

// strandedOnNode says which pods cannot be scheduled because their volume is on another node than those that there are, and what to do.
func strandedOnNode(o facts.Observed, plan planner.Plan) string {
	for i := range plan.Masters {
		view := &plan.Masters[i]
		pod, claim := view.Pod, o.Claims[view.Claim]
		if view.Up || pod == nil || o.Now.Sub(pod.CreatedAt) < strandedAfter || pod.Node != "" ||
			pod.Process != facts.ProcessAbsent || pod.Trouble == "" || claim.Node == "" {
			continue
		}
		return fmt.Sprintf("%s has no node: the volume of its claim %s is on node %s (%s). It goes on when that node is back; "+
			"if the node is gone for good, and Recovering is False: kubectl delete -n %s pvc/%s pod/%s, and copies are made anew",
			view.Name, claim.Name, claim.Node, pod.Trouble, o.Store.Namespace, claim.Name, pod.Name)
	}
	return ""
}

// nodesLost says which members were lost with their nodes, and what the move of each waits for.
func nodesLost(plan planner.Plan, lost []planner.MemberView) string {
	parts, byHand := make([]string, 0, maxNamed), ""
	for i, view := range lost {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("%d more (record.lost of StoreMembers)", len(lost)-maxNamed))
			break
		}
		text := fmt.Sprintf("node %s has been lost (%s) since %s, and %s with it", view.Lost.Node, view.Lost.Cause,
			view.Lost.Since.UTC().Format("2006-01-02 15:04:05 UTC"), view.Name) + describeFence(plan, view.Lost.Node)
		switch {
		case view.Lost.ByHand != "":
			byHand = cmp.Or(byHand, view.Lost.ByHand)
		case view.Lost.WaitsFor == "":
			text += "; it moves to another node"
		default:
			text += "; its move to another node waits for " + view.Lost.WaitsFor
		}
		parts = append(parts, text)
	}
	if byHand == "" {
		return strings.Join(parts, "; ")
	}
	if len(byHand) > maxCommand {
		byHand = "the command in record.lost.waitsFor of its StoreMember"
	}
	return strings.Join(parts, "; ") + "; recovery.rescheduleAfter is 0s, so run: " + byHand
}

// degraded says what is broken in the Store, or else that another operator would manage it, too.
func degraded(o facts.Observed, plan planner.Plan, outcome Outcome, next *v1alpha1.StoreStatus) verdict {
	found := broken(o, plan, outcome, next)
	if other := o.OtherOperator; other != "" && found.status == metav1.ConditionFalse {
		return verdict{
			metav1.ConditionTrue, v1alpha1.ReasonTwoOperators,
			"a second rcbox operator, in " + other + ", is configured to manage the Stores of this namespace; it waits " +
				"and changes nothing. Uninstall one of the two operators, or narrow watchNamespaces of one",
		}
	}
	return found
}

func broken(o facts.Observed, plan planner.Plan, outcome Outcome, next *v1alpha1.StoreStatus) verdict {
	yes := func(reason, message string) verdict { return verdict{metav1.ConditionTrue, reason, message} }
	fine := verdict{metav1.ConditionFalse, v1alpha1.ReasonAsExpected, "nothing is broken"}
	if o.Store.DeletionTimestamp != nil || isAsleep(plan) {
		return fine
	}
	if o.Cluster == nil {
		trouble := coordinatorTrouble(plan)
		if next.FormedAt == nil && trouble == "" {
			return fine
		}
		return yes(v1alpha1.ReasonCoordinatorDown, "the coordinator is down"+cmp.Or(trouble, ": it does not answer"))
	}
	broken := filter(plan.Masters, func(v planner.MemberView) bool {
		// A member that has not enlisted yet is on its way, not broken.
		return !v.Up && (isTroubled(v) || v.Reported != nil) && !mayPass(o, next)(v)
	})
	if lost := filter(plan.Masters, func(v planner.MemberView) bool { return v.Lost != nil }); len(lost) > 0 {
		return yes(v1alpha1.ReasonNodeLost, nodesLost(plan, lost))
	}
	if isolated := isolatedByItself(o, next); isolated != "" {
		return yes(v1alpha1.ReasonNodeIsolated, isolated)
	}
	if stranded := strandedOnNode(o, plan); stranded != "" {
		return yes(v1alpha1.ReasonMembersDown, stranded)
	}
	if len(broken) > 0 {
		return yes(v1alpha1.ReasonMembersDown, "not up: "+names(broken))
	}
	if missing := withoutPods(plan, outcome); len(missing) > 0 {
		return yes(v1alpha1.ReasonMembersDown,
			"without a pod, for the operator cannot make one (Progressing says why): "+bareNames(missing))
	}
	if full := filter(plan.Masters, isFull); len(full) > 0 {
		return yes(v1alpha1.ReasonMemoryFull, memoryFullMessage(full))
	}
	if reason, message := brokenBackups(o, plan); reason != "" {
		return yes(reason, message)
	}
	if message := noDomains(o, plan); message != "" {
		return yes(v1alpha1.ReasonNoFailureDomain, message)
	}
	if wait := o.Cluster.StateWait; wait != "" {
		return yes(v1alpha1.ReasonStateStuck,
			"the coordinator cannot write its state, so that changes of tables and recoveries wait: "+wait)
	}
	if away := filter(plan.Coordinators, isStandbyAway(plan)); len(away) > 0 {
		return yes(v1alpha1.ReasonStandbysDown, "standby coordinators that are not ready to take over: "+names(away))
	}
	return fine
}

// withoutPods are the masters whose pods the operator wants to make and cannot.
func withoutPods(plan planner.Plan, outcome Outcome) []planner.MemberView {
	if cmp.Or(outcome.NameTaken, outcome.Failed) == "" {
		return nil
	}
	return filter(plan.Masters, hasNoPod)
}

func dataSafe(o facts.Observed, plan planner.Plan, next *v1alpha1.StoreStatus) verdict {
	store, short := o.Store, plan.Shortfall
	unseen := next.LossCount - acknowledged(store)
	if unseen > 0 && len(next.Losses) > 0 {
		return dataLost(store, next, unseen)
	}
	switch {
	case store.Copies() == 0:
		return verdict{
			metav1.ConditionFalse, v1alpha1.ReasonUnreplicated,
			"each object is in the memory of one master only: it is lost when that master's process ends",
		}
	case store.DeletionTimestamp != nil:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonDeleting, "the Store is being deleted"}
	case isAsleep(plan):
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonHibernated, asleepMessage(plan)}
	case short != nil && short.Reason == v1alpha1.ReasonCoordinatorDown:
		return verdict{metav1.ConditionUnknown, short.Reason, short.Message}
	case short != nil:
		return verdict{metav1.ConditionFalse, short.Reason, short.Message}
	default:
		return replicated(o, plan, next)
	}
}

func dataLost(store *v1alpha1.Store, next *v1alpha1.StoreStatus, unseen int64) verdict {
	last := next.Losses[len(next.Losses)-1]
	message := fmt.Sprintf("loss %d, seen %s: %s", last.Number, last.Time.UTC().Format("2006-01-02 15:04:05 UTC"), DescribeLoss(last))
	if unseen > 1 {
		message += fmt.Sprintf("; %d before it (status.losses has the last %d)", unseen-1, maxLosses)
	}
	// The command stays, however much of the description is left out.
	command := fmt.Sprintf(". To acknowledge the loss: kubectl annotate --overwrite -n %s store/%s %s=%d",
		store.Namespace, store.Name, v1alpha1.AnnotationAcknowledgedLosses, next.LossCount)
	return verdict{metav1.ConditionFalse, v1alpha1.ReasonDataLost, brief.Fit(message, maxMessage-len(command)) + command}
}

// isStandbyAway: a standby that should be there, and was seen to run before, or cannot start.
func isStandbyAway(plan planner.Plan) func(planner.MemberView) bool {
	return func(v planner.MemberView) bool {
		if !v.Wanted || v.Name == plan.Coordinator.Name {
			return false
		}
		return v.Pod != nil && v.Pod.Process != facts.ProcessRunning && v.Pod.Trouble != ""
	}
}

func isMissing(v planner.MemberView) bool { return v.Wanted && !v.Up }

func isTroubled(v planner.MemberView) bool { return v.Pod != nil && v.Pod.Trouble != "" }

func hasNoPod(v planner.MemberView) bool { return v.Wanted && v.Pod == nil && !v.Up }

// isFull: it refuses writes for want of memory, or has a moment ago.
func isFull(v planner.MemberView) bool { return v.Up && v.Reported.IsFull }

func memoryFullMessage(full []planner.MemberView) string {
	return "the memory of " + bareNames(full) + " is full of objects: writes that need room there are refused (NO_TABLE_SPACE), " +
		"while reads and removes go on. Remove objects, or raise masters.replicas or masters.memory"
}

// seeDegraded refers to the one condition that has Kubernetes' words on what is wrong.
func seeDegraded(isSaidThere bool) string {
	if isSaidThere {
		return " (Degraded says why)"
	}
	return ""
}

func countUp(plan planner.Plan) string {
	return fmt.Sprintf("%d of %d masters are up", ready(plan), len(plan.Masters))
}

func ready(plan planner.Plan) int {
	return len(filter(plan.Masters, func(v planner.MemberView) bool { return v.Up }))
}

func coordinatorTrouble(plan planner.Plan) string {
	switch pod := plan.Coordinator.Pod; {
	case pod == nil:
		return ""
	case pod.Trouble != "":
		return fmt.Sprintf(" (pod %s: %s)", pod.Name, pod.Trouble)
	default:
		return ""
	}
}
