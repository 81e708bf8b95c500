package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// copiesOf is what a pod was made with.
func copiesOf(t *testing.T, pod *corev1.Pod) int32 {
	t.Helper()
	inputs, err := resources.DecodeInputs(pod.Annotations[v1alpha1.AnnotationMadeFrom])
	if err != nil {
		t.Fatal(err)
	}
	if inputs.Replication == nil {
		return 0
	}
	return inputs.Replication.Factor
}

// A spec that says nothing of copies gives a store that has some, in volumes; how many is on record before the first pod is made.
func TestCopiesByDefault(t *testing.T) {
	h := newHarness(t)
	h.change(func(s *v1alpha1.Store) {
		s.Spec.Masters.Replicas = 3
		s.Spec.Replication = v1alpha1.ReplicationSpec{Durability: v1alpha1.Buffered}
		s.Spec.Backups.Storage.Type = v1alpha1.StorageVolume
	})
	h.mustReconcile()
	if pods := h.pods(); len(pods) > 0 {
		t.Errorf("before it was on record how many copies there are, pods were made: %v", pods)
	}
	decided := h.store().Status.Replication.Decided
	if decided == nil || decided.Factor != 2 || decided.StorageSize.Cmp(resource.MustParse("4Gi")) != 0 {
		t.Fatalf("decided was %+v", decided)
	}
	h.mustReconcile()
	pods, claims := h.pods(), &corev1.PersistentVolumeClaimList{}
	if err := h.client.List(t.Context(), claims, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	if len(pods) != 4 || copiesOf(t, pods["box-master-0"]) != 2 || len(claims.Items) != 3 {
		t.Errorf("%d pods, %d copies, %d claims", len(pods), copiesOf(t, pods["box-master-0"]), len(claims.Items))
	}
	if state := h.store().Status.Coordinator.State; state != v1alpha1.StateKubernetes {
		t.Errorf("the coordinator's state is in %s", state)
	}
	// Scaling changes nothing of it, nor does a value that is taken out again.
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 9 })
	h.mustReconcile()
	if pod := h.pods()["box-master-8"]; pod == nil || copiesOf(t, pod) != 2 {
		t.Errorf("after scaling out, the pod is %+v", pod)
	}
	h.change(func(s *v1alpha1.Store) { s.Spec.Replication.Factor = new(int32(3)) })
	h.mustReconcile()
	h.change(func(s *v1alpha1.Store) { s.Spec.Replication.Factor = nil })
	h.mustReconcile()
	if got := h.store(); got.Copies() != 3 {
		t.Errorf("%d copies, when 3 were chosen before", got.Copies())
	}
}

// Without copies by choice, nothing has to be on record first.
func TestNoCopiesByChoice(t *testing.T) {
	h := newHarness(t)
	h.mustReconcile()
	if pods := h.pods(); len(pods) != 3 || copiesOf(t, pods["box-master-0"]) != 0 {
		t.Errorf("the pods are %v", pods)
	}
	if decided := h.store().Status.Replication.Decided; decided == nil || decided.Factor != 0 {
		t.Errorf("on record is %+v", decided)
	}
}

// A Store as an operator left it that knew no default but 0, and no record: the status is there, the pods say what they were made from, and
// nothing says how many copies there are. An upgrade of the operator gives it none, and restarts nothing.
func TestUpgradeOfTheOperatorAddsNoCopies(t *testing.T) {
	for name, forget := range map[string]func(*v1alpha1.StoreStatus){
		"as it was left":              func(*v1alpha1.StoreStatus) {},
		"with a status that was lost": func(s *v1alpha1.StoreStatus) { *s = v1alpha1.StoreStatus{} },
	} {
		t.Run(name, func(t *testing.T) {
			h := settled(t)
			h.tablets("box-master-0", 1)
			h.mustReconcile()
			before := h.pods()
			h.change(func(s *v1alpha1.Store) { s.Spec.Replication.Factor = nil })
			store := h.store()
			store.Status.Replication.Decided = nil
			forget(&store.Status)
			if err := h.client.Status().Update(t.Context(), store); err != nil {
				t.Fatal(err)
			}
			h.takeEvents()
			for range 5 {
				h.mustReconcile()
				h.run()
			}
			got := h.store()
			if decided := got.Status.Replication.Decided; decided == nil || decided.Factor != 0 || decided.StorageSize != nil {
				t.Errorf("on record is %+v", decided)
			}
			h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
			if got.Status.Masters.Outdated > 0 {
				t.Errorf("%d masters are outdated", got.Status.Masters.Outdated)
			}
			for member, pod := range before {
				if now := h.pods()[member]; now == nil || now.Name != pod.Name {
					t.Errorf("the pod of %s was %s, and is %+v", member, pod.Name, now)
				}
			}
			claims := &corev1.PersistentVolumeClaimList{}
			if err := h.client.List(t.Context(), claims); err != nil || len(claims.Items) > 0 {
				t.Errorf("there are claims: %v (%v)", claims.Items, err)
			}
			for _, event := range h.takeEvents() {
				if strings.Contains(event, "Pod") {
					t.Errorf("event %s", event)
				}
			}
		})
	}
}
