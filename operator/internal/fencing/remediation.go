package fencing

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const templateSuffix = "Template"

// Remediation has an operator of the medik8s kind do it, which restarts a node or cuts it off: an object is made from a template, with the
// node's name as its own, which is how those operators know the node. So there can be one for a node only, whoever has made it.
type Remediation struct {
	clients  Clients
	template v1alpha1.RemediationTemplate
}

// Fence implements Fencer.
func (f *Remediation) Fence(ctx context.Context, node string) error {
	present, err := f.read(ctx, node)
	if err != nil {
		return err
	}
	if present != nil {
		return f.checkOurs(present)
	}
	template := f.object(f.template.Kind)
	key := client.ObjectKey{Namespace: f.template.Namespace, Name: f.template.Name}
	if err := f.clients.Live.Get(ctx, key, template); err != nil {
		return fmt.Errorf("read the remediation's template %s %s (recovery.fencing.remediationTemplate): %w", f.template.Kind, key, err)
	}
	spec, _, err := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	if err != nil {
		return fmt.Errorf("template %s %s has no usable spec.template.spec: %w", f.template.Kind, key, err)
	}
	remediation := f.object(f.kind())
	remediation.SetNamespace(f.template.Namespace)
	remediation.SetName(node)
	remediation.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue})
	remediation.SetAnnotations(map[string]string{v1alpha1.AnnotationFencedBy: f.clients.owner()})
	if spec != nil {
		remediation.Object["spec"] = spec
	}
	err = f.clients.Writer.Create(ctx, remediation)
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%s %s was made in this moment: %w", f.kind(), node, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("create %s %s (needs rights on it: docs/operator.md#fencing): %w", f.kind(), node, err)
	}
	return nil
}

// Observe implements Fencer. It is done when the condition Succeeded says so.
func (f *Remediation) Observe(ctx context.Context, node string) (State, error) {
	present, err := f.read(ctx, node)
	if err != nil || present == nil {
		return State{}, err
	}
	state := State{Requested: f.checkOurs(present) == nil}
	conditions, _, err := unstructured.NestedSlice(present.Object, "status", "conditions")
	if err != nil {
		return state, fmt.Errorf("%s %s has no usable conditions: %w", f.kind(), node, err)
	}
	var said []string
	for _, entry := range conditions {
		condition, isMap := entry.(map[string]any)
		if !isMap {
			continue
		}
		kind, status := text(condition["type"]), text(condition["status"])
		state.Done = state.Done || kind == "Succeeded" && status == "True"
		said = append(said, strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", kind, status, text(condition["message"])), ": "))
	}
	state.Message = f.kind() + " " + node
	if len(said) > 0 {
		state.Message += ": " + strings.Join(said, "; ")
	}
	return state, nil
}

// Release implements Fencer.
func (f *Remediation) Release(ctx context.Context, node string) error {
	present, err := f.read(ctx, node)
	if err != nil || present == nil || f.checkOurs(present) != nil {
		return err
	}
	uid := present.GetUID()
	if err := f.clients.Writer.Delete(ctx, present, client.Preconditions{UID: &uid}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", f.kind(), node, err)
	}
	return nil
}

// kind of the remediation: that of the template, without the word.
func (f *Remediation) kind() string { return strings.TrimSuffix(f.template.Kind, templateSuffix) }

func (f *Remediation) object(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(f.template.APIVersion, kind))
	return object
}

// read gives the node's remediation; nil if there is none.
func (f *Remediation) read(ctx context.Context, node string) (*unstructured.Unstructured, error) {
	object := f.object(f.kind())
	err := f.clients.Live.Get(ctx, client.ObjectKey{Namespace: f.template.Namespace, Name: node}, object)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there being none is no error, and nothing else to say
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s (needs rights on it: docs/operator.md#fencing): %w", f.kind(), node, err)
	}
	return object, nil
}

func (f *Remediation) checkOurs(object *unstructured.Unstructured) error {
	if by := object.GetAnnotations()[v1alpha1.AnnotationFencedBy]; by != f.clients.owner() {
		return fmt.Errorf("%s %s is there already: %w", f.kind(), object.GetName(), ErrTaken)
	}
	return nil
}

func text(value any) string {
	s, _ := value.(string)
	return s
}
