package facts

import (
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Before there were StoreOperations, orders were annotations of the Store. This file alone reads them, to carry them over.

// formerAnnotations are those that were orders.
var formerAnnotations = []string{v1alpha1.FormerAnnotationDrill, v1alpha1.FormerAnnotationDrained, v1alpha1.FormerAnnotationIsolated}

// FormerOrder is an order by annotation, as the StoreOperation that takes its place.
type FormerOrder struct {
	// Name of the StoreOperation: the same whenever it is derived.
	Name string
	Spec v1alpha1.StoreOperationSpec
	// Drill is the annotation's value where the order is a drill.
	Drill string
}

// HasFormerOrders says whether annotations may still be orders: the Store is from before StoreOperations, and its orders were not carried
// over yet. Once they were, and in a new Store, such an annotation has no meaning: who may edit a Store may not give orders by that.
func (o *Observed) HasFormerOrders() bool {
	return o.Store.Status.ObservedGeneration > 0 && !o.Store.Status.OrdersCarriedOver
}

// FormerOrders are the orders by annotation that were not carried out.
func (o *Observed) FormerOrders() []FormerOrder {
	if !o.HasFormerOrders() {
		return nil
	}
	return slices.Concat(o.formerIsolations(), o.formerDrains(), o.formerDrill())
}

// FormerAnnotations are the keys of those annotations that the Store has.
func (o *Observed) FormerAnnotations() []string {
	var keys []string
	for _, key := range formerAnnotations {
		if _, found := o.Store.Annotations[key]; found {
			keys = append(keys, key)
		}
	}
	return keys
}

// formerDrill: each value was one order, with a master's name after a space if it was to be that one. The operator noted the last that it
// saw.
func (o *Observed) formerDrill() []FormerOrder {
	value := o.Store.Annotations[v1alpha1.FormerAnnotationDrill]
	if value == "" || value == o.Store.Status.DrillNotes.Order {
		return nil
	}
	drill := &v1alpha1.DrillOperation{}
	if fields := strings.Fields(value); len(fields) > 1 {
		drill.Member = fields[1]
	}
	return []FormerOrder{{
		Name:  v1alpha1.OperationName(o.Store.Name, v1alpha1.OperationDrill, value),
		Spec:  o.specOf(v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationDrill, Drill: drill}),
		Drill: value,
	}}
}

// formerDrains: the annotation named the members, with commas between them.
func (o *Observed) formerDrains() []FormerOrder {
	var orders []FormerOrder
	for _, member := range namesIn(o.Store.Annotations[v1alpha1.FormerAnnotationDrained]) {
		orders = append(orders, FormerOrder{
			Name: v1alpha1.OperationName(o.Store.Name, v1alpha1.OperationDrain, member),
			Spec: o.specOf(v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationDrain, Drain: &v1alpha1.DrainOperation{Member: member}}),
		})
	}
	return orders
}

// formerIsolations: the annotation named the nodes, with commas between them. Why, the status had.
func (o *Observed) formerIsolations() []FormerOrder {
	var orders []FormerOrder
	names := namesIn(o.Store.Annotations[v1alpha1.FormerAnnotationIsolated])
	for _, node := range names[:min(len(names), v1alpha1.MaxIsolated)] {
		isolate := &v1alpha1.IsolateOperation{Node: node, Cause: v1alpha1.IsolatedOrdered}
		for _, recorded := range o.Store.Status.Isolations {
			if recorded.Node == node {
				isolate.Cause, isolate.Reason = recorded.Cause, recorded.Message
			}
		}
		orders = append(orders, FormerOrder{
			Name: v1alpha1.OperationName(o.Store.Name, v1alpha1.OperationIsolate, node),
			Spec: o.specOf(v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationIsolate, Isolate: isolate}),
		})
	}
	return orders
}

func namesIn(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func (o *Observed) specOf(spec v1alpha1.StoreOperationSpec) v1alpha1.StoreOperationSpec {
	spec.StoreRef.Name = o.Store.Name
	return spec
}
