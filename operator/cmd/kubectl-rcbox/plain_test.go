package main

import (
	"reflect"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
)

// poison ends a line, clears the screen, sets the window's title, turns the direction of writing and hides a space.
const poison = "\r\x1b[2J\x1b]0;owned\a\u009b31m\u202e\u200b"

// poisoner appends poison to texts.
type poisoner struct {
	// keeps are fields by which objects are found.
	keeps map[string]bool
	count int
}

// fill gives every field that can be reached something, so that each is shown that can be, and poisons every text.
func (p *poisoner) fill(value reflect.Value, depth int) {
	switch value.Kind() {
	case reflect.String:
		value.SetString(value.String() + poison)
		p.count++
	case reflect.Pointer:
		if value.IsNil() && depth > 0 && value.CanSet() {
			value.Set(reflect.New(value.Type().Elem()))
		}
		if !value.IsNil() {
			p.fill(value.Elem(), depth-1)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			field := value.Type().Field(i)
			if field.IsExported() && !p.keeps[field.Name] && !isOfKubernetes(field.Type) {
				p.fill(value.Field(i), depth)
			}
		}
	case reflect.Slice:
		if value.Len() == 0 && depth > 0 {
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		}
		for i := range value.Len() {
			p.fill(value.Index(i), depth-1)
		}
	case reflect.Uint64, reflect.Uint32:
		if value.IsZero() {
			value.SetUint(7)
		}
	default:
	}
}

// isOfKubernetes: times, quantities and raw objects check what they are.
func isOfKubernetes(of reflect.Type) bool {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	return strings.HasSuffix(of.PkgPath(), "apimachinery/pkg/api/resource") || of == reflect.TypeFor[metav1.Time]() ||
		of == reflect.TypeFor[metav1.MicroTime]() || of == reflect.TypeFor[metav1.Duration]() || of.Kind() == reflect.Uint8
}

// poisonCluster poisons what the API server says.
func (p *poisoner) poisonCluster(h *harness) {
	h.t.Helper()
	store := h.storeNow()
	p.fill(reflect.ValueOf(&store.Status), 4)
	store.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: "Bad" + poison, Message: "bad" + poison},
		{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: "Bad" + poison, Message: "bad" + poison},
	}
	if err := h.client.Status().Update(h.t.Context(), store); err != nil {
		h.t.Fatal(err)
	}
	pods := &corev1.PodList{}
	if err := h.client.List(h.t.Context(), pods); err != nil {
		h.t.Fatal(err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		isCoordinator := pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator
		phase, conditions := pod.Status.Phase, pod.Status.Conditions
		p.fill(reflect.ValueOf(&pod.Status), 4)
		pod.Status.Phase, pod.Status.PodIP = phase, "192.0.2.1"
		if isCoordinator {
			pod.Status.Conditions = conditions
		}
		if err := h.client.Status().Update(h.t.Context(), pod); err != nil {
			h.t.Fatal(err)
		}
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "team", Name: pod.Name + ".1"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod.Name},
			Type:           corev1.EventTypeWarning, Reason: "Bad" + poison, Message: "bad" + poison,
		}
		if err := h.client.Create(h.t.Context(), event); err != nil {
			h.t.Fatal(err)
		}
	}
}

// TestNothingOfTheNetworkReachesTheTerminal: whatever text comes from the coordinator or from Kubernetes, also in fields that are new
// since this was written, a terminal only shows it.
func TestNothingOfTheNetworkReachesTheTerminal(t *testing.T) {
	commands := [][]string{
		{"status"},
		{"status", "box"},
		{"status", "box", "--output", "json"},
		{"recover", "box"},
		{"top", "box", "--count", "1"},
		{"locate", "box", "t"},
		{"locate", "box", "t", "--key", "k"},
		{"net", "box"},
		{"net", "box", "--output", "json"},
		{"trace", "box"},
		{"why", "box-master-0"},
		{"why", "box-master-0-bcdfg"},
		{"drain", "box", "box-master-0"},
		{"isolate", "box", "nowhere" + poison},
	}
	// With names as they should be, others belong together; without, the names are shown as well.
	for name, keeps := range map[string]map[string]bool{
		"texts": {"Name": true, "Member": true, "Instance": true, "Node": true, "Pod": true, "Refusal": true},
		"names": {"Refusal": true},
		"all":   {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shown := 0
			for _, command := range commands {
				h := newHarness(t)
				p := &poisoner{keeps: keeps}
				p.poisonCluster(h)
				table := &adminv1.Table{TableId: 1}
				p.fill(reflect.ValueOf(table), 4)
				h.coordinator.SetTables(table)
				h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { p.fill(reflect.ValueOf(r), 5) })
				if p.count < 100 {
					t.Fatalf("%d texts were poisoned", p.count)
				}
				_, out, errs := h.run(command...)
				if out+errs == "" {
					t.Errorf("%v says nothing", command)
				}
				shown += strings.Count(out+errs, `\x1b[2J`)
				checkPlain(t, strings.Join(command, " "), out)
				checkPlain(t, strings.Join(command, " ")+": errors", errs)
			}
			if shown < len(commands)/2 {
				t.Errorf("of what was poisoned, %d texts were shown", shown)
			}
		})
	}
}

func checkPlain(t *testing.T, what, text string) {
	t.Helper()
	for at, r := range text {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			t.Errorf("%s: %U after %q", what, r, text[max(0, at-60):at])
			return
		}
	}
}
