package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// lulled stands still before it ends a pod: the call arrives late, with its preconditions.
type lulled struct {
	client.Client
	meanwhile func()
}

func (l *lulled) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	meanwhile := l.meanwhile
	if _, isPod := object.(*corev1.Pod); !isPod || meanwhile == nil {
		return l.Client.Delete(ctx, object, options...)
	}
	l.meanwhile = nil
	meanwhile()
	there := &corev1.Pod{}
	if err := l.Get(ctx, client.ObjectKeyFromObject(object), there); err != nil {
		return err
	}
	wanted := client.DeleteOptions{}
	wanted.ApplyOptions(options)
	if p := wanted.Preconditions; p != nil && (p.UID != nil && *p.UID != there.UID ||
		p.ResourceVersion != nil && *p.ResourceVersion != there.ResourceVersion) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, there.Name, nil)
	}
	return l.Client.Delete(ctx, object, options...)
}

// An operator that has looked twice, and then does nothing for a while, must not end a second master beside that of its successor.
func TestTwoOperatorsEndOneMasterAtATime(t *testing.T) {
	h := readyForADrill(t) // of the second master
	h.tablets("box-master-0", 2)
	h.tablets("box-master-2", 2)
	h.change(func(s *v1alpha1.Store) { s.Spec.Image = "store:2" })
	for range 4 {
		if lock := h.store().Status.DisruptionLock; lock != nil && lock.Member == "box-master-0" {
			break
		}
		h.mustReconcile()
	}
	before := h.pods()
	successor := &Reconciler{
		Client: h.client, Live: h.client, Nodes: h.reconciler.Nodes, Recorder: h.events, Dial: h.coordinator.Dial, Now: h.reconciler.Now,
		DefaultImage: "store:1", Namespace: "rcbox-system",
	}
	late := &lulled{Client: h.client, meanwhile: func() {
		h.change(func(s *v1alpha1.Store) {
			s.Spec.Image = "store:1"
		})
		h.order("again", v1alpha1.StoreOperationSpec{
			Type: v1alpha1.OperationDrill, Drill: &v1alpha1.DrillOperation{Member: "box-master-1"},
		})
		for range 6 {
			if _, err := successor.Reconcile(t.Context(), ctrl.Request{NamespacedName: storeKey}); err != nil {
				t.Fatal(err)
			}
		}
		if now := h.pods()["box-master-1"]; now != nil && now.UID == before["box-master-1"].UID {
			t.Fatalf("the successor has not ended box-master-1: %+v", h.store().Status.Drills)
		}
	}}
	h.reconciler.Client = late
	for range 2 { // the trial of its next pod may have to be repeated
		if _, err := h.reconcile(); err != nil {
			t.Fatal(err)
		}
		if late.meanwhile == nil {
			break
		}
	}
	if late.meanwhile != nil {
		t.Fatal("nothing was to be ended")
	}
	if now := h.pods()["box-master-0"]; now == nil || now.UID != before["box-master-0"].UID {
		t.Error("box-master-0 was ended, too")
	}
}

// With a pod in the state in which it was put on record, everything else apart, its process ends.
func TestLockIsAsTheAPIServerHasIt(t *testing.T) {
	h := readyForADrill(t)
	store, pod := h.store(), h.pods()["box-master-1"]
	lock := store.Status.DisruptionLock
	if lock == nil || lock.Pod != pod.Name {
		t.Fatalf("on record is %+v", lock)
	}
	look := func() facts.LockState {
		v := &reconcileState{observed: facts.Observed{Store: store}}
		h.reconciler.observeLock(t.Context(), v)
		return v.observed.LockState
	}
	if look() != facts.LockStands {
		t.Errorf("it is %v", look())
	}
	v := &reconcileState{observed: facts.Observed{Store: store}}
	if err := h.reconciler.cancelDisruption(t.Context(), v, steps.CancelDisruption{Lock: *lock}); err != nil {
		t.Fatal(err)
	}
	if look() != facts.LockVoid || h.pods()["box-master-1"].Annotations[v1alpha1.AnnotationEndCancelled] != lock.PodResourceVersion {
		t.Errorf("after its recall it is %v", look())
	}
	if err := h.client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if look() != facts.LockVoid {
		t.Errorf("without its pod it is %v", look())
	}
}
