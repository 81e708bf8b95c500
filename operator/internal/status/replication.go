package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// maxRecoveries is how many the status has.
const maxRecoveries = 32

// weakestFirst orders what is promised.
var weakestFirst = []v1alpha1.Durability{
	v1alpha1.DurabilityUnreplicated, v1alpha1.DurabilityInMemory, v1alpha1.DurabilityBuffered, v1alpha1.DurabilityFlushed,
}

// durability in force is the weakest that a master's pod was made with.
func durability(o facts.Observed, plan planner.Plan) v1alpha1.Durability {
	weakest := len(weakestFirst)
	for i := range plan.Masters {
		if pod := plan.Masters[i].Pod; pod != nil {
			weakest = min(weakest, slices.Index(weakestFirst, pod.Inputs.Durability()))
		}
	}
	if weakest == len(weakestFirst) {
		return resources.InputsFor(o.Store, v1alpha1.ComponentMaster, plan.Image, o.StateType()).Durability()
	}
	return weakestFirst[weakest]
}

// recordReplication leaves what was there last while the coordinator does not answer.
func recordReplication(o facts.Observed, plan planner.Plan, next *v1alpha1.StoreStatus) {
	cluster := o.Cluster
	if cluster == nil {
		return
	}
	next.Replication.CoordinatorState, next.Replication.SegmentsShort = cluster.State, 0
	first := true
	for i := range plan.Masters {
		reported := plan.Masters[i].Reported
		if reported == nil || !plan.Masters[i].Up {
			continue // nobody knows what its next process keeps
		}
		next.Replication.SegmentsShort += reported.SegmentsShort
		if first || reported.Copies < next.Replication.Factor {
			next.Replication.Factor, first = reported.Copies, false
		}
	}
	next.Recoveries = recoveries(o)
}

// recoveries keeps all that are under way, and of the others the last, as far as there is room.
func recoveries(o facts.Observed) []v1alpha1.RecoveryStatus {
	surplus := len(o.Cluster.Recoveries) - maxRecoveries
	var list []v1alpha1.RecoveryStatus
	for _, recovery := range o.Cluster.Recoveries {
		if surplus > 0 && recovery.TabletsLeft == 0 {
			surplus--
			continue
		}
		if len(list) < maxRecoveries {
			list = append(list, recoveryStatus(o, recovery))
		}
	}
	return list
}

func recoveryStatus(o facts.Observed, recovery facts.Recovery) v1alpha1.RecoveryStatus {
	entry := v1alpha1.RecoveryStatus{
		Member: recovery.Member, ServerID: recovery.ServerID, TabletsLeft: recovery.TabletsLeft,
		WaitsFor: recovery.WaitsFor, Bytes: recovery.Bytes, PromisedMs: recovery.PromisedMs, MeasuredMs: recovery.MeasuredMs,
	}
	if before := findRecovery(o.Store.Status.Recoveries, recovery.ServerID); before != nil && before.Since != nil {
		// Computed anew from two clocks, it would be another second each time.
		entry.Since = before.Since
	} else {
		since := metav1.NewTime(o.Now.Add(-recovery.Age).Truncate(time.Second))
		entry.Since = &since
	}
	return entry
}

func findRecovery(list []v1alpha1.RecoveryStatus, serverID string) *v1alpha1.RecoveryStatus {
	i := slices.IndexFunc(list, func(r v1alpha1.RecoveryStatus) bool { return r.ServerID == serverID })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// replicated says what the present replication promises.
func replicated(o facts.Observed, plan planner.Plan, next *v1alpha1.StoreStatus) verdict {
	message := fmt.Sprintf("each object has %s on other nodes than its master's, %s",
		countCopies(next.Replication.Factor), survives(next.Durability))
	if unknown := filter(plan.Masters, lacksDomain); len(unknown) > 0 {
		message += fmt.Sprintf("; the failure domains (%s) of some masters are not known, because the operator cannot read their nodes: %s",
			o.Store.Spec.Placement.FailureDomain, names(unknown))
	}
	return verdict{metav1.ConditionTrue, v1alpha1.ReasonReplicated, message}
}

func countCopies(n int32) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}

