package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// clusterPerfKeepsFigures: two runs of two clients go one after the other, keep their figures and documents, and leave no tables; one that
// is deleted while it measures leaves none, either.
func clusterPerfKeepsFigures(t *testing.T) {
	before := readStore(t).Status.Tables
	const spec = "{storeRef: {name: box}, tests: [readDist, readThroughput], clients: {replicas: 2}, " +
		"options: {count: 1000, numObjects: 1000}}"
	applyRun(t, "perf-1", spec)
	applyRun(t, "perf-2", spec)
	first, second := completeRun(t, "perf-1"), completeRun(t, "perf-2")
	if second.Status.StartTime.Before(first.Status.CompletionTime) {
		t.Errorf("perf-2 began at %s, perf-1 ended at %s", second.Status.StartTime, first.Status.CompletionTime)
	}
	var names []string
	for i := range second.Status.Results {
		result := &second.Status.Results[i]
		names = append(names, result.Name)
		if result.Value == "" || result.Unit == "" || result.Change == "" {
			t.Errorf("figure %+v", result)
		}
	}
	if want := []string{"readDist", "readThroughput.1", "readThroughput.2"}; !slices.Equal(names, want) {
		t.Errorf("figures %v, want %v", names, want)
	}
	environment := second.Status.Environment
	if second.Status.ComparedTo != "perf-1" || environment.Masters != 2 || environment.Kernel == "" || len(environment.ClientNodes) != 2 ||
		environment.ClientNodes[0] == environment.ClientNodes[1] {
		t.Errorf("compared to %q, environment %+v", second.Status.ComparedTo, environment)
	}
	for document, part := range map[string]string{"table.txt": "readThroughput.2", "results.json": `"cdf"`, "plot.svg": "<svg"} {
		path := "jsonpath={.data." + strings.ReplaceAll(document, ".", `\.`) + "}"
		if text := kubectl(t, "get", "configmap", "perf-2-results", "-n", namespaceOf(t), "-o", path); !strings.Contains(text, part) {
			t.Errorf("%s has no %s: %.300s", document, part, text)
		}
	}
	columns := kubectl(t, "get", "rcperf", "-n", namespaceOf(t))
	if !strings.Contains(columns, "Completed") || !strings.Contains(columns, " us ") {
		t.Errorf("kubectl get rcperf shows\n%s", columns)
	}

	applyRun(t, "perf-3", "{storeRef: {name: box}, tests: [readNotFound], options: {seconds: 600}}")
	waitForRun(t, "perf-3", v1alpha1.ReasonRunning)
	kubectl(t, "delete", "rcperf", "--all", "-n", namespaceOf(t), "--timeout=60s")
	eventually(t, "nothing of the runs is left", changeDeadline, func() error {
		left := kubectl(t, "get", "pods,configmaps", "-n", namespaceOf(t), "-l", v1alpha1.LabelClusterPerf, "-o", "name")
		if left != "" {
			return fmt.Errorf("left: %s", strings.Fields(left))
		}
		return nil
	})
	waitForStore(t, "the runs' tables are gone", changeDeadline, func(store v1alpha1.Store) error {
		if store.Status.Tables != before {
			return fmt.Errorf("%d tables, before there were %d", store.Status.Tables, before)
		}
		return nil
	})
}

func applyRun(t *testing.T, name, spec string) {
	t.Helper()
	apply(t, "apiVersion: rcbox.dev/v1alpha1\nkind: ClusterPerf\nmetadata: {name: "+name+"}\nspec: "+spec+"\n")
}

func completeRun(t *testing.T, name string) v1alpha1.ClusterPerf {
	t.Helper()
	return waitForRun(t, name, v1alpha1.ReasonCompleted)
}

// waitForRun waits until the condition Complete has this reason, and no longer once the run has failed.
func waitForRun(t *testing.T, name, reason string) v1alpha1.ClusterPerf {
	t.Helper()
	var run v1alpha1.ClusterPerf
	eventually(t, name+" is "+reason, changeDeadline, func() error {
		run, _ = get[v1alpha1.ClusterPerf](t, "clusterperf", namespaceOf(t), name)
		if failed := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionFailed); failed != nil && failed.Status == "True" {
			t.Fatalf("%s failed: %s: %s", name, failed.Reason, failed.Message)
		}
		complete := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionComplete)
		if complete == nil || complete.Reason != reason {
			return fmt.Errorf("conditions %+v", run.Status.Conditions)
		}
		return nil
	})
	return run
}
