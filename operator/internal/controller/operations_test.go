package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// order makes a StoreOperation about the Store.
func (h *harness) order(name string, spec v1alpha1.StoreOperationSpec) {
	h.t.Helper()
	spec.StoreRef.Name = storeKey.Name
	operation := &v1alpha1.StoreOperation{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: storeKey.Namespace, UID: types.UID("uid-of-" + name), Generation: 1,
			CreationTimestamp: metav1.NewTime(h.now),
		},
		Spec: spec,
	}
	if err := h.client.Create(h.t.Context(), operation); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) operation(name string) *v1alpha1.StoreOperation {
	h.t.Helper()
	operation := &v1alpha1.StoreOperation{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: storeKey.Namespace, Name: name}, operation); err != nil {
		h.t.Fatal(err)
	}
	return operation
}

// operations are all that there are, by name.
func (h *harness) operations() map[string]*v1alpha1.StoreOperation {
	h.t.Helper()
	list := &v1alpha1.StoreOperationList{}
	if err := h.client.List(h.t.Context(), list); err != nil {
		h.t.Fatal(err)
	}
	operations := map[string]*v1alpha1.StoreOperation{}
	for i := range list.Items {
		operations[list.Items[i].Name] = &list.Items[i]
	}
	return operations
}

// fromBefore makes the Store one that an operator has looked after which took orders by annotation.
func (h *harness) fromBefore(annotations map[string]string) {
	h.t.Helper()
	h.change(func(s *v1alpha1.Store) { s.Annotations = annotations })
	h.asFormer(func(status *v1alpha1.StoreStatus) { status.OrdersCarriedOver = false })
}

// A drill that was ordered by annotation becomes one StoreOperation, whenever the operator ends in between, and no pod ends for that.
func TestOrderedDrillIsCarriedOver(t *testing.T) {
	const order = "2026-01-01T00:00:00.000Z box-master-1"
	name := v1alpha1.OperationName("box", v1alpha1.OperationDrill, order)
	for fails := range 8 {
		t.Run(fmt.Sprintf("write %d fails", fails), func(t *testing.T) {
			h := settled(t)
			pods := h.pods()
			h.fromBefore(map[string]string{v1alpha1.FormerAnnotationDrill: order, "example.com/mine": "stays"})
			writes := 0
			h.failWrite = func(string) error {
				writes++
				if writes == fails {
					return errors.New("the operator ends here")
				}
				return nil
			}
			for range 7 {
				_, _ = h.reconcile() // one of them fails
			}
			store := h.store()
			if _, there := store.Annotations[v1alpha1.FormerAnnotationDrill]; there || store.Annotations["example.com/mine"] != "stays" {
				t.Errorf("annotations %v", store.Annotations)
			}
			operations := h.operations()
			if len(operations) != 1 || operations[name] == nil || operations[name].Spec.Drill.Member != "box-master-1" {
				t.Fatalf("operations %+v", operations)
			}
			if !store.Status.OrdersCarriedOver || store.Status.DrillNotes.Order != "" {
				t.Errorf("on record: %v, %+v", store.Status.OrdersCarriedOver, store.Status.DrillNotes)
			}
			for member, pod := range h.pods() {
				if pods[member] == nil || pods[member].UID != pod.UID {
					t.Errorf("%s was restarted", member)
				}
			}
		})
	}
}

// A drain that was ordered by annotation is not taken back for a moment while it becomes a StoreOperation, and is once that is deleted.
func TestOrderedDrainIsCarriedOver(t *testing.T) {
	h := settledWithCopies(t)
	isDraining := func() (is bool) {
		h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { is = r.GetMembers()[1].GetDraining() != nil })
		return is
	}
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { standin.SetDrained(r, "box-master-1") })
	h.fromBefore(map[string]string{v1alpha1.FormerAnnotationDrained: "box-master-1"})
	for range 5 {
		h.mustReconcile()
		if !isDraining() {
			t.Fatal("the drain is taken back")
		}
	}
	name := v1alpha1.OperationName("box", v1alpha1.OperationDrain, "box-master-1")
	if is := h.operation(name).Status; is.Phase != v1alpha1.OperationInForce || is.Target != "box-master-1" {
		t.Errorf("the StoreOperation: %+v", is)
	}
	if annotations := h.store().Annotations; len(annotations) > 0 || !h.store().Status.OrdersCarriedOver {
		t.Errorf("annotations %v", annotations)
	}
	if err := h.client.Delete(t.Context(), h.operation(name)); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if isDraining() {
		t.Error("the StoreOperation is deleted, and the drain goes on")
	}
}

