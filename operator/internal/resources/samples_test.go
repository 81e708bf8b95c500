package resources_test

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

const (
	// The cluster of `make up`: three workers, each of which reports the machine's two CPUs, and what of these is asked for already: on
	// each node by kindnet, and somewhere by two CoreDNS, the operator, and a client of a ClusterPerf.
	workers       = 3
	nodeMilliCPU  = 2000
	kindnet       = 100
	elsewhere     = 2*100 + 100 + 100
	sampleOfNodes = "store-full.yaml" // for nodes of its own, with a label that these do not have
)

// All samples form on make up's cluster, side by side, wherever the scheduler puts what may be anywhere: on any node there is room for one
// master of each Store and for everything else.
func TestSamplesFitTogether(t *testing.T) {
	files, err := filepath.Glob("../../../config/samples/store*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("samples %v: %v", files, err)
	}
	onOneNode := int64(kindnet + elsewhere)
	for _, file := range files {
		if filepath.Base(file) == sampleOfNodes {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		store := &v1alpha1.Store{}
		if err := yaml.UnmarshalStrict(text, store); err != nil {
			t.Fatal(err)
		}
		withDefaults(store)
		if masters := store.Spec.Masters.Replicas; store.Copies() > 0 && masters > workers {
			t.Errorf("%s has %d masters, each for a node of its own, and there are %d nodes", file, masters, workers)
		}
		master := milliCPU(t, store, v1alpha1.ComponentMaster)
		if store.Copies() == 0 {
			master *= int64(store.Spec.Masters.Replicas) // all may be on one node
		}
		onOneNode += master + int64(store.Spec.Coordinator.Replicas)*milliCPU(t, store, v1alpha1.ComponentCoordinator)
	}
	if onOneNode > nodeMilliCPU {
		t.Errorf("the samples ask for up to %dm of a node's %dm", onOneNode, nodeMilliCPU)
	}
}

// withDefaults fills in what the schema and the operator would, as far as it matters for requests.
func withDefaults(store *v1alpha1.Store) {
	spec := &store.Spec
	spec.Masters.Cores, spec.Coordinator.Replicas = max(spec.Masters.Cores, 1), max(spec.Coordinator.Replicas, 1)
	if spec.Masters.Memory.IsZero() {
		spec.Masters.Memory = resource.MustParse("1Gi")
	}
	if spec.Coordinator.Resources.Requests == nil {
		spec.Coordinator.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	}
	if spec.Replication.Factor == nil {
		spec.Replication.Factor = new(v1alpha1.DefaultFactor(spec.Masters.Replicas))
	}
}

func milliCPU(t *testing.T, store *v1alpha1.Store, component string) int64 {
	t.Helper()
	inputs := resources.InputsFor(store, component, "store:1", v1alpha1.StateKubernetes)
	pod, err := resources.Pod(store, resources.PodSpec{Component: component, Member: "a", Number: 1, Inputs: inputs, Claim: "a"})
	if err != nil {
		t.Fatal(err)
	}
	requests := *pod.Spec.Containers[0].Resources.Requests
	cpu := requests[corev1.ResourceCPU]
	return cpu.MilliValue()
}
