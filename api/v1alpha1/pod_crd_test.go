package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Settings of pods are the same for both components.
func TestPodSettings(t *testing.T) {
	server := newAPIServer(t)
	for _, component := range []string{"masters", "coordinator"} {
		for _, test := range []struct{ settings, refused string }{
			{"{metadata: {labels: {team: shop}, annotations: {sidecar.istio.io/inject: 'false'}}}", ""},
			{"{metadata: {labels: {rcbox.dev/store: other}}}", "pod.metadata.labels must not have rcbox.dev/..."},
			{"{metadata: {labels: {app.kubernetes.io/component: other}}}", "pod.metadata.labels must not have rcbox.dev/..."},
			{"{metadata: {annotations: {rcbox.dev/made-from: '{}'}}}", "pod.metadata.annotations must not have rcbox.dev/..."},
			{"{metadata: {annotations: {k8s.v1.cni.cncf.io/networks: other}}}", "pod.metadata.annotations must not have rcbox.dev/..."},
			{"{tolerations: [{key: memory, operator: Exists}], priorityClassName: high, runtimeClassName: kata, schedulerName: other}", ""},
			{"{topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]}", ""},
			{"{topologySpreadConstraints: [{maxSkew: 1}]}", "topologyKey: Required value"},
			{"{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}}", "nodeSelectorTerms: Required value"},
			{"{overlay: {spec: {containers: [{name: agent, image: 'agent:1'}]}}}", ""},
			{"{overlay: text}", "must be of type object"},
			{"{schedulerName: " + strings.Repeat("a", 254) + "}", "may not be more than 253"},
		} {
			errs := server.createInto(t, manifest("box", fmt.Sprintf("{%s: {pod: %s}}", component, test.settings)), &v1alpha1.Store{})
			all := strings.Join(errs, "\n")
			if (test.refused == "") != (len(errs) == 0) || !strings.Contains(all, test.refused) {
				t.Errorf("%s: %s: the API server says %q, not %q", component, test.settings, all, test.refused)
			}
		}
	}
}

// An API server keeps what it does not know of an overlay, and drops it elsewhere.
func TestOverlaysAreKept(t *testing.T) {
	server := newAPIServer(t)
	const overlay = "{spec: {containers: [{name: agent, resizePolicy: []}]}}"
	object := server.read(t, manifest("box", "{masters: {pod: {other: 1, overlay: "+overlay+"}}}"))
	pruning.Prune(object.Object, server.structural, true)
	text, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"resizePolicy":[]`) || strings.Contains(string(text), `"other"`) {
		t.Errorf("kept is %s", text)
	}
}

// A Store from before there were settings of pods gets none by default: nothing is to be different for it.
func TestStoresFromBeforePodSettings(t *testing.T) {
	server := newAPIServer(t)
	object := server.read(t, manifest("box", "{placement: {nodeSelector: {pool: memory}, priorityClassName: high}}"))
	for _, component := range []string{"masters", "coordinator"} {
		spec, isMap := object.Object["spec"].(map[string]any)[component].(map[string]any)
		if _, found := spec["pod"]; found || !isMap {
			t.Errorf("%s is %v", component, spec)
		}
	}
}
