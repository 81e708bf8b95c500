package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// operationInterval is how often a StoreOperation is read that a command waits for.
const operationInterval = time.Second

// order creates a StoreOperation about a Store.
func order(
	ctx context.Context, cluster *access.Cluster, store *v1alpha1.Store, spec v1alpha1.StoreOperationSpec,
) (*v1alpha1.StoreOperation, error) {
	spec.StoreRef.Name = store.Name
	kind := strings.ToLower(string(spec.Type))
	operation := &v1alpha1.StoreOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: store.Namespace, GenerateName: store.Name + "-" + kind + "-"},
		Spec:       spec,
	}
	if err := cluster.Create(ctx, operation); err != nil {
		return nil, fmt.Errorf("order %s of Store %s/%s (create on storeoperations, and %s on stores): %w",
			kind, store.Namespace, store.Name, kind, err)
	}
	return operation, nil
}

// openOperations are those about a Store that have not ended, and whose spec is as is asked for.
func openOperations(
	ctx context.Context, cluster *access.Cluster, store *v1alpha1.Store, isIt func(*v1alpha1.StoreOperationSpec) bool,
) ([]v1alpha1.StoreOperation, error) {
	list := &v1alpha1.StoreOperationList{}
	if err := cluster.List(ctx, list, client.InNamespace(store.Namespace)); err != nil {
		return nil, fmt.Errorf("list the StoreOperations of namespace %s: %w", store.Namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(operation v1alpha1.StoreOperation) bool {
		return operation.Spec.StoreRef.Name != store.Name || operation.Status.HasEnded() || !isIt(&operation.Spec)
	}), nil
}

// withdraw deletes StoreOperations, which takes back what they have in force.
func withdraw(ctx context.Context, cluster *access.Cluster, operations []v1alpha1.StoreOperation) error {
	for i := range operations {
		if err := cluster.Delete(ctx, &operations[i]); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete StoreOperation %s/%s: %w", operations[i].Namespace, operations[i].Name, err)
		}
	}
	return nil
}

// follow says how to see what becomes of an operation, or shows it until the operation has ended; an error unless it has succeeded.
func follow(ctx context.Context, cluster *access.Cluster, shown *screen, operation *v1alpha1.StoreOperation, wait bool) error {
	if !wait {
		return shown.line(fmt.Sprintf("StoreOperation %s is created; kubectl get storeoperation %s -n %s shows how it goes on, "+
			"and to delete it before it begins withdraws it\n", operation.Name, operation.Name, operation.Namespace))
	}
	return watch(ctx, operationInterval, func() (bool, error) {
		current := &v1alpha1.StoreOperation{}
		err := cluster.Get(ctx, client.ObjectKeyFromObject(operation), current)
		switch {
		case apierrors.IsNotFound(err) || err == nil && current.UID != operation.UID:
			return false, fmt.Errorf("StoreOperation %s was deleted, and it is not known what became of it", operation.Name)
		case err != nil:
			return false, fmt.Errorf("read StoreOperation %s: %w", operation.Name, err)
		}
		text := describeOperation(current)
		if current.Status.Phase == v1alpha1.OperationFailed {
			return false, errors.New(text)
		}
		return meta.IsStatusConditionTrue(current.Status.Conditions, v1alpha1.ConditionOperationComplete), shown.line(text + "\n")
	})
}

// describeOperation is one line: which operation, how far, and what it waits for or has given.
func describeOperation(operation *v1alpha1.StoreOperation) string {
	is := &operation.Status
	parts := []string{strings.ToLower(string(operation.Spec.Type)), operation.Name}
	if is.Target != "" {
		parts = append(parts, "of "+is.Target)
	}
	complete := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionOperationComplete)
	if complete == nil {
		return strings.Join(parts, " ") + ": the operator has not seen it yet"
	}
	text := strings.Join(append(parts, string(is.Phase)), " ")
	if is.Phase == v1alpha1.OperationFailed {
		text += " (" + complete.Reason + ")"
	}
	text += ": " + complete.Message
	if drill := is.Drill; drill != nil && drill.MeasuredMs > 0 {
		text += fmt.Sprintf(" (%d ms were expected, %d bytes of log)", drill.PromisedMs, drill.Bytes)
	}
	return text
}
