// Package status computes a Store's status from what a reconcile saw, decided and did. It is pure, and the only place that writes
// one.
package status

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/record"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Outcome is what became of a plan's steps.
type Outcome struct {
	// Done are those that were carried out.
	Done []steps.Step
	// Refused is the coordinator's word on why a member cannot be retired; empty when it was not asked, or agreed.
	Refused string
	// RefusedMember is the member in question.
	RefusedMember string
	// RefusedOrders is what the coordinator said of what was ordered and refused: of drains by member, of the end of an upgrade under no
	// name.
	RefusedOrders map[string]string
	// Splits is what came of tables that were ordered to be split, by uid of the StoreOperation.
	Splits map[string]Split
	// NameTaken says which object of somebody else has a name that the Store needs; empty when none has.
	NameTaken string
	// Failed says what Kubernetes or the coordinator refused otherwise; empty when nothing failed.
	Failed string
	// FailedForGood: the API server will refuse it again, for lack of a right or of quota, or as invalid.
	FailedForGood bool
}

// Compute is the status after a reconcile.
func Compute(o facts.Observed, plan planner.Plan, outcome Outcome) v1alpha1.StoreStatus {
	old := &o.Store.Status
	plan = presume(o, plan)
	next := *old.DeepCopy()
	next.ObservedGeneration = o.Store.Generation
	next.Locator = resources.Locator(o.Store)
	next.Durability = durability(o, plan)
	next.Image = plan.Image
	if o.Store.DeletionTimestamp == nil {
		next.Coordinator = coordinator(o, plan, outcome)
		next.Masters = masters(o, plan, outcome)
	} else {
		next.Coordinator.Ready, next.Masters.Ready = false, 0
	}
	recordLosses(o, &next)
	recordReplication(o, plan, &next)
	if cluster := o.Cluster; cluster != nil {
		next.ClusterID = cluster.ID
		next.Tables = cluster.Tables
		format := cluster.Format
		next.Format = v1alpha1.FormatStatus{Active: format.Active, Newest: format.Newest, Hindrances: bounded(format.Hindrances)}
		if next.FormedAt == nil && everyMasterUp(plan) {
			formedAt := now(o)
			next.FormedAt = &formedAt
		}
	}
	next.HibernatedSince = hibernatedSince(o, plan)
	if o.Store.DeletionTimestamp == nil {
		next.Fences, next.Isolations = fences(o, plan, outcome), isolations(o, outcome)
	}
	next.DisruptionLock = plan.Lock
	next.Privileges = plan.Privileges
	next.Network = networkStatus(o, plan)
	next.Capacity = capacityStatus(o, plan, &next)
	next.Drills, next.DrillNotes = drills(o, plan, outcome)
	next.OrdersCarriedOver = old.OrdersCarriedOver || plan.OrdersCarriedOver
	setConditions(o, plan, outcome, &next)
	if !equality.Semantic.DeepEqual(old, &next) {
		observedAt := now(o)
		next.ObservedAt = &observedAt
	}
	return next
}

// drills as planned; one whose process was told to end runs, whatever may become of the next reconcile.
func drills(o facts.Observed, plan planner.Plan, outcome Outcome) ([]v1alpha1.Drill, v1alpha1.DrillNotes) {
	planned := plan.Drills
	for step := range steps.Of[steps.DrillMember](outcome.Done) {
		if current := planned.Current(); current != nil && current.Number == step.Number {
			planner.BeginDrill(current, o.Now)
		}
	}
	return planned.List, planned.Notes
}

func hibernatedSince(o facts.Observed, plan planner.Plan) *metav1.Time {
	switch {
	case plan.IsWaking:
		return o.Store.Status.HibernatedSince
	case plan.Hibernation == nil || !plan.Hibernation.Begun:
		return nil
	case plan.Hibernation.Again: // with another time, as pods are marked with it
		since := metav1.NewTime(o.Store.Status.HibernatedSince.Add(time.Second))
		if current := now(o); since.Before(&current) {
			since = current
		}
		return &since
	case o.Store.Status.HibernatedSince != nil:
		return o.Store.Status.HibernatedSince
	default:
		since := now(o)
		return &since
	}
}

// bounded is a list as the Store has room for.
func bounded(texts []string) []string { return texts[:min(len(texts), maxHindrances)] }

// now as the API server would give it back.
func now(o facts.Observed) metav1.Time { return metav1.NewTime(o.Now.Truncate(time.Second)) }

