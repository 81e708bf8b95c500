package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

func TestFirstReconcileSetsEveryCondition(t *testing.T) {
	h := newHarness(t)
	h.mustReconcile()
	h.want(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonForming)
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonApplying)
	h.want(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	h.want(v1alpha1.ConditionDataSafe, metav1.ConditionFalse, v1alpha1.ReasonUnreplicated)
	status := h.store().Status
	if status.Locator != "tcp:host=box.default.svc,port=11100" || status.Image != "store:1" || status.ObservedGeneration != 1 ||
		status.Durability != v1alpha1.DurabilityUnreplicated {
		t.Errorf("status is %+v", status)
	}
	if len(h.pods()) != 3 {
		t.Errorf("there are pods %v", h.pods())
	}
	for _, object := range []client.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "box"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "box-coordinator"}},
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "box-coordinator"}},
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "box-master"}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "box-master"}},
	} {
		key := client.ObjectKey{Namespace: "default", Name: object.GetName()}
		if err := h.client.Get(t.Context(), key, object); err != nil {
			t.Error(err)
		} else if !metav1.IsControlledBy(object, h.store()) {
			t.Errorf("%T %s is not the Store's", object, key.Name)
		}
	}
}

func TestNoWritesInSteadyState(t *testing.T) {
	h := settled(t)
	before, asked := h.writes, h.coordinator.Asked()
	for range 3 {
		result, err := h.reconcile()
		if err != nil || result.RequeueAfter != planner.SettledInterval {
			t.Fatalf("reconcile: %v, %v", result, err)
		}
	}
	if h.writes != before {
		t.Errorf("%d writes although nothing changed", h.writes-before)
	}
	if h.coordinator.Asked() != asked+3 {
		t.Errorf("the coordinator was asked %d times in three reconciles", h.coordinator.Asked()-asked)
	}
	if events := h.takeEvents(); len(events) > 0 {
		t.Errorf("events although nothing happened: %v", events)
	}
	// Bytes that come and go are no reason to write, either.
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.Members[0].Shards[0].LogLiveBytes += 1000 })
	h.mustReconcile()
	if h.writes != before {
		t.Errorf("%d writes because of a thousand bytes", h.writes-before)
	}
}

func TestDriftIsCorrected(t *testing.T) {
	h := settled(t)
	service := &corev1.Service{}
	if err := h.client.Get(t.Context(), storeKey, service); err != nil {
		t.Fatal(err)
	}
	service.Spec.Ports[0].TargetPort = intstr.FromInt32(1)
	if err := h.client.Update(t.Context(), service, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if err := h.client.Get(t.Context(), storeKey, service); err != nil {
		t.Fatal(err)
	}
	if got := service.Spec.Ports[0].TargetPort.String(); got != "client" {
		t.Errorf("the target port is %s", got)
	}
	before := h.writes
	h.mustReconcile()
	h.mustReconcile()
	if h.writes != before+1 { // the status, which told of the correction
		t.Errorf("%d writes after the correction", h.writes-before)
	}
}

func TestNameTakenByAnother(t *testing.T) {
	h := newHarness(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "default"}})
	if _, err := h.reconcile(); err == nil {
		t.Fatal("the reconcile succeeded")
	}
	got := h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonNameTaken)
	want := "Service default/box is there already and is not this Store's: delete it, or make the Store under another name"
	if got != want {
		t.Errorf("message is %q, not %q", got, want)
	}
	service := &corev1.Service{}
	if err := h.client.Get(t.Context(), storeKey, service); err != nil {
		t.Fatal(err)
	}
	if len(service.OwnerReferences) > 0 || len(service.Spec.Ports) > 0 {
		t.Errorf("the other's Service was changed: %+v", service)
	}
	if len(h.pods()) > 0 {
		t.Error("pods were made although nobody could reach them")
	}
}

func TestScaleInRefused(t *testing.T) {
	h := settled(t)
	h.tablets("box-master-1", 4)
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.Members = slices.DeleteFunc(r.Members, func(m *adminv1.Member) bool { return m.GetName() != "box-master-1" })
	})
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 1 })
	for range 3 {
		h.mustReconcile()
	}
	got := h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonScaleInBlocked)
	want := "box-master-1 stays; the coordinator says: member box-master-1 cannot be drained now: nobody else stays. " +
		"To keep it, set masters.replicas to 2"
	if got != want {
		t.Errorf("message is\n%q, not\n%q", got, want)
	}
	if h.pods()["box-master-1"] == nil {
		t.Fatal("its pod was deleted")
	}
	blocked := func(event string) bool { return strings.Contains(event, "ScaleInBlocked") }
	if events := h.takeEvents(); !slices.ContainsFunc(events, blocked) {
		t.Errorf("three reconciles gave the events %v", events)
	}
}

