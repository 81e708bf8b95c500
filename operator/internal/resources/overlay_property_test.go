package resources_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// words are fields, names and directives that matter to a patch of a pod.
var words = []string{
	"spec", "containers", "initContainers", "volumes", "volumeMounts", "name", "master", "agent", "data", "args", "command", "image", "env",
	"RCBOX_INSTANCE", "ports", "containerPort", "resources", "limits", "memory", "hostNetwork", "HostNetwork", "serviceAccountName",
	"mountPath", "/var/lib/rcbox", "$patch", "delete", "replace", "merge", "$retainKeys", "$setElementOrder/containers",
	"$deleteFromPrimitiveList/args", "restartPolicy", "Never", "emptyDir", "hostPath", "affinity", "securityContext", "privileged",
}

// anything is a value of JSON, mostly one that looks like a part of a patch.
func anything(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	switch {
	case depth > 0 && kind < 4:
		fields := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			fields[rapid.SampledFrom(words).Draw(t, "field")] = anything(t, depth-1)
		}
		if rapid.Bool().Draw(t, "isNamed") {
			fields["name"] = rapid.SampledFrom([]string{"master", "agent", "data"}).Draw(t, "name")
		}
		return fields
	case depth > 0 && kind < 7:
		var list []any
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			list = append(list, anything(t, depth-1))
		}
		return list
	case kind == 7:
		return rapid.SampledFrom([]any{nil, true, 12100, "1Gi"}).Draw(t, "value")
	default:
		return rapid.SampledFrom(words).Draw(t, "word")
	}
}

// Whatever an overlay is, it is refused with a reason, or leaves the store's process and its volume as they are.
func TestNoOverlayChangesTheProcess(t *testing.T) {
	plain := pod(t, placedStore(), v1alpha1.ComponentMaster)
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		spec := map[string]any{}
		for range rapid.IntRange(1, 3).Draw(t, "fields") {
			spec[rapid.SampledFrom(words).Draw(t, "field")] = anything(t, 4)
		}
		if rapid.Bool().Draw(t, "hasContainers") {
			container, isMap := anything(t, 3).(map[string]any)
			if !isMap {
				container = map[string]any{}
			}
			container["name"] = rapid.SampledFrom([]string{"master", "agent"}).Draw(t, "name")
			spec["containers"] = []any{container}
		}
		text, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		store := placedStore()
		store.Spec.Masters.Pod.Overlay = raw(string(text))
		built, err := resources.Pod(store, resources.PodSpec{
			Component: v1alpha1.ComponentMaster, Member: "box-master-0", Number: 1, Claim: resources.ClaimName("box-master-0", "master"),
			Inputs: resources.InputsFor(store, v1alpha1.ComponentMaster, "store:1", state(store)),
		})
		if _, isRefused := errors.AsType[*resources.OverlayError](err); isRefused {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		taken++
		got, want := &built.Spec.Containers[0], &plain.Spec.Containers[0]
		if *got.Name != *want.Name || *got.Image != *want.Image || !reflect.DeepEqual(got.Args, want.Args) ||
			!reflect.DeepEqual(got.Command, want.Command) || !reflect.DeepEqual(got.Ports, want.Ports) || len(got.Env) < len(want.Env) {
			t.Errorf("%s gives the process %+v", text, got)
		}
		for name, amount := range *want.Resources.Limits {
			if other := (*got.Resources.Limits)[name]; other.Cmp(amount) != 0 || name != corev1.ResourceMemory {
				t.Errorf("%s gives the process %s of %s", text, &other, name)
			}
		}
		keepsVolume := func(volume coreac.VolumeApplyConfiguration) bool {
			return reflect.DeepEqual(volume, plain.Spec.Volumes[0])
		}
		if built.Spec.HostNetwork != nil || built.Spec.ServiceAccountName != nil || built.Spec.NodeName != nil ||
			!reflect.DeepEqual(built.Labels, plain.Labels) || !slices.ContainsFunc(built.Spec.Volumes, keepsVolume) {
			t.Errorf("%s gives %+v", text, built.Spec)
		}
	})
	if taken == 0 {
		t.Error("no overlay was taken")
	}
}
