package v1alpha1_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// fields lists the names of the fields of a schema that are this project's own (not those of Kubernetes' types).
func fields(schema apiextensions.JSONSchemaProps, path string, list map[string]bool) {
	for name, property := range schema.Properties {
		if strings.HasPrefix(property.Description, "Former field: ") {
			continue // nobody is to use it any more
		}
		switch below := path + "." + name; {
		case name == "conditions" || name == "tolerations" || name == "imagePullSecrets" || name == "affinity" ||
			name == "topologySpreadConstraints" || strings.HasSuffix(below, ".resources"):
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
	t.Run("Store", func(t *testing.T) { referenceIsComplete(t, "docs/store-reference.md", crdFile, 40) })
	t.Run("ClusterPerf", func(t *testing.T) { referenceIsComplete(t, "docs/clusterperf-resource.md", perfCRDFile, 40) })
	t.Run("StoreMember", func(t *testing.T) { referenceIsComplete(t, "docs/store-members.md", memberCRDFile, 30) })
	t.Run("StoreOperation", func(t *testing.T) { referenceIsComplete(t, "docs/store-operations.md", operationCRDFile, 12) })
}

func referenceIsComplete(t *testing.T, page, crdFile string, least int) {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	reference := string(text)
	crd := definitionIn(t, crdFile)
	schema := schemaOf(crd)
	list := map[string]bool{}
	for _, part := range []string{"spec", "status", "record"} {
		fields(schema.OpenAPIV3Schema.Properties[part], part, list)
	}
	if len(list) < least {
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
	reasonsAreDocumented(t, "docs/store-operations.md", "operation_names.go", 7)
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

// The default room for copies is what the code computes, wherever it is written down.
func TestDefaultRoomIsDocumented(t *testing.T) {
	for page, formula := range map[string]string{
		"docs/store-reference.md": fmt.Sprintf("%d x `replication.factor` x `masters.memory`", v1alpha1.DefaultStorageShare),
		"docs/operations.md":      fmt.Sprintf("`%d * R * M`", v1alpha1.DefaultStorageShare),
	} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), formula) {
			t.Errorf("%s does not have the formula %s", page, formula)
		}
	}
	if size := v1alpha1.DefaultStorage(2, resource.MustParse("1Gi")); size.Cmp(resource.MustParse("4Gi")) != 0 {
		t.Errorf("two copies of 1Gi get %s", &size)
	}
}

// The tables of fields have no field that is not there, and the defaults of the schema.
func TestReferencesHaveDefaults(t *testing.T) {
	t.Run("Store", func(t *testing.T) { referenceHasDefaults(t, "docs/store-reference.md", crdFile, 60) })
	t.Run("ClusterPerf", func(t *testing.T) { referenceHasDefaults(t, "docs/clusterperf-resource.md", perfCRDFile, 15) })
}

var (
	// A row that begins with paths of fields, and what it has as their default.
	fieldRow  = regexp.MustCompile("(?m)^\\| (`[a-zA-Z.\\[\\]]+`(?:, `[a-zA-Z.\\[\\]]+`)*) \\| ([^|]*) \\|")
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	wholeCode = regexp.MustCompile("^`([^`]+)`$")
)

func referenceHasDefaults(t *testing.T, page, crdFile string, least int) {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## spec\n")
	table, _, _ = strings.Cut(table, "\n## ")
	spec := schemaOf(definitionIn(t, crdFile)).OpenAPIV3Schema.Properties["spec"]
	found := 0
	for _, row := range fieldRow.FindAllStringSubmatch(table, -1) {
		for _, path := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			found++
			property, isThere := propertyAt(spec, path[1])
			if !isThere {
				t.Errorf("%s has a field %s that is not in the schema", page, path[1])
				continue
			}
			checkDefault(t, page, path[1], row[2], property)
		}
	}
	if found < least {
		t.Errorf("only %d fields found in %s", found, page)
	}
}

func propertyAt(schema apiextensions.JSONSchemaProps, path string) (apiextensions.JSONSchemaProps, bool) {
	for name := range strings.SplitSeq(path, ".") {
		property, isThere := schema.Properties[strings.TrimSuffix(name, "[]")]
		if !isThere {
			return property, false
		}
		if strings.HasSuffix(name, "[]") {
			property = *property.Items.Schema
		}
		schema = property
	}
	return schema, true
}

// checkDefault compares what a page says with what the schema fills in. What the program does where nothing is filled in, the field's
// description says.
func checkDefault(t *testing.T, page, path, said string, property apiextensions.JSONSchemaProps) {
	t.Helper()
	value := ""
	if property.Default != nil {
		switch (*property.Default).(type) {
		case map[string]any, []any:
			return
		default:
			value = fmt.Sprint(*property.Default)
		}
	}
	if value != "" && strings.Trim(said, "`") != value {
		t.Errorf("%s says that %s is %s by default, and the schema has %s", page, path, said, value)
	}
	code := wholeCode.FindStringSubmatch(said)
	if value != "" || code == nil || code[1] == "false" || code[1] == "0" {
		return
	}
	if !strings.Contains(property.Description, "it is "+code[1]) {
		t.Errorf("%s says that %s is %s by default; neither a default of the schema nor its description does", page, path, said)
	}
}

// The texts about unsupported values list those that the schema has.
func TestReferenceListsSupportedValues(t *testing.T) {
	text, err := os.ReadFile("../../docs/store-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	spec := schemaOf(definitionIn(t, crdFile)).OpenAPIV3Schema.Properties["spec"]
	row := regexp.MustCompile("(?m)^\\| `([a-z]+): \\{([a-zA-Z]+): (\\w+)\\}` \\| " +
		"Unsupported value: \"(\\w+)\": supported values: (.*) \\|$")
	rows := row.FindAllStringSubmatch(string(text), -1)
	if len(rows) == 0 {
		t.Fatal("there is no such text")
	}
	for _, row := range rows {
		property, _ := propertyAt(spec, row[1]+"."+row[2])
		values := make([]string, 0, len(property.Enum))
		for _, value := range property.Enum {
			values = append(values, fmt.Sprintf("%q", value))
		}
		if supported := strings.Join(values, ", "); row[3] != row[4] || row[5] != supported || strings.Contains(supported, `"`+row[3]+`"`) {
			t.Errorf("%s.%s: %q is answered by %q and %s; the schema has %s", row[1], row[2], row[3], row[4], row[5], supported)
		}
	}
}
