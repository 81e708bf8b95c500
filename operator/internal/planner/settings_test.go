package planner_test

import (
	"reflect"
	"strings"
	"testing"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
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
	w.store.Spec.Replication.Factor = new(int32(2))
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
	plan, _ := w.reconcile(false)
	if len(plan.Steps) != 1 {
		t.Fatalf("steps %+v", plan.Steps)
	}
	want := "change settings to what the spec has: replicas: 1 -> 2, pollMicros: as started -> 0, logLevel: as started -> Debug, " +
		"rebalanceMBps: 50 -> 0"
	if text := steps.Describe(plan.Steps[0]); text != want {
		t.Errorf("the step is %q", text)
	}
	if _, _, settled := w.settle(50); !settled || w.podNames() != before || w.store.Status.Masters.Outdated != 0 {
		t.Errorf("settled %v, pods %s, before %s; %d outdated", settled, w.podNames(), before, w.store.Status.Masters.Outdated)
	}

	// What needs a restart is named alone.
	w.store.Spec.Image = "store:2"
	w.store.Spec.Replication.Factor = new(int32(1))
	plan, _ = w.reconcile(false)
	if pending := plan.Masters[0].Pending; pending != "image: store:1 -> store:2" {
		t.Errorf("pending %q", pending)
	}
}

func TestAnOlderBuildIsRestartedForItsSettings(t *testing.T) {
	w := newHoldingWorld(t)
	w.changeSettings()
	plan := w.underLock(asSeen)
	if len(plan.Steps) != 1 || !strings.Contains(steps.Describe(plan.Steps[0]), "1 copies (min 1) Buffered") {
		t.Fatalf("steps %+v", plan.Steps)
	}
}

// TestCopiesStayWhileAMemberIsAway: the number of copies was raised while the store ran, and a member that is away says nothing of how
// many it keeps.
func TestCopiesStayWhileAMemberIsAway(t *testing.T) {
	w := newReplicatedWorld(4)
	w.takesSettings = true
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	w.store.Spec.Replication.Factor = new(int32(2))
	if _, _, settled := w.settle(50); !settled {
		t.Fatal("does not settle with two copies")
	}
	w.killNode(w.podOf("box-master-1").Node)
	for range 20 {
		w.reconcile(false)
		if have := w.cluster.settings; have.Replicas == nil || *have.Replicas != 2 || have.Min == nil || *have.Min != 1 {
			t.Fatalf("with a master that is away, the settings are %+v", have)
		}
	}
}

func TestCopiesBeginWithProcessesThatHaveThem(t *testing.T) {
	ended := func(member string) facts.Pod {
		return facts.Pod{Component: v1alpha1.ComponentMaster, Member: member, UID: member, Process: facts.ProcessRunning}
	}
	with, without := ended("box-master-0"), ended("box-master-1")
	with.Inputs = resources.Inputs{Image: "store:1", Replication: &resources.Replication{Factor: 1, Min: 1}}
	without.Inputs = resources.Inputs{Image: "store:1"}
	o := facts.Observed{Store: newReplicatedWorld(2).store, Pods: []facts.Pod{with, without}, Cluster: &facts.Cluster{
		ID: "a", Settings: &facts.Settings{}, Members: []facts.MemberReport{
			{Name: "box-master-0", Instance: "box-master-0-1", Connected: true, Copies: 1},
			{Name: "box-master-1", Instance: "box-master-1-1", Connected: true},
		},
	}}
	told := func() *facts.Settings {
		for _, step := range planner.Make(o).Steps {
			if set, ok := step.(steps.SetSettings); ok {
				return &set.Settings
			}
		}
		return nil
	}
	one := int32(1)
	cases := []struct {
		name    string
		change  func()
		inForce *int32
		want    *int32
	}{
		{name: "a master was started without copies", change: func() {}},
		{name: "that one is away", change: func() { o.Cluster.Members[1].Connected = false }},
		{name: "copies are in force nevertheless", change: func() {}, inForce: &one, want: &one},
		{name: "that one has no pod any more: the next is made from the spec", change: func() { o.Pods = o.Pods[:1] }, want: &one},
		{name: "all were started with copies", change: func() {
			o.Pods = append(o.Pods, with)
			o.Pods[1].Member, o.Pods[1].UID = "box-master-1", "box-master-1"
			o.Cluster.Members[1].Connected, o.Cluster.Members[1].Copies = true, 1
		}, want: &one},
		{name: "what a pod was made from cannot be read, and its process keeps none", change: func() {
			o.Pods[1].Inputs, o.Cluster.Members[1].Copies = resources.Inputs{}, 0
		}},
		{name: "... or is away", change: func() { o.Cluster.Members[1].Connected = false }},
	}
	for _, c := range cases {
		c.change()
		o.Cluster.Settings.Replicas, o.Cluster.Settings.Min = c.inForce, c.inForce
		settings := told()
		if settings == nil || !reflect.DeepEqual(settings.Replicas, c.want) || !reflect.DeepEqual(settings.Min, c.want) {
			t.Errorf("%s: %+v", c.name, settings)
		}
	}
	o.Cluster.StateWait = "the API server is away"
	if settings := told(); settings != nil {
		t.Errorf("while nothing can be noted: %+v", settings)
	}
}
