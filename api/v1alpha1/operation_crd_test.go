package v1alpha1_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const operationCRDFile = "../../config/crd/bases/rcbox.dev_storeoperations.yaml"

func operationManifest(spec string) string {
	return "apiVersion: rcbox.dev/v1alpha1\nkind: StoreOperation\nmetadata: {name: now, namespace: default}\nspec: " + spec + "\n"
}

func TestOperations(t *testing.T) {
	server := newAPIServerOf(t, operationCRDFile)
	for _, test := range []struct{ name, spec, want string }{
		{"a drill of any master", "{storeRef: {name: box}, type: Drill}", ""},
		{"a drill of one", "{storeRef: {name: box}, type: Drill, drill: {member: box-master-1}}", ""},
		{"a drain", "{storeRef: {name: box}, type: Drain, drain: {member: box-master-1}}", ""},
		{"a drain of nobody", "{storeRef: {name: box}, type: Drain}", "type Drain needs spec.drain"},
		{
			"two things at once", "{storeRef: {name: box}, type: Drain, drill: {}, drain: {member: box-master-1}}",
			"spec.drill is for type Drill only",
		},
		{"an isolation", "{storeRef: {name: box}, type: Isolate, isolate: {node: worker-1, reason: slow}}", ""},
		{"an isolation of nothing", "{storeRef: {name: box}, type: Isolate}", "type Isolate needs spec.isolate"},
		{"the end of an upgrade", "{storeRef: {name: box}, type: Finalize, finalize: {format: 2}}", ""},
		{"the end of no upgrade", "{storeRef: {name: box}, type: Finalize}", "type Finalize needs spec.finalize"},
		{"a split", "{storeRef: {name: box}, type: Split, split: {table: fruit, parts: 16}}", ""},
		{"a split of nothing", "{storeRef: {name: box}, type: Split}", "type Split needs spec.split"},
		{"a split beside a drill", "{storeRef: {name: box}, type: Drill, split: {table: fruit, parts: 2}}", "type Split needs spec.split"},
		{"a split into one part", "{storeRef: {name: box}, type: Split, split: {table: fruit, parts: 1}}", "greater than or equal to 2"},
		{"a split into too many", "{storeRef: {name: box}, type: Split, split: {table: fruit, parts: 4097}}", "less than or equal to 4096"},
		{
			"a split of a table without a name", "{storeRef: {name: box}, type: Split, split: {table: '', parts: 2}}",
			"at least 1 chars long",
		},
		{"a restart of all", "{storeRef: {name: box}, type: Restart}", ""},
		{"a restart of some", "{storeRef: {name: box}, type: Restart, restart: {members: [box-master-1]}}", ""},
		{
			"a restart of one twice", "{storeRef: {name: box}, type: Restart, restart: {members: [box-master-1, box-master-1]}}",
			"Duplicate value",
		},
		{"no Store", "{type: Drill}", "spec.storeRef: Required value"},
		{"no type", "{storeRef: {name: box}}", "spec.type: Required value"},
		{"an unknown type", "{storeRef: {name: box}, type: Dance}", "Unsupported value"},
		{"an empty name", "{storeRef: {name: box}, type: Drill, drill: {member: ''}}", "should be at least 1 chars long"},
	} {
		t.Run(test.name, func(t *testing.T) {
			errs := server.createInto(t, operationManifest(test.spec), &v1alpha1.StoreOperation{})
			isAsWanted := test.want == "" && len(errs) == 0 || test.want != "" && slices.ContainsFunc(errs, func(text string) bool {
				return strings.Contains(text, test.want)
			})
			if !isAsWanted {
				t.Errorf("refused with %q, not with %q", errs, test.want)
			}
		})
	}
}

// An order is carried out as it was given.
func TestOperationIsFixed(t *testing.T) {
	server := newAPIServerOf(t, operationCRDFile)
	const before = "{storeRef: {name: box}, type: Drill}"
	if errs := server.update(t, operationManifest(before), operationManifest(before)); errs != nil {
		t.Errorf("the same is refused: %v", errs)
	}
	for _, after := range []string{
		"{storeRef: {name: other}, type: Drill}", "{storeRef: {name: box}, type: Drill, drill: {member: box-master-1}}",
	} {
		errs := strings.Join(server.update(t, operationManifest(before), operationManifest(after)), "\n")
		if !strings.Contains(errs, "spec cannot be changed: an operation is carried out as it was ordered") {
			t.Errorf("%s: %q", after, errs)
		}
	}
}

func TestOperationSamplesAreValid(t *testing.T) {
	for _, file := range []string{"operation.yaml", "operation-split.yaml"} {
		text, err := os.ReadFile("../../config/samples/" + file)
		if err != nil {
			t.Fatal(err)
		}
		operation := &v1alpha1.StoreOperation{}
		if err := yaml.UnmarshalStrict(text, operation); err != nil {
			t.Error(err)
		}
		if errs := newAPIServerOf(t, operationCRDFile).createInto(t, string(text), operation); errs != nil {
			t.Errorf("%s is refused: %v", file, errs)
		}
	}
}

// The roles that allow all types, and the schema, have the same types.
func TestOperationTypes(t *testing.T) {
	crd := schemaOf(definitionIn(t, operationCRDFile)).OpenAPIV3Schema.Properties["spec"]
	role, err := os.ReadFile("../../config/rbac/store_operator_role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rights, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	types := crd.Properties["type"].Enum
	if len(types) != len(v1alpha1.OperationTypes()) {
		t.Errorf("the schema has %v, the code %v", types, v1alpha1.OperationTypes())
	}
	for _, kind := range v1alpha1.OperationTypes() {
		verb := strings.ToLower(string(kind))
		if !strings.Contains(string(role), ", "+verb) {
			t.Errorf("the role of those who give orders lacks %s", verb)
		}
		isTheOperators := kind == v1alpha1.OperationDrill || kind == v1alpha1.OperationDrain || kind == v1alpha1.OperationIsolate
		if isTheOperators && !strings.Contains(string(rights), "  - "+verb+"\n") {
			t.Errorf("the operator's role lacks %s, and it gives such orders", verb)
		}
	}
}
