package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notInClusterPerf are tests of clusterperf that the resource of this name does not offer.
var notInClusterPerf = []string{"netBandwidth"}

// TestClusterPerfTests: program, help, page and resource have the same tests.
func TestClusterPerfTests(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	program := read("images/store/crates/clusterperf/src/main.rs")
	tests := matches(regexp.MustCompile(`\("(\w+)", Clients::\w+\)`), program)
	if len(tests) < 15 {
		t.Fatalf("only %d tests found in the program: %v", len(tests), tests)
	}
	help := strings.Join(matches(regexp.MustCompile(`(?m)^/// (.*)$`), program), "\n")
	page := strings.Join(matches(regexp.MustCompile("(?m)^\\| (`[^|]*) \\|"), read("docs/clusterperf.md")), "\n")
	resource := matches(regexp.MustCompile(`(?m)^ +- (\w+)$`), enumOfTests(t, read("config/crd/bases/rcbox.dev_clusterperfs.yaml")))
	for _, test := range tests {
		if !regexp.MustCompile(`\b` + test + `\b`).MatchString(help) {
			t.Errorf("clusterperf --help does not name %s", test)
		}
		if !strings.Contains(page, "`"+test+"`") {
			t.Errorf("docs/clusterperf.md does not have the test %s", test)
		}
		if slices.Contains(resource, test) == slices.Contains(notInClusterPerf, test) {
			t.Errorf("%s: the resource offers it: %v", test, slices.Contains(resource, test))
		}
	}
	for _, test := range resource {
		if !slices.Contains(tests, test) {
			t.Errorf("the resource has a test %s that the program does not have", test)
		}
	}
	for _, test := range notInClusterPerf {
		if !strings.Contains(read("docs/clusterperf-resource.md"), "all but `"+test+"`") {
			t.Errorf("docs/clusterperf-resource.md does not say that %s is missing", test)
		}
	}
}

// enumOfTests is what the definition lists below the enum that has basic in it.
func enumOfTests(t *testing.T, definition string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^( +)enum:\n(?: +- \w+\n)*? +- basic\n(?: +- \w+\n)+`).FindString(definition)
	if found == "" {
		t.Fatal("the definition of ClusterPerfs lists no tests")
	}
	return found
}
