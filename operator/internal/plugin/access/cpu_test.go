package access

import (
	"maps"
	"testing"
)

func TestCPUOf(t *testing.T) {
	const text = `{"kind":"PodMetricsList","items":[
		{"metadata":{"name":"a"},"containers":[{"usage":{"cpu":"1500m","memory":"1Mi"}},{"usage":{"cpu":"2345678n"}}]},
		{"metadata":{"name":"b"},"containers":[{"usage":{"cpu":"0"}}]}]}`
	if got := cpuOf([]byte(text)); !maps.Equal(got, map[string]int64{"a": 1503, "b": 0}) {
		t.Errorf("CPU %v", got)
	}
	if got := cpuOf([]byte("404 page not found")); got != nil {
		t.Errorf("of no answer: %v", got)
	}
}
