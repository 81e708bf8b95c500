package planner_test

import (
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/planner"
)

// podNames are those of the processes that run.
func (w *world) podNames() string {
	var names []string
	for _, pod := range w.livePods() {
		names = append(names, pod.Name)
	}
	return strings.Join(names, " ")
}

// changeSettings changes of the spec what needs no restart.
func (w *world) changeSettings() {
	pollMicros, off := int32(0), false
	w.store.Spec.Replication.Factor = 2
	w.store.Spec.Masters.PollMicros = &pollMicros
	w.store.Spec.LogLevel = "Debug"
	w.store.Spec.Rebalancing.Enabled = &off
}

func TestSettingsAreChangedWhileTheStoreRuns(t *testing.T) {
	w := newReplicatedWorld(3)
	w.takesSettings = true
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	before := w.podNames()
	w.changeSettings()
	plan, _ := w.visit(false)
	if len(plan.Steps) != 1 {
		t.Fatalf("steps %+v", plan.Steps)
	}
	want := "change settings: the spec asks for it: replicas: 1 -> 2, pollMicros: as started -> 0, logLevel: as started -> Debug, " +
		"rebalanceMBps: 50 -> 0"
	if text := plan.Steps[0].Describe(); text != want {
		t.Errorf("the step is %q", text)
	}
	if _, _, settled := w.settle(50); !settled || w.podNames() != before || w.store.Status.Masters.Outdated != 0 {
		t.Errorf("settled %v, pods %s, before %s; %d outdated", settled, w.podNames(), before, w.store.Status.Masters.Outdated)
	}

	// What needs a restart is named alone.
	w.store.Spec.Image = "store:2"
	w.store.Spec.Replication.Factor = 1
	plan, _ = w.visit(false)
	if pending := plan.Masters[0].Pending; pending != "image: store:1 -> store:2" {
		t.Errorf("pending %q", pending)
	}
}

func TestAnOlderBuildIsRestartedForItsSettings(t *testing.T) {
	w := newHoldingWorld(t)
	w.changeSettings()
	plan := w.inTurn(asSeen)
	if len(plan.Steps) != 1 || !strings.Contains(plan.Steps[0].Describe(), "1 copies (min 1) Buffered") {
		t.Fatalf("steps %+v", plan.Steps)
	}
}

func TestCopiesBeginWithProcessesThatHaveThem(t *testing.T) {
	o := planner.Observed{Store: newReplicatedWorld(3).store, Cluster: &planner.Cluster{
		ID: "a", Settings: &planner.Settings{}, Members: []planner.Member{{Name: "box-master-0", Copies: 1}, {Name: "box-master-1"}},
	}}
	told := func() *planner.Settings {
		for _, step := range planner.Make(o).Steps {
			if set, ok := step.(planner.SetSettings); ok {
				return &set.Settings
			}
		}
		return nil
	}
	if settings := told(); settings == nil || settings.Replicas != nil {
		t.Errorf("with a master that has no copies: %+v", settings)
	}
	o.Cluster.Members[1].Copies = 1
	if settings := told(); settings == nil || settings.Replicas == nil || *settings.Replicas != 1 || *settings.Min != 1 {
		t.Errorf("with copies everywhere: %+v", settings)
	}
	o.Cluster.StateWait = "the API server is away"
	if settings := told(); settings != nil {
		t.Errorf("while nothing can be noted: %+v", settings)
	}
}
