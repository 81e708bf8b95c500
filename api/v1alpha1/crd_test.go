package v1alpha1_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	crdFile = "../../config/crd/bases/rcbox.dev_stores.yaml"
	// A definition that is applied from the client's side is kept as JSON in an annotation, too, which may have 262144 bytes.
	maxCRDBytes = 200_000
)

// definitionIn gives a file's CustomResourceDefinition as an API server has it.
func definitionIn(t *testing.T, file string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(asJSON) > maxCRDBytes {
		t.Errorf("%s has %d bytes as JSON, more than %d", file, len(asJSON), maxCRDBytes)
	}
	external := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, external); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(external)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
		external, internal, nil); err != nil {
		t.Fatal(err)
	}
	// An API server sets it when the definition is established.
	internal.Status.StoredVersions = []string{external.Spec.Versions[0].Name}
	return internal
}

// An API server accepts the definition: its schema is structural, and no rule is too expensive.
func TestDefinitionIsValid(t *testing.T) {
	for _, file := range []string{crdFile, perfCRDFile, chassisCRDFile, serverCRDFile} {
		for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), definitionIn(t, file)) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// apiServer does to an object what an API server does: defaults, then validation by schema and rules.
type apiServer struct {
	structural *schema.Structural
	// validate and validateUpdate have the rules compiled, which takes longer than to apply them.
	validate       func(context.Context, runtime.Object) field.ErrorList
	validateUpdate func(context.Context, runtime.Object, runtime.Object) field.ErrorList
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	return newAPIServerOf(t, crdFile)
}

