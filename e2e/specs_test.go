package e2e

import (
	"strings"
	"testing"
)

// badSpecsAreRefused: the API server refuses what cannot be right, with a text that says why. The rules one by one are
// tested in api/v1alpha1; here it counts that they are in force in a cluster that Helm installed.
func badSpecsAreRefused(t *testing.T) {
	for _, bad := range []struct{ name, metadata, spec, text string }{
		{"no masters", "{name: bad}", "{masters: {replicas: 0}}", "spec.masters.replicas in body should be greater than or equal to 1"},
		{"little memory", "{name: bad}", "{masters: {memory: 64Mi}}", "masters.memory must be at least 256Mi"},
		{"too many cores", "{name: bad}", "{masters: {cores: 65}}", "spec.masters.cores in body should be less than or equal to 64"},
		{"unknown transport", "{name: bad}", "{network: {transport: InfiniBand}}", "Unsupported value"},
		{"memory twice", "{name: bad}", "{masters: {resources: {requests: {memory: 1Gi}}}}", "masters.resources must not name memory"},
		{"long name", "{name: a-name-that-is-far-too-long-for-pods-and-services}", "{}", "metadata.name must be at most 40 characters"},
		{"name with dots", "{name: a.b}", "{}", "metadata.name must start with a letter"},
		{"unknown field", "{name: bad}", "{shards: {}}", "unknown field"},
		{
			"too many copies", "{name: bad}", "{masters: {replicas: 2}, replication: {factor: 2}}",
			"masters.replicas must be greater than the number of copies",
		},
	} {
		t.Run(strings.ReplaceAll(bad.name, " ", "-"), func(t *testing.T) {
			manifest := "apiVersion: rcbox.dev/v1alpha1\nkind: Store\nmetadata: " + bad.metadata + "\nspec: " + bad.spec + "\n"
			got, err := run(settings.kubectl, manifest, "create", "-n", namespaceOf(t), "--validate=strict", "-f", "-")
			if err != nil {
				t.Fatal(err)
			}
			if got.exitCode == 0 {
				t.Fatalf("was taken:\n%s", manifest)
			}
			if !strings.Contains(got.stderr, bad.text) {
				t.Errorf("the text does not say %q:\n%s", bad.text, got.stderr)
			}
		})
	}
}
