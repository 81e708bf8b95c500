package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// behind is a cache in which a Store's members are as they were.
type behind struct {
	client.Client
	members []v1alpha1.StoreMember
}

func (b behind) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if members, ofMembers := list.(*v1alpha1.StoreMemberList); ofMembers {
		(&v1alpha1.StoreMemberList{Items: b.members}).DeepCopyInto(members)
		return nil
	}
	return b.Client.List(ctx, list, options...)
}

// storeBehind is a cache in which a Store is as it was.
type storeBehind struct {
	client.Client
	store *v1alpha1.Store
}

func (b storeBehind) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if store, isStore := into.(*v1alpha1.Store); isStore {
		b.store.DeepCopyInto(store)
		return nil
	}
	return b.Client.Get(ctx, key, into, options...)
}

// What is on record in a cache may have been withdrawn.
func TestNothingMovesOnAnOldRecord(t *testing.T) {
	h := withALostNode(t)
	for range 3 {
		h.mustReconcile()
	}
	recorded := h.store()
	if lost := recorded.Status.Masters.Members[1].Lost; lost == nil || lost.ProvenAt == nil {
		t.Fatalf("on record: %+v", lost)
	}
	withdrawn := h.members()[1]
	h.reconciler.Client = behind{h.client, h.members()}
	withdrawn.Record.Lost = nil
	if err := h.client.Update(t.Context(), &withdrawn); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h.mustReconcile()
	}
	if _, moved := h.claims()["box-master-1-copies-2"]; moved || h.pods()["box-master-1"] == nil {
		t.Errorf("it has moved: %v, %v", h.claims(), h.pods())
	}
	h.reconciler.Client = h.client
	for range 6 {
		h.mustReconcile()
	}
	if _, moved := h.claims()["box-master-1-copies-2"]; !moved {
		t.Errorf("it has not moved when the cache is up to date: %v", h.claims())
	}
}

// podsBehind is a cache in which pods are as they were.
type podsBehind struct {
	client.Client
	pods *corev1.PodList
}

func (b podsBehind) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if pods, arePods := into.(*corev1.PodList); arePods {
		b.pods.DeepCopyInto(pods)
		return nil
	}
	return b.Client.List(ctx, into, options...)
}

// That another master was told to end, the cache may not have yet.
func TestNoRestartBesideOneThatTheCacheHasNotSeen(t *testing.T) {
	h := readyForADrill(t)
	h.tablets("box-master-0", 2) // or it would be let go, which is the coordinator's to refuse
	h.tablets("box-master-2", 2)
	h.change(func(s *v1alpha1.Store) { s.Annotations, s.Spec.Image = nil, "store:2" })
	seen := &corev1.PodList{}
	if err := h.client.List(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Delete(t.Context(), h.pods()["box-master-2"]); err != nil {
		t.Fatal(err)
	}
	before := h.pods()
	h.reconciler.Client = podsBehind{h.client, seen}
	for range 4 {
		h.mustReconcile()
	}
	for _, member := range []string{"box-master-0", "box-master-1"} {
		if now := h.pods()[member]; now == nil || now.UID != before[member].UID {
			t.Errorf("%s was restarted, and box-master-2 is on its way out", member)
		}
	}
}

// Whoever has seen that a Store is to sleep, and not that it was woken up since, ends nobody.
func TestStoreThatWasWokenUpIsNotPutToSleep(t *testing.T) {
	h := settledWithCopies(t)
	h.change(func(s *v1alpha1.Store) { s.Spec.Hibernated = true })
	h.mustReconcile()
	asleep := h.bareStore()
	if asleep.Status.HibernatedSince == nil || len(h.pods()) != 3 {
		t.Fatalf("hibernated since %v, %d pods", asleep.Status.HibernatedSince, len(h.pods()))
	}
	h.change(func(s *v1alpha1.Store) { s.Spec.Hibernated = false })
	h.reconciler.Client = storeBehind{h.client, asleep}
	for range 3 {
		h.mustReconcile()
	}
	if len(h.pods()) != 3 {
		t.Errorf("it was put to sleep: %d pods are left", len(h.pods()))
	}
}

// wakesUp wakes the Store up when the first pod is ended.
type wakesUp struct {
	client.Client
	h     *harness
	ended int
}

func (w *wakesUp) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if _, isPod := object.(*corev1.Pod); isPod {
		if w.ended++; w.ended == 1 {
			w.h.change(func(s *v1alpha1.Store) { s.Spec.Hibernated = false }) //nolint:contextcheck // somebody else's call
		}
	}
	return w.Client.Delete(ctx, object, options...)
}

// A Store that is woken up while its pods are ended one after the other keeps those that are left.
func TestStoreIsWokenUpBetweenTheEndsOfItsPods(t *testing.T) {
	h := settledWithCopies(t)
	h.change(func(s *v1alpha1.Store) { s.Spec.Hibernated = true })
	h.mustReconcile()
	wakes := &wakesUp{Client: h.client, h: h}
	h.reconciler.Client = wakes
	h.mustReconcile()
	if wakes.ended != 1 {
		t.Errorf("%d pods were ended, of which the Store was woken up after the first", wakes.ended)
	}
}

// The record of the sleep stays until all pods have changed, also those that the cache does not have yet: another operator may be about to
// end one.
func TestSleepIsOnRecordUntilPodsBehindTheCacheHaveChanged(t *testing.T) {
	h := settledWithCopies(t)
	h.change(func(s *v1alpha1.Store) { s.Spec.Hibernated = true })
	h.mustReconcile()
	h.change(func(s *v1alpha1.Store) { s.Spec.Hibernated = false })
	before := h.pods()
	h.reconciler.Client = podsBehind{h.client, &corev1.PodList{}}
	h.mustReconcile()
	if h.store().Status.HibernatedSince == nil {
		t.Error("the record is gone while pods may be ended in the version that another operator has seen")
	}
	h.mustReconcile()
	for member, pod := range h.pods() {
		if pod.ResourceVersion == before[member].ResourceVersion {
			t.Errorf("pod %s has not changed, and an operator that stands still may end it", pod.Name)
		}
	}
	if since := h.store().Status.HibernatedSince; since != nil || len(h.pods()) != len(before) {
		t.Errorf("woken up, and hibernated since %v, pods %v", since, h.pods())
	}
}

// The volumes of a Store that was made anew under the same name are not those of the one that was deleted.
func TestClaimsOfAStoreMadeAnewStay(t *testing.T) {
	h := settledWithCopies(t)
	h.change(func(s *v1alpha1.Store) { s.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete })
	deleted := h.bareStore()
	deleted.DeletionTimestamp = &metav1.Time{Time: h.now}
	h.change(func(s *v1alpha1.Store) { s.Annotations = map[string]string{"made": "anew"} }) // another version is all that matters here
	for _, pod := range h.pods() {
		if err := h.client.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	h.reconciler.Client = storeBehind{h.client, deleted}
	for range 3 {
		h.mustReconcile()
	}
	if len(h.claims()) != 3 {
		t.Errorf("claims are left: %v", h.claims())
	}
}
