package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// fieldPaths are the paths of all fields of the custom resources, without "spec.", such as masters.memory and
// status.masters.unwell[].message, and those of the chart's values.
func fieldPaths(t *testing.T) map[string]bool {
	t.Helper()
	paths := map[string]bool{}
	for _, file := range []string{
		"bases/rcbox.dev_stores", "bases/rcbox.dev_storemembers", "bases/rcbox.dev_clusterperfs", "bases/rcbox.dev_storeoperations",
		"box/rcbox.dev_chassis", "box/rcbox.dev_servers", "box/rcbox.dev_nodefences",
	} {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		readYAML(t, "config/crd/"+file+".yaml", definition)
		schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		addFields(paths, "", schema.Properties["spec"])
		addFields(paths, "status", schema.Properties["status"])
		if record, isThere := schema.Properties["record"]; isThere {
			addFields(paths, "record", record)
		}
	}
	values := map[string]any{}
	readYAML(t, "charts/rcbox/values.yaml", &values)
	addValues(paths, "", values)
	if len(paths) < 200 {
		t.Fatalf("only %d fields found", len(paths))
	}
	return paths
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// addValues adds the paths of the chart's values.
func addValues(paths map[string]bool, path string, values map[string]any) {
	for key, value := range values {
		below := strings.TrimPrefix(path+"."+key, ".")
		if path != "" {
			paths[below] = true
		}
		if inner, isMap := value.(map[string]any); isMap {
			addValues(paths, below, inner)
		}
	}
}

// addFields adds what is below a field. Below a list it is found with and without "[]".
func addFields(paths map[string]bool, path string, schema apiextensionsv1.JSONSchemaProps) {
	if path != "" {
		paths[path] = true
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		addFields(paths, path+"[]", *schema.Items.Schema)
		addFields(paths, path, *schema.Items.Schema)
	}
	for name, inner := range schema.Properties {
		addFields(paths, strings.TrimPrefix(path+"."+name, "."), inner)
	}
	if schema.AdditionalProperties != nil {
		paths[path+".*"] = true
	}
}

// TestFields: a field that a page names by its path is there.
func TestFields(t *testing.T) {
	paths := fieldPaths(t)
	first := map[string]bool{}
	for path := range paths {
		name, _, _ := strings.Cut(path, ".")
		first[strings.TrimSuffix(name, "[]")] = true
	}
	name := regexp.MustCompile("`(?:spec\\.)?((?:[a-z][A-Za-z]*)(?:\\[\\])?(?:\\.[a-z][A-Za-z]*(?:\\[\\])?)+)(?:`|: |=)")
	named := 0
	for page, text := range pages(t) {
		if page == "docs/api.md" {
			continue // generated
		}
		for _, path := range matches(name, text) {
			begin, _, _ := strings.Cut(path, ".")
			if !first[strings.TrimSuffix(begin, "[]")] {
				continue
			}
			if slices.Contains([]string{".json", ".md", ".rs", ".txt"}, filepath.Ext(path)) {
				continue // a file
			}
			named++
			// Keys of maps are anybody's; and the reference of the status leaves "status." out.
			isKey := paths[strings.TrimSuffix(path, filepath.Ext(path))+".*"]
			if !paths[path] && !paths["status."+path] && !isKey {
				t.Errorf("%s names the field %s: there is no such field", page, path)
			}
		}
	}
	if named < 150 {
		t.Errorf("only %d names of fields found", named)
	}
}

// TestReasons: the references explain each reason of a condition, and what other pages call one is one.
func TestReasons(t *testing.T) {
	var sources strings.Builder
	files, err := filepath.Glob(filepath.Join(root, "api/v1alpha1/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(text)
	}
	list := pages(t)
	reasons := matches(regexp.MustCompile(`(?m)^\s+Reason\w+\s+= "(\w+)"`), sources.String())
	for _, reason := range reasons {
		references := list["docs/store-reference.md"] + list["docs/clusterperf-resource.md"] + list["docs/store-operations.md"]
		if !strings.Contains(references, "`"+reason+"`") {
			t.Errorf("no reference of a resource explains the reason %s", reason)
		}
	}
	if len(reasons) < 50 {
		t.Errorf("only %d reasons found", len(reasons))
	}
	// In the first column of tables: conditions, reasons, states.
	word := regexp.MustCompile("`([A-Z][a-z]+[A-Za-z]*)`")
	for _, page := range []string{"docs/runbooks.md", "docs/operations.md"} {
		for _, cell := range matches(regexp.MustCompile(`(?m)^\| ([^|]*) \|`), list[page]) {
			for _, name := range matches(word, cell) {
				isOfKubernetes := slices.Contains([]string{"True", "False", "Unknown"}, name)
				if !isOfKubernetes && !strings.Contains(sources.String(), `"`+name+`"`) {
					t.Errorf("%s has %s in a table: no condition, reason or state is called so", page, name)
				}
			}
		}
	}
}

// TestPlantedBugsOfOperator: the page of the operator has an item for each bug that its simulation is tried with.
func TestPlantedBugsOfOperator(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "operator/internal/controller/simulation_planted_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	planted := len(regexp.MustCompile(`(?m)^\s+reported: "`).FindAllString(string(text), -1))
	_, list, _ := strings.Cut(pages(t)["docs/operator.md"], "\nThese are the rules that are broken:\n\n")
	list, _, _ = strings.Cut(list, "\n\n")
	if rules := strings.Count("\n"+list, "\n- "); rules != planted || planted < 20 {
		t.Errorf("docs/operator.md has %d broken rules, and %d bugs are planted", rules, planted)
	}
}
