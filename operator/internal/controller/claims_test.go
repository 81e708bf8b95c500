package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
)

// replicated asks for one copy of everything, in volumes.
func replicated(h *harness) {
	h.change(func(s *v1alpha1.Store) {
		s.Spec.Replication = v1alpha1.ReplicationSpec{Factor: new(int32(1)), Durability: v1alpha1.Buffered}
		s.Spec.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageVolume, Size: new(resource.MustParse("4Gi"))}
		s.Spec.Coordinator.State = v1alpha1.StateSpec{Type: v1alpha1.StateVolume, Size: resource.MustParse("1Gi")}
		s.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain
	})
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.StateKind = adminv1.StateKind_STATE_KIND_FILE })
}

// withCopies lets all members say that they keep copies.
func (h *harness) withCopies() {
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		for _, member := range r.GetMembers() {
			for _, shard := range member.GetShards() {
				shard.Replicas, shard.Segments, shard.Serving = 1, 5, true
				shard.Backup = &adminv1.BackupStorage{Frames: 500, FramesFree: 400, SegmentBytes: 8 << 20}
			}
		}
	})
}

func (h *harness) claims() map[string]corev1.PersistentVolumeClaim {
	h.t.Helper()
	list := &corev1.PersistentVolumeClaimList{}
	if err := h.client.List(h.t.Context(), list); err != nil {
		h.t.Fatal(err)
	}
	claims := map[string]corev1.PersistentVolumeClaim{}
	for _, claim := range list.Items {
		claims[claim.Name] = claim
	}
	return claims
}

// settledWithCopies is a harness with a Store that is as its spec says, and safe.
func settledWithCopies(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t)
	replicated(h)
	for range 3 {
		h.mustReconcile()
		h.run()
	}
	h.withCopies()
	h.mustReconcile()
	h.want(v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	h.takeEvents()
	return h
}

func TestClaimsAreMadeAndKept(t *testing.T) {
	h := settledWithCopies(t)
	claims := h.claims()
	for _, name := range []string{"box-coordinator-state", "box-master-0-copies", "box-master-1-copies"} {
		if claim, there := claims[name]; !there || len(claim.OwnerReferences) != 0 || claim.Labels[v1alpha1.LabelStore] != "box" {
			t.Errorf("claim %s is %+v", name, claim)
		}
	}
	if status := h.store().Status; status.Coordinator.Claim != "box-coordinator-state" ||
		status.Masters.Members[1].Claim != "box-master-1-copies" || status.Masters.Members[1].Backup.UsedPercent != 20 {
		t.Errorf("status is %+v", status)
	}
	// The next pod of a member has the volume of the one before.
	old := h.pods()["box-master-1"]
	if err := h.client.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	again := h.pods()["box-master-1"]
	if again.Name == old.Name || again.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "box-master-1-copies" {
		t.Errorf("the next pod is %s with %+v", again.Name, again.Spec.Volumes)
	}
	if len(h.claims()) != 3 {
		t.Errorf("claims are %v", h.claims())
	}
	// In steady state nothing is written.
	h.run()
	h.withCopies()
	h.mustReconcile()
	h.mustReconcile()
	before := h.writes
	h.mustReconcile()
	if h.writes != before {
		t.Errorf("%d writes although nothing changed", h.writes-before)
	}
}

func TestClaimsOutliveTheStoreUnlessToldOtherwise(t *testing.T) {
	for policy, want := range map[v1alpha1.ReclaimPolicy]int{v1alpha1.ReclaimRetain: 3, v1alpha1.ReclaimDelete: 0} {
		h := settledWithCopies(t)
		h.change(func(s *v1alpha1.Store) { s.Spec.ReclaimPolicy = policy })
		if err := h.client.Delete(t.Context(), h.store()); err != nil {
			t.Fatal(err)
		}
		h.mustReconcile()
		if got := len(h.claims()); got != 3 {
			t.Errorf("%s: %d claims while pods end", policy, got)
		}
		h.mustReconcile()
		if err := h.client.Get(t.Context(), storeKey, &v1alpha1.Store{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: the Store is still there: %v", policy, err)
		}
		if got := len(h.claims()); got != want {
			t.Errorf("%s: %d claims are left", policy, got)
		}
	}
}

// A Store that is made anew takes what the one before left; a claim of somebody else is never used.
func TestClaimsThatAreThere(t *testing.T) {
	left := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "box-master-0-copies", Namespace: "default", Labels: map[string]string{v1alpha1.LabelStore: "box"},
		Annotations: map[string]string{"mark": "left"},
	}}
	h := newHarness(t, left)
	replicated(h)
	h.mustReconcile()
	if claims := h.claims(); len(claims) != 3 || claims[left.Name].Annotations["mark"] != "left" {
		t.Errorf("claims are %+v", claims)
	}
	if len(h.pods()) != 3 {
		t.Errorf("pods are %v", h.pods())
	}

	foreign := left.DeepCopy()
	foreign.Labels, foreign.ResourceVersion = nil, ""
	h = newHarness(t, foreign)
	replicated(h)
	if _, err := h.reconcile(); err == nil {
		t.Fatal("the reconcile succeeded")
	}
	got := h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonNameTaken)
	want := "PersistentVolumeClaim default/box-master-0-copies is there already and is not this Store's: delete it, or make the Store " +
		"under another name"
	if got != want {
		t.Errorf("message is %q", got)
	}
	if h.pods()["box-master-0"] != nil {
		t.Error("a pod uses somebody else's volume")
	}
}