func newAPIServerOf(t *testing.T, file string) *apiServer {
	t.Helper()
	crd := definitionIn(t, file)
	version := schemaOf(crd)
	structural, err := schema.NewStructural(version.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(version.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	kind := v1alpha1.GroupVersion.WithKind(crd.Spec.Names.Kind)
	isNamespaced := crd.Spec.Scope == apiextensions.NamespaceScoped
	strategy := customresource.NewStrategy(runtime.NewScheme(), isNamespaced, kind, validator, nil, structural, nil, nil, nil)
	return &apiServer{structural: structural, validate: strategy.Validate, validateUpdate: strategy.ValidateUpdate}
}

func schemaOf(crd *apiextensions.CustomResourceDefinition) *apiextensions.CustomResourceValidation {
	if crd.Spec.Validation != nil {
		return crd.Spec.Validation
	}
	return crd.Spec.Versions[0].Schema
}

// read gives a manifest's object with defaults.
func (s *apiServer) read(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	defaulting.Default(object, s.structural)
	return &unstructured.Unstructured{Object: object}
}

// create gives the defaulted Store and the errors' texts.
func (s *apiServer) create(t *testing.T, manifest string) (*v1alpha1.Store, []string) {
	t.Helper()
	store := &v1alpha1.Store{}
	return store, s.createInto(t, manifest, store)
}

// createInto fills in the defaulted object and gives the errors' texts.
func (s *apiServer) createInto(t *testing.T, manifest string, into any) []string {
	t.Helper()
	object := s.read(t, manifest)
	errs := texts(s.validate(genericrequest.WithNamespace(t.Context(), "default"), object))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil && errs == nil {
		t.Fatal(err)
	}
	return errs
}

// update gives the errors' texts.
func (s *apiServer) update(t *testing.T, before, after string) []string {
	t.Helper()
	old, changed := s.read(t, before), s.read(t, after)
	old.SetResourceVersion("1")
	changed.SetResourceVersion("1")
	return texts(s.validateUpdate(genericrequest.WithNamespace(t.Context(), "default"), changed, old))
}

func texts(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		if text := err.Error(); !strings.Contains(text, "some validation rules were not checked") {
			list = append(list, text)
		}
	}
	return list
}

func manifest(name, spec string) string {
	text := "apiVersion: rcbox.dev/v1alpha1\nkind: Store\nmetadata: {name: " + name + ", namespace: default}\n"
	if spec != "" {
		text += "spec: " + spec + "\n"
	}
	return text
}

// decided is a spec, and a status in which an operator has decided on two copies and so much room for them.
func decided(spec, room string) string {
	return spec + "\nstatus: {observedGeneration: 1, replication: {decided: {factor: 2, storageSize: " + room + ", why: a}}}"
}

// seenByOlder is the status of a Store of an operator that did not decide on copies, and whose default were none.
const seenByOlder = "\nstatus: {observedGeneration: 1, replication: {factor: 0}}"

func TestDefaults(t *testing.T) {
	server := newAPIServer(t)
	for _, spec := range []string{"", "{}", "{masters: {replicas: 3}}", "{masters: {}, coordinator: {}, network: {}, placement: {}}"} {
		store, errs := server.create(t, manifest("box", spec))
		if errs != nil {
			t.Fatalf("spec %q is refused: %v", spec, errs)
		}
		got := store.Spec
		if got.Masters.Replicas != 3 || got.Masters.Memory.String() != "1Gi" || got.Masters.Cores != 1 {
			t.Errorf("spec %q: masters are %+v", spec, got.Masters)
		}
		if got.Network.Transport != v1alpha1.TransportTCP || got.Placement.FailureDomain != "kubernetes.io/hostname" ||
			got.ImagePullPolicy != "IfNotPresent" || got.Image != "" {
			t.Errorf("spec %q: defaults are %+v", spec, got)
		}
		if got.Coordinator.Resources.Limits.Memory().String() != "256Mi" || got.Coordinator.State.Size.String() != "1Gi" {
			t.Errorf("spec %q: coordinator is %+v", spec, got.Coordinator)
		}
		// How many copies there are, and how much room for them, the operator decides: a default here would change Stores that there are.
		if got.Replication.Factor != nil || got.Backups.Storage.Size != nil || got.Backups.Storage.Type != v1alpha1.StorageVolume ||
			got.ReclaimPolicy != v1alpha1.ReclaimRetain {
			t.Errorf("spec %q: replication is %+v, storage %+v, %s", spec, got.Replication, got.Backups.Storage, got.ReclaimPolicy)
		}
		// Where the state is, the operator decides: a default here would change Stores that there are already.
		if got.Coordinator.Replicas != 1 || got.Coordinator.State.Type != "" {
			t.Errorf("spec %q: coordinator is %+v", spec, got.Coordinator)
		}
	}
}

// One line asks for copies that are as safe as the cluster's volumes are.
func TestDefaultsOfCopies(t *testing.T) {
	for factor, least := range map[int32]int32{1: 1, 2: 1, 3: 2} {
		spec := fmt.Sprintf("{masters: {replicas: 4}, replication: {factor: %d}}", factor)
		store, errs := newAPIServer(t).create(t, manifest("box", spec))
		if errs != nil {
			t.Fatal(errs)
		}
		got := store.Spec
		if store.Copies() != factor || store.LeastCopies() != least || got.Replication.Durability != v1alpha1.Buffered {
			t.Errorf("factor %d: replication is %+v, min %d", factor, got.Replication, store.LeastCopies())
		}
		size := store.CopiesStorage()
		if storage := got.Backups.Storage; storage.Type != v1alpha1.StorageVolume || size.Value() != int64(factor)*2<<30 ||
			storage.StorageClassName != nil || store.FormerState() != v1alpha1.StateVolume {
			t.Errorf("factor %d: storage is %+v of %s, state in %s", factor, storage, &size, store.FormerState())
		}
	}
}

// Every amount of a spec is checked by a rule that says in words what is wrong: a pattern would be all that one is told.
func TestAmountsAreCheckedByRules(t *testing.T) {
	for _, file := range []string{crdFile, perfCRDFile} {
		found := 0
		var look func(schema apiextensions.JSONSchemaProps, path string, isChecked bool)
		look = func(schema apiextensions.JSONSchemaProps, path string, isChecked bool) {
			for _, rule := range schema.XValidations {
				isChecked = isChecked || strings.HasPrefix(rule.Rule, "isQuantity(string(self))") ||
					strings.HasPrefix(rule.Rule, "self.all(name, isQuantity(")
			}
			if schema.XIntOrString {
				found++
				if !isChecked || schema.Pattern != "" {
					t.Errorf("%s: %s is checked by the pattern %q, and by a rule: %v", file, path, schema.Pattern, isChecked)
				}
				return
			}
			for name, property := range schema.Properties {
				look(property, path+"."+name, false)
			}
			if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
				look(*schema.AdditionalProperties.Schema, path+"[]", isChecked)
			}
		}
		look(schemaOf(definitionIn(t, file)).OpenAPIV3Schema.Properties["spec"], "spec", false)
		if found == 0 {
			t.Errorf("%s has no amounts", file)
		}
	}
}

