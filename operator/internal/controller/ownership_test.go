package controller

import (
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/ownership"
)

// rivals are two operators in namespaces of their own, with one Store in the scope of both.
type rivals struct {
	*harness
	first, second *Reconciler
}

// newRivals has a Store that the first operator has finished.
func newRivals(t *testing.T) *rivals {
	t.Helper()
	h := settled(t)
	r := &rivals{harness: h, first: h.reconciler, second: &Reconciler{
		Client: h.client, Live: h.client, Nodes: h.reconciler.Nodes, Recorder: h.events, Dial: h.coordinator.Dial, Now: h.reconciler.Now,
		DefaultImage: "store:2", Namespace: "team-b",
	}}
	for _, each := range []*Reconciler{r.first, r.second} {
		each.Ownership = &ownership.Leases{Client: h.client, Live: h.client, Now: each.Now, Identity: "namespace " + each.Namespace}
	}
	r.pass(time.Second, r.first)
	return r
}

// pass has operators reconcile the Store every second, and renew their Leases.
func (r *rivals) pass(long time.Duration, alive ...*Reconciler) {
	r.t.Helper()
	for end, next := r.now.Add(long), r.now; r.now.Before(end); r.now = r.now.Add(time.Second) {
		for _, each := range alive {
			if !r.now.Before(next) {
				if err := each.Ownership.Round(r.t.Context()); err != nil {
					r.t.Fatal(err)
				}
			}
			if _, err := each.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: storeKey}); err != nil {
				r.t.Fatal(err)
			}
		}
		if !r.now.Before(next) {
			next = r.now.Add(ownership.Renewal)
		}
	}
}

// managedFrom is the namespace of the operator that the Store's network policies let in.
func (r *rivals) managedFrom() string {
	r.t.Helper()
	policies := &networkingv1.NetworkPolicyList{}
	if err := r.client.List(r.t.Context(), policies, client.InNamespace(storeKey.Namespace)); err != nil {
		r.t.Fatal(err)
	}
	for i := range policies.Items {
		for _, rule := range policies.Items[i].Spec.Ingress {
			for _, from := range rule.From {
				if from.NamespaceSelector != nil && from.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "" {
					return from.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
				}
			}
		}
	}
	return ""
}

// Two operators with a Store in common do not undo each other's work: one waits, and the Store says so.
func TestTwoOperatorsDoNotFight(t *testing.T) {
	r := newRivals(t)
	r.writes = 0
	r.pass(5*time.Minute, r.first, r.second)
	if events := r.takeEvents(); len(events) != 1 || !strings.Contains(events[0], v1alpha1.ReasonTwoOperators) {
		t.Errorf("there are %d events in five minutes, such as %q", len(events), events[:min(len(events), 3)])
	}
	if r.writes > 2 {
		t.Errorf("%d writes in five minutes", r.writes)
	}
	message := r.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonTwoOperators)
	if !strings.Contains(message, "namespace team-b") || len(message) > 300 {
		t.Errorf("%q", message)
	}
	if err := r.first.Ownership.Ready(nil); err != nil {
		t.Errorf("the operator that was first is not ready: %v", err)
	}
	if err := r.second.Ownership.Ready(nil); err == nil || !strings.Contains(err.Error(), "namespace rcbox-system") {
		t.Errorf("the second operator is ready: %v", err)
	}

	// The second one is uninstalled.
	r.pass(2*ownership.Duration, r.first)
	r.want(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
}

// When the first operator is uninstalled, the second goes on with its Stores; and the first, if it comes back, waits.
func TestSecondOperatorTakesOver(t *testing.T) {
	r := newRivals(t)
	r.pass(time.Minute, r.first, r.second)
	if from := r.managedFrom(); from != "rcbox-system" {
		t.Fatalf("the Store is managed from %q", from)
	}
	r.pass(ownership.Duration/2, r.second)
	if from := r.managedFrom(); from != "rcbox-system" {
		t.Fatalf("the Store is managed from %q, too early", from)
	}
	r.pass(ownership.Duration, r.second)
	if from := r.managedFrom(); from != "team-b" {
		t.Fatalf("the Store is managed from %q", from)
	}
	if err := r.second.Ownership.Ready(nil); err != nil {
		t.Error(err)
	}
	r.want(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	r.pass(time.Minute, r.second, r.first)
	if from := r.managedFrom(); from != "team-b" {
		t.Errorf("the Store is managed from %q", from)
	}
	r.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonTwoOperators)
}
