package planner_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
)

func describe(steps []planner.Step) string {
	lines := make([]string, 0, len(steps))
	for _, step := range steps {
		lines = append(lines, step.Describe())
	}
	return strings.Join(lines, "\n")
}

func TestPlans(t *testing.T) {
	for _, test := range []struct {
		name string
		// change a settled world of three masters
		change func(*world)
		want   string
	}{
		{"nothing", func(*world) {}, ""},
		{
			"scale out", func(w *world) { w.store.Spec.Masters.Replicas = 5 },
			"create pod 1 of box-master-3: it is new\ncreate pod 1 of box-master-4: it is new",
		},
		{
			"scale in takes the last one first", func(w *world) { w.store.Spec.Masters.Replicas = 1 },
			"retire box-master-2: masters.replicas is 1",
		},
		{
			"scale in without a coordinator", func(w *world) {
				w.store.Spec.Masters.Replicas = 1
				w.stop(w.podOf("box-coordinator"))
			}, "",
		},
		{
			"scale in, but the last one's pod is lost and it owns tablets", func(w *world) {
				w.store.Spec.Masters.Replicas = 1
				w.cluster.members["box-master-2"].tablets = 2
				w.end(w.podOf("box-master-2"))
			},
			"create pod 2 of box-master-2: its pod is gone; it comes back empty (tablets: 2)\n" +
				"retire box-master-2: masters.replicas is 1",
		},
		{
			"scale in is held up by tablets, and another master changes", func(w *world) {
				w.store.Spec.Masters.Replicas = 2
				w.cluster.members["box-master-2"].tablets = 2
				w.store.Spec.Masters.Memory = resource.MustParse("2Gi")
			},
			"retire box-master-2: masters.replicas is 2\n" +
				"retire box-master-0: it holds nothing, and the spec has changed: memory: 1Gi -> 2Gi",
		},
		{
			"pod deleted", func(w *world) {
				w.cluster.members["box-master-0"].tablets = 7
				w.end(w.podOf("box-master-0"))
			},
			"create pod 2 of box-master-0: its pod is gone; it comes back empty (tablets: 7)",
		},
		{
			"coordinator deleted", func(w *world) { w.end(w.podOf("box-coordinator")) },
			"create pod 2 of box-coordinator: its pod is gone",
		},
		{
			"process restarted in place", func(w *world) { w.stop(w.podOf("box-master-0")) }, "",
		},
		{
			"more memory, and nobody holds anything: one at a time",
			func(w *world) { w.store.Spec.Masters.Memory = resource.MustParse("2Gi") },
			"retire box-master-0: it holds nothing, and the spec has changed: memory: 1Gi -> 2Gi",
		},
		{
			"the same memory in other words", func(w *world) { w.store.Spec.Masters.Memory = resource.MustParse("1024Mi") }, "",
		},
		{
			"more memory, and all hold something", func(w *world) {
				w.store.Spec.Masters.Memory = resource.MustParse("2Gi")
				for _, member := range w.cluster.members {
					member.tablets = 1
				}
			}, "",
		},
		{
			"more memory, and one is down", func(w *world) {
				w.store.Spec.Masters.Memory = resource.MustParse("2Gi")
				w.cluster.members["box-master-1"].tablets = 1
				w.podOf("box-master-1").deadNode = true
			}, "",
		},
		{
			"more memory, and one that could not serve anyway", func(w *world) {
				w.store.Spec.Masters.Memory = resource.MustParse("2Gi")
				w.strand("box-master-2", w.now)
			},
			"retire box-master-2: it holds nothing, and the spec has changed: memory: 1Gi -> 2Gi",
		},
		{
			"a process that the coordinator let go", func(w *world) { w.strand("box-master-1", w.now.Add(-6*time.Minute)) },
			"retire box-master-1: its process has not enlisted for long; the coordinator may have let it go",
		},
		{
			"a process that has not enlisted yet", func(w *world) { w.strand("box-master-1", w.now.Add(-4*time.Minute)) }, "",
		},
		{
			"another image, and a pod that cannot run", func(w *world) {
				w.store.Spec.Image = "store:2"
				w.stop(w.podOf("box-master-1"))
			},
			"delete pod POD of box-master-1: no process runs in it, and the spec has changed: image: store:1 -> store:2",
		},
		{
			"object missing", func(w *world) { w.objects["box"] = planner.ObjectMissing }, "apply Service box: it is missing",
		},
		{
			"object changed", func(w *world) { w.objects["box"] = planner.ObjectDifferent },
			"apply Service box: it differs from what the Store needs",
		},
		{
			"an unknown member", func(w *world) { w.cluster.members["guest"] = &fakeMember{instance: "x", tablets: 3} }, "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(3)
			if _, _, settled := w.settle(100); !settled {
				t.Fatal("does not settle")
			}
			test.change(w)
			got := describe(planner.Make(w.observe()).Steps)
			for name := range w.pods {
				got = strings.ReplaceAll(got, name, "POD")
			}
			if got != test.want {
				t.Errorf("steps are\n%s\nnot\n%s", got, test.want)
			}
		})
	}
}

