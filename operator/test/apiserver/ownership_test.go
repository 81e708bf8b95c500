package apiserver_test

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// twoOperators: the second one has the same rights, another namespace of its own, and a scope that overlaps with the first one's.
func twoOperators(b *bed) {
	b.newNamespace("team-c")
	b.must(b.Client.Create(b.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Store",
		"metadata": map[string]any{"name": "shared", "namespace": "team-c"},
		"spec":     map[string]any{"masters": map[string]any{"replicas": int64(2)}, "replication": map[string]any{"factor": int64(0)}},
	}}))
	condition := func(name string) *metav1.Condition {
		store := &v1alpha1.Store{}
		b.Get(store, "team-c", "shared")
		return meta.FindStatusCondition(store.Status.Conditions, name)
	}
	b.Eventually(patience, func() string {
		if got := condition(v1alpha1.ConditionAvailable); got == nil || got.Status != metav1.ConditionTrue {
			return fmt.Sprintf("Available is %+v", got)
		}
		if !b.operator.Ready() {
			return "the operator is not ready"
		}
		return ""
	})
	second := b.StartOperator(b.program, "--leader-elect=false", "--namespace=team-d", "--watch-namespaces=team-c")
	defer second.Kill()
	b.Eventually(patience, func() string {
		if got := condition(v1alpha1.ConditionDegraded); got == nil || got.Reason != v1alpha1.ReasonTwoOperators {
			return fmt.Sprintf("Degraded is %+v", got)
		}
		return ""
	})
	if second.Ready() || !b.operator.Ready() {
		b.Errorf("the first operator is ready: %t, the second: %t", b.operator.Ready(), second.Ready())
	}
	// The status with the condition is the last that is written; where two fight, each reconcile writes.
	const quiet = 5 * time.Second
	b.Eventually(patience, func() string {
		to := time.Now()
		if writes := b.Calls.WritesBut(to.Add(-quiet), to, "leases"); len(writes) > 0 {
			return fmt.Sprintf("in %s they wrote %v", quiet, writes)
		}
		return ""
	})
}
