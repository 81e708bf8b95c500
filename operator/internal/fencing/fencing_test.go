package fencing_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/fencing"
)

const group = "self-node-remediation.medik8s.io/v1alpha1"

var template = v1alpha1.RemediationTemplate{
	APIVersion: group, Kind: "SelfNodeRemediationTemplate", Name: "automatic", Namespace: "medik8s",
}

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group, "kind": kind, "metadata": map[string]any{"name": name, "namespace": "medik8s"}, "spec": spec,
	}}
}

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func newFencer(t *testing.T, c client.Client, kind v1alpha1.FencingType, store string) fencing.Fencer {
	t.Helper()
	spec := v1alpha1.FencingSpec{Type: kind}
	if kind == v1alpha1.FencingRemediation {
		spec.RemediationTemplate = &template
	}
	owner := types.NamespacedName{Namespace: "default", Name: store}
	fencer, err := fencing.For(spec, fencing.Clients{Writer: c, Live: c, Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	return fencer
}

func observe(t *testing.T, f fencing.Fencer) fencing.State {
	t.Helper()
	state, err := f.Observe(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func nodeOf(t *testing.T, c client.Client) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	must(t, c.Get(t.Context(), client.ObjectKey{Name: "n1"}, node))
	return node
}

func TestTaintIsSetAndTakenBack(t *testing.T) {
	other := corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule}
	c := newClient(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{other}}})
	f := newFencer(t, c, v1alpha1.FencingOutOfServiceTaint, "box")
	if got := observe(t, f); got != (fencing.State{}) {
		t.Errorf("before: %+v", got)
	}
	for range 2 {
		must(t, f.Fence(t.Context(), "n1"))
	}
	node := nodeOf(t, c)
	want := corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "rcbox.dev", Effect: corev1.TaintEffectNoExecute}
	if len(node.Spec.Taints) != 2 || node.Spec.Taints[1] != want || node.Annotations[v1alpha1.AnnotationFencedBy] != "default/box" {
		t.Fatalf("taints %+v, annotations %v", node.Spec.Taints, node.Annotations)
	}
	if got := observe(t, f); !got.Requested || !got.Done {
		t.Errorf("fenced: %+v", got)
	}
	// Another Store sees that it is done, and takes nothing back.
	another := newFencer(t, c, v1alpha1.FencingOutOfServiceTaint, "crate")
	if got := observe(t, another); got.Requested || !got.Done {
		t.Errorf("to another one: %+v", got)
	}
	if err := another.Fence(t.Context(), "n1"); !errors.Is(err, fencing.ErrTaken) {
		t.Errorf("fenced twice: %v", err)
	}
	must(t, another.Release(t.Context(), "n1"))
	if len(nodeOf(t, c).Spec.Taints) != 2 {
		t.Error("another Store took it back")
	}
	for range 2 {
		must(t, f.Release(t.Context(), "n1"))
	}
	if node := nodeOf(t, c); len(node.Spec.Taints) != 1 || node.Spec.Taints[0] != other || len(node.Annotations) > 0 {
		t.Errorf("taints %+v, annotations %v", node.Spec.Taints, node.Annotations)
	}
}

// A taint that somebody has set by hand is his.
func TestForeignTaintIsLeftAlone(t *testing.T) {
	foreign := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	c := newClient(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{foreign}}})
	f := newFencer(t, c, v1alpha1.FencingOutOfServiceTaint, "box")
	if got := observe(t, f); got.Requested || !got.Done {
		t.Errorf("%+v", got)
	}
	must(t, f.Release(t.Context(), "n1"))
	if taints := nodeOf(t, c).Spec.Taints; len(taints) != 1 || taints[0] != foreign {
		t.Errorf("taints %+v", taints)
	}
}

func remediation(t *testing.T, c client.Client) *unstructured.Unstructured {
	t.Helper()
	found := object("SelfNodeRemediation", "", nil)
	err := c.Get(t.Context(), client.ObjectKey{Namespace: "medik8s", Name: "n1"}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, err)
	return found
}

func TestRemediationIsMadeObservedAndDeleted(t *testing.T) {
	spec := map[string]any{"remediationStrategy": "Automatic"}
	c := newClient(t, object("SelfNodeRemediationTemplate", "automatic", map[string]any{"template": map[string]any{"spec": spec}}))
	f := newFencer(t, c, v1alpha1.FencingRemediation, "box")
	if got := observe(t, f); got != (fencing.State{}) {
		t.Errorf("before: %+v", got)
	}
	for range 2 {
		must(t, f.Fence(t.Context(), "n1"))
	}
	made := remediation(t, c)
	if strategy, _, _ := unstructured.NestedString(made.Object, "spec", "remediationStrategy"); strategy != "Automatic" ||
		made.GetAnnotations()[v1alpha1.AnnotationFencedBy] != "default/box" {
		t.Fatalf("made %+v", made.Object)
	}
	if got := observe(t, f); !got.Requested || got.Done || got.Message != "SelfNodeRemediation n1" {
		t.Errorf("requested: %+v", got)
	}
	must(t, unstructured.SetNestedSlice(made.Object, []any{
		map[string]any{"type": "Processing", "status": "False"},
		map[string]any{"type": "Succeeded", "status": "True", "message": "restarted"},
	}, "status", "conditions"))
	must(t, c.Update(t.Context(), made))
	if got := observe(t, f); !got.Done || got.Message != "SelfNodeRemediation n1: Processing is False; Succeeded is True: restarted" {
		t.Errorf("done: %+v", got)
	}
	for range 2 {
		must(t, f.Release(t.Context(), "n1"))
	}
	if left := remediation(t, c); left != nil {
		t.Errorf("left: %+v", left.Object)
	}
}

// One that somebody else has made for the node is left alone, and there is no second one.
func TestForeignRemediationIsLeftAlone(t *testing.T) {
	c := newClient(t, object("SelfNodeRemediation", "n1", map[string]any{}))
	f := newFencer(t, c, v1alpha1.FencingRemediation, "box")
	if got := observe(t, f); got.Requested || got.Message == "" {
		t.Errorf("%+v", got)
	}
	if err := f.Fence(t.Context(), "n1"); !errors.Is(err, fencing.ErrTaken) {
		t.Errorf("fenced twice: %v", err)
	}
	must(t, f.Release(t.Context(), "n1"))
	if remediation(t, c) == nil {
		t.Error("it was deleted")
	}
}

func TestMissingTemplateIsSaid(t *testing.T) {
	f := newFencer(t, newClient(t), v1alpha1.FencingRemediation, "box")
	if err := f.Fence(t.Context(), "n1"); err == nil || !strings.Contains(err.Error(), "SelfNodeRemediationTemplate medik8s/automatic") {
		t.Errorf("%v", err)
	}
	if _, err := fencing.For(v1alpha1.FencingSpec{Type: v1alpha1.FencingRemediation}, fencing.Clients{}); err == nil {
		t.Error("a remediation without a template")
	}
	if _, err := fencing.For(v1alpha1.FencingSpec{Type: "Magic"}, fencing.Clients{}); err == nil {
		t.Error("an unknown way")
	}
}

func TestNoneDoesNothing(t *testing.T) {
	c := newClient(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	for _, kind := range []v1alpha1.FencingType{v1alpha1.FencingNone, ""} {
		f := newFencer(t, c, kind, "box")
		must(t, f.Fence(t.Context(), "n1"))
		must(t, f.Release(t.Context(), "n1"))
		if got := observe(t, f); got != (fencing.State{}) || len(nodeOf(t, c).Spec.Taints) > 0 {
			t.Errorf("%+v", got)
		}
	}
}