func TestFirstVisit(t *testing.T) {
	w := newWorld(2)
	want := `add the finalizer: so that the Store outlives its pods
apply Service box: it is missing
create pod 1 of box-coordinator: it is new
create pod 1 of box-master-0: it is new
create pod 1 of box-master-1: it is new`
	if got := describe(planner.Make(w.observe()).Steps); got != want {
		t.Errorf("steps are\n%s\nnot\n%s", got, want)
	}
}

// A second pod of a member, which only an outsider can have made, goes; the one whose process enlisted stays.
func TestSurplusPod(t *testing.T) {
	w := newWorld(1)
	w.settle(100)
	enlisted := w.podOf("box-master-0")
	second := *enlisted
	second.Name, second.UID, second.Number = "box-master-0-other", "other", 0
	w.pods[second.Name] = &second
	want := "delete pod box-master-0-other of box-master-0: the member has another pod, " + enlisted.Name
	if got := describe(planner.Make(w.observe()).Steps); got != want {
		t.Errorf("steps are\n%s\nnot\n%s", got, want)
	}
	w.stop(w.podOf(v1alpha1.CoordinatorMember("box")))
	if got := describe(planner.Make(w.observe()).Steps); got != "" {
		t.Errorf("without a coordinator nobody knows which one holds the data, but steps are\n%s", got)
	}
}

// The kubelet may still report the end of a process when the next one in the same pod serves already.
func TestLateReportOfAnEnd(t *testing.T) {
	for _, process := range []planner.Process{planner.ProcessAbsent, planner.ProcessEnded} {
		w := newWorld(1)
		w.settle(100)
		w.cluster.members["box-master-0"].tablets = 1
		w.store.Spec.Masters.Memory = resource.MustParse("2Gi")
		o := w.observe()
		o.Now = o.Now.Add(time.Minute)
		for i := range o.Pods {
			if o.Pods[i].Member == "box-master-0" {
				o.Pods[i].Process = process
			}
		}
		if got := describe(planner.Make(o).Steps); got != "" {
			t.Errorf("%v: its process serves, but steps are\n%s", process, got)
		}
	}
}

// A default image that never ran is not kept; one that did is.
func TestDefaultImage(t *testing.T) {
	w := newWorld(1)
	w.visit(false)
	o := w.observe()
	o.DefaultImage = "store:2"
	if got := planner.Make(o).Image; got != "store:2" {
		t.Errorf("nothing ever ran, and the image is %s", got)
	}
	w.settle(100)
	o = w.observe()
	o.DefaultImage = "store:2"
	if got := planner.Make(o).Image; got != "store:1" {
		t.Errorf("the image changed to %s", got)
	}
}