// What a change may do, and what it may not because data would be lost by it.
func TestUpdates(t *testing.T) {
	server := newAPIServer(t)
	const (
		copies = "{masters: {replicas: 4}, replication: {factor: 2}}"
		never0 = "spec.replication.factor: Invalid value: replication.factor cannot become 0 again: what only copies hold " +
			"would be lost; make another Store"
		storage = "spec.backups.storage: Invalid value: backups.storage.type and backups.storage.storageClassName " +
			"cannot be changed while " +
			"there are copies: a member's room for them is laid out once; make another Store"
		lessRoom = "spec.backups.storage.size: Invalid value: backups.storage.size cannot become less while there are copies: volumes do " +
			"not shrink; make another Store"
		segments = "spec.backups.storage.size: Invalid value: backups.storage.size cannot grow past 1536Mi or 3Gi for each of " +
			"masters.cores while there are copies: pieces of logs are larger from there on, and those that there are " +
			"keep theirs; make another Store"
		cores = "spec.masters.cores: Invalid value: masters.cores cannot be changed while there are copies: each core has a file " +
			"of its own for them; make another Store"
		state = "spec.coordinator.state: Invalid value: coordinator.state cannot be changed once it outlives the coordinator, " +
			"but for a size that grows: the tables are there; make another Store"
		tooLittle = "spec.masters.replicas: Invalid value: masters.replicas must be greater than the number of copies, which is " +
			"replication.factor or, where that is not set, status.replication.decided.factor: each copy is on another member than its " +
			"master, and no two are on one"
		tooSmall = "spec.backups.storage.size: Invalid value: backups.storage.size must be at least replication.factor times " +
			"masters.memory: each member keeps that many copies of what a master holds"
		hibernated = "spec.hibernated: Invalid value: hibernated needs replication.factor above 0, backups.storage.type: Volume, and a " +
			"coordinator.state that is not Memory: what is in memory alone would be lost"
	)
	for _, test := range []struct{ name, before, after, want string }{
		{"nothing", copies, copies, ""},
		{"sleep", copies, "{hibernated: true, masters: {replicas: 4}, replication: {factor: 2}}", ""},
		{"a store of the time before copies", "{masters: {replicas: 2}}", "{masters: {replicas: 3, cores: 2}}", ""},
		{"more copies", copies, "{masters: {replicas: 4}, replication: {factor: 3, durability: Flushed}}", ""},
		{"copies at last", "{masters: {replicas: 4}, backups: {storage: {type: Memory}}}", copies, ""},
		{
			"storage before there are copies", "{backups: {storage: {size: 1Gi}}}",
			"{backups: {storage: {size: 8Gi, storageClassName: a}}}", "",
		},
		{"the same in other words", copies, "{masters: {replicas: 4, memory: 1024Mi}, replication: {factor: 2}, " +
			"backups: {storage: {size: 4096Mi}}, coordinator: {state: {type: Volume}}}", ""},
		{"more memory", copies, "{masters: {replicas: 4, memory: 2Gi}, replication: {factor: 2}}", ""},
		{"reclaim policy", copies, "{masters: {replicas: 4}, replication: {factor: 2}, reclaimPolicy: Delete}", ""},
		{"state to a volume", "{}", "{coordinator: {state: {type: Volume, size: 2Gi}}}", ""},
		{"state in Kubernetes, said at last", copies, "{masters: {replicas: 4}, replication: {factor: 2}, " +
			"coordinator: {replicas: 2, state: {type: Kubernetes}}}", ""},
		{"standbys", "{coordinator: {state: {type: Kubernetes}}}", "{coordinator: {replicas: 3, state: {type: Kubernetes}}}", ""},
		{"state no longer said", "{coordinator: {state: {type: Volume}}}", "{}", ""},
		{"state from a volume elsewhere", "{coordinator: {state: {type: Volume}}}", "{coordinator: {state: {type: Kubernetes}}}", state},
		{"state from Kubernetes to memory", "{coordinator: {state: {type: Kubernetes}}}", "{coordinator: {state: {type: Memory}}}", state},
		{"no copies any more", copies, "{masters: {replicas: 4}, replication: {factor: 0}, coordinator: {state: {type: Volume}}}", never0},
		{"the number of copies taken out", decided(copies, "4Gi"), decided("{masters: {replicas: 4}}", "4Gi"), ""},
		{"none of the copies that were decided", decided("{}", "4Gi"), decided("{replication: {factor: 0}}", "4Gi"), never0},
		{"no copies before anybody has decided", "{}", "{replication: {factor: 0}}", ""},
		{
			"more copies than were decided", decided("{masters: {replicas: 4}}", "8Gi"),
			decided("{masters: {replicas: 4}, replication: {factor: 3}}", "8Gi"), "",
		},
		{"scaling in to as many masters as there are copies", decided("{}", "4Gi"), decided("{masters: {replicas: 2}}", "4Gi"), tooLittle},
		{"scaling in, one more than copies", decided("{masters: {replicas: 5}}", "4Gi"), decided("{}", "4Gi"), ""},
		{"memory up to the room that was decided", decided("{}", "4Gi"), decided("{masters: {memory: 2Gi}}", "4Gi"), ""},
		{"more memory than the room that was decided", decided("{}", "4Gi"), decided("{masters: {memory: 3Gi}}", "4Gi"), tooSmall},
		{"less room than was decided", decided("{}", "4Gi"), decided("{backups: {storage: {size: 2Gi}}}", "4Gi"), lessRoom},
		{"more room than was decided", decided("{}", "4Gi"), decided("{backups: {storage: {size: 5Gi}}}", "4Gi"), ""},
		{"cores, with copies that were decided", decided("{}", "4Gi"), decided("{masters: {cores: 2}}", "4Gi"), cores},
		{"sleep, with copies that were decided", decided("{}", "4Gi"), decided("{hibernated: true}", "4Gi"), ""},
		{
			"sleep of a Store that older operators made without copies", "{masters: {replicas: 3}}" + seenByOlder,
			"{hibernated: true}" + seenByOlder, hibernated,
		},
		{"scaling in of such a Store", "{masters: {replicas: 3}}" + seenByOlder, "{masters: {replicas: 1}}" + seenByOlder, ""},

		{"more room", copies, "{masters: {replicas: 4}, replication: {factor: 2}, backups: {storage: {size: 5Gi}}}", ""},
		{"less room", copies, "{masters: {replicas: 4}, replication: {factor: 2}, backups: {storage: {size: 3584Mi}}}", ""},
		{
			"less room, and smaller pieces", "{replication: {factor: 1}, backups: {storage: {size: 4Gi}}}",
			"{replication: {factor: 1}, backups: {storage: {size: 1Gi}}}", lessRoom,
		},
		{
			"more room than segments are for", "{replication: {factor: 1}, backups: {storage: {size: 3071Mi}}}",
			"{replication: {factor: 1}, backups: {storage: {size: 3Gi}}}", segments,
		},
		{
			"more room for two cores", "{masters: {cores: 2}, replication: {factor: 1}, backups: {storage: {size: 4Gi}}}",
			"{masters: {cores: 2}, replication: {factor: 1}, backups: {storage: {size: 6143Mi}}}", "",
		},
		{
			"too much room for two cores", "{masters: {cores: 2}, replication: {factor: 1}, backups: {storage: {size: 4Gi}}}",
			"{masters: {cores: 2}, replication: {factor: 1}, backups: {storage: {size: 6Gi}}}", segments,
		},
		{"another type", copies, "{masters: {replicas: 4}, replication: {factor: 2}, backups: {storage: {type: Memory}}}", storage},
		{"another class", copies, "{masters: {replicas: 4}, replication: {factor: 2}, backups: {storage: {storageClassName: a}}}", storage},
		{"reserved pages", copies, "{masters: {replicas: 4, hugePages: Reserved}, replication: {factor: 2}}", ""},
		{"CPUs of their own", copies, "{masters: {replicas: 4, cpuPolicy: Exclusive}, replication: {factor: 2}}", ""},
		{"more cores", copies, "{masters: {replicas: 4, cores: 2}, replication: {factor: 2}}", cores},
		{"state back to memory", copies, "{masters: {replicas: 4}, replication: {factor: 2}, coordinator: {state: {type: Memory}}}", state},
		{"state with more room", "{coordinator: {state: {type: Volume}}}", "{coordinator: {state: {type: Volume, size: 2Gi}}}", ""},
		{"state with less room", "{coordinator: {state: {type: Volume}}}", "{coordinator: {state: {type: Volume, size: 512Mi}}}", state},
		{"fewer masters than copies need", copies, "{masters: {replicas: 2}, replication: {factor: 2}}", tooLittle},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := strings.Join(server.update(t, manifest("box", test.before), manifest("box", test.after)), "\n")
			if got != test.want {
				t.Errorf("refused with\n  %q\nnot with\n  %q", got, test.want)
			}
		})
	}
}

