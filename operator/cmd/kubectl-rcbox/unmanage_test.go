package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

func TestUnmanage(t *testing.T) {
	meta := func(namespace, name, label, value string, finalizers ...string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{label: value}, Finalizers: finalizers}
	}
	kept := &v1alpha1.Store{ObjectMeta: meta("team", "kept", "a", "b", v1alpha1.Finalizer, "somebody.s/own")}
	ported := &corev1.Pod{ObjectMeta: meta("team", "ported", v1alpha1.LabelManagedBy, v1alpha1.ManagedByValue, v1alpha1.FinalizerAddresses)}
	root := &corev1.ConfigMap{ObjectMeta: meta("team", "kept-state-root", v1alpha1.LabelState, "root", v1alpha1.FinalizerState)}
	other := &v1alpha1.Store{ObjectMeta: meta("other", "kept", "a", "b", v1alpha1.Finalizer)}
	h := newHarness(t, kept, ported, root, other)
	finalizersOf := func(object client.Object) []string {
		if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		return object.GetFinalizers()
	}

	out := h.must("unmanage")
	for _, want := range []string{"Store team/kept: released", "Pod team/ported: released", "ConfigMap team/kept-state-root: released"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if left := finalizersOf(kept); len(left) != 1 || left[0] != "somebody.s/own" {
		t.Errorf("the Store has the finalizers %v", left)
	}
	if left := append(finalizersOf(ported), finalizersOf(root)...); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if left := finalizersOf(other); len(left) != 1 {
		t.Errorf("a Store of another namespace has the finalizers %v", left)
	}
	if out := h.must("unmanage"); !strings.Contains(out, "nothing is kept") {
		t.Errorf("the second time it says %q", out)
	}
	if out := h.must("unmanage", "--all-namespaces"); out != "Store other/kept: released\n" {
		t.Errorf("of all namespaces it says %q", out)
	}
}
