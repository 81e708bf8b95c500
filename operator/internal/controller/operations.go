package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/status"
)

// storeOfOperation says which Store a StoreOperation is about.
func storeOfOperation(_ context.Context, object client.Object) []reconcile.Request {
	operation, isOperation := object.(*v1alpha1.StoreOperation)
	if !isOperation {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: operation.Namespace, Name: operation.Spec.StoreRef.Name}}}
}

// observeOperations reads the Store's operations from the cache, and from the API server where the cache lacks one of which a drill was
// made: a drill whose StoreOperation was deleted before the drill began is withdrawn.
func (r *Reconciler) observeOperations(ctx context.Context, v *reconcileState) error {
	if err := listOperations(ctx, r.Client, v); err != nil {
		return err
	}
	lacksOrder := func(drill v1alpha1.Drill) bool {
		return !drill.HasEnded() && drill.OrderUID != "" && v.observed.Operation(drill.OrderUID) == nil
	}
	if slices.ContainsFunc(v.observed.Store.Status.Drills, lacksOrder) {
		return listOperations(ctx, r.Live, v)
	}
	return nil
}

func listOperations(ctx context.Context, reader client.Reader, v *reconcileState) error {
	store, list := v.observed.Store, &v1alpha1.StoreOperationList{}
	if err := reader.List(ctx, list, client.InNamespace(store.Namespace)); err != nil {
		return fmt.Errorf("list the Store's operations: %w", err)
	}
	v.observed.Operations, v.operations = nil, map[string]*v1alpha1.StoreOperation{}
	for i := range list.Items {
		operation := &list.Items[i]
		if operation.Spec.StoreRef.Name != store.Name || operation.DeletionTimestamp != nil {
			continue
		}
		v.operations[operation.Name] = operation
		v.observed.Operations = append(v.observed.Operations, facts.Operation{
			Name: operation.Name, UID: string(operation.UID), Generation: operation.Generation,
			CreatedAt: operation.CreationTimestamp.Time, Spec: operation.Spec, Status: operation.Status,
		})
	}
	facts.SortOperations(v.observed.Operations)
	return nil
}

// checkOperations asks the API server whether the Store's operations are those that were seen.
func (r *Reconciler) checkOperations(ctx context.Context, v *reconcileState) error {
	now := &reconcileState{observed: facts.Observed{Store: v.observed.Store}}
	if err := listOperations(ctx, r.Live, now); err != nil {
		return err
	}
	isSame := func(a, b facts.Operation) bool { return a.UID == b.UID }
	if !slices.EqualFunc(v.observed.Operations, now.observed.Operations, isSame) {
		return fmt.Errorf("the cache has other StoreOperations than the API server: %w", errStale)
	}
	return nil
}

// writeOperations writes how far the operations are, after the Store's status: what an operation has led to is on record there first.
func (r *Reconciler) writeOperations(
	ctx context.Context, v *reconcileState, plan planner.Plan, outcome status.Outcome, next *v1alpha1.StoreStatus,
) error {
	if v.gone || v.observed.Store.DeletionTimestamp != nil {
		return nil
	}
	for i := range v.observed.Operations {
		operation := &v.observed.Operations[i]
		is := status.Operation(v.observed, plan, outcome, operation, next)
		if equality.Semantic.DeepEqual(operation.Status, is) {
			continue
		}
		changed := v.operations[operation.Name].DeepCopy()
		changed.Status = is
		if err := r.Client.Status().Update(ctx, changed); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write the status of StoreOperation %s: %w", operation.Name, err)
		}
	}
	return nil
}

// createOperation leaves alone one of that name that is there: the operator has made it before, and did not see it yet.
func (r *Reconciler) createOperation(ctx context.Context, v *reconcileState, step steps.CreateOperation) error {
	operation := &v1alpha1.StoreOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.observed.Store.Namespace, Name: step.Name},
		Spec:       step.Spec,
	}
	if err := r.Client.Create(ctx, operation, FieldManager); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create StoreOperation %s: %w", step.Name, err)
	}
	return nil
}

func (r *Reconciler) deleteOperation(ctx context.Context, v *reconcileState, step steps.DeleteOperation) error {
	uid := types.UID(step.UID)
	operation := &v1alpha1.StoreOperation{ObjectMeta: metav1.ObjectMeta{Namespace: v.observed.Store.Namespace, Name: step.Name}}
	err := r.Client.Delete(ctx, operation, &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return stale(err, "delete StoreOperation "+step.Name)
}

// dropOrders removes annotations in the version that was seen: a value that somebody has just written was not carried over.
func (r *Reconciler) dropOrders(ctx context.Context, v *reconcileState, step steps.DropOrders) error {
	store := v.observed.Store
	changed := store.DeepCopy()
	for _, key := range step.Annotations {
		delete(changed.Annotations, key)
	}
	patch := client.MergeFromWithOptions(store.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch, FieldManager); err != nil {
		return stale(err, "remove the Store's annotations that were orders")
	}
	// The status is written to what there is now.
	store.Annotations, store.ResourceVersion = changed.Annotations, changed.ResourceVersion
	return nil
}

// splitTable keeps what came of the order for its StoreOperation, which says so. A refusal is an error all the same: nothing was split.
func (r *Reconciler) splitTable(ctx context.Context, v *reconcileState, step steps.SplitTable) error {
	if v.coordinator == nil {
		return fmt.Errorf("%s: the coordinator was not reached", steps.Describe(step))
	}
	response, err := v.coordinator.SplitTable(ctx, step.Table, step.Parts)
	var refused *admin.SplitRefusedError
	var split status.Split
	switch {
	case errors.As(err, &refused):
		split = status.Split{Refused: refused.Message, NoTable: refused.NoTable, ForGood: refused.ForGood}
	case err != nil:
		split.Unknown = true
	default:
		split.Result = &v1alpha1.SplitResult{
			Tablets: int64(response.GetTablets()), BoundariesMade: int64(response.GetBoundariesMade()),
			BoundariesKept: int64(response.GetBoundariesKept()),
		}
	}
	if v.splits == nil {
		v.splits = map[string]status.Split{}
	}
	v.splits[step.Operation] = split
	return err
}
