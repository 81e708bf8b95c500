package controller

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// The Lease says when the Store was looked at, also where its status stays as it is; and it is not written at each look.
func TestLooksAreNoted(t *testing.T) {
	h := settled(t)
	h.reconciler.NoteLooks, h.reconciler.Holder = v1alpha1.LookInterval, "operator-7"
	h.mustReconcile()
	noted := func() time.Time {
		lease := &coordinationv1.Lease{}
		if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "box-observed"}, lease); err != nil {
			t.Fatal(err)
		}
		if *lease.Spec.HolderIdentity != "operator-7" || len(lease.OwnerReferences) != 1 {
			t.Errorf("the Lease is %+v", lease)
		}
		return lease.Spec.RenewTime.Time
	}
	status := h.store().Status
	first := noted()
	writes := h.writes
	for range 4 {
		h.now = h.now.Add(5 * time.Second)
		h.mustReconcile()
	}
	if renewed := noted().Sub(first); renewed < v1alpha1.LookInterval || h.now.Sub(noted()) > v1alpha1.LookInterval {
		t.Errorf("noted %v after the first look", renewed)
	}
	if wrote := h.writes - writes; wrote != 1 && wrote != 2 {
		t.Errorf("%d writes in 20 s", wrote)
	}
	if after := h.store().Status; !after.ObservedAt.Equal(status.ObservedAt) {
		t.Errorf("nothing has changed, and the status was written: %v, %v", status.ObservedAt, after.ObservedAt)
	}
}
