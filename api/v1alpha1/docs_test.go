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

// The reference names every field, every rule's text and every printer column.
func TestReferenceIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../docs/store-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	reference := string(text)
	crd := definition(t)
	schema := crd.Spec.Validation
	if schema == nil {
		schema = crd.Spec.Versions[0].Schema
	}
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
			t.Errorf("docs/store-reference.md does not name the field %s", name)
		}
	}
	for _, message := range messages(*schema.OpenAPIV3Schema) {
		if !strings.Contains(reference, message) {
			t.Errorf("docs/store-reference.md does not have the text %q", message)
		}
	}
	columns := crd.Spec.AdditionalPrinterColumns
	if len(columns) == 0 {
		columns = crd.Spec.Versions[0].AdditionalPrinterColumns
	}
	for _, column := range columns {
		if !strings.Contains(reference, "`"+column.Name+"`") {
			t.Errorf("docs/store-reference.md does not name the column %s", column.Name)
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
	reference, err := os.ReadFile("../../docs/store-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("names.go")
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
			t.Errorf("docs/store-reference.md does not have the reason %s", reason)
		}
	}
	if found < 15 {
		t.Errorf("only %d reasons found", found)
	}
}
