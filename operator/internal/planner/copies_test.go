package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// storeOf is a Store that no operator has seen, with nothing in its spec but masters.
func storeOf(masters int32, memory string) *v1alpha1.Store {
	store := &v1alpha1.Store{}
	store.Name = "box"
	store.Spec.Masters = v1alpha1.MastersSpec{Replicas: masters, Memory: resource.MustParse(memory), Cores: 1}
	return store
}

// masterPod is one that was made with so many copies, in so much room.
func masterPod(copies int32, room string) facts.Pod {
	pod := facts.Pod{Component: v1alpha1.ComponentMaster, Inputs: resources.Inputs{Image: "store:1"}}
	if copies > 0 {
		pod.Inputs.Replication = &resources.Replication{Factor: copies, StorageSize: resource.MustParse(room)}
	}
	return pod
}

func TestDecideCopies(t *testing.T) {
	had := func(factor int32, room string) *v1alpha1.DecidedCopies {
		return &v1alpha1.DecidedCopies{Factor: factor, StorageSize: new(resource.MustParse(room)), Why: "before"}
	}
	for _, test := range []struct {
		name   string
		change func(*facts.Observed)
		// copies and room for them, and a part of why
		want, why string
		// must be on record before anything is made of it
		first bool
	}{
		{"new, three masters", func(*facts.Observed) {}, "2 in 4Gi", "masters.replicas was 3", true},
		{"new, two masters", func(o *facts.Observed) { o.Store = storeOf(2, "1Gi") }, "1 in 2Gi", "masters.replicas was 2", true},
		{"new, one master", func(o *facts.Observed) { o.Store = storeOf(1, "1Gi") }, "0 in none", "masters.replicas was 1", true},
		{"new, many masters with much memory", func(o *facts.Observed) { o.Store = storeOf(1000, "512Gi") }, "2 in 2Ti", "1000", true},
		{
			"none by choice", func(o *facts.Observed) { o.Store.Spec.Replication.Factor = new(int32(0)) }, "0 in none",
			"it is replication.factor", false,
		},
		{
			"one by choice", func(o *facts.Observed) { o.Store.Spec.Replication.Factor = new(int32(1)) }, "1 in 2Gi",
			"it is replication.factor", true,
		},
		{
			"room by choice", func(o *facts.Observed) { o.Store.Spec.Backups.Storage.Size = new(resource.MustParse("9Gi")) },
			"2 in 9Gi", "masters.replicas was 3", true,
		},
		{"both by choice", func(o *facts.Observed) {
			o.Store.Spec.Replication.Factor = new(int32(1))
			o.Store.Spec.Backups.Storage.Size = new(resource.MustParse("9Gi"))
		}, "1 in 9Gi", "it is replication.factor", false},
		{"decided before, and scaled since", func(o *facts.Observed) {
			o.Store = storeOf(2, "1Gi")
			o.Store.Status.Replication.Decided = had(1, "2Gi")
			o.Store.Spec.Masters.Replicas = 9
		}, "1 in 2Gi", "before", false},
		{"decided before, and more memory since", func(o *facts.Observed) {
			o.Store.Status.Replication.Decided = had(2, "4Gi")
			o.Store.Spec.Masters.Memory = resource.MustParse("2Gi")
		}, "2 in 4Gi", "before", false},
		{"decided before, and chosen since", func(o *facts.Observed) {
			o.Store.Status.Replication.Decided = had(2, "4Gi")
			o.Store.Spec.Replication.Factor = new(int32(1))
		}, "1 in 4Gi", "it is replication.factor", false},
		{"of an older operator, whose default was none", func(o *facts.Observed) {
			o.Store.Status.ObservedGeneration = 1
			o.Pods = []facts.Pod{masterPod(0, ""), masterPod(0, "")}
		}, "0 in none", "have as many", true},
		{
			"the same, and no pod is there", func(o *facts.Observed) { o.Store.Status.ObservedGeneration = 1 }, "0 in none",
			"the Store had as many", true,
		},
		{"of an older operator, asleep with copies", func(o *facts.Observed) {
			o.Store.Status.ObservedGeneration, o.Store.Status.Replication.Factor = 1, 2
			o.Claims = map[string]facts.Claim{
				"box-master-0-copies":   {AskedFor: resource.MustParse("5Gi")},
				"box-coordinator-state": {AskedFor: resource.MustParse("50Gi")},
			}
		}, "2 in 5Gi", "the Store had as many", true},
		{"with a status that was lost", func(o *facts.Observed) {
			o.Pods = []facts.Pod{masterPod(1, "3Gi"), masterPod(1, "3Gi")}
		}, "1 in 3Gi", "have as many", true},
		{"made anew over volumes that were kept", func(o *facts.Observed) {
			o.Claims = map[string]facts.Claim{"box-master-0-copies": {AskedFor: resource.MustParse("3Gi")}}
		}, "2 in 3Gi", "masters.replicas was 3", true},
		{"made anew over volumes that are too small", func(o *facts.Observed) {
			o.Claims = map[string]facts.Claim{"box-master-0-copies": {AskedFor: resource.MustParse("1Gi")}}
		}, "2 in 4Gi", "masters.replicas was 3", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &facts.Observed{Store: storeOf(3, "1Gi")}
			test.change(o)
			got := facts.DecideCopies(o)
			room := "none"
			if got.StorageSize != nil {
				room = got.StorageSize.String()
			}
			if text := fmt.Sprintf("%d in %s", got.Factor, room); text != test.want || !strings.Contains(got.Why, test.why) {
				t.Errorf("decided on %s (%s), not on %s (%s)", text, got.Why, test.want, test.why)
			}
			if first := facts.CopiesUnrecorded(o.Store, got); first != test.first {
				t.Errorf("on record first: %v", first)
			}
			o.Store.Status.Replication.Decided = got
			if again := facts.DecideCopies(o); again.Factor != got.Factor || facts.CopiesUnrecorded(o.Store, again) {
				t.Errorf("once it is on record: %+v", again)
			}
		})
	}
}

