package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// Each report is read once, another one is read anew, and nothing is kept of nodes that are gone.
func TestReportsAreReadOnce(t *testing.T) {
	node := func(text string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "atom001", Annotations: map[string]string{hardware.Annotation: text},
		}}
	}
	var r reports
	first := r.found(node(`{"serial":"S1","disks":[{"name":"sda"}]}`))
	if first == nil || first.Serial != "S1" {
		t.Fatalf("found %+v", first)
	}
	if again := r.found(node(`{"serial":"S1","disks":[{"name":"sda"}]}`)); again != first {
		t.Error("it was read again")
	}
	if next := r.found(node(`{"serial":"S2"}`)); next.Serial != "S2" {
		t.Errorf("found %+v", next)
	}
	if without := r.found(node("")); without != nil {
		t.Errorf("found %+v in nothing", without)
	}
	r.found(node(`{}`))
	r.keep([]corev1.Node{*node("")})
	if len(r.read) != 1 {
		t.Errorf("kept %v", r.read)
	}
	r.keep(nil)
	if len(r.read) != 0 {
		t.Errorf("kept %v of a node that is gone", r.read)
	}
}
