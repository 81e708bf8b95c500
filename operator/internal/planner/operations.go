package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

var (
	formerOrders = rule{
		name: "orders by annotation, from before StoreOperations",
		blockedBy: []blocker{
			{"they were carried over", func(p *planning) bool { return p.observed.Store.Status.OrdersCarriedOver }},
		},
		gives: (*planning).carryOrdersOver,
	}

	orderedDrains = rule{
		name:      "drains that StoreOperations order",
		blockedBy: []blocker{noAnswer, stateStuck},
		gives:     (*planning).drainOrdered,
	}

	finalizedUpgrades = rule{
		name:      "upgrades that StoreOperations finalize",
		blockedBy: []blocker{noAnswer, stateStuck},
		gives:     (*planning).finalizeUpgrade,
	}

	orderedSplits = rule{
		name:      "tables that StoreOperations split",
		blockedBy: []blocker{noAnswer, stateStuck},
		gives:     (*planning).splitTables,
	}

	finishedOperations = rule{name: "StoreOperations that ended long ago", gives: (*planning).forgetOperations}

	allOperations = rule{name: "StoreOperations", blockedBy: []blocker{noFinalizer, podsLeft}, gives: (*planning).deleteOperations}
)

// carryOrdersOver makes a StoreOperation of each order by annotation, and removes the annotations once the StoreOperations were seen. Until
// then both count, so that no order is without effect for a moment, and an operator that ends in between begins again where it was.
func (p *planning) carryOrdersOver() {
	o, isMissing := p.observed, false
	for _, order := range o.FormerOrders() {
		if slices.ContainsFunc(o.Operations, func(operation facts.Operation) bool { return operation.Name == order.Name }) {
			if order.Drill != "" {
				p.plan.Drills.Notes.Order = order.Drill // a StoreOperation that is deleted from now on is not made again
			}
			continue
		}
		isMissing = true
		p.add(steps.CreateOperation{Name: order.Name, Spec: order.Spec, Why: "an annotation of the Store ordered this"})
	}
	annotations := o.FormerAnnotations()
	switch {
	case isMissing:
		p.lookAgainIn(lockInterval)
	case o.HasFormerOrders() && len(annotations) > 0:
		p.add(steps.DropOrders{Annotations: annotations, Why: "StoreOperations have taken their place"})
		p.lookAgainIn(lockInterval)
	default:
		p.plan.OrdersCarriedOver, p.plan.Drills.Notes.Order = true, ""
	}
}

// drainOrdered orders a drain for as long as the StoreOperation is there: the member's next process is drained, too.
func (p *planning) drainOrdered() {
	for _, operation := range p.observed.OpenOperations(v1alpha1.OperationDrain) {
		i := slices.IndexFunc(p.masters, func(m *facts.Member) bool { return m.Name == operation.Spec.Drain.Member })
		if i < 0 || p.masters[i].Reported == nil {
			continue
		}
		p.lookAgainIn(UnsettledInterval)
		if p.masters[i].Draining() == nil {
			p.add(steps.DrainMember{Member: p.masters[i].Name, Why: "StoreOperation " + operation.Name + " orders that", Ordered: true})
		}
	}
}

// finalizeUpgrade waits until everybody reads the format.
func (p *planning) finalizeUpgrade() {
	format := p.observed.Cluster.Format
	for _, operation := range p.observed.OpenOperations(v1alpha1.OperationFinalize) {
		wanted := operation.Spec.Finalize.Format
		if int64(wanted) > format.Active && int64(wanted) <= format.Newest && format.CanBeFinalized() {
			p.add(steps.FinalizeUpgrade{Format: wanted, Why: "StoreOperation " + operation.Name + " orders that"})
			p.lookAgainIn(UnsettledInterval)
			return
		}
	}
}

// maxSplits is how many splits are ordered in one reconcile: each is a call, and one that waits is ordered again and again.
const maxSplits = 16

// splitTables orders splits until the coordinator has carried them out or refused them: it knows what they wait for.
func (p *planning) splitTables() {
	open := p.observed.OpenOperations(v1alpha1.OperationSplit)
	for _, operation := range open[:min(len(open), maxSplits)] {
		split := operation.Spec.Split
		p.add(steps.SplitTable{
			Operation: operation.UID, Table: split.Table, Parts: split.Parts, Why: "StoreOperation " + operation.Name + " orders that",
		})
		p.lookAgainIn(UnsettledInterval)
	}
}

// forgetOperations keeps the newest of those that have ended.
func (p *planning) forgetOperations() {
	var ended []*facts.Operation
	for i := range p.observed.Operations {
		if operation := &p.observed.Operations[i]; operation.Status.HasEnded() {
			ended = append(ended, operation)
		}
	}
	for i := range max(len(ended)-v1alpha1.MaxFinishedOperations, 0) {
		p.add(steps.DeleteOperation{
			Name: ended[i].Name, UID: ended[i].UID,
			Why: fmt.Sprintf("it has ended, and %d newer ones have", len(ended)-1-i),
		})
	}
}

// deleteOperations: another Store of this name has nothing to do with what was ordered of this one.
func (p *planning) deleteOperations() {
	for i := range p.observed.Operations {
		operation := &p.observed.Operations[i]
		p.add(steps.DeleteOperation{Name: operation.Name, UID: operation.UID, Why: "its Store is deleted"})
	}
}