// What is decided is valid, and stays so: less than masters, and room for it all.
func TestDecidedCopiesAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := storeOf(rapid.Int32Range(1, 1000).Draw(t, "masters"), "1Gi")
		store.Spec.Masters.Memory = *resource.NewQuantity(rapid.Int64Range(256<<20, 1<<42).Draw(t, "memory"), resource.BinarySI)
		decided := facts.DecideCopies(&facts.Observed{Store: store})
		if decided.Factor >= store.Spec.Masters.Replicas || decided.Factor < 0 || decided.Factor > v1alpha1.DefaultCopies {
			t.Fatalf("%d copies with %d masters", decided.Factor, store.Spec.Masters.Replicas)
		}
		if decided.Factor == 0 {
			return
		}
		if least := int64(decided.Factor) * store.Spec.Masters.Memory.Value(); decided.StorageSize.Value() < least {
			t.Fatalf("%s for %d copies of %s", decided.StorageSize, decided.Factor, &store.Spec.Masters.Memory)
		}
	})
}

// Nothing is made of a decision before it is on record.
func TestCopiesGoOnRecordFirst(t *testing.T) {
	w := newReplicatedWorld(2)
	o := w.observe()
	o.CopiesUnrecorded = true
	plan := planner.Make(o)
	for _, step := range plan.Steps {
		if _, is := step.(steps.AddFinalizer); !is {
			t.Errorf("before it is on record: %s", steps.Describe(step))
		}
	}
	o.CopiesUnrecorded = false
	if then := planner.Make(o); len(then.Steps) <= len(plan.Steps) || plan.Next >= then.Next {
		t.Errorf("then: %s; looked again after %s and %s", describe(then.Steps), plan.Next, then.Next)
	}
}
