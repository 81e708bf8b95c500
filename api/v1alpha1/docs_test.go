package v1alpha1_test

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
)

// fields lists the names of the fields of a schema that are this project's own (not those of Kubernetes' types).
func fields(schema apiextensions.JSONSchemaProps, path string, list map[string]bool) {
	for name, property := range schema.Properties {
		switch below := path + "." + name; {
		case name == "conditions" || name == "tolerations" || name == "imagePullSecrets" || strings.HasSuffix(below, ".resources"):
			list[name] = true
		case property.Items != nil && property.Items.Schema != nil && len(property.Items.Schema.Properties) > 0:
			list[name] = true
			fields(*property.Items.Schema, below, list)
		case len(property.Properties) > 0:
			fields(property, below, list)
		default:
			list[name] = true
		}
	}
}

// The references name every field, every rule's text and every printer column.
func TestReferencesAreComplete(t *testing.T) {
	t.Run("Store", func(t *testing.T) { referenceIsComplete(t, "docs/store-reference.md", crdFile) })
	t.Run("ClusterPerf", func(t *testing.T) { referenceIsComplete(t, "docs/clusterperf-resource.md", perfCRDFile) })
}

func referenceIsComplete(t *testing.T, page, crdFile string) {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	reference := string(text)
	crd := definitionIn(t, crdFile)
	schema := schemaOf(crd)
	list := map[string]bool{}
	for _, part := range []string{"spec", "status"} {
		fields(schema.OpenAPIV3Schema.Properties[part], part, list)
	}
	if len(list) < 40 {
		t.Fatalf("only %d fields found: %v", len(list), list)
	}
	for name := range list {
		// `name`, `parent.name`, `.name`, `name[]`
		if !strings.Contains(reference, name+"`") && !strings.Contains(reference, name+"[]`") {
			t.Errorf("%s does not name the field %s", page, name)
		}
	}
	for _, message := range messages(*schema.OpenAPIV3Schema) {
		if !strings.Contains(reference, message) {
			t.Errorf("%s does not have the text %q", page, message)
		}
	}
	columns := crd.Spec.AdditionalPrinterColumns
	if len(columns) == 0 {
		columns = crd.Spec.Versions[0].AdditionalPrinterColumns
	}
	for _, column := range columns {
		if !strings.Contains(reference, "`"+column.Name+"`") {
			t.Errorf("%s does not name the column %s", page, column.Name)
		}
	}
}

func messages(schema apiextensions.JSONSchemaProps) []string {
	var list []string
	for _, rule := range schema.XValidations {
		list = append(list, rule.Message)
	}
	for _, property := range schema.Properties {
		list = append(list, messages(property)...)
	}
	return list
}

// Every reason that the code can give is in the reference.
func TestReasonsAreDocumented(t *testing.T) {
	reasonsAreDocumented(t, "docs/store-reference.md", "names.go", 15)
	reasonsAreDocumented(t, "docs/clusterperf-resource.md", "clusterperf_names.go", 13)
}

func reasonsAreDocumented(t *testing.T, page, file string, least int) {
	t.Helper()
	reference, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(source)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || !strings.HasPrefix(name, "Reason") {
			continue
		}
		found++
		if reason := strings.Trim(strings.TrimSpace(value), `"`); !strings.Contains(string(reference), "`"+reason+"`") {
			t.Errorf("%s does not have the reason %s", page, reason)
		}
	}
	if found < least {
		t.Errorf("only %d reasons found", found)
	}
}
