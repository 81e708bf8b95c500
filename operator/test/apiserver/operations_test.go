package apiserver_test

import (
	"fmt"
	"maps"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

func orderOf(name, store string) *v1alpha1.StoreOperation {
	return &v1alpha1.StoreOperation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec:       v1alpha1.StoreOperationSpec{StoreRef: v1alpha1.StoreReference{Name: store}, Type: v1alpha1.OperationDrill},
	}
}

// as is a client of another user, who is bound to a role.
func (b *bed) as(user, kind, role string) client.Client {
	b.Helper()
	b.must(b.Client.Create(b.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: metav1.NamespaceDefault},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}))
	config := rest.CopyConfig(b.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	other, err := client.New(config, client.Options{Scheme: b.Client.Scheme()})
	b.must(err)
	return other
}

// role makes a Role.
func (b *bed) role(name string, rules ...rbacv1.PolicyRule) {
	b.Helper()
	b.must(b.Client.Create(b.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}, Rules: rules,
	}))
}

// ordersTakeRights: orders and specs have rights of their own, and each type of order has one.
func ordersTakeRights(b *bed) {
	group := []string{v1alpha1.GroupVersion.Group}
	create := rbacv1.PolicyRule{APIGroups: group, Resources: []string{"storeoperations"}, Verbs: []string{"create"}}
	b.role("creator", create)
	b.role("driller", create, rbacv1.PolicyRule{
		APIGroups: group, Resources: []string{"stores"}, Verbs: []string{"drill"}, ResourceNames: []string{"mine"},
	})
	creator, driller := b.as("creator", "Role", "creator"), b.as("driller", "Role", "driller")
	editor, operator := b.as("editor", "ClusterRole", "rcbox-store-editor"), b.as("orderer", "ClusterRole", "rcbox-store-operator")

	b.Eventually(patience, func() string { // a policy is in force a moment after it was made
		err := creator.Create(b.Context(), orderOf("by-creator", "mine"), client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "takes the verb drill on stores") {
			return fmt.Sprintf("with create on storeoperations alone: %v", err)
		}
		return ""
	})
	b.Eventually(patience, func() string { // likewise a role
		if err := driller.Create(b.Context(), orderOf("by-driller", "mine"), client.DryRunAll); err != nil {
			return fmt.Sprintf("with the verb for this Store: %v", err)
		}
		return ""
	})
	if err := driller.Create(b.Context(), orderOf("by-driller", "other"), client.DryRunAll); !apierrors.IsForbidden(err) {
		b.Errorf("with the verb for another Store: %v", err)
	}
	if err := editor.Create(b.Context(), orderOf("by-editor", "mine"), client.DryRunAll); !apierrors.IsForbidden(err) {
		b.Errorf("with the right to edit Stores: %v", err)
	}
	b.Eventually(patience, func() string {
		if err := operator.Create(b.Context(), orderOf("by-orderer", "other"), client.DryRunAll); err != nil {
			return fmt.Sprintf("with the role of those who give orders: %v", err)
		}
		return ""
	})
	changed := b.Store("orders")
	changed.Spec.Paused = true
	if err := operator.Update(b.Context(), changed, client.DryRunAll); !apierrors.IsForbidden(err) {
		b.Errorf("who gives orders edits a Store: %v", err)
	}
	b.must(b.Client.Delete(b.Context(), b.Store("orders")))
	b.Eventually(patience, func() string {
		left := &v1alpha1.StoreOperationList{}
		b.must(b.Client.List(b.Context(), left))
		if len(left.Items) > 0 {
			return fmt.Sprintf("%d StoreOperations are left of a Store that is deleted", len(left.Items))
		}
		return ""
	})
}

