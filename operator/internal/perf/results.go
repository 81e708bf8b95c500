package perf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	maxResults = 256
	maxText    = 200
	// maxMessage is how many bytes a condition's message has at most.
	maxMessage = 300
)

// cut bounds a text that comes from a pod, whose image anybody may have made.
func cut(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

// results are a report's rows, each name once, and how many are left out.
func results(r *Report) (list []v1alpha1.PerfResult, omitted int32) {
	seen := map[string]bool{}
	omitted = max(r.RowsOmitted, 0)
	for i := range r.Rows {
		row := &r.Rows[i]
		name := cut(row.Name)
		if name == "" || seen[name] {
			continue
		}
		if len(list) == maxResults {
			omitted++
			continue
		}
		seen[name] = true
		list = append(list, v1alpha1.PerfResult{
			Name: name, Value: cut(row.Value), Unit: cut(row.Unit), Description: cut(row.Description),
			Best: cut(row.Best), P99: cut(row.P99), Worst: cut(row.Worst),
		})
	}
	return list, omitted
}

const (
	unitLatency    = "us"
	unitThroughput = "k/s"
)

// summary picks what one asks for first: of basic, the smallest objects.
func summary(list []v1alpha1.PerfResult) *v1alpha1.PerfSummary {
	s := &v1alpha1.PerfSummary{}
	highest := 0.0
	for i := range list {
		row := &list[i]
		text, name := row.Value+" "+row.Unit, strings.ToLower(row.Name)
		switch {
		case row.Unit == unitThroughput:
			if value, err := strconv.ParseFloat(row.Value, 64); err == nil && value > highest {
				highest, s.Throughput = value, text
			}
		case row.Unit != unitLatency:
		case s.Read == "" && strings.Contains(name, "read"):
			s.Read = text
		case s.Write == "" && strings.Contains(name, "write"):
			s.Write = text
		}
	}
	return s
}

// previous is the last complete run before this one that asked the same, and that nothing disturbed.
func previous(run *v1alpha1.ClusterPerf, others []v1alpha1.ClusterPerf) *v1alpha1.ClusterPerf {
	var found *v1alpha1.ClusterPerf
	for i := range others {
		other := &others[i]
		if !meta.IsStatusConditionTrue(other.Status.Conditions, v1alpha1.ConditionComplete) || !sameQuestion(&other.Spec, &run.Spec) ||
			other.Status.DisturbedBy != "" || other.Status.CompletionTime.After(run.Status.StartTime.Time) {
			continue
		}
		if found == nil || found.Status.CompletionTime.Before(other.Status.CompletionTime) {
			found = other
		}
	}
	return found
}

// sameQuestion says whether two runs' figures can be set beside each other.
func sameQuestion(a, b *v1alpha1.ClusterPerfSpec) bool {
	tests := func(spec *v1alpha1.ClusterPerfSpec) []v1alpha1.PerfTest {
		return slices.Sorted(slices.Values(spec.Tests))
	}
	return a.StoreRef == b.StoreRef && slices.Equal(tests(a), tests(b)) &&
		equality.Semantic.DeepEqual(a.Clients, b.Clients) && equality.Semantic.DeepEqual(a.Options, b.Options)
}

// compare notes how much each figure differs from the one of the same name and unit before.
func compare(list, before []v1alpha1.PerfResult) {
	type key struct{ name, unit string }
	values := map[key]float64{}
	for i := range before {
		if value, err := strconv.ParseFloat(before[i].Value, 64); err == nil && value > 0 {
			values[key{before[i].Name, before[i].Unit}] = value
		}
	}
	for i := range list {
		value, err := strconv.ParseFloat(list[i].Value, 64)
		old, known := values[key{list[i].Name, list[i].Unit}]
		if err == nil && known {
			list[i].Change = fmt.Sprintf("%+.1f %%", (value/old-1)*100)
		}
	}
}
