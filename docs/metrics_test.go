package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// programsMetrics are the metrics that servers and coordinators make, under the names that Prometheus gets, with their types.
func programsMetrics(t *testing.T) []string {
	t.Helper()
	// The sources that name metrics; a name that is made otherwise would be missing here, and in the page.
	sources := []string{"daemon/src/metrics.rs", "serverd/src/probe.rs", "coordinatord/src/probe.rs"}
	call := regexp.MustCompile(`\b(counter|gauge|byte_counter|byte_gauge|time_counter)\(\s*"([a-z_]+)"`)
	endings := map[string]string{
		"counter": "_total` | counter", "gauge": "` | gauge", "byte_counter": "_bytes_total` | counter",
		"byte_gauge": "_bytes` | gauge", "time_counter": "_seconds_total` | counter",
	}
	var list []string
	for _, source := range sources {
		text, err := os.ReadFile(filepath.Join(root, "images/store/crates", source))
		if err != nil {
			t.Fatal(err)
		}
		program, _, _ := strings.Cut(string(text), "#[cfg(test)]")
		for _, match := range call.FindAllStringSubmatch(program, -1) {
			list = append(list, "| `rcbox_"+match[2]+endings[match[1]]+" |")
		}
	}
	if len(list) < 70 {
		t.Errorf("only %d metrics of servers and coordinators found", len(list))
	}
	return list
}

// operatorsMetrics are those that the operator makes.
func operatorsMetrics(t *testing.T) []string {
	t.Helper()
	var text []byte
	for _, source := range []string{"controller/metrics.go", "controller/statusmetrics.go", "box/controller/metrics.go"} {
		file, err := os.ReadFile(filepath.Join(root, "operator/internal", source))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, file...)
	}
	var list []string
	definition := regexp.MustCompile(`New(Gauge|Counter)Vec\([\w.]+\{\s*Name: "([a-z_]+)"`)
	for _, match := range definition.FindAllStringSubmatch(string(text), -1) {
		list = append(list, "| `"+match[2]+"` | "+strings.ToLower(match[1])+" |")
	}
	// Those that are collected when somebody asks are all gauges.
	for _, match := range regexp.MustCompile(`NewDesc\("([a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
		list = append(list, "| `"+match[1]+"` | gauge |")
	}
	if len(list) < 10 {
		t.Errorf("only %d metrics of the operator found", len(list))
	}
	return list
}

// TestMetrics: the page of metrics has a row for each, and for no other.
func TestMetrics(t *testing.T) {
	page := pages(t)["docs/metrics.md"]
	made := slices.Concat(programsMetrics(t), operatorsMetrics(t))
	for _, row := range made {
		if !strings.Contains(page, "\n"+row) {
			t.Errorf("docs/metrics.md has no row %s", row)
		}
	}
	rows := regexp.MustCompile("(?m)^(\\| `rcbox_[a-z_]+` \\| [a-z]+ \\|)")
	for _, row := range matches(rows, page) {
		if !slices.Contains(made, row) {
			t.Errorf("docs/metrics.md has the row %s, and no program makes that metric", row)
		}
	}
}
