package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// A node is cordoned with a mark and uncordoned without one, only if the Server's status was written, and not on top of what somebody else
// has written meanwhile.
func TestCordonNodes(t *testing.T) {
	l := newLost()
	l.node.Annotations = map[string]string{"example.com/mine": "yes"}
	r := &Reconciler{Client: l.client(t)}
	read := func() *corev1.Node {
		t.Helper()
		node := &corev1.Node{}
		if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "n3"}, node); err != nil {
			t.Fatal(err)
		}
		return node
	}
	isFor := func(server string) bool {
		node := read()
		return node.Spec.Unschedulable == (server != "") && node.Annotations[v1alpha1.AnnotationCordonedFor] == server &&
			node.Annotations["example.com/mine"] == "yes"
	}
	before := read()
	cordon := func(node *corev1.Node, isUndo bool, written ...string) error {
		made := &plan.Plan{Cordons: []plan.Cordon{{Node: "n3", Server: "atom003", IsUndo: isUndo}, {Node: "gone", Server: "atom003"}}}
		all := map[string]bool{}
		for _, name := range written {
			all[name] = true
		}
		return r.cordonNodes(t.Context(), &round{nodes: []corev1.Node{*node}}, made, all)
	}
	if err := cordon(before, false, "atom004"); err != nil || !isFor("") {
		t.Errorf("its Server was not written: %v, %+v", err, read())
	}
	if err := cordon(before, false, "atom003"); err != nil || !isFor("atom003") {
		t.Errorf("cordoned: %v, %+v", err, read())
	}
	if err := cordon(before, true, "atom003"); !isStale(err) || !isFor("atom003") {
		t.Errorf("with an outdated view: %v, %+v", err, read())
	}
	if err := cordon(read(), true, "atom003"); err != nil || !isFor("") {
		t.Errorf("uncordoned: %v, %+v", err, read())
	}
}
