package planner_test

import (
	"strings"
	"testing"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Where the state is, is chosen for new Stores only.
func TestStateOfAStore(t *testing.T) {
	const memory, volume, kubernetes = v1alpha1.StateMemory, v1alpha1.StateVolume, v1alpha1.StateKubernetes
	pod := func(state v1alpha1.StateType) func(*facts.Observed) {
		return func(o *facts.Observed) {
			o.Pods = []facts.Pod{{Component: v1alpha1.ComponentCoordinator, Inputs: resources.Inputs{Image: "i", State: state}}}
		}
	}
	has := func(state v1alpha1.StateType) func(*facts.Observed) {
		return func(o *facts.Observed) { o.Store.Status.Coordinator.State = state }
	}
	for _, test := range []struct {
		name   string
		asked  v1alpha1.StateType
		had    func(*facts.Observed)
		want   v1alpha1.StateType
		refuse string
	}{
		{"a new Store", "", nil, kubernetes, ""},
		{"a new Store that asks for a volume", volume, nil, volume, ""},
		{"a new Store that asks for memory", memory, nil, memory, ""},
		{"one of the time before, in memory", "", pod(""), memory, ""},
		{"one of the time before, in a volume", "", pod(volume), volume, ""},
		{"one of the time before whose pods are gone", "", func(o *facts.Observed) { o.Store.Status.ClusterID = "a" }, memory, ""},
		{"one of the time before with copies whose pods are gone", "", func(o *facts.Observed) {
			o.Store.Status.ClusterID, o.Store.Spec.Replication.Factor = "a", new(int32(2))
		}, volume, ""},
		{"a claim that was retained", "", func(o *facts.Observed) {
			o.Claims = map[string]facts.Claim{"box-coordinator-state": {}}
		}, volume, ""},
		{"it is remembered", "", has(kubernetes), kubernetes, ""},
		{"the status was lost", "", pod(kubernetes), kubernetes, ""},
		{"from memory to a volume", volume, has(memory), volume, ""},
		{
			"from memory to Kubernetes", kubernetes, has(memory), memory,
			"coordinator.state.type: Kubernetes has no effect, because this Store keeps its state in Memory",
		},
		{
			"from a volume to Kubernetes", kubernetes, has(volume), volume,
			"coordinator.state.type: Kubernetes has no effect, because this Store keeps its state in Volume",
		},
		{"from Kubernetes to memory", memory, has(kubernetes), kubernetes, "coordinator.state.type: Memory has no effect"},
		{"standbys without Kubernetes", "", func(o *facts.Observed) {
			has(volume)(o)
			o.Store.Spec.Coordinator.Replicas = 2
		}, volume, "coordinator.replicas: 2 has no effect, because this Store keeps its state in Volume, where " +
			"only one process can use it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newWorld(1).observe()
			o.Store.Spec.Coordinator.State.Type = test.asked
			if test.had != nil {
				test.had(&o)
			}
			if got := o.StateType(); got != test.want {
				t.Errorf("the state is in %s, not %s", got, test.want)
			}
			refused := o.StateRefused()
			if !strings.HasPrefix(refused, test.refuse) || (refused == "") != (test.refuse == "") {
				t.Errorf("refused with %q, not %q", refused, test.refuse)
			}
			if refused != "" && !strings.Contains(refused, "make another Store") {
				t.Errorf("%q does not say what to do", refused)
			}
		})
	}
}

// A change of the spec reaches standbys first, one at a time, and the leader only when another one has it.
func TestCoordinatorsAreReplacedOneAfterTheOther(t *testing.T) {
	w := newStandbyWorld(3)
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	leader := w.pods[w.cluster.pod].Member
	w.store.Spec.Image = "store:2"
	var replaced []string
	for range 60 {
		plan, _ := w.reconcile(false)
		for _, step := range plan.Steps {
			if step, ok := step.(steps.DeletePod); ok {
				replaced = append(replaced, step.Member)
			}
		}
		w.tick()
	}
	if len(replaced) != 3 || replaced[2] != leader {
		t.Errorf("replaced were %v; %s led", replaced, leader)
	}
	if id := w.cluster.id; id != "cluster1" {
		t.Errorf("the store is %s now", id)
	}
	// One that is alone is the user's.
	w = newStandbyWorld(1)
	w.settle(100)
	w.store.Spec.Image = "store:2"
	plan, _, settled := w.settle(100)
	if !settled || plan.Coordinator.Pending != "image: store:1 -> store:2" {
		t.Errorf("settled %v, pending %q", settled, plan.Coordinator.Pending)
	}
}

// The one that led last is asked first.
func TestWhoIsAsked(t *testing.T) {
	running := func(name string, number int64) facts.Pod {
		return facts.Pod{
			Name: name, Number: number, Component: v1alpha1.ComponentCoordinator, Process: facts.ProcessRunning, IP: "10.0.0.1",
		}
	}
	names := func(last string, pods ...facts.Pod) string {
		var list []string
		for _, pod := range facts.Coordinators(pods, last) {
			list = append(list, pod.Name)
		}
		return strings.Join(list, " ")
	}
	for last, want := range map[string]string{"": "a b c", "b": "b a c", "gone": "a b c"} {
		if got := names(last, running("c", 3), running("a", 1), running("b", 2)); got != want {
			t.Errorf("after %q %s are asked", last, got)
		}
	}
	absent := running("d", 4)
	absent.Process = facts.ProcessAbsent
	if got := names("d", absent); got != "" {
		t.Errorf("asked is %s, which does not run", got)
	}
}