// ordersAreCarriedOver: a Store of an earlier version has orders by annotation when this operator starts. They become StoreOperations,
// which the operator has the rights to create, and no process is restarted for that.
func ordersAreCarriedOver(b *bed) {
	b.newStore("orders", 2)
	b.settled("orders")
	before := b.podUIDs("orders")
	b.operator.Kill()
	b.Change("orders", func(s *v1alpha1.Store) {
		s.Annotations = map[string]string{
			v1alpha1.FormerAnnotationDrill:    "monday orders-master-1",
			v1alpha1.FormerAnnotationDrained:  "orders-master-0",
			v1alpha1.FormerAnnotationIsolated: "a-node-far-away",
		}
	})
	store := b.BareStore("orders")
	former := store.DeepCopy()
	store.Status.Record.OrdersCarriedOver, store.Status.Record.Drills.Order = false, "sunday"
	b.must(b.Client.Status().Patch(b.Context(), store, client.MergeFrom(former)))
	b.operator = b.StartOperator(b.program)

	phases := map[string]v1alpha1.OperationPhase{
		v1alpha1.OperationName("orders", v1alpha1.OperationDrill, "monday orders-master-1"): v1alpha1.OperationFailed, // without copies
		v1alpha1.OperationName("orders", v1alpha1.OperationDrain, "orders-master-0"):        v1alpha1.OperationRunning,
		v1alpha1.OperationName("orders", v1alpha1.OperationIsolate, "a-node-far-away"):      v1alpha1.OperationInForce,
	}
	b.Eventually(patience, func() string {
		for name, phase := range phases {
			operation := &v1alpha1.StoreOperation{}
			if !b.Get(operation, metav1.NamespaceDefault, name) || operation.Status.Phase != phase {
				return fmt.Sprintf("StoreOperation %s is %+v, not %s", name, operation.Status, phase)
			}
		}
		store := b.Store("orders")
		if len(store.Annotations) > 0 || !store.Status.OrdersCarriedOver {
			return fmt.Sprintf("annotations %v, carried over: %v", store.Annotations, store.Status.OrdersCarriedOver)
		}
		return ""
	})
	if after := b.podUIDs("orders"); !maps.Equal(before, after) {
		b.Errorf("pods were restarted: %v, before %v", after, before)
	}
}

// tablesAreSplit: who has the verb orders it, the operator has the coordinator do it, and the result is on record. The API server refuses
// what cannot be.
func tablesAreSplit(b *bed) {
	b.Stores.Get("orders").Coordinator.SetSplit("fruit", 2, nil)
	b.role("splitter", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"storeoperations"}, Verbs: []string{"create"},
	}, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"stores"}, Verbs: []string{"split"},
	})
	splitter := b.as("splitter", "Role", "splitter")
	split := func(name, table string, parts int32) *v1alpha1.StoreOperation {
		operation := orderOf(name, "orders")
		operation.Spec.Type, operation.Spec.Split = v1alpha1.OperationSplit, &v1alpha1.SplitOperation{Table: table, Parts: parts}
		return operation
	}
	b.Eventually(patience, func() string { // a role is in force a moment after it was made
		if err := splitter.Create(b.Context(), split("wide", "fruit", 8)); err != nil {
			return fmt.Sprintf("with the verb: %v", err)
		}
		return ""
	})
	if err := splitter.Create(b.Context(), orderOf("drill", "orders"), client.DryRunAll); !apierrors.IsForbidden(err) {
		b.Errorf("a drill, with the verb for splits: %v", err)
	}
	if err := splitter.Create(b.Context(), split("narrow", "fruit", 1)); !apierrors.IsInvalid(err) {
		b.Errorf("into one part: %v", err)
	}
	b.must(splitter.Create(b.Context(), split("nowhere", "vegetables", 8)))
	b.Eventually(patience, func() string {
		wide, nowhere := &v1alpha1.StoreOperation{}, &v1alpha1.StoreOperation{}
		if !b.Get(wide, metav1.NamespaceDefault, "wide") || wide.Status.Phase != v1alpha1.OperationSucceeded ||
			wide.Status.Split == nil || *wide.Status.Split != (v1alpha1.SplitResult{Tablets: 8, BoundariesMade: 6}) {
			return fmt.Sprintf("the split of a table: %+v", wide.Status)
		}
		if !b.Get(nowhere, metav1.NamespaceDefault, "nowhere") || nowhere.Status.Phase != v1alpha1.OperationFailed {
			return fmt.Sprintf("the split of a table that is not there: %+v", nowhere.Status)
		}
		return ""
	})
}

// podUIDs tells by member which pod of a Store it is.
func (b *bed) podUIDs(store string) map[string]types.UID {
	b.Helper()
	uids := map[string]types.UID{}
	for member, pod := range b.Pods(store) {
		uids[member] = pod.UID
	}
	return uids
}
