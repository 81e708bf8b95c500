package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// A class that is mistyped is told of, and no more once somebody has made it.
func TestAStorageClassThatDoesNotExistIsToldOf(t *testing.T) {
	h := newHarness(t)
	replicated(h)
	h.change(func(s *v1alpha1.Store) {
		s.Spec.Backups.Storage.StorageClassName, s.Spec.Coordinator.State.StorageClassName = new("fsat"), new("fast")
	})
	h.mustReconcile()
	h.mustReconcile()
	for _, member := range []string{"box-master-0", "box-master-1"} {
		pod := h.pods()[member]
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims",
		}}
		if err := h.client.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	h.mustReconcile()
	got := h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonNoStorageClass)
	if want := "waits for StorageClass fsat (backups.storage.storageClassName), which does not exist"; !strings.Contains(got, want) {
		t.Errorf("message is %q", got)
	}
	if err := h.client.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fsat"}}); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	progressing := meta.FindStatusCondition(h.store().Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing.Reason == v1alpha1.ReasonNoStorageClass {
		t.Errorf("the class is there, and the message is %q", progressing.Message)
	}
}

// A claim that has got a class since the scheduler looked at its pod is touched, now and then until the scheduler has looked again.
func TestTheSchedulerLooksAgainAtAClaimThatHasGotAClass(t *testing.T) {
	late := storagev1.VolumeBindingWaitForFirstConsumer
	h := newHarness(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, VolumeBindingMode: &late})
	replicated(h)
	h.mustReconcile()
	h.mustReconcile()
	touched := func() string { return h.claims()["box-master-0-copies"].Annotations[v1alpha1.AnnotationTouched] }
	finds := func(message string) {
		pod := h.pods()["box-master-0"]
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
		}}
		if err := h.client.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	const immediate = "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
	finds(immediate)
	h.mustReconcile()
	if got := touched(); got != "" {
		t.Errorf("it has no class, and was touched at %s", got)
	}
	claim := h.claims()["box-master-0-copies"]
	claim.Spec.StorageClassName = new("late") // as Kubernetes does
	if err := h.client.Update(t.Context(), &claim); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	first := touched()
	if first == "" {
		t.Fatal("it has got a class, and was not touched")
	}
	h.mustReconcile()
	if got := touched(); got != first {
		t.Errorf("touched at %s and %s", first, got)
	}
	h.now = h.now.Add(time.Minute)
	h.mustReconcile()
	second := touched()
	if second == first {
		t.Error("the scheduler has not looked, and it is not touched again")
	}
	finds("0/4 nodes are available: 4 Insufficient cpu")
	h.now = h.now.Add(time.Minute)
	h.mustReconcile()
	if got := touched(); got != second {
		t.Errorf("the scheduler has looked, and it was touched at %s", got)
	}
}

// Masters without copies are told no domain. A label that is on none of their nodes is told of all the same.
func TestAMistypedFailureDomainIsToldOfWithoutCopies(t *testing.T) {
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	h := newHarness(t, node("node-a", map[string]string{"rack": "r7"}), node("node-b", map[string]string{"other": "x"}))
	h.change(func(s *v1alpha1.Store) { s.Spec.Placement.FailureDomain = "rakc" })
	h.mustReconcile()
	h.run()
	h.mustReconcile()
	got := h.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonNoFailureDomain)
	if want := "none of the masters' nodes has the label rakc, which placement.failureDomain names"; !strings.HasPrefix(got, want) {
		t.Errorf("message is %q", got)
	}
	// Somebody labels the nodes: it is seen once what was read is old.
	for _, name := range []string{"node-a", "node-b"} {
		labelled := node(name, nil)
		if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(labelled), labelled); err != nil {
			t.Fatal(err)
		}
		labelled.Labels["rakc"] = "r7"
		if err := h.client.Update(t.Context(), labelled); err != nil {
			t.Fatal(err)
		}
	}
	h.now = h.now.Add(time.Minute)
	h.mustReconcile()
	h.want(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
}