func TestPodsAreToldTheirDomains(t *testing.T) {
	h := newHarness(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{"rack": "r7"}}})
	replicated(h)
	h.change(func(s *v1alpha1.Store) { s.Spec.Placement.FailureDomain = "rack" })
	h.mustReconcile()
	if _, told := h.pods()["box-master-0"].Annotations[v1alpha1.AnnotationDomain]; told {
		t.Error("it has no node yet, and was told a domain")
	}
	h.run()
	h.mustReconcile()
	for _, member := range []string{"box-master-0", "box-master-1"} {
		if got := h.pods()[member].Annotations[v1alpha1.AnnotationDomain]; got != "r7" {
			t.Errorf("%s was told %q", member, got)
		}
	}
	if _, told := h.pods()["box-coordinator"].Annotations[v1alpha1.AnnotationDomain]; told {
		t.Error("the coordinator has no use for it")
	}
	before := h.writes
	h.mustReconcile()
	if h.writes > before+1 { // the status
		t.Errorf("%d writes", h.writes-before)
	}
}

// Nodes that cannot be read stop nothing; the status says what is not known.
func TestNodesThatCannotBeRead(t *testing.T) {
	h := newHarness(t)
	replicated(h)
	h.change(func(s *v1alpha1.Store) { s.Spec.Placement.FailureDomain = "rack" })
	for range 3 {
		h.mustReconcile()
		h.run()
	}
	h.withCopies()
	h.mustReconcile()
	got := h.want(v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	want := "the failure domains (rack) of some masters are not known, because the operator cannot read their nodes: " +
		"box-master-0, box-master-1"
	if !strings.HasSuffix(got, want) {
		t.Errorf("message is %q", got)
	}
}

// An operator with copies finds Stores of the time before: nothing is restarted, nothing is made.
func TestStoresWithoutCopiesStayAsTheyAre(t *testing.T) {
	h := settled(t)
	for member, pod := range h.pods() {
		args := strings.Join(pod.Spec.Containers[0].Args, " ")
		if len(pod.Spec.Volumes) > 0 || pod.Spec.Affinity != nil || strings.Contains(args, "--replicas") ||
			*pod.Spec.TerminationGracePeriodSeconds != 10 || pod.Spec.SecurityContext.FSGroup != nil {
			t.Errorf("%s is made as if there were copies: %+v", member, pod.Spec)
		}
	}
	if len(h.claims()) > 0 {
		t.Errorf("claims are %v", h.claims())
	}
	// The spec as an API server with the new definition gives it: defaults that say the same.
	before := h.pods()
	h.change(func(s *v1alpha1.Store) {
		s.Spec.Replication.Durability = v1alpha1.Buffered
		s.Spec.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageVolume, Size: new(resource.MustParse("4Gi"))}
		s.Spec.Coordinator.State.Size = resource.MustParse("1Gi")
		s.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain
	})
	h.mustReconcile()
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	for member, pod := range h.pods() {
		if before[member].UID != pod.UID {
			t.Errorf("%s was restarted", member)
		}
	}
}

// A claim asks for more, and keeps whatever else is in it.
func TestClaimsGrow(t *testing.T) {
	h := settledWithCopies(t)
	before := h.claims()["box-master-0-copies"]
	before.Annotations = map[string]string{"somebody": "else"}
	before.Spec.VolumeName = "pv-0"
	if err := h.client.Update(t.Context(), &before); err != nil {
		t.Fatal(err)
	}
	h.change(func(s *v1alpha1.Store) { s.Spec.Backups.Storage.Size = new(resource.MustParse("6Gi")) })
	h.mustReconcile()
	grown := func(name string) string {
		size := h.claims()[name].Spec.Resources.Requests[corev1.ResourceStorage]
		return size.String()
	}
	if first, second := grown("box-master-0-copies"), grown("box-master-1-copies"); first != "6Gi" || second != "4Gi" {
		t.Errorf("they ask for %s and %s", first, second)
	}
	after := h.claims()["box-master-0-copies"]
	if after.Spec.VolumeName != "pv-0" || after.Annotations["somebody"] != "else" || after.UID != before.UID {
		t.Errorf("the claim is %+v", after)
	}
	for range 3 {
		h.mustReconcile()
	}
	if second, state := grown("box-master-1-copies"), grown("box-coordinator-state"); second != "6Gi" || state != "1Gi" {
		t.Errorf("they ask for %s and %s", second, state)
	}
}

func TestStoreOfClaim(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "c", Namespace: "n", Labels: map[string]string{v1alpha1.LabelStore: "box"},
	}}
	if got := storeOfClaim(t.Context(), claim); len(got) != 1 || got[0].NamespacedName != (client.ObjectKey{Namespace: "n", Name: "box"}) {
		t.Errorf("requests are %v", got)
	}
	claim.Labels = nil
	if got := storeOfClaim(t.Context(), claim); len(got) != 0 {
		t.Errorf("requests are %v", got)
	}
}
