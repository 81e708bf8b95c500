package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// crash says of a member's container that it has ended and runs again.
func (h *harness) crash(member string, restarts int32) {
	h.t.Helper()
	pod := h.pods()[member]
	container := &pod.Status.ContainerStatuses[0]
	container.RestartCount = restarts
	container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(h.now.Add(-time.Second))}
	if err := h.client.Status().Update(h.t.Context(), pod); err != nil {
		h.t.Fatal(err)
	}
}

func TestNodeOfAFailingMemberIsIsolated(t *testing.T) {
	h := newHarness(t)
	replicated(h)
	h.change(func(s *v1alpha1.Store) {
		s.Spec.Masters.Replicas = 3
		s.Spec.Recovery.Isolation = v1alpha1.IsolationSpec{Crashes: 3, Window: "10m"}
	})
	for range 3 {
		h.mustReconcile()
		h.run()
	}
	h.withCopies()
	pod := h.pods()["box-master-1"]
	pod.Spec.NodeName = "node-b"
	if err := h.client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node-a", "node-b"} {
		if err := h.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	h.mustReconcile()
	for restarts := range int32(3) {
		if got := h.operations(); len(got) > 0 {
			t.Fatalf("isolated after %d: %+v", restarts, got)
		}
		h.crash("box-master-1", restarts+1)
		h.mustReconcile()
	}
	store := h.store()
	if failures := store.Status.Masters.Members[1].Failures; failures == nil || failures.Count != 3 || failures.Node != "node-b" {
		t.Errorf("failures %+v", failures)
	}
	operation := h.operation(v1alpha1.OperationName("box", v1alpha1.OperationIsolate, "node-b"))
	if isolate := operation.Spec.Isolate; isolate.Node != "node-b" || isolate.Cause != v1alpha1.IsolatedFailures ||
		len(store.Status.Isolations) != 1 || store.Status.Isolations[0].Cause != v1alpha1.IsolatedFailures {
		t.Fatalf("isolated: %+v, on record %+v", isolate, store.Status.Isolations)
	}
	h.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonNodeIsolated)
	events := strings.Join(h.takeEvents(), "\n")
	if !strings.Contains(events, "NodeIsolated isolate node node-b: box-master-1 failed there 3 times") {
		t.Error(events)
	}
	for range 3 {
		h.mustReconcile()
	}
	if h.draining() == nil {
		t.Error("the member does not leave")
	}
}