func TestScaleInDrainsFirst(t *testing.T) {
	h := settled(t)
	h.tablets("box-master-1", 4)
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 1 })
	for range 3 {
		h.mustReconcile()
	}
	got := h.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonDraining)
	want := "draining box-master-1: 4 tablets, 1 copies left. box-master-1: 1 segments have copies here"
	if got != want {
		t.Errorf("message is\n%q, not\n%q", got, want)
	}
	if h.pods()["box-master-1"] == nil || len(h.coordinator.Removed()) > 0 {
		t.Fatal("it was removed before it was drained")
	}
	told := func(event string) bool { return strings.Contains(event, "MemberDraining") }
	if events := h.takeEvents(); !slices.ContainsFunc(events, told) {
		t.Errorf("three reconciles gave the events %v", events)
	}

	// There is a place for it again, and then there is not.
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 2 })
	h.mustReconcile()
	h.mustReconcile()
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 1 })
	h.mustReconcile()

	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { standin.SetDrained(r, "box-master-1") })
	uid := string(h.pods()["box-master-1"].UID)
	h.mustReconcile()
	if removed := h.coordinator.Removed(); len(removed) != 1 || removed[0] != "box-master-1" {
		t.Errorf("members removed: %v", removed)
	}
	if kept := h.coordinator.KeptOut(); uid == "" || !slices.Contains(kept, uid) {
		t.Errorf("kept out: %v, not %q", kept, uid)
	}
	if h.pods()["box-master-1"] != nil {
		t.Error("its pod is still there")
	}
	h.mustReconcile()
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	if status := h.store().Status.Masters; status.Replicas != 1 || status.Ready != 1 || len(status.Members) != 1 {
		t.Errorf("status is %+v", status)
	}
}

func TestScaleInWithoutCoordinator(t *testing.T) {
	h := settled(t)
	h.coordinator.SetDown(true)
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 1 })
	h.mustReconcile()
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonWaiting)
	h.want(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonServing) // it may be back in a moment
	h.now = h.now.Add(10 * time.Second)
	h.mustReconcile()
	h.want(v1alpha1.ConditionAvailable, metav1.ConditionUnknown, v1alpha1.ReasonCoordinatorDown)
	h.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonCoordinatorDown)
	if h.pods()["box-master-1"] == nil {
		t.Error("a master was removed without the coordinator's word")
	}
}

func TestDeletedMasterComesBackAndItsLossIsTold(t *testing.T) {
	h := settled(t)
	h.tablets("box-master-0", 3)
	h.mustReconcile()
	old := h.pods()["box-master-0"]
	if err := h.client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	h.lose("box-master-0")
	h.mustReconcile()
	h.want(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonMembersDown)
	h.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonMembersDown)
	again := h.pods()["box-master-0"]
	if again == nil || again.Name == old.Name {
		t.Fatalf("it has not come back: %v", again)
	}
	h.run()
	again = h.pods()["box-master-0"]
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		standin.Enlist(r, "box-master-0", string(again.UID)+"-1", 3)
		r.Losses = append(r.Losses, &adminv1.Loss{
			Member: "box-master-0", ServerIds: []uint64{1}, Tables: []string{"a", "b"}, TabletCount: 3, ObjectCount: 100, LiveBytes: 5000,
		})
	})
	h.mustReconcile()
	h.want(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonServing)
	got := h.want(v1alpha1.ConditionDataSafe, metav1.ConditionFalse, v1alpha1.ReasonDataLost)
	want := "loss 1, seen 2026-01-01 00:00:35 UTC: the process of box-master-0 ended and took 100 objects (5000 bytes in 3 tablets) " +
		"with it, of 2 tables a, b. To acknowledge the loss: " +
		"kubectl annotate --overwrite -n default store/box rcbox.dev/acknowledged-losses=1"
	if got != want {
		t.Errorf("message is\n%q, not\n%q", got, want)
	}
	member := h.store().Status.Masters.Members[0]
	if member.PodNumber != 2 || member.ServerIDs[0] != "1.2" || member.UsedPercent != 25 {
		t.Errorf("member is %+v", member)
	}

	// Told once; acknowledged by its number.
	h.mustReconcile()
	if losses := h.store().Status.Losses; len(losses) != 1 {
		t.Errorf("losses are %+v", losses)
	}
	h.change(func(s *v1alpha1.Store) { s.Annotations = map[string]string{v1alpha1.AnnotationAcknowledgedLosses: "1"} })
	h.mustReconcile()
	h.want(v1alpha1.ConditionDataSafe, metav1.ConditionFalse, v1alpha1.ReasonUnreplicated)
	lost := 0
	for _, event := range h.takeEvents() {
		if strings.Contains(event, "Warning DataLost") {
			lost++
		}
	}
	if lost != 1 {
		t.Errorf("%d events tell of the loss", lost)
	}
}

