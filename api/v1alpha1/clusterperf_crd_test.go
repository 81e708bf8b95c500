package v1alpha1_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const perfCRDFile = "../../config/crd/bases/rcbox.dev_clusterperfs.yaml"

func perfManifest(name, spec string) string {
	return "apiVersion: rcbox.dev/v1alpha1\nkind: ClusterPerf\nmetadata: {name: " + name + ", namespace: default}\nspec: " + spec + "\n"
}

func TestPerfDefaults(t *testing.T) {
	run := &v1alpha1.ClusterPerf{}
	if errs := newAPIServerOf(t, perfCRDFile).createInto(t, perfManifest("basic", "{storeRef: {name: box}}"), run); errs != nil {
		t.Fatalf("one line is refused: %v", errs)
	}
	spec := run.Spec
	if len(spec.Tests) != 1 || spec.Tests[0] != "basic" || spec.Clients.Replicas != 1 || spec.Options.Seconds != 1 ||
		spec.Concurrency != v1alpha1.PerfForbid || spec.TimeoutSeconds != 1800 || spec.TTLSecondsAfterFinished != nil {
		t.Errorf("defaults are %+v", spec)
	}
	if got := spec.Clients.Resources.Limits.Memory().String(); got != "512Mi" {
		t.Errorf("the clients' memory limit is %s", got)
	}
	if spec.Options.Count != nil || spec.Options.Size != nil || spec.Options.Workload != "" {
		t.Errorf("clusterperf's own defaults are not left to it: %+v", spec.Options)
	}
}

func TestPerfRefusals(t *testing.T) {
	server := newAPIServerOf(t, perfCRDFile)
	const store = "storeRef: {name: box}, "
	for _, test := range []struct{ name, manifest, want string }{
		{"no Store", perfManifest("a", "{}"), "spec.storeRef: Required value"},
		{"unknown test", perfManifest("a", "{"+store+"tests: [transaction]}"), "Unsupported value"},
		{"no test", perfManifest("a", "{"+store+"tests: []}"), "should have at least 1 items"},
		{"a test twice", perfManifest("a", "{"+store+"tests: [basic, basic]}"), "Duplicate value"},
		{
			"one client beside itself", perfManifest("a", "{"+store+"tests: [basic, broadcast]}"),
			"broadcast, readInterference and writeInterference need clients.replicas of 2 or more: they measure one client beside others",
		},
		{
			"clients with nothing to do", perfManifest("a", "{"+store+"clients: {replicas: 2}}"),
			"clients.replicas above 1 needs a test of several clients: the throughput tests, broadcast, readInterference or " +
				"writeInterference",
		},
		{"too many clients", perfManifest("a", "{"+store+"tests: [readThroughput], clients: {replicas: 65}}"), "less than or equal to 64"},
		{"no time", perfManifest("a", "{"+store+"options: {seconds: 0}}"), "greater than or equal to 1"},
		{"large objects", perfManifest("a", "{"+store+"options: {size: 1048577}}"), "less than or equal to 1048576"},
		{"unknown workload", perfManifest("a", "{"+store+"options: {workload: YCSB-Z}}"), "Unsupported value"},
		{"image with a space", perfManifest("a", "{"+store+"image: 'a b'}"), "image must not contain spaces"},
		{
			"requests above limits", perfManifest("a", "{"+store+"clients: {resources: {requests: {cpu: 2}, limits: {cpu: 1}}}}"),
			"resources.requests must not be greater than resources.limits",
		},
		{"long name", perfManifest(strings.Repeat("a", 41), "{"+store+"}"), "metadata.name must be at most 40 characters long"},
		{"name with a dot", perfManifest("a.b", "{"+store+"}"), "metadata.name must start with a letter"},
	} {
		t.Run(test.name, func(t *testing.T) {
			errs := server.createInto(t, test.manifest, &v1alpha1.ClusterPerf{})
			if len(errs) != 1 || !strings.Contains(errs[0], test.want) {
				t.Errorf("refused with\n  %q\nnot with\n  %q", errs, test.want)
			}
		})
	}
}

// A run is history: what it was asked cannot be changed afterwards.
func TestPerfSpecIsFixed(t *testing.T) {
	server := newAPIServerOf(t, perfCRDFile)
	const spec = "{storeRef: {name: box}, clients: {resources: {requests: {cpu: 1}}}}"
	if errs := server.update(t, perfManifest("a", spec), perfManifest("a", spec)); errs != nil {
		t.Errorf("the same is refused: %v", errs)
	}
	for _, changed := range []string{
		"{storeRef: {name: other}, clients: {resources: {requests: {cpu: 1}}}}",
		"{storeRef: {name: box}, clients: {resources: {requests: {cpu: 2}}}}",
		"{storeRef: {name: box}, clients: {resources: {requests: {cpu: 1}}}, ttlSecondsAfterFinished: 1}",
	} {
		errs := strings.Join(server.update(t, perfManifest("a", spec), perfManifest("a", changed)), "\n")
		if !strings.HasSuffix(errs, "spec cannot be changed: a run is history; make another ClusterPerf") {
			t.Errorf("%s: %q", changed, errs)
		}
	}
}

func TestPerfSamplesAreValid(t *testing.T) {
	server := newAPIServerOf(t, perfCRDFile)
	files, err := filepath.Glob("../../config/samples/clusterperf*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		run := &v1alpha1.ClusterPerf{}
		if err := yaml.UnmarshalStrict(text, run); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if errs := server.createInto(t, string(text), run); errs != nil {
			t.Errorf("%s is refused: %v", file, errs)
		}
	}
}