func coordinator(o facts.Observed, plan planner.Plan, outcome Outcome) v1alpha1.CoordinatorStatus {
	view, old := plan.Coordinator, &o.Store.Status.Coordinator
	next := v1alpha1.CoordinatorStatus{
		Ready:        o.Cluster != nil,
		SilentSince:  silentSince(o),
		Pending:      view.Pending,
		Claim:        view.Claim,
		BuildVersion: old.BuildVersion,
		State:        o.StateType(),
		PodNumber:    old.PodNumber,
		Term:         old.Term,
		StateTrouble: o.Refusal,
	}
	if view.Pod != nil {
		next.Pod, next.Node = view.Pod.Name, view.Pod.Node
	}
	if cluster := o.Cluster; cluster != nil {
		next.BuildVersion, next.Term, next.StateTrouble = cluster.BuildVersion, cluster.Term, cluster.StateWait
	}
	for i := range plan.Coordinators {
		one := plan.Coordinators[i]
		// One counter for all of them: so no number comes back when one is taken out and put in again.
		next.PodNumber = max(next.PodNumber, podNumber(one, outcome))
		if one.Name != view.Name {
			next.Standbys = append(next.Standbys, standby(one))
		}
	}
	// One that is not wanted any more may still have a pod, on a node that does not answer.
	for i := range o.Pods {
		if pod := &o.Pods[i]; pod.Component == v1alpha1.ComponentCoordinator {
			next.PodNumber = max(next.PodNumber, pod.Number)
		}
	}
	return next
}

func standby(view planner.MemberView) v1alpha1.StandbyStatus {
	entry := v1alpha1.StandbyStatus{Name: view.Name, Pending: view.Pending}
	if pod := view.Pod; pod != nil {
		entry.Pod, entry.Node, entry.Message = pod.Name, pod.Node, pod.Trouble
		entry.Running = pod.Process == facts.ProcessRunning
	}
	return entry
}

// podNumber of the member's newest pod: the planned one counts once it was made.
func podNumber(view planner.MemberView, outcome Outcome) int64 {
	for create := range steps.Of[steps.CreatePod](outcome.Done) {
		if create.Member == view.Name {
			return create.Number
		}
	}
	return view.PodNumber
}

func masters(o facts.Observed, plan planner.Plan, outcome Outcome) v1alpha1.MastersStatus {
	old := &o.Store.Status.Masters
	next := v1alpha1.MastersStatus{
		Selector: labels.SelectorFromSet(
			resources.ComponentLabels(o.Store.Name, v1alpha1.ComponentMaster)).String(),
		RetiredPodNumber: old.RetiredPodNumber,
	}
	for i := range plan.Masters {
		view := plan.Masters[i]
		before := find(old.Members, view.Name)
		entry := member(o, view, before, outcome)
		entry.PodNumber = podNumber(view, outcome)
		next.Members = append(next.Members, entry)
		next.Replicas++
		if entry.State == v1alpha1.MemberUp {
			next.Ready++
		}
		if view.Pending != "" {
			next.Outdated++
		}
	}
	next.Unwell = unwell(next.Members)
	for i := range old.Members {
		if find(next.Members, old.Members[i].Name) == nil {
			next.RetiredPodNumber = max(next.RetiredPodNumber, old.Members[i].PodNumber)
		}
	}
	// Somebody has deleted the StoreMember of a member that leaves: that member's number was none above the highest.
	for _, name := range record.Missing(o.Store) {
		if find(next.Members, name) == nil {
			next.RetiredPodNumber = max(next.RetiredPodNumber, o.Store.Status.Record.HighestPodNumber)
		}
	}
	for i := range o.Pods {
		pod := &o.Pods[i]
		if pod.Component == v1alpha1.ComponentMaster && find(next.Members, pod.Member) == nil {
			next.RetiredPodNumber = max(next.RetiredPodNumber, pod.Number)
		}
	}
	return next
}

// unwell are the first masters that do not serve, or are to leave their node, with what is known of why.
func unwell(members []v1alpha1.MemberStatus) []v1alpha1.UnwellMember {
	var list []v1alpha1.UnwellMember
	for i := range members {
		member := &members[i]
		isWell := member.State == v1alpha1.MemberUp && member.NotServingSince == nil && member.Lost == nil && member.Evacuation == nil
		if isWell || len(list) == maxUnwell {
			continue
		}
		entry := v1alpha1.UnwellMember{Name: member.Name, State: member.State, Node: member.Node, Message: member.Message}
		switch {
		case member.Lost != nil:
			entry.Node = member.Lost.Node
			entry.Message = fmt.Sprintf("lost with the node (%s)", member.Lost.Cause) + waitsFor(member.Lost.WaitsFor)
		case member.Evacuation != nil:
			entry.Message = fmt.Sprintf("node %s is drained (%s)", member.Evacuation.Node, member.Evacuation.Cause) +
				waitsFor(member.Evacuation.WaitsFor)
		case member.Message == "" && member.NotServingSince != nil:
			entry.Message = "not serving since " + member.NotServingSince.UTC().Format(timeFormat)
		}
		entry.Message = brief.Fit(entry.Message, maxMessage)
		list = append(list, entry)
	}
	return list
}

