package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
)

// withADrainedNode is a settled Store one of whose masters is on a node of its own, with its volume, and that node is cordoned.
func withADrainedNode(t *testing.T) *harness {
	t.Helper()
	h := settledWithCopies(t)
	for _, object := range []client.Object{
		volumeOn("pv-1", "node-b"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}, Spec: corev1.NodeSpec{Unschedulable: true}},
	} {
		if err := h.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	claim := h.claims()["box-master-1-copies"]
	claim.Spec.VolumeName = "pv-1"
	if err := h.client.Update(t.Context(), &claim); err != nil {
		t.Fatal(err)
	}
	pod := h.pods()["box-master-1"]
	pod.Spec.NodeName = "node-b"
	if err := h.client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *harness) evictable() int {
	h.t.Helper()
	budget := &policyv1.PodDisruptionBudget{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: "default", Name: "box-master"}, budget); err != nil {
		h.t.Fatal(err)
	}
	return budget.Spec.MaxUnavailable.IntValue()
}

// draining is what the coordinator knows of the drain of box-master-1.
func (h *harness) draining() *adminv1.Draining {
	var draining *adminv1.Draining
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		for _, member := range r.GetMembers() {
			if member.GetName() == "box-master-1" {
				draining = member.GetDraining()
			}
		}
	})
	return draining
}

func TestMemberLeavesADrainedNode(t *testing.T) {
	h := withADrainedNode(t)
	old := h.pods()["box-master-1"]
	if h.evictable() != 0 {
		t.Error("an eviction would be faster than the operator")
	}
	for range 4 {
		h.mustReconcile()
	}
	if h.draining() == nil || len(h.claims()) != 3 || h.pods()["box-master-1"].UID != old.UID {
		t.Fatalf("draining %v, claims %v", h.draining(), h.claims())
	}
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonEvacuating)
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { standin.SetDrained(r, "box-master-1") })
	h.now = h.now.Add(time.Minute) // which a drain may take
	h.mustReconcile()              // its next pod is tried again
	h.mustReconcile()
	if _, there := h.claims()["box-master-1-copies-2"]; !there || h.pods()["box-master-1"] != nil ||
		!slices.Contains(h.coordinator.Removed(), "box-master-1") || !slices.Contains(h.coordinator.KeptOut(), string(old.UID)) {
		t.Fatalf("it has not left: %v, pod %v, removed %v", h.claims(), h.pods()["box-master-1"], h.coordinator.Removed())
	}
	if leaves := h.store().Status.Masters.Members[1].Evacuation; leaves == nil || leaves.Node != "node-b" || leaves.MovedAt == nil {
		t.Fatalf("on record: %+v", leaves)
	}
	h.mustReconcile()
	h.run() // on node-a
	h.withCopies()
	h.mustReconcile()
	h.mustReconcile()
	if status := h.store().Status.Masters.Members[1]; status.Evacuation != nil || status.Claim != "box-master-1-copies-2" ||
		len(h.claims()) != 3 {
		t.Errorf("status is %+v, claims are %v", status, h.claims())
	}
	h.want(v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	events := strings.Join(h.takeEvents(), "\n")
	for _, want := range []string{
		"NodeDrained node node-b of box-master-1 is drained (Cordoned)", "MemberDraining", "MemberMoved",
		"MemberArrived box-master-1, which had left node node-b, is up on node-a", "VolumeDropped",
	} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %q among\n%s", want, events)
		}
	}
}

// The coordinator refuses: the member stays, and it is said why and what to do.
func TestDrainThatIsRefusedWaits(t *testing.T) {
	h := withADrainedNode(t)
	h.order("drain", v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationDrain, Drain: &v1alpha1.DrainOperation{Member: "box-master-0"}})
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.Members[0].Draining = &adminv1.Draining{} })
	for range 4 {
		h.mustReconcile()
	}
	message := h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonEvacuationBlocked)
	if !strings.HasPrefix(message, "box-master-1 stays on node node-b, which is drained (Cordoned); the coordinator says: member "+
		"box-master-1 cannot be drained now: nobody else stays. Raise masters.replicas") {
		t.Error(message)
	}
	if h.pods()["box-master-1"] == nil || len(h.claims()) != 3 {
		t.Error("it has left")
	}
	h.takeEvents()
	before := meta.FindStatusCondition(h.store().Status.Conditions, v1alpha1.ConditionProgressing)
	// Also after the admission of its next pod has expired.
	for _, pause := range []time.Duration{time.Second, 45 * time.Second, time.Minute, 2 * time.Minute, time.Second} {
		h.now = h.now.Add(pause)
		h.mustReconcile()
		h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonEvacuationBlocked)
	}
	after := meta.FindStatusCondition(h.store().Status.Conditions, v1alpha1.ConditionProgressing)
	if events := h.takeEvents(); len(events) > 0 || !after.LastTransitionTime.Equal(&before.LastTransitionTime) {
		t.Errorf("Progressing is %+v, events are %v", after, events)
	}
	if leaves := h.store().Status.Masters.Members[1].Evacuation; leaves == nil || leaves.WaitsFor != "" {
		t.Errorf("on record: %+v", leaves)
	}
}