// Nodes that an annotation isolated stay isolated while they become StoreOperations, with what the status says of why.
func TestIsolationsAreCarriedOver(t *testing.T) {
	h := settled(t)
	h.fromBefore(map[string]string{v1alpha1.FormerAnnotationIsolated: "node-x, node-y"})
	h.asFormer(func(status *v1alpha1.StoreStatus) {
		status.Isolations = []v1alpha1.IsolationStatus{{
			Node: "node-y", Cause: v1alpha1.IsolatedFailures, Since: metav1.NewTime(h.now.Truncate(time.Second)), Message: "it failed",
		}}
	})
	h.mustReconcile()
	for range 4 {
		h.mustReconcile()
		isolations := h.store().Status.Isolations
		if len(isolations) != 2 || !slices.ContainsFunc(isolations, func(i v1alpha1.IsolationStatus) bool {
			return i.Node == "node-y" && i.Cause == v1alpha1.IsolatedFailures && i.Message == "it failed"
		}) {
			t.Fatalf("isolated: %+v", isolations)
		}
	}
	operations := h.operations()
	failed := operations[v1alpha1.OperationName("box", v1alpha1.OperationIsolate, "node-y")]
	if len(operations) != 2 || failed == nil || failed.Spec.Isolate.Cause != v1alpha1.IsolatedFailures ||
		failed.Status.Phase != v1alpha1.OperationInForce || len(h.store().Annotations) > 0 {
		t.Fatalf("operations %+v, annotations %v", operations, h.store().Annotations)
	}
	if err := h.client.Delete(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if left := h.store().Status.Isolations; len(left) != 1 || left[0].Node != "node-x" {
		t.Errorf("isolated: %+v", left)
	}
}

// A pod is made only by what the API server has of isolations: a cache that lacks one is not enough.
func TestNoPodBesidesAnIsolationThatIsNotSeen(t *testing.T) {
	h := settled(t)
	h.order("unseen", v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationIsolate, Isolate: &v1alpha1.IsolateOperation{Node: "node-x"}})
	if err := h.client.Delete(t.Context(), h.pods()["box-master-1"]); err != nil {
		t.Fatal(err)
	}
	h.reconciler.Client = blind{h.client}
	if _, err := h.reconcile(); err != nil {
		t.Fatal(err)
	}
	if pod := h.pods()["box-master-1"]; pod != nil {
		t.Fatal("its pod was made by an old cache")
	}
	h.reconciler.Client = h.client
	h.mustReconcile()
	pod := h.pods()["box-master-1"]
	if pod == nil || !slices.Contains(resources.Avoided(pod), "node-x") {
		t.Errorf("the pod is %+v", pod)
	}
}

// blind is a cache that has not seen any StoreOperation yet.
type blind struct{ client.Client }

func (b blind) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, isThem := list.(*v1alpha1.StoreOperationList); isThem {
		return nil
	}
	return b.Client.List(ctx, list, options...)
}

// A drain is ordered from the coordinator, and says so if that refuses it, which is nothing of the Store's.
func TestOrderedDrain(t *testing.T) {
	h := settledWithCopies(t)
	drainOf := func(member string) v1alpha1.StoreOperationSpec {
		return v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationDrain, Drain: &v1alpha1.DrainOperation{Member: member}}
	}
	h.order("first", drainOf("box-master-1"))
	h.mustReconcile()
	h.mustReconcile()
	if is := h.operation("first").Status; is.Phase != v1alpha1.OperationRunning || is.StartedAt == nil {
		t.Fatalf("the StoreOperation: %+v", is)
	}
	h.order("second", drainOf("box-master-0"))
	h.order("third", drainOf("box-master-9"))
	h.mustReconcile()
	h.mustReconcile()
	for name, reason := range map[string]string{
		"second": v1alpha1.ReasonOperationRefused, "third": v1alpha1.ReasonOperationNoMember,
	} {
		is := h.operation(name).Status
		if is.Phase != v1alpha1.OperationFailed || is.Conditions[0].Reason != reason {
			t.Errorf("%s: %+v", name, is)
		}
	}
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { standin.SetDrained(r, "box-master-1") })
	h.mustReconcile()
	if is := h.operation("first").Status; is.Phase != v1alpha1.OperationInForce || is.FinishedAt != nil {
		t.Errorf("the StoreOperation: %+v", is)
	}
}

// The coordinator is told which format to put in force, once.
func TestFinalizeIsOrdered(t *testing.T) {
	h := settled(t)
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.FormatVersion, r.Upgrade = 1, &adminv1.Upgrade{NewestFormat: 2}
	})
	h.mustReconcile()
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonCanBeFinalized)
	h.order("now", v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationFinalize, Finalize: &v1alpha1.FinalizeOperation{Format: 2}})
	h.mustReconcile()
	h.mustReconcile()
	if is := h.operation("now").Status; is.Phase != v1alpha1.OperationSucceeded || h.store().Status.Format.Active != 2 {
		t.Errorf("the StoreOperation: %+v, the Store %+v", is, h.store().Status.Format)
	}
}