func TestCoordinatorLossIsTold(t *testing.T) {
	h := settled(t)
	h.tablets("box-master-0", 3)
	h.mustReconcile()
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.ClusterId, r.TableCount = 0xabc, 0
		for _, member := range r.GetMembers() {
			member.Shards[0].TabletCount = 0
		}
	})
	h.mustReconcile()
	status := h.store().Status
	if status.ClusterID != "0000000000000abc" || len(status.Losses) != 1 || status.Losses[0].Cause != v1alpha1.LossOfCoordinator ||
		status.Losses[0].TableCount != 1 || status.Losses[0].Tablets != 3 {
		t.Errorf("status is %+v", status)
	}
	got := h.want(v1alpha1.ConditionDataSafe, metav1.ConditionFalse, v1alpha1.ReasonDataLost)
	if !strings.Contains(got, "the process of box-coordinator ended and took all 1 table with it") {
		t.Errorf("message is %q", got)
	}
}

func TestMoreLossesThanAreKept(t *testing.T) {
	h := settled(t)
	for range 3 {
		h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
			for range 7 {
				r.Losses = append(r.Losses, &adminv1.Loss{Member: "box-master-0", TabletCount: 1})
			}
			if surplus := len(r.GetLosses()) - 10; surplus > 0 {
				r.Losses, r.LossesDropped = r.GetLosses()[surplus:], r.GetLossesDropped()+uint64(surplus)
			}
		})
		h.mustReconcile()
		h.mustReconcile()
	}
	status := h.store().Status
	if status.LossCount != 21 || len(status.Losses) != 10 || status.Losses[9].Number != 21 || status.Losses[0].Number != 12 {
		t.Errorf("%d losses, kept: %+v", status.LossCount, status.Losses)
	}
}

func TestRestartIsLeftToTheUser(t *testing.T) {
	h := settled(t)
	h.tablets("box-master-0", 3)
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Memory = resource.MustParse("2Gi") })
	old := h.pods()
	for range 2 { // the API server is asked about the next pod before
		h.mustReconcile()
	}
	pods := h.pods()
	if pods["box-master-0"].UID != old["box-master-0"].UID {
		t.Error("a master with data was restarted")
	}
	if pod := pods["box-master-1"]; pod != nil && pod.UID == old["box-master-1"].UID {
		t.Error("a master without data was not replaced")
	}
	got := h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonRestartPending)
	pod := pods["box-master-0"].Name
	want := "outdated pods: " + pod + " (memory: 1Gi -> 2Gi); restarting a master loses its data. Delete it yourself: " +
		"kubectl delete pod -n " + h.store().Namespace + " " + pod
	if got != want {
		t.Errorf("message is\n%q, not\n%q", got, want)
	}
	if status := h.store().Status.Masters; status.Outdated != 2 || status.Members[0].Pending != "memory: 1Gi -> 2Gi" {
		t.Errorf("status is %+v", status)
	}
	// The user's turn: the new pod is made from the new spec.
	if err := h.client.Delete(t.Context(), pods["box-master-0"]); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if got := h.pods()["box-master-0"].Spec.Containers[0].Resources.Limits.Memory().String(); got != "2Gi" {
		t.Errorf("the new pod has %s", got)
	}
}

func TestOperatorUpgradeRestartsNothing(t *testing.T) {
	h := settled(t)
	before := h.writes
	h.reconciler.DefaultImage = "store:2"
	h.mustReconcile()
	if h.writes != before || h.store().Status.Image != "store:1" {
		t.Errorf("%d writes, image %s", h.writes-before, h.store().Status.Image)
	}
	// A pod that is made later has the image of the others.
	if err := h.client.Delete(t.Context(), h.pods()["box-master-1"]); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if got := h.pods()["box-master-1"].Spec.Containers[0].Image; got != "store:1" {
		t.Errorf("its image is %s", got)
	}
}

