package status

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// isolations are the nodes that the Store's annotation names, with why.
func isolations(o facts.Observed, outcome Outcome) []v1alpha1.IsolationStatus {
	var list []v1alpha1.IsolationStatus
	nodes := o.Store.IsolatedNodes()
	for isolate := range steps.Of[steps.IsolateNode](outcome.Done) {
		nodes = append(nodes, isolate.Node) // whether what was observed has it already or not
	}
	for _, node := range nodes {
		isIt := func(i v1alpha1.IsolationStatus) bool { return i.Node == node }
		if slices.ContainsFunc(list, isIt) {
			continue
		}
		entry := v1alpha1.IsolationStatus{Node: node, Cause: v1alpha1.IsolatedOrdered, Since: now(o)}
		if i := slices.IndexFunc(o.Store.Status.Isolations, isIt); i >= 0 {
			entry = o.Store.Status.Isolations[i]
		}
		for isolate := range steps.Of[steps.IsolateNode](outcome.Done) {
			if isolate.Node == node {
				entry.Cause, entry.Message = v1alpha1.IsolatedFailures, brief.Fit(isolate.Why, maxWaitsFor)
			}
		}
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
