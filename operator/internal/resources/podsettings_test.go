package resources_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// placedStore is a Store of the time before there were settings of pods, with the placement that there was.
func placedStore() *v1alpha1.Store {
	store := replicated(func(*v1alpha1.StoreSpec) {})
	store.Spec.Placement = v1alpha1.PlacementSpec{
		NodeSelector:      map[string]string{"example.com/pool": "memory"},
		Tolerations:       []corev1.Toleration{{Key: "example.com/pool", Operator: corev1.TolerationOpExists}},
		FailureDomain:     "topology.kubernetes.io/zone",
		PriorityClassName: "example-high",
	}
	store.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	return store
}

// A pod from before there were settings of pods is not outdated, and the next one is made as it was: nothing is restarted by an operator
// that knows of them. The files were written by the version before.
func TestPodsFromBeforeSettings(t *testing.T) {
	for name, store := range map[string]*v1alpha1.Store{"plain": newStore(), "placed": placedStore()} {
		for _, component := range []string{v1alpha1.ComponentCoordinator, v1alpha1.ComponentMaster} {
			file := filepath.Join("testdata", "pod-"+name+"-"+component+".json")
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			built := pod(t, store, component)
			got, err := json.MarshalIndent(built, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if string(got)+"\n" != string(want) {
				t.Errorf("a pod differs from %s:\n%s", file, got)
			}
			before := &corev1.Pod{}
			if err := json.Unmarshal(want, before); err != nil {
				t.Fatal(err)
			}
			inputs, err := resources.DecodeInputs(before.Annotations[v1alpha1.AnnotationMadeFrom])
			if err != nil {
				t.Fatal(err)
			}
			if differs := resources.Diff(inputs, resources.InputsFor(store, component, "store:1", state(store))); differs != "" {
				t.Errorf("the pod of %s is outdated: %s", file, differs)
			}
		}
	}
}

// withSettings has all settings of masters' pods.
func withSettings(store *v1alpha1.Store) {
	store.Spec.Masters.Pod = v1alpha1.PodSettings{
		Metadata: v1alpha1.PodMetadata{
			Labels: map[string]string{"team": "shop"}, Annotations: map[string]string{"example.com/inject": "false"},
		},
		Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{expression("a"), expression("b")},
			}},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: "rack", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "noisy"}}},
			}},
		},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
			{MaxSkew: 2, TopologyKey: "rack", WhenUnsatisfiable: corev1.DoNotSchedule},
		},
		Tolerations:       []corev1.Toleration{{Key: "memory", Operator: corev1.TolerationOpExists}},
		PriorityClassName: "masters-high", RuntimeClassName: "kata", SchedulerName: "bin-packing",
	}
}

func expression(value string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "pool", Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
	}}
}