func waitsFor(what string) string {
	if what == "" {
		return ""
	}
	return "; waits for " + what
}

func find(members []v1alpha1.MemberStatus, name string) *v1alpha1.MemberStatus {
	i := slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &members[i]
}

func member(
	o facts.Observed, view planner.MemberView, before *v1alpha1.MemberStatus, outcome Outcome,
) v1alpha1.MemberStatus {
	entry := v1alpha1.MemberStatus{Name: view.Name}
	entry.State, entry.Pending, entry.Claim = v1alpha1.MemberStarting, view.Pending, view.Claim
	if view.Pod != nil {
		entry.Pod, entry.Node, entry.Restarts = view.Pod.Name, view.Pod.Node, view.Pod.Restarts
		if !view.Up {
			entry.Message = view.Pod.Trouble
		}
	}
	entry.Addresses, entry.Refusals = addresses(view, o, outcome), view.Refusals
	entry.NotServingSince = notServingSince(o, view, before)
	entry.Lost, entry.Evacuation, entry.Failures = lost(view), evacuation(o, view, outcome), view.Failures
	if o.Cluster == nil {
		entry.State = v1alpha1.MemberUnknown
		if before != nil && isSilenceNew(o, silentSince(o)) {
			entry.State = before.State
		}
		if before != nil {
			entry.ServerIDs, entry.Tablets = before.ServerIDs, before.Tablets
			entry.CapacityBytes, entry.UsedPercent = before.CapacityBytes, before.UsedPercent
			entry.Copies, entry.SegmentsShort = before.Copies, before.SegmentsShort
			entry.Backup, entry.Domain, entry.Lost = before.Backup, before.Domain, before.Lost
			entry.Evacuation = before.Evacuation
		}
		return entry
	}
	reported := view.Reported
	if reported == nil {
		return entry
	}
	entry.DeadSince = deadSince(o, view, before)
	entry.ServerIDs = reported.ServerIDs
	entry.Tablets = reported.Tablets
	entry.CapacityBytes = reported.CapacityBytes
	entry.UsedPercent = percent(reported.LiveBytes, reported.CapacityBytes)
	entry.Copies, entry.SegmentsShort, entry.Domain = reported.Copies, reported.SegmentsShort, reported.Domain
	if backup := reported.Backup; backup != nil {
		entry.Backup = &v1alpha1.BackupStatus{
			Frames: backup.Frames, UsedPercent: percent(backup.Frames-backup.Free, backup.Frames),
			Damaged: backup.Damaged, Retired: backup.Retired,
		}
	}
	if draining := reported.Draining; draining != nil && entry.Message == "" {
		entry.Message = "draining: " + describeDraining(draining)
	}
	switch {
	case view.Up:
		entry.State = v1alpha1.MemberUp
	case reported.Runs(view.Pod):
		entry.State = v1alpha1.MemberUnreachable
	case view.Pod == nil:
		entry.State = v1alpha1.MemberUnreachable
	}
	return entry
}

// deadSince is when it was first seen that the process in a member's pod was declared dead; nil while it is not.
func deadSince(o facts.Observed, view planner.MemberView, before *v1alpha1.MemberStatus) *metav1.Time {
	switch {
	case !view.Reported.Dead || !view.Reported.Runs(view.Pod):
		return nil
	case before != nil && before.Pod == view.Pod.Name && before.DeadSince != nil:
		return before.DeadSince
	}
	since := now(o)
	return &since
}

func lost(view planner.MemberView) *v1alpha1.LostStatus {
	if view.Lost == nil {
		return nil
	}
	entry := &v1alpha1.LostStatus{
		Node: view.Lost.Node, Cause: view.Lost.Cause, Since: metav1.NewTime(view.Lost.Since.Truncate(time.Second)),
		WaitsFor: brief.Fit(view.Lost.WaitsFor, maxWaitsFor),
	}
	if !view.Lost.ProvenAt.IsZero() {
		provenAt := metav1.NewTime(view.Lost.ProvenAt.Truncate(time.Second))
		entry.ProvenAt = &provenAt
	}
	return entry
}

// percent is whole on purpose: bytes would change with every write, and the status with them.
func percent(part, whole int64) int32 {
	if whole <= 0 {
		return 0
	}
	return int32(min(100, float64(part)/float64(whole)*100))
}

func everyMasterUp(plan planner.Plan) bool {
	return !slices.ContainsFunc(plan.Masters, func(v planner.MemberView) bool { return v.Wanted && !v.Up })
}
