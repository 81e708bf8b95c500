package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	samples          = "../config/samples"
	samplesNamespace = "default"
	// samplesGiB is what the volumes of box (3 of 4 GiB) and durable (3 of 2 GiB) reserve of the disk that all nodes share, and some more.
	samplesGiB = 20
)

// notHere are the samples for other clusters than this one, which is as large as that of `make up`.
var notHere = map[string]string{
	"store-full.yaml":       "its nodes have the label example.com/pool and 24 GiB each",
	"clusterperf-full.yaml": "its clients ask for a CPU each, and are kept away from the masters' nodes, of which there are no others",
	"chassis.yaml":          "its BMCs are real hardware's; hack/box.sh applies it to an emulated rack",
	"box.yaml":              "its servers are real hardware; make test-box applies it to an emulated rack",
	"operation.yaml":        "a drill is ordered once the Store holds something",
	"kustomization.yaml":    "names samples, and is none",
	"operation-split.yaml":  "is about a table that its user has made",
}

// sampleSet is what one step leaves for the next.
type sampleSet struct {
	stores []string
	box    proxied
}

// samplesForm side by side, and a client of this machine uses one of them through kubectl rcbox proxy, as the README has it.
func samplesForm(t *testing.T) {
	if free := freeGiB(t); free < samplesGiB {
		t.Skipf("SKIPPED: the samples' volumes take %d GiB of this machine's disk, and %d GiB are free", samplesGiB, free)
	}
	s := &sampleSet{box: proxied{namespace: samplesNamespace, store: "box"}}
	t.Cleanup(func() { deleteSamples(t) })
	inOrder(t, []step{
		{"AllStoresForm", s.allStoresForm},
		{"ClusterPerfCompletes", s.clusterPerfCompletes},
		{"ProxyLetsInClientsOfThisMachine", func(step *testing.T) { s.box.letsIn(step, t) }},
		{"ProxyOutlivesADrill", s.proxyOutlivesADrill},
		{"StoresAreDeleted", deleteSamples},
	})
}

// freeGiB is what is free where nodes keep volumes.
func freeGiB(t *testing.T) int {
	t.Helper()
	shown := docker(t, "exec", nodeNames(t)[0], "df", "--output=avail", "--block-size=1G", "/var")
	fields := strings.Fields(shown)
	free, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		t.Fatalf("%v in %s", err, shown)
	}
	return free
}

func (s *sampleSet) allStoresForm(t *testing.T) {
	files, err := filepath.Glob(samples + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if why := notHere[name]; why != "" {
			t.Logf("left out: %s: %s", name, why)
			continue
		}
		kubectl(t, "apply", "-f", file)
	}
	for _, store := range list[v1alpha1.Store](t, "stores", samplesNamespace) {
		s.stores = append(s.stores, store.Name)
	}
	if want := []string{"box", "cache", "durable"}; !slices.Equal(s.stores, want) {
		t.Fatalf("the samples' Stores are %v, not %v", s.stores, want)
	}
	eventually(t, "all Stores are Ready side by side", startDeadline, func() error {
		var problems []error
		for _, store := range list[v1alpha1.Store](t, "stores", samplesNamespace) {
			if err := conditionIs(store, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonServing); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", store.Name, err))
			}
		}
		return errors.Join(problems...)
	})
}

// clusterPerfCompletes: the sample measures the Store box.
func (s *sampleSet) clusterPerfCompletes(t *testing.T) {
	eventually(t, "the sample's run has its figures", startDeadline, func() error {
		run, _ := get[v1alpha1.ClusterPerf](t, "clusterperf", samplesNamespace, "basic")
		if run.Status.CompletionTime == nil || len(run.Status.Results) == 0 {
			return fmt.Errorf("conditions %+v", run.Status.Conditions)
		}
		return nil
	})
}

// proxyOutlivesADrill: a master's process ends, and the same proxy leads to all keys.
func (s *sampleSet) proxyOutlivesADrill(t *testing.T) {
	drilled, err := run(setting("RCBOX_PLUGIN", "kubectl-rcbox"), "", "drill", "box", "-n", samplesNamespace, "--yes", "--wait")
	// It fails where the recovery takes longer than its target, which is this machine's business.
	if err != nil || drilled.exitCode != 0 && !strings.Contains(drilled.stdout+drilled.stderr, string(v1alpha1.DrillTooSlow)) {
		t.Fatalf("%v: exit code %d: %s%s", err, drilled.exitCode, drilled.stdout, drilled.stderr)
	}
	if got := s.box.rcbox(t, "get", laptopTable, "hello"); got != "world" {
		t.Errorf("after the drill, hello is %q", got)
	}
	for number := range 30 {
		s.box.rcbox(t, "put", laptopTable, fmt.Sprint("after", number), "drill")
	}
}

// deleteSamples deletes the Stores, and what outlives them: volumes and state.
func deleteSamples(t *testing.T) {
	kubectl(t, "delete", "clusterperfs,stores", "--all", "-n", samplesNamespace, "--timeout=150s")
	kubectl(t, "delete", "persistentvolumeclaims,configmaps", "-n", samplesNamespace, "-l", v1alpha1.LabelStore, "--timeout=120s")
}
