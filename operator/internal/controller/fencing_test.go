package controller

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

func (h *harness) isFenced() bool {
	h.t.Helper()
	node := &corev1.Node{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Name: "node-a"}, node); err != nil {
		h.t.Fatal(err)
	}
	return nodeOf(node, false).OutOfService
}

// withFencing is a Store with a lost node that is to be fenced after half a minute.
func withFencing(t *testing.T) *harness {
	t.Helper()
	h := withALostNode(t)
	h.change(func(s *v1alpha1.Store) {
		s.Spec.Recovery.RescheduleAfter = "0s"
		s.Spec.Recovery.Fencing = v1alpha1.FencingSpec{Type: v1alpha1.FencingOutOfServiceTaint, After: "30s"}
	})
	return h
}

func TestLostNodeIsFencedAndReleased(t *testing.T) {
	h := withFencing(t)
	for range 6 {
		h.mustReconcile()
		if h.isFenced() {
			t.Fatal("it is fenced too early")
		}
	}
	if fences := h.store().Status.Fences; len(fences) != 1 || fences[0].Node != "node-a" || fences[0].RequestedAt != nil {
		t.Fatalf("on record: %+v", fences)
	}
	for range 3 {
		h.mustReconcile()
	}
	if fences := h.store().Status.Fences; !h.isFenced() || len(fences) != 1 || fences[0].RequestedAt == nil || !fences[0].Done {
		t.Fatalf("fenced %v, on record: %+v", h.isFenced(), fences)
	}
	h.setReady(corev1.ConditionTrue)
	h.mustReconcile()
	if fences := h.store().Status.Fences; h.isFenced() || len(fences) != 0 {
		t.Errorf("fenced %v, on record: %+v", h.isFenced(), fences)
	}
	events := strings.Join(h.takeEvents(), "\n")
	for _, want := range []string{"NodeFenced fence node node-a (OutOfServiceTaint)", "NodeReleased release node node-a"} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %q among\n%s", want, events)
		}
	}
}

// noTaints has no right to change nodes.
type noTaints struct{ client.Client }

func (c noTaints) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if _, isNode := object.(*corev1.Node); isNode {
		return apierrors.NewForbidden(corev1.Resource("nodes"), object.GetName(), nil)
	}
	return c.Client.Patch(ctx, object, patch, options...)
}

// A right that is missing is said, and keeps nothing else from being done.
func TestFencingWithoutTheRight(t *testing.T) {
	h := withFencing(t)
	h.reconciler.Client = noTaints{h.client}
	var failed error
	for range 9 {
		if _, err := h.reconcile(); err != nil {
			failed = err
		}
	}
	if failed == nil || h.isFenced() || !strings.Contains(failed.Error(), "needs the right to patch nodes: docs/operator.md#fencing") {
		t.Errorf("fenced %v: %v", h.isFenced(), failed)
	}
	h.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonNodeLost)
}
