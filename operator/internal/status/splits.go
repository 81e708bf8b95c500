package status

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// Split is what came of the order to split a table.
type Split struct {
	// Result of a split that the coordinator has on record; nil otherwise.
	Result *v1alpha1.SplitResult
	// Refused is the coordinator's word on what stands against it; empty if nothing does. NoTable: there is no such table. ForGood: to wait
	// is of no use.
	Refused          string
	NoTable, ForGood bool
	// Unknown: no answer came, and the table may be split all the same. Asked again, the coordinator says.
	Unknown bool
}

// aboutStore leaves out trials of pods, which change nothing, and splits of tables, which change nothing of the Store's own: what these
// wait for, and for how long, is for their StoreOperations to say.
func aboutStore(planned []steps.Step) []steps.Step {
	return slices.DeleteFunc(slices.Clone(planned), func(step steps.Step) bool {
		_, isSplit := step.(steps.SplitTable)
		_, isTrial := step.(steps.TryPod)
		return isSplit || isTrial
	})
}

// splitProgress: a split is done when the coordinator has said so, whether it has just made the boundaries or finds them there.
func splitProgress(o facts.Observed, outcome Outcome, operation *facts.Operation) progress {
	order := operation.Spec.Split
	is := progress{phase: v1alpha1.OperationPending, reason: v1alpha1.ReasonOperationWaits, target: order.Table}
	if operation.Status.StartedAt != nil {
		is.phase, is.reason = v1alpha1.OperationRunning, v1alpha1.ReasonOperationUnderWay
	}
	split := outcome.Splits[operation.UID]
	switch {
	case split.Result != nil:
		is.phase, is.reason, is.split = v1alpha1.OperationSucceeded, v1alpha1.ReasonOperationDone, split.Result
		is.message = describeSplit(order, split.Result)
	case split.NoTable:
		is.phase, is.reason = v1alpha1.OperationFailed, v1alpha1.ReasonOperationNoTable
		is.message = "the coordinator says: " + split.Refused
	case split.ForGood:
		is.phase, is.reason = v1alpha1.OperationFailed, v1alpha1.ReasonOperationRefused
		is.message = "the coordinator says: " + split.Refused
	case split.Refused != "":
		is.message = "the coordinator says: " + split.Refused
	case split.Unknown:
		is.phase, is.reason = v1alpha1.OperationRunning, v1alpha1.ReasonOperationUnderWay
		is.message = "the coordinator has not answered, and may have split the table: the operator asks again"
	case o.Cluster == nil:
		is.message = "the split waits for the coordinator, which does not answer"
	case o.Cluster.StateWait != "":
		is.message = "the split waits for the coordinator, which cannot write its state: " + o.Cluster.StateWait
	case o.Store.Spec.Paused:
		is.message = "the split waits for spec.paused: false"
	default:
		is.message = "the split is about to be ordered"
	}
	return is
}

func describeSplit(order *v1alpha1.SplitOperation, result *v1alpha1.SplitResult) string {
	tablets := fmt.Sprintf("table %q has %s", order.Table, count(result.Tablets, "tablet"))
	switch {
	case result.BoundariesMade == 1:
		return tablets + ", after 1 new boundary"
	case result.BoundariesMade > 0:
		return tablets + fmt.Sprintf(", after %d new boundaries", result.BoundariesMade)
	case result.BoundariesKept > 0:
		return tablets + fmt.Sprintf(", and had a boundary at each of the %d parts; the store's own among them stay now", order.Parts)
	default:
		return tablets + fmt.Sprintf(", and had a boundary at each of the %d parts already", order.Parts)
	}
}
