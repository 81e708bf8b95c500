package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// The manifests of Stores, ClusterPerfs and StoreOperations in pages, and beginnings of them, have no unknown field, and an API server
// takes them.
func TestExamplesOfPages(t *testing.T) {
	stores, runs, operations := newAPIServer(t), newAPIServerOf(t, perfCRDFile), newAPIServerOf(t, operationCRDFile)
	block := regexp.MustCompile("(?ms)^```ya?ml\n(.*?)^```")
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range block.FindAllStringSubmatch(string(text), -1) {
			for manifest := range strings.SplitSeq(match[1], "\n---\n") {
				var object any = &v1alpha1.Store{}
				server := stores
				switch {
				case strings.Contains(manifest, "kind: ClusterPerf\n"):
					object, server = &v1alpha1.ClusterPerf{}, runs
				case strings.Contains(manifest, "kind: StoreOperation\n"):
					object, server = &v1alpha1.StoreOperation{}, operations
				case strings.Contains(manifest, "kind: Store\n"):
				case strings.HasPrefix(manifest, "spec:\n"):
					manifest = "apiVersion: rcbox.dev/v1alpha1\nkind: Store\nmetadata: {name: example, namespace: default}\n" + manifest
				default:
					continue
				}
				found++
				if !strings.Contains(manifest, "namespace:") {
					manifest = strings.Replace(manifest, "metadata: {", "metadata: {namespace: default, ", 1)
				}
				if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
					t.Errorf("%s: %v\n%s", page, err, manifest)
				}
				if errs := server.createInto(t, manifest, object); errs != nil {
					t.Errorf("%s: %v\n%s", page, errs, manifest)
				}
			}
		}
	}
	if found < 7 {
		t.Errorf("only %d manifests found", found)
	}
}

// What the references say is refused is refused, with that text. Rows that are no whole beginning of a spec are left out.
func TestRefusedExamples(t *testing.T) {
	const head = "apiVersion: rcbox.dev/v1alpha1\nmetadata: {name: example, namespace: default}\n"
	t.Run("Store", func(t *testing.T) {
		refusesExamples(t, "docs/store-reference.md", crdFile, head+"kind: Store\nspec: {%s}\n", 25)
	})
	t.Run("ClusterPerf", func(t *testing.T) {
		refusesExamples(t, "docs/clusterperf-resource.md", perfCRDFile, head+"kind: ClusterPerf\nspec: {storeRef: {name: box}, %s}\n", 6)
	})
}

func refusesExamples(t *testing.T, page, crdFile, manifest string, least int) {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	spec, server := schemaOf(definitionIn(t, crdFile)).OpenAPIV3Schema.Properties["spec"], newAPIServerOf(t, crdFile)
	row := regexp.MustCompile("(?m)^\\| `(([a-zA-Z]+): [^`]+)` \\| ([^|]+) \\|$")
	found := 0
	for _, match := range row.FindAllStringSubmatch(string(text), -1) {
		if _, isField := spec.Properties[match[2]]; !isField || strings.Contains(match[1], "...") {
			continue
		}
		found++
		errs := server.createInto(t, fmt.Sprintf(manifest, match[1]), &unstructured.Unstructured{})
		if !strings.Contains(strings.Join(errs, "\n"), match[3]) {
			t.Errorf("%s: %s is to be refused with %q; the API server says %q", page, match[1], match[3], errs)
		}
	}
	if found < least {
		t.Errorf("only %d examples found in %s", found, page)
	}
}