func TestSettingsOfPods(t *testing.T) {
	store := placedStore()
	withSettings(store)
	built, err := resources.Pod(store, resources.PodSpec{
		Component: v1alpha1.ComponentMaster, Member: "box-master-0", Number: 1, Claim: "claim", Isolated: []string{"node-x", "node-y"},
		Inputs: resources.InputsFor(store, v1alpha1.ComponentMaster, "store:1", v1alpha1.StateKubernetes),
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := built.Spec
	if built.Labels["team"] != "shop" || built.Labels[v1alpha1.LabelStore] != "box" || built.Annotations["example.com/inject"] != "false" ||
		built.Annotations[v1alpha1.AnnotationMadeFrom] == "" {
		t.Errorf("labels %v, annotations %v", built.Labels, built.Annotations)
	}
	if *spec.PriorityClassName != "masters-high" || *spec.RuntimeClassName != "kata" || *spec.SchedulerName != "bin-packing" ||
		len(spec.Tolerations) != 2 || spec.NodeSelector["example.com/pool"] != "memory" {
		t.Errorf("the spec is %+v", spec)
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i, term := range terms {
		if len(term.MatchFields) != 2 || len(term.MatchExpressions) != 1 {
			t.Errorf("term %d is %+v: an isolated node is among the alternatives", i, term)
		}
	}
	apart := spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(terms) != 2 || len(apart) != 2 || *apart[0].TopologyKey != corev1.LabelHostname || *apart[1].TopologyKey != "rack" {
		t.Errorf("the affinity is %+v", spec.Affinity)
	}
	spreads := spec.TopologySpreadConstraints
	if len(spreads) != 2 || *spreads[0].TopologyKey != "topology.kubernetes.io/zone" || *spreads[1].TopologyKey != "rack" ||
		spreads[1].LabelSelector.MatchLabels[v1alpha1.LabelComponent] != v1alpha1.ComponentMaster {
		t.Errorf("spread by %+v", spreads)
	}
	// The coordinator's pods have none of these.
	other := pod(t, store, v1alpha1.ComponentCoordinator)
	if other.Labels["team"] != "" || *other.Spec.PriorityClassName != "example-high" || len(other.Spec.Tolerations) != 1 {
		t.Errorf("the coordinator's pod is %+v", other.Spec)
	}
}

// Two constraints with the same key and way are refused by the API server.
func TestASpreadConstraintTakesThePlaceOfTheOperators(t *testing.T) {
	store := newStore()
	store.Spec.Masters.Pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		{MaxSkew: 3, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway},
	}
	if spreads := pod(t, store, v1alpha1.ComponentMaster).Spec.TopologySpreadConstraints; len(spreads) != 1 || *spreads[0].MaxSkew != 3 {
		t.Errorf("spread by %+v", spreads)
	}
}

// Each setting outdates the pods of its component, by its name, and what was written to a pod is read as it was.
func TestSettingsOutdatePods(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.PodSettings){
		"pod.metadata":                       func(s *v1alpha1.PodSettings) { s.Metadata.Labels = map[string]string{"a": "<b>"} },
		"pod.affinity":                       func(s *v1alpha1.PodSettings) { s.Affinity = &corev1.Affinity{} },
		"tolerations":                        func(s *v1alpha1.PodSettings) { s.Tolerations = []corev1.Toleration{{Key: "a"}} },
		"priorityClassName: none -> high":    func(s *v1alpha1.PodSettings) { s.PriorityClassName = "high" },
		"pod.runtimeClassName: none -> kata": func(s *v1alpha1.PodSettings) { s.RuntimeClassName = "kata" },
		"pod.schedulerName: none -> other":   func(s *v1alpha1.PodSettings) { s.SchedulerName = "other" },
		"pod.overlay":                        func(s *v1alpha1.PodSettings) { s.Overlay = raw(`{"spec": {"hostname": "<x>"}}`) },
		"pod.topologySpreadConstraints": func(s *v1alpha1.PodSettings) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "a"}}
		},
		"": func(s *v1alpha1.PodSettings) { s.Overlay = raw(`{}`) },
	} {
		store := newStore()
		change(&store.Spec.Masters.Pod)
		inputs := resources.InputsFor(store, v1alpha1.ComponentMaster, "store:1", state(store))
		if got := resources.Diff(resources.InputsFor(newStore(), v1alpha1.ComponentMaster, "store:1", state(store)), inputs); got != want {
			t.Errorf("the difference is %q, not %q", got, want)
		}
		text, err := inputs.Encode()
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := resources.DecodeInputs(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := resources.Diff(decoded, inputs); got != "" {
			t.Errorf("%s: read again, a pod is outdated by %q", want, got)
		}
	}
}

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

// overlaid is a master's pod with an overlay, or why there is none.
func overlaid(t *testing.T, store *v1alpha1.Store, overlay string) (*coreac.PodApplyConfiguration, string) {
	t.Helper()
	store.Spec.Masters.Pod.Overlay = raw(overlay)
	inputs := resources.InputsFor(store, v1alpha1.ComponentMaster, "store:1", v1alpha1.StateKubernetes)
	built, err := resources.Pod(store, resources.PodSpec{
		Component: v1alpha1.ComponentMaster, Member: "box-master-0", Number: 1, Claim: "claim", Inputs: inputs,
	})
	refused := resources.CheckOverlay(store, v1alpha1.ComponentMaster, inputs)
	switch {
	case refused == nil && err != nil:
		t.Fatal(err)
	case refused != nil && (err == nil || err.Error() != refused.Error()):
		t.Fatalf("refused is %v, and the pod is made with %v", refused, err)
	case refused != nil:
		return nil, refused.Error()
	}
	return built, ""
}