// One member's pod that cannot be made keeps no other waiting, and the status says why.
func TestQuota(t *testing.T) {
	h := settled(t)
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 4 })
	failed := false
	h.failWrite = func(what string) error {
		if strings.Contains(what, "Pod") && !failed {
			failed = true
			return apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("exceeded quota"))
		}
		return nil
	}
	if _, err := h.reconcile(); err == nil {
		t.Fatal("the reconcile succeeded")
	}
	got := h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonApplyFailed)
	if !strings.Contains(got, "exceeded quota") {
		t.Errorf("message is %q", got)
	}
	if len(h.pods()) != 4 {
		t.Errorf("there are %d pods", len(h.pods()))
	}
	h.mustReconcile()
	if len(h.pods()) != 5 {
		t.Errorf("there are %d pods", len(h.pods()))
	}
}

// A status that could not be written because somebody else was faster is not an error, and nothing is told twice.
func TestStaleStatus(t *testing.T) {
	h := settled(t)
	h.tablets("box-master-0", 3)
	h.failWrite = func(what string) error {
		if what == "update status" {
			return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("stores").GroupResource(), "box", errors.New("newer"))
		}
		return nil
	}
	result, err := h.reconcile()
	if err != nil || result.RequeueAfter != staleRetry {
		t.Errorf("reconcile: %v, %v", result, err)
	}
	if events := h.takeEvents(); len(events) > 0 {
		t.Errorf("events for a status that was not written: %v", events)
	}
}

// TestStalePodCache: the status already counts the pods, but the cache does not show them yet.
func TestStalePodCache(t *testing.T) {
	h := settled(t)
	before := h.pods()
	watcher, ok := h.client.(client.WithWatch)
	if !ok {
		t.Fatalf("%T cannot be intercepted", h.client)
	}
	h.reconciler.Client = interceptor.NewClient(watcher, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, pods := list.(*corev1.PodList); pods {
				return nil
			}
			return c.List(ctx, list, options...)
		},
	})
	result, err := h.reconcile()
	if err != nil || result.RequeueAfter != staleRetry {
		t.Errorf("reconcile: %v, %v", result, err)
	}
	if after := h.pods(); len(after) != len(before) {
		t.Errorf("pods %v became %v", before, after)
	}
}

func TestDeletion(t *testing.T) {
	h := settled(t)
	if err := h.client.Delete(t.Context(), h.store()); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if len(h.pods()) != 0 {
		t.Errorf("pods are left: %v", h.pods())
	}
	h.mustReconcile()
	if err := h.client.Get(t.Context(), storeKey, &v1alpha1.Store{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Store is still there: %v", err)
	}
	h.mustReconcile()
}

// Pods with the Store's labels that it does not control are somebody else's.
func TestForeignPodsAreLeftAlone(t *testing.T) {
	h := newHarness(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "guest", Namespace: "default",
		Labels: map[string]string{v1alpha1.LabelStore: "box", v1alpha1.LabelMember: "box-master-7", v1alpha1.LabelComponent: "master"},
	}})
	for range 3 {
		h.mustReconcile()
		h.run()
	}
	if h.pods()["box-master-7"] == nil {
		t.Error("it was deleted")
	}
}

// The coordinator has let the member go, and then the pod cannot be deleted: the next reconcile goes on from there.
func TestRetirementInTwoReconciles(t *testing.T) {
	h := settled(t)
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 1 })
	h.failWrite = func(what string) error {
		if strings.HasPrefix(what, "delete") {
			return errors.New("the API server is away")
		}
		return nil
	}
	if _, err := h.reconcile(); err == nil {
		t.Fatal("the reconcile succeeded")
	}
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonApplyFailed)
	if len(h.coordinator.Removed()) != 1 || h.pods()["box-master-1"] == nil {
		t.Fatal("this test proves nothing")
	}
	h.failWrite = nil
	h.mustReconcile()
	if h.pods()["box-master-1"] != nil {
		t.Error("its pod is still there")
	}
	h.mustReconcile()
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
}

// A pod that has changed since it was seen is not deleted: its process may have come to life.
func TestDeletionHasPreconditions(t *testing.T) {
	h := settled(t)
	pod := h.pods()["box-master-1"]
	v, err := h.reconciler.observe(t.Context(), h.store())
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	// controller-runtime's fake API server knows this precondition, but not the uid.
	ref := facts.PodRef{Name: pod.Name, UID: string(pod.UID), ResourceVersion: "1"}
	if err := h.reconciler.deletePod(t.Context(), v, ref); !errors.Is(err, errStale) {
		t.Errorf("another resource version: %v", err)
	}
	if h.pods()["box-master-1"] == nil {
		t.Error("the pod was deleted")
	}
}