func survives(durability v1alpha1.Durability) string {
	switch durability {
	case v1alpha1.DurabilityInMemory:
		return "in memory: they survive the loss of single masters, and none survives the end of all processes"
	case v1alpha1.DurabilityBuffered:
		return "Buffered: they survive the end of all processes and pods, and the loss of power of all but one of their nodes"
	case v1alpha1.DurabilityFlushed:
		return "Flushed: they survive the loss of power everywhere"
	default:
		return "with a durability that is not known yet"
	}
}

func lacksDomain(v planner.MemberView) bool {
	return v.Up && v.Pod != nil && v.Pod.Inputs.NeedsDomain() && !v.Pod.DomainKnown
}

// recovering is about lost masters whose tablets are on their way to others.
func recovering(o facts.Observed, next *v1alpha1.StoreStatus) verdict {
	switch {
	case o.Store.DeletionTimestamp != nil:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonDeleting, "the Store is being deleted"}
	case o.Store.Copies() == 0:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonUnreplicated, "there are no copies to recover anything from"}
	case next.HibernatedSince != nil:
		return verdict{
			metav1.ConditionFalse, v1alpha1.ReasonHibernated, "the Store is hibernated; its data is recovered when it wakes up",
		}
	case o.Cluster == nil:
		return verdict{
			metav1.ConditionUnknown, v1alpha1.ReasonCoordinatorDown,
			"recoveries are not known, since the coordinator does not answer: " + o.ClusterError,
		}
	}
	var left []facts.Recovery
	blocked := false
	for _, recovery := range o.Cluster.Recoveries {
		if recovery.TabletsLeft > 0 {
			left = append(left, recovery)
			blocked = blocked || recovery.WaitsFor != ""
		}
	}
	switch {
	case blocked:
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonRecoveryBlocked, facts.DescribeRecoveries(left)}
	case len(left) > 0:
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonRecoveryRuns, facts.DescribeRecoveries(left)}
	case len(next.Recoveries) > 0:
		last := next.Recoveries[len(next.Recoveries)-1]
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonNoneUnderWay, "the last one: " + describeEnded(last)}
	default:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonNoneUnderWay, "no master was lost"}
	}
}

func describeEnded(recovery v1alpha1.RecoveryStatus) string {
	text := fmt.Sprintf("recovery of %s (%s) took %d ms", recovery.Member, recovery.ServerID, recovery.MeasuredMs)
	if recovery.PromisedMs > 0 {
		text += fmt.Sprintf(", %d ms were expected", recovery.PromisedMs)
	}
	return text + fmt.Sprintf("; its log had %d bytes", recovery.Bytes)
}

// brokenBackups says what is wrong with storages for copies; an empty reason when nothing is. Of several storages, the one that keeps most
// from being stored is named: a failed one, else a stopped one, else one with damaged frames.
func brokenBackups(o facts.Observed, plan planner.Plan) (reason, message string) {
	factor := int64(o.Store.Copies())
	if factor == 0 {
		return "", ""
	}
	var room, needed int64
	var stopped, damaged string
	for i := range plan.Masters {
		name, reported := plan.Masters[i].Name, plan.Masters[i].Reported
		if reported == nil {
			continue
		}
		needed += factor * reported.CapacityBytes
		backup := reported.Backup
		switch {
		case backup == nil:
			continue
		case backup.Retired != "":
			return v1alpha1.ReasonBackupsFailed, fmt.Sprintf("the storage of %s takes no more copies: %s", name, backup.Retired)
		case backup.Stalled != "" && stopped == "":
			stopped = fmt.Sprintf("the storage of %s has stopped: %s; the copies that it was to take go to other members",
				name, backup.Stalled)
		case backup.Damaged > 0:
			damaged = fmt.Sprintf("%d of %d frames of %s are damaged: their replicas are written anew", backup.Damaged, backup.Frames, name)
		}
		room += (backup.Frames - backup.Damaged) * backup.SegmentBytes
	}
	if broken := cmp.Or(stopped, damaged); broken != "" {
		return v1alpha1.ReasonBackupsFailed, broken
	}
	if everyMasterUp(plan) && room > 0 && room < needed {
		return v1alpha1.ReasonBackupsSmall, fmt.Sprintf(
			"copies of all that masters can hold take %d MiB, and there is room for %d MiB: writes will wait before masters are full",
			needed>>20, room>>20)
	}
	return "", ""
}