// The coordinator is asked until it says that the table is split, and not after that.
func TestSplitIsOrdered(t *testing.T) {
	h := settled(t)
	h.coordinator.SetSplit("fruit", 1, grpcstatus.Error(codes.FailedPrecondition, "a server of it is dead"))
	split := func(table string) v1alpha1.StoreOperationSpec {
		return v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationSplit, Split: &v1alpha1.SplitOperation{Table: table, Parts: 8}}
	}
	h.order("wide", split("fruit"))
	h.order("nowhere", split("vegetables"))
	h.mustReconcile()
	if is := h.operation("wide").Status; is.Phase != v1alpha1.OperationPending || is.Target != "fruit" ||
		is.Conditions[0].Message != "the coordinator says: a server of it is dead" {
		t.Errorf("the StoreOperation: %+v", is)
	}
	if is := h.operation("nowhere").Status; is.Phase != v1alpha1.OperationFailed ||
		is.Conditions[0].Reason != v1alpha1.ReasonOperationNoTable {
		t.Errorf("the StoreOperation: %+v", is)
	}
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	h.coordinator.SetSplit("fruit", 1, nil)
	h.mustReconcile()
	is := h.operation("wide").Status
	if is.Phase != v1alpha1.OperationSucceeded || is.FinishedAt == nil ||
		*is.Split != (v1alpha1.SplitResult{Tablets: 8, BoundariesMade: 7}) ||
		is.Conditions[0].Message != `table "fruit" has 8 tablets, after 7 new boundaries` {
		t.Errorf("the StoreOperation: %+v", is)
	}
	before := h.writes
	h.mustReconcile()
	if h.writes != before {
		t.Errorf("%d writes", h.writes-before)
	}
}

// What was seen already is not ordered again, and once all orders were carried over, and in a new Store, annotations mean nothing: who may
// edit a Store may not give orders by that.
func TestAnnotationsAreNoOrders(t *testing.T) {
	t.Run("a drill that was seen", func(t *testing.T) {
		h := settled(t)
		h.fromBefore(map[string]string{v1alpha1.FormerAnnotationDrill: "seen"})
		h.asFormer(func(status *v1alpha1.StoreStatus) { status.DrillNotes.Order = "seen" })
		h.mustReconcile()
		h.mustReconcile()
		h.mustReconcile()
		if operations := h.operations(); len(operations) > 0 || !h.store().Status.OrdersCarriedOver {
			t.Errorf("operations %+v, status %+v", operations, h.store().Status)
		}
	})
	t.Run("afterwards", func(t *testing.T) {
		h := settled(t)
		h.change(func(s *v1alpha1.Store) { s.Annotations = map[string]string{v1alpha1.FormerAnnotationDrill: "now"} })
		h.mustReconcile()
		if operations := h.operations(); len(operations) > 0 || len(h.store().Status.Drills) > 0 {
			t.Errorf("operations %+v, drills %+v", operations, h.store().Status.Drills)
		}
	})
	t.Run("a new Store", func(t *testing.T) {
		h := newHarness(t)
		h.change(func(s *v1alpha1.Store) { s.Annotations = map[string]string{v1alpha1.FormerAnnotationDrill: "now"} })
		h.mustReconcile()
		h.mustReconcile()
		if operations := h.operations(); len(operations) > 0 || len(h.store().Status.Drills) > 0 {
			t.Errorf("operations %+v, drills %+v", operations, h.store().Status.Drills)
		}
	})
}

// An order for another Store of the namespace, or for a former one of the same name, is not this Store's.
func TestOrdersForOtherStores(t *testing.T) {
	h := settled(t)
	h.order("other", v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationDrill})
	other := h.operation("other")
	other.Spec.StoreRef.Name = "elsewhere"
	if err := h.client.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if phase := h.operation("other").Status.Phase; phase != "" || len(h.store().Status.Drills) > 0 {
		t.Errorf("it is %s, drills %+v", phase, h.store().Status.Drills)
	}
}

// A StoreOperation says why it failed; nothing more is written once it has.
func TestRefusedOperation(t *testing.T) {
	h := settled(t)
	h.order("now", v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationDrill})
	for range 3 {
		h.mustReconcile()
	}
	is := h.operation("now").Status
	if is.Phase != v1alpha1.OperationFailed || is.ObservedGeneration != 1 || is.FinishedAt == nil ||
		!strings.HasPrefix(is.Conditions[0].Message, "there are no copies") {
		t.Fatalf("it is %+v", is)
	}
	before := h.writes
	h.mustReconcile()
	if h.writes != before {
		t.Errorf("%d writes", h.writes-before)
	}
}

// A Store that is deleted takes what was ordered of it along.
func TestOperationsGoWithTheirStore(t *testing.T) {
	h := settled(t)
	h.order("now", v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationDrill})
	if err := h.client.Delete(t.Context(), h.store()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h.mustReconcile()
	}
	if operations := h.operations(); len(operations) > 0 {
		t.Errorf("operations %+v", operations)
	}
}
