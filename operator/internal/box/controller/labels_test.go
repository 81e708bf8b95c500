package controller

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// Labels about a node's place are set and corrected; others stay, and what is right is not written again.
func TestLabelNodes(t *testing.T) {
	l := newLost()
	l.node.Labels = map[string]string{v1alpha1.LabelChassis: "elsewhere", "example.com/mine": "yes"}
	r := &Reconciler{Client: l.client(t)}
	made := &plan.Plan{NodeLabels: map[string]map[string]string{
		"n3": {v1alpha1.LabelChassis: "mercury1", v1alpha1.LabelSlot: "3"}, "gone": {v1alpha1.LabelSlot: "4"},
	}}
	node := &corev1.Node{}
	read := func() {
		t.Helper()
		if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "n3"}, node); err != nil {
			t.Fatal(err)
		}
	}
	var versions []string
	for range 2 {
		read()
		if err := r.labelNodes(t.Context(), &round{nodes: []corev1.Node{*node}}, made); err != nil {
			t.Fatal(err)
		}
		read()
		versions = append(versions, node.ResourceVersion)
	}
	want := map[string]string{v1alpha1.LabelChassis: "mercury1", v1alpha1.LabelSlot: "3", "example.com/mine": "yes"}
	if !maps.Equal(node.Labels, want) {
		t.Errorf("labels are %v, not %v", node.Labels, want)
	}
	if versions[0] != versions[1] {
		t.Error("what was right was written again")
	}
}
