package status

import (
	"cmp"
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// isolations are the nodes that are isolated, and why.
func isolations(o facts.Observed, outcome Outcome) []v1alpha1.IsolationStatus {
	ordered := o.Isolations()
	for isolate := range steps.Of[steps.IsolateNode](outcome.Done) { // whether what was observed has it already or not
		ordered = append(ordered, v1alpha1.IsolateOperation{Node: isolate.Node, Cause: v1alpha1.IsolatedFailures, Reason: isolate.Why})
	}
	var list []v1alpha1.IsolationStatus
	for _, isolate := range ordered {
		isIt := func(i v1alpha1.IsolationStatus) bool { return i.Node == isolate.Node }
		if slices.ContainsFunc(list, isIt) {
			continue
		}
		entry := v1alpha1.IsolationStatus{Node: isolate.Node, Since: now(o)}
		if i := slices.IndexFunc(o.Store.Status.Isolations, isIt); i >= 0 {
			entry.Since = o.Store.Status.Isolations[i].Since
		}
		entry.Cause, entry.Message = cmp.Or(isolate.Cause, v1alpha1.IsolatedOrdered), brief.Fit(isolate.Reason, maxWaitsFor)
		list = append(list, entry)
	}
	return list
}

// isolatedByItself says which node nobody has ordered to be isolated, and what to do; empty if there is none.
func isolatedByItself(o facts.Observed, next *v1alpha1.StoreStatus) string {
	for _, isolation := range next.Isolations {
		if isolation.Cause == v1alpha1.IsolatedFailures {
			return fmt.Sprintf("node %s has been isolated since %s, and gets no more pods of this Store: %s. When it is repaired: "+
				"kubectl rcbox isolate -n %s %s %s --undo", isolation.Node, isolation.Since.UTC().Format("2006-01-02 15:04:05 UTC"),
				isolation.Message, o.Store.Namespace, o.Store.Name, isolation.Node)
		}
	}
	return ""
}