// While the move away from a drained node keeps failing, each reconcile fails, however long the pauses between them: the admission of the
// member's next pod does not expire meanwhile.
func TestMoveThatKeepsFailing(t *testing.T) {
	h := withADrainedNode(t)
	for range 4 {
		h.mustReconcile()
	}
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { standin.SetDrained(r, "box-master-1") })
	h.failWrite = func(object string) error {
		if strings.Contains(object, "PersistentVolumeClaim") {
			return errors.New("exceeded quota: claims")
		}
		return nil
	}
	h.takeEvents()
	for _, pause := range []int{5, 5, 5, 8, 16, 30, 30, 30, 30} {
		h.now = h.now.Add(time.Duration(pause-5) * time.Second) // a reconcile here takes 5 s
		if _, err := h.reconcile(); err == nil {
			t.Fatalf("after a pause of %d s it has not failed", pause)
		}
		h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonApplyFailed)
	}
	if h.pods()["box-master-1"] == nil {
		t.Error("its pod has ended")
	}
	h.failWrite = nil
	h.mustReconcile()
	if _, there := h.claims()["box-master-1-copies-2"]; !there || h.pods()["box-master-1"] != nil {
		t.Errorf("it has not left: %v", h.claims())
	}
}

// refusing admits no pod that is applied for trial.
type refusing struct{ client.Client }

func (r refusing) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if wanted := (&client.ApplyOptions{}).ApplyOptions(options); len(wanted.DryRun) > 0 {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("exceeded quota"))
	}
	return r.Client.Apply(ctx, object, options...)
}

// A refusal counts from the moment when it comes, also where the trial is a repetition in the same plan as the step that it is for.
func TestRepeatedTrialIsRefused(t *testing.T) {
	for name, isDrained := range map[string]bool{"before the drain": false, "before the move": true} {
		t.Run(name, func(t *testing.T) {
			h := withADrainedNode(t)
			if !isDrained { // until its trial is to be repeated, the coordinator refuses the drain
				h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.Members[0].Draining = &adminv1.Draining{} })
				h.order("drain", v1alpha1.StoreOperationSpec{
					Type: v1alpha1.OperationDrain, Drain: &v1alpha1.DrainOperation{Member: "box-master-0"},
				})
			}
			for range 4 {
				h.mustReconcile()
			}
			if isDrained {
				h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { standin.SetDrained(r, "box-master-1") })
			} else {
				h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.Members[0].Draining = nil })
				h.now = h.now.Add(2 * time.Minute)
			}
			h.reconciler.Client = refusing{h.reconciler.Client}
			h.mustReconcile()
			h.mustReconcile()
			if h.pods()["box-master-1"] == nil || len(h.claims()) != 3 || (h.draining() != nil) != isDrained {
				t.Errorf("pods %v, claims %v, draining %v", h.pods(), h.claims(), h.draining())
			}
			h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonPodRefused)
		})
	}
}

// Where nodes cannot be read, nobody leaves, and evictions take one at a time as ever.
func TestDrainsAreNotSeenWithoutRights(t *testing.T) {
	h := withADrainedNode(t)
	h.reconciler.Live, h.reconciler.Nodes = forbidden{h.client}, nodesByReader{forbidden{h.client}}
	for range 4 {
		h.mustReconcile()
	}
	if h.evictable() != 1 || h.draining() != nil || h.store().Status.Masters.Members[1].Evacuation != nil {
		t.Errorf("evictable %d, draining %v", h.evictable(), h.draining())
	}
	h.reconciler.Live, h.reconciler.Nodes = h.client, nodesByReader{h.client}
	for range 4 {
		h.mustReconcile()
	}
	if h.evictable() != 0 || h.draining() == nil {
		t.Errorf("with the right: evictable %d, draining %v", h.evictable(), h.draining())
	}
}

func TestWhoMembersWaitFor(t *testing.T) {
	h := withADrainedNode(t)
	h.change(func(s *v1alpha1.Store) { s.Spec.Recovery.DrainedNodes = v1alpha1.DrainedWait })
	for range 4 {
		h.mustReconcile()
	}
	if h.evictable() != 1 || h.draining() != nil {
		t.Errorf("evictable %d, draining %v", h.evictable(), h.draining())
	}
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
}

func TestHowNodesAreDrained(t *testing.T) {
	for want, spec := range map[v1alpha1.NodeDrain]corev1.NodeSpec{
		"":                      {Taints: []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoSchedule}}},
		v1alpha1.DrainCordoned:  {Unschedulable: true},
		v1alpha1.DrainKarpenter: {Taints: []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}},
		v1alpha1.DrainClusterAutoscaler: {Taints: []corev1.Taint{{
			Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule,
		}}},
	} {
		if got := nodeOf(&corev1.Node{Spec: spec}, false).Drained; got != want {
			t.Errorf("%+v: drained by %q, not %q", spec, got, want)
		}
	}
	candidate := corev1.NodeSpec{Taints: []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectPreferNoSchedule}}}
	if got := nodeOf(&corev1.Node{Spec: candidate}, false).Drained; got != "" {
		t.Errorf("a node that takes pods is drained by %q", got)
	}
}