func TestOverlays(t *testing.T) {
	built, refused := overlaid(t, placedStore(), `{"spec": {
		"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
		"initContainers": [{"name": "first", "image": "first:1"}],
		"volumes": [{"name": "scratch", "emptyDir": {}}],
		"containers": [
			{"name": "agent", "image": "agent:1", "ports": [{"containerPort": 9000}], "volumeMounts": [
				{"name": "scratch", "mountPath": "/s"}, {"name": "data", "mountPath": "/d", "readOnly": true}]},
			{"name": "master", "env": [{"name": "MALLOC_CONF", "value": "x"}], "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
				"volumeMounts": [{"name": "scratch", "mountPath": "/s"}]}
		]}}`)
	if refused != "" {
		t.Fatal(refused)
	}
	var names []string
	for _, container := range built.Spec.Containers {
		names = append(names, *container.Name)
	}
	plain := pod(t, placedStore(), v1alpha1.ComponentMaster)
	ours := built.Spec.Containers[0]
	if !slices.Equal(names, []string{"master", "agent"}) || len(built.Spec.InitContainers) != 1 || len(built.Spec.Volumes) != 2 ||
		len(built.Spec.HostAliases) != 1 || len(ours.Env) != len(plain.Spec.Containers[0].Env)+1 || ours.Lifecycle == nil ||
		!reflect.DeepEqual(ours.Args, plain.Spec.Containers[0].Args) || len(ours.VolumeMounts) != 2 {
		t.Errorf("the pod is %+v", built.Spec)
	}
	if built.Annotations["kubectl.kubernetes.io/default-container"] != "master" {
		t.Errorf("annotations %v", built.Annotations)
	}
}

func TestRefusedOverlays(t *testing.T) {
	container := func(fields string) string { return `{"spec": {"containers": [{"name": "master", ` + fields + `}]}}` }
	sidecar := func(fields string) string { return `{"spec": {"containers": [{"name": "agent", ` + fields + `}]}}` }
	const ours = "spec.containers[name: master]"
	for _, test := range []struct{ overlay, want string }{
		{`{"metadata": {"labels": {"a": "b"}}}`, "metadata must not be set there: set spec.masters.pod.metadata.labels"},
		{`{"containers": []}`, "containers is no field of a pod template"},
		{`{"spec": {"sidecars": [{"name": "a"}]}}`, "sidecars"},
		{`{"spec": {"hostNme": "x"}}`, `unknown field "hostNme"`},
		{`{"spec": {"priority": "high"}}`, "it is no patch of a pod"},
		{`{"spec": {"$retainKeys": [{}]}}`, "a directive in it, a field that begins with $, is malformed"},
		{`{"spec": null}`, "spec must not be removed"},
		{`{"spec": {"hostNetwork": true}}`, "spec.hostNetwork must not be changed"},
		{`{"spec": {"serviceAccountName": "admin"}}`, "spec.serviceAccountName must not be changed"},
		{`{"spec": {"automountServiceAccountToken": true}}`, "spec.automountServiceAccountToken must not be changed"},
		{`{"spec": {"nodeName": "a"}}`, "set spec.masters.pod.affinity"},
		{`{"spec": {"nodeSelector": {"a": "b"}}}`, "set spec.placement.nodeSelector"},
		{`{"spec": {"tolerations": []}}`, "set spec.masters.pod.tolerations"},
		{`{"spec": {"affinity": null}}`, "set spec.masters.pod.affinity"},
		{`{"spec": {"schedulerName": "x"}}`, "set spec.masters.pod.schedulerName"},
		{`{"spec": {"imagePullSecrets": [{"name": "x"}]}}`, "set spec.imagePullSecrets"},
		{`{"spec": {"restartPolicy": "Never"}}`, "spec.restartPolicy"},
		{`{"spec": {"terminationGracePeriodSeconds": 1}}`, "spec.terminationGracePeriodSeconds"},
		{`{"spec": {"resources": {"limits": {"cpu": "1"}}}}`, "set spec.masters.memory, cores or resources"},
		{`{"spec": {"containers": [{"$patch": "delete", "name": "master"}]}}`, ours + " must not be removed"},
		{`{"spec": {"$patch": "replace", "containers": [{"name": "a"}]}}`, "must not be"},
		{`{"spec": {"volumes": [{"name": "data", "$patch": "delete"}]}}`, "spec.volumes[name: data] must not be changed"},
		{`{"spec": {"volumes": [{"name": "data", "hostPath": {"path": "/"}}]}}`, "spec.volumes[name: data] must not be changed"},
		{container(`"image": "other"`), ours + ".image must not be changed: set spec.image"},
		{container(`"command": ["sh"]`), ours + ".command"},
		{container(`"args": ["--cores", "9"]`), ours + ".args"},
		{container(`"ports": [{"containerPort": 1}]`), ours + ".ports"},
		{container(`"resources": {"limits": {"memory": "9Gi"}}`), "set spec.masters.memory, cores or resources"},
		{container(`"livenessProbe": null`), ours + ".livenessProbe"},
		{container(`"readinessProbe": {"periodSeconds": 60}`), ours + ".readinessProbe"},
		{container(`"envFrom": [{"secretRef": {"name": "a"}}]`), ours + ".envFrom"},
		{container(`"env": [{"name": "RCBOX_INSTANCE", "value": "x"}]`), ours + ".env[name: RCBOX_INSTANCE] must not be changed"},
		{container(`"env": [{"name": "RCBOX_OTHER", "value": "x"}]`), ours + ".env[name: RCBOX_OTHER] must not be added"},
		{container(`"volumeMounts": [{"name": "x", "mountPath": "/var/lib/rcbox"}]`), ours + ".volumeMounts[mountPath: /var/lib/rcbox]"},
		{container(`"volumeMounts": [{"name": "x", "mountPath": "/var/lib/rcbox/../rcbox/frames"}]`), "must not be changed or hidden"},
		{container(`"volumeMounts": [{"$patch": "delete", "mountPath": "/var/lib/rcbox"}]`), "must not be removed"},
		{sidecar(`"ports": [{"containerPort": 12400}]`), "the store's port 12400 (http)"},
		{sidecar(`"ports": [{"name": "http", "containerPort": 80}]`), "use another one"},
		{sidecar(`"volumeMounts": [{"name": "data", "mountPath": "/d"}]`), "must be readOnly"},
		{`{"spec": {"hostname": "` + strings.Repeat("a", 20_000) + `"}}`, "at most 16384 are possible"},
	} {
		_, refused := overlaid(t, placedStore(), test.overlay)
		if !strings.Contains(refused, test.want) || !strings.HasPrefix(refused, "spec.masters.pod.overlay: ") {
			t.Errorf("%.100s: refused with %q, not %q", test.overlay, refused, test.want)
		}
		if len(refused)+len(". Until then nothing of the Store is made or changed") > 300 {
			t.Errorf("%.100s: %d bytes are too much for a condition: %s", test.overlay, len(refused), refused)
		}
	}
}