func TestValidSpecs(t *testing.T) {
	server := newAPIServer(t)
	for name, spec := range map[string]string{
		"small":        "{masters: {replicas: 1, memory: 256Mi}}",
		"large":        "{masters: {replicas: 1000, memory: 1Ti, cores: 64}}",
		"bytes":        "{masters: {memory: 1073741824}}",
		"much memory":  "{masters: {memory: 512Gi}}",
		"one master":   "{masters: {replicas: 1}}",
		"by choice":    "{replication: {factor: 0}}",
		"asleep":       "{hibernated: true}",
		"resources":    "{masters: {resources: {requests: {cpu: 500m}, limits: {cpu: 2}}}}",
		"coordinator":  "{coordinator: {resources: {limits: {memory: 64Mi}}}}",
		"placement":    "{placement: {nodeSelector: {disk: none}, tolerations: [{key: a, operator: Exists}], failureDomain: rack}}",
		"zone":         "{placement: {failureDomain: topology.kubernetes.io/zone, priorityClassName: high}}",
		"image":        "{image: 'registry.example/rcbox/store:1.2@sha256:abc', imagePullPolicy: Never, imagePullSecrets: [{name: a}]}",
		"empty limits": "{masters: {resources: {}}}",
		"many copies":  "{masters: {replicas: 9}, replication: {factor: 8, min: 8}, backups: {storage: {size: 8Gi}}}",
		"copies in memory": "{masters: {replicas: 2, memory: 256Mi}, replication: {factor: 1, min: 1}, " +
			"backups: {storage: {type: Memory, size: 256Mi}}, coordinator: {state: {type: Memory}}}",
		"own CPUs":       "{masters: {cores: 4, cpuPolicy: Exclusive, resources: {requests: {ephemeral-storage: 1Gi}}}}",
		"reserved pages": "{masters: {hugePages: Reserved, resources: {limits: {hugepages-2Mi: 1Gi}}}}",
		"other pages":    "{masters: {hugePages: Transparent}}",
		"drills":         "{recovery: {drill: {schedule: '30 2 * * 1-5', timeZone: Europe/Berlin, window: 90m}}}",
		"daily":          "{recovery: {drill: {schedule: '@daily'}}}",
		"target":         "{recovery: {target: 1m30s, capacityPolicy: Refuse}}",
		"flushed":        "{replication: {factor: 2, durability: Flushed}, backups: {storage: {storageClassName: fast}}}",
	} {
		if _, errs := server.create(t, manifest("box", spec)); errs != nil {
			t.Errorf("%s is refused: %v", name, errs)
		}
	}
	if _, errs := server.create(t, manifest(strings.Repeat("a", 40), "{}")); errs != nil {
		t.Errorf("a name of 40 letters is refused: %v", errs)
	}
}

func TestSamplesAreValid(t *testing.T) {
	server := newAPIServer(t)
	files, err := filepath.Glob("../../config/samples/store*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	onPorts, err := filepath.Glob("../../config/network/store*.yaml")
	if err != nil || len(onPorts) == 0 {
		t.Fatalf("no samples with ports: %v", err)
	}
	files = append(files, onPorts...)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, &v1alpha1.Store{}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if _, errs := server.create(t, string(text)); errs != nil {
			t.Errorf("%s is refused: %v", file, errs)
		}
	}
}
