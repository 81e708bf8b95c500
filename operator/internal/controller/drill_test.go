package controller

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
)

// readyForADrill is a settled Store of three masters, the second of which holds something, and whose drill is chosen.
func readyForADrill(t *testing.T) *harness {
	t.Helper()
	h := settledWithCopies(t)
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 3 })
	for range 2 {
		h.mustReconcile()
		h.run()
	}
	h.withCopies()
	h.tablets("box-master-1", 2)
	h.mustReconcile()
	h.want(v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	h.order("now", v1alpha1.StoreOperationSpec{
		Type: v1alpha1.OperationDrill, Drill: &v1alpha1.DrillOperation{Member: "box-master-1"},
	})
	h.takeEvents()
	h.mustReconcile()
	h.mustReconcile()
	if drills := h.store().Status.Drills; len(drills) != 1 || drills[0].Member != "box-master-1" || h.pods()["box-master-1"] == nil {
		t.Fatalf("drills %+v", drills)
	}
	return h
}

func TestDrillEndsOneProcessAndReadsTheRecord(t *testing.T) {
	h := readyForADrill(t)
	before := h.store().Status.Drills[0].ServerIDs
	h.mustReconcile()
	if drill := h.store().Status.Drills[0]; drill.State != v1alpha1.DrillRunning || h.pods()["box-master-1"] != nil || len(h.pods()) != 3 {
		t.Fatalf("drill %+v, pods %v", drill, h.pods())
	}
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		for _, member := range r.GetMembers() {
			if member.GetName() != "box-master-1" {
				continue
			}
			for _, shard := range member.GetShards() {
				r.Recoveries = append(r.Recoveries, &adminv1.Recovery{
					ServerId: shard.GetServerId(), Member: "box-master-1", Bytes: 1 << 30, PromisedMs: 900, MeasuredMs: 1234,
				})
				shard.TabletCount = 0
			}
		}
		r.Members = slices.DeleteFunc(r.Members, func(m *adminv1.Member) bool { return m.GetName() == "box-master-1" })
	})
	h.mustReconcile()
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonDrilling)
	h.run() // its next pod
	h.withCopies()
	h.mustReconcile()
	drill := h.store().Status.Drills[0]
	if drill.State != v1alpha1.DrillSucceeded || drill.MeasuredMs != 1234 || drill.PromisedMs != 900 ||
		!slices.Equal(drill.ServerIDs, before) {
		t.Errorf("drill %+v", drill)
	}
	operation := h.operation("now").Status
	if !operation.HasEnded() || operation.Target != "box-master-1" ||
		operation.Drill == nil || operation.Drill.MeasuredMs != 1234 || operation.StartedAt == nil || operation.FinishedAt == nil {
		t.Errorf("the StoreOperation: %+v", operation)
	}
	events := strings.Join(h.takeEvents(), "\n")
	for _, want := range []string{
		"MemberDrilled drill 1: end box-master-1", "DrillRunning drill 1 of box-master-1", "DrillSucceeded drill 1 of box-master-1: 1234",
	} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %q among\n%s", want, events)
		}
	}
	h.mustReconcile()
	if again := h.store().Status.Drills; len(again) != 1 || len(h.pods()) != 4 {
		t.Errorf("the order is carried out again: %+v", again)
	}
}

// Right before, everything is looked at once more.
func TestNoDrillWhereSomethingHasBecomeShort(t *testing.T) {
	h := readyForADrill(t)
	dial := h.reconciler.Dial
	h.reconciler.Dial = func(ip string, port int) (admin.Client, error) {
		coordinator, err := dial(ip, port)
		return &secondLook{Client: coordinator, change: func(r *adminv1.GetClusterStatusResponse) {
			r.GetMembers()[0].GetShards()[0].SegmentsShort = 1
		}}, err
	}
	pod := h.pods()["box-master-1"]
	if _, err := h.reconcile(); err != nil {
		t.Fatal(err)
	}
	if now := h.pods()["box-master-1"]; now == nil || now.UID != pod.UID {
		t.Error("its process was ended")
	}
}