// A sidecar without limits would take the masters' own CPUs from them.
func TestSidecarsOfGuaranteedPods(t *testing.T) {
	exclusive := func() *v1alpha1.Store {
		store := placedStore()
		store.Spec.Masters.CPUPolicy = v1alpha1.CPUExclusive
		return store
	}
	with := func(resources string) string {
		return `{"spec": {"containers": [{"name": "agent", "image": "a", "resources": ` + resources + `}]}}`
	}
	for overlay, isRefused := range map[string]bool{
		with(`{}`):                            true,
		with(`{"limits": {"memory": "1Gi"}}`): true,
		with(`{"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "500m"}}`): true,
		with(`{"limits": {"cpu": 1, "memory": "1Gi"}}`):                              false,
	} {
		if _, refused := overlaid(t, exclusive(), overlay); isRefused != strings.Contains(refused, "class Guaranteed") {
			t.Errorf("%s: %q", overlay, refused)
		}
	}
	if _, refused := overlaid(t, placedStore(), with(`{}`)); refused != "" {
		t.Errorf("with Shared: %q", refused)
	}
}

// A node counts as avoided only if every alternative leaves it out.
func TestAvoidedAmongAlternatives(t *testing.T) {
	term := func(nodes ...string) corev1.NodeSelectorTerm {
		var term corev1.NodeSelectorTerm
		for _, node := range nodes {
			term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{
				Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{node},
			})
		}
		return term
	}
	pod := &corev1.Pod{}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{term("mine", "isolated"), term("isolated")},
		},
	}}
	if avoided := resources.Avoided(pod); !slices.Equal(avoided, []string{"isolated"}) {
		t.Errorf("avoided are %v", avoided)
	}
}
