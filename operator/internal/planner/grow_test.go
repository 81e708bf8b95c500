package planner_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

func (w *world) sizes() []string {
	var list []string
	for _, pod := range w.livePods() {
		if pod.Inputs.Replication != nil {
			list = append(list, pod.Inputs.Replication.StorageSize.String())
		}
	}
	return list
}

// Claims grow first, one after the other; then, as their volumes have, pods are restarted with more room.
func TestVolumesGrow(t *testing.T) {
	w := newHoldingWorld(t)
	w.rigid = true
	w.store.Spec.Backups.Storage.Size = new(resource.MustParse("6Gi"))
	plan, _ := w.reconcile(false)
	want := "grow volume claim box-master-0-copies of box-master-0: it asks for 4Gi, and the spec for 6Gi"
	if got := describe(plan.Steps); got != want {
		t.Fatalf("steps:\n%s", got)
	}
	if order := w.restarts(20); len(order) > 0 {
		t.Errorf("restarted %v, and no volume has grown", order)
	}
	for name, claim := range w.claims {
		if claim.AskedFor.Cmp(resource.MustParse("6Gi")) != 0 && name != "box-coordinator-state" {
			t.Errorf("%s asks for %s", name, claim.AskedFor.String())
		}
	}
	// Another change of the spec does not wait for that.
	w.store.Spec.Image = "store:2"
	if order := w.restarts(60); !slices.Contains(order, "box-master-2") || !slices.Equal(w.sizes(), []string{"4Gi", "4Gi", "4Gi"}) {
		t.Errorf("restarted %v, with %v", order, w.sizes())
	}
	w.rigid = false
	if order := w.restarts(60); !slices.Equal(order, []string{"box-master-0", "box-master-1", "box-master-2"}) ||
		!slices.Equal(w.sizes(), []string{"6Gi", "6Gi", "6Gi"}) {
		t.Errorf("restarted %v, with %v", order, w.sizes())
	}
}

// A file system that grows only with a pod is one to restart the pod for.
func TestVolumesThatGrowWithPods(t *testing.T) {
	w := newHoldingWorld(t)
	w.rigid = true
	w.store.Spec.Backups.Storage.Size = new(resource.MustParse("6Gi"))
	w.reconciles(10)
	claim := w.claims["box-master-1-copies"]
	claim.GrowsWithPod = true
	w.claims["box-master-1-copies"] = claim
	plan := w.underLock(asSeen)
	if countOf[steps.RestartMember](plan) != 1 || plan.Steps[0].(steps.RestartMember).Member != "box-master-1" {
		t.Errorf("steps:\n%s", describe(plan.Steps))
	}
}

// Volumes are seldom just as large as asked for, and one that is left from a larger store is none to change.
func TestVolumesThatAreLargeEnough(t *testing.T) {
	w := newHoldingWorld(t)
	w.rigid = true
	for name, claim := range w.claims {
		claim.AskedFor, claim.Size = resource.MustParse("5Gi"), resource.MustParse("5121Mi")
		w.claims[name] = claim
	}
	if plan := planner.Make(w.observe()); len(plan.Steps) > 0 {
		t.Errorf("steps:\n%s", describe(plan.Steps))
	}
	// On their way from 5121Mi to 6Gi there is nothing to restart anybody for.
	w.store.Spec.Backups.Storage.Size = new(resource.MustParse("6Gi"))
	if order := w.restarts(20); len(order) > 0 {
		t.Errorf("restarted %v", order)
	}
}

func TestStateVolumeGrows(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Coordinator.State.Size = resource.MustParse("2Gi")
	claim := w.claims["box-coordinator-state"]
	claim.AskedFor = resource.MustParse("1Gi")
	w.claims["box-coordinator-state"] = claim
	plan, _ := w.reconcile(false)
	want := "grow volume claim box-coordinator-state of box-coordinator: it asks for 1Gi, and the spec for 2Gi"
	if got := describe(plan.Steps); got != want {
		t.Errorf("steps:\n%s", got)
	}
	if order := w.restarts(20); len(order) > 0 {
		t.Errorf("restarted %v", order)
	}
}
