package facts

import (
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// IsForFormer says whether the operation is older than the Store: it was meant for a former Store of this name.
func (o *Observed) IsForFormer(operation *Operation) bool {
	return operation.CreatedAt.Before(o.Store.CreationTimestamp.Time)
}

// OpenOperations of a type are those that have not ended, oldest first.
func (o *Observed) OpenOperations(kind v1alpha1.OperationType) []*Operation {
	var open []*Operation
	for i := range o.Operations {
		operation := &o.Operations[i]
		if operation.Spec.Type == kind && !operation.Status.HasEnded() && !o.IsForFormer(operation) {
			open = append(open, operation)
		}
	}
	return open
}

// DrainedMembers are those whose drain is ordered: the operator does not take it back, though the spec has a place for them.
func (o *Observed) DrainedMembers() []string {
	var members []string
	for _, operation := range o.OpenOperations(v1alpha1.OperationDrain) {
		members = append(members, operation.Spec.Drain.Member)
	}
	for _, order := range o.FormerOrders() {
		if order.Spec.Drain != nil {
			members = append(members, order.Spec.Drain.Member)
		}
	}
	return members
}

// Isolations are the orders to isolate nodes that count: of each node the oldest, and no more than the Store may have.
func (o *Observed) Isolations() []v1alpha1.IsolateOperation {
	var list []v1alpha1.IsolateOperation
	add := func(isolate *v1alpha1.IsolateOperation) {
		isKnown := func(other v1alpha1.IsolateOperation) bool { return other.Node == isolate.Node }
		if len(list) < v1alpha1.MaxIsolated && !slices.ContainsFunc(list, isKnown) {
			list = append(list, *isolate)
		}
	}
	for _, operation := range o.OpenOperations(v1alpha1.OperationIsolate) {
		add(operation.Spec.Isolate)
	}
	for _, order := range o.FormerOrders() {
		if order.Spec.Isolate != nil {
			add(order.Spec.Isolate)
		}
	}
	return list
}

// IsolatedNodes get no more pods of the Store, and its masters leave them.
func (o *Observed) IsolatedNodes() []string {
	var nodes []string
	for _, isolation := range o.Isolations() {
		nodes = append(nodes, isolation.Node)
	}
	return nodes
}

// OrderedRestart is the oldest operation that orders a master's restart whose pod is from before; nil if there is none. Without copies
// none is carried out: what the process holds would be lost.
func (o *Observed) OrderedRestart(member string, pod *Pod) *Operation {
	if o.Store.Copies() == 0 || pod == nil {
		return nil
	}
	for _, operation := range o.OpenOperations(v1alpha1.OperationRestart) {
		if operation.Restarts(member) && operation.IsBefore(pod) {
			return operation
		}
	}
	return nil
}

// Operation with a uid; nil if there is none any more.
func (o *Observed) Operation(uid string) *Operation {
	i := slices.IndexFunc(o.Operations, func(operation Operation) bool { return operation.UID == uid })
	if i < 0 {
		return nil
	}
	return &o.Operations[i]
}
