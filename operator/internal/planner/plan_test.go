package planner_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

func describe(list []steps.Step) string {
	lines := make([]string, 0, len(list))
	for _, step := range list {
		lines = append(lines, steps.Describe(step))
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
			"create pod 2 of box-master-2: its pod is gone; its data is lost with it (tablets: 2)\n" +
				"drain box-master-2: masters.replicas is 1",
		},
		{
			"scale in moves tablets away first, and another master changes", func(w *world) {
				w.store.Spec.Masters.Replicas = 2
				w.cluster.members["box-master-2"].tablets = 2
				w.store.Spec.Masters.Memory = resource.MustParse("2Gi")
			},
			"drain box-master-2: masters.replicas is 2\n" +
				"retire box-master-0: it holds nothing, and the spec has changed: memory: 1Gi -> 2Gi",
		},
		{
			"pod deleted", func(w *world) {
				w.cluster.members["box-master-0"].tablets = 7
				w.end(w.podOf("box-master-0"))
			},
			"create pod 2 of box-master-0: its pod is gone; its data is lost with it (tablets: 7)",
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
			"retire box-master-1: its process has not enlisted for a long time; the coordinator may have removed it",
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
			"object missing", func(w *world) { w.objects["box"] = facts.ObjectMissing }, "apply Service box: it is missing",
		},
		{
			"object changed", func(w *world) { w.objects["box"] = facts.ObjectDifferent },
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
			got := describe(w.tried(asSeen).Steps)
			for name := range w.pods {
				got = strings.ReplaceAll(got, name, "POD")
			}
			if got != test.want {
				t.Errorf("steps are\n%s\nnot\n%s", got, test.want)
			}
		})
	}
}

func TestReplicatedPlans(t *testing.T) {
	for _, test := range []struct {
		name string
		// change a settled world of three masters with one copy of everything
		change func(*world)
		want   string
	}{
		{"nothing", func(*world) {}, ""},
		{
			"pod deleted: the claim stays, and the next pod has it", func(w *world) {
				w.cluster.members["box-master-0"].tablets = 7
				w.end(w.podOf("box-master-0"))
			},
			"create pod 2 of box-master-0: its pod is gone; its data is recovered from copies (tablets: 7)",
		},
		{
			"pod deleted and claim lost", func(w *world) {
				delete(w.claims, "box-master-0-copies")
				w.end(w.podOf("box-master-0"))
			},
			"create volume claim box-master-0-copies of box-master-0: the member needs a volume\n" +
				"create pod 2 of box-master-0: its pod is gone",
		},
		{
			"pod deleted and the claim is on its way out", func(w *world) {
				w.claims["box-master-0-copies"] = facts.Claim{Name: "box-master-0-copies", Terminating: true}
				w.end(w.podOf("box-master-0"))
			}, "",
		},
		{
			"scale out", func(w *world) { w.store.Spec.Masters.Replicas = 4 },
			"create volume claim box-master-3-copies of box-master-3: the member needs a volume\ncreate pod 1 of box-master-3: it is new",
		},
		{
			"scale in", func(w *world) { w.store.Spec.Masters.Replicas = 2 }, "drain box-master-2: masters.replicas is 2",
		},
		{
			"scale in, and it keeps what others need", func(w *world) {
				w.store.Spec.Masters.Replicas = 2
				w.cluster.members["box-master-2"].isDraining, w.cluster.members["box-master-2"].copies = true, 1
			}, "",
		},
		{
			"scale in, and it is drained", func(w *world) {
				w.store.Spec.Masters.Replicas = 2
				w.cluster.members["box-master-2"].isDraining = true
			},
			"retire box-master-2: masters.replicas is 2",
		},
		{
			"scale in, it is drained, and something else is short of copies", func(w *world) {
				w.store.Spec.Masters.Replicas = 2
				w.cluster.members["box-master-2"].isDraining = true
				w.cluster.short = 1
			},
			"retire box-master-2: masters.replicas is 2",
		},
		{
			"scale in during a recovery", func(w *world) {
				w.store.Spec.Masters.Replicas = 2
				w.cluster.members["box-master-2"].isDraining = true
				w.cluster.lost = 1
			}, "",
		},
		{
			"scale in by two: the second is drained beside the first", func(w *world) {
				w.store.Spec.Masters.Replicas = 1
				w.cluster.members["box-master-2"].isDraining, w.cluster.members["box-master-2"].copies = true, 1
			},
			"drain box-master-1: masters.replicas is 1",
		},
		{
			"scale in by two: the last one goes first", func(w *world) {
				w.store.Spec.Masters.Replicas = 1
				w.cluster.members["box-master-2"].isDraining, w.cluster.members["box-master-2"].copies = true, 1
				w.cluster.members["box-master-1"].isDraining = true
			}, "",
		},
		{
			"scale out again while it is drained", func(w *world) { w.cluster.members["box-master-2"].isDraining = true },
			"undrain box-master-2: masters.replicas is 3",
		},
		{
			"somebody has ordered the drain of one that has a place", func(w *world) {
				w.orderDrain("box-master-2")
				w.cluster.members["box-master-2"].isDraining = true
			}, "",
		},
		{
			"somebody has ordered another drain", func(w *world) {
				w.orderDrain("box-master-0")
				w.cluster.members["box-master-0"].isDraining = true
				w.cluster.members["box-master-2"].isDraining = true
			},
			"undrain box-master-2: masters.replicas is 3",
		},
		{
			"scale in of a pod that never enlisted, while copies are missing", func(w *world) {
				w.store.Spec.Masters.Replicas = 2
				delete(w.cluster.members, "box-master-2")
				w.cluster.short = 1
			}, "",
		},
		{
			"scale in of a pod that never enlisted", func(w *world) {
				w.store.Spec.Masters.Replicas = 2
				delete(w.cluster.members, "box-master-2")
			},
			"retire box-master-2: masters.replicas is 2",
		},
		{
			"more memory, nobody holds anything, but copies are missing", func(w *world) {
				w.store.Spec.Masters.Memory = resource.MustParse("2Gi")
				w.cluster.short = 1
			}, "",
		},
		{
			"a pod that was not told where it is", func(w *world) { w.podOf("box-master-1").DomainKnown = false },
			`set the failure domain of pod POD of box-master-1 to "rack of node-of-POD": it runs on node-of-POD`,
		},
		{
			"the Store is deleted, claims are retained", func(w *world) {
				w.store.DeletionTimestamp = &metav1.Time{Time: w.now}
				clear(w.pods)
			},
			"remove the finalizer: its pods have ended",
		},
		{
			"the Store is deleted with all that it held", func(w *world) {
				w.store.DeletionTimestamp = &metav1.Time{Time: w.now}
				w.store.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
				clear(w.pods)
				delete(w.claims, "box-master-0-copies")
				w.claims["box-master-1-copies"] = facts.Claim{Name: "box-master-1-copies", Terminating: true}
			},
			"delete volume claim box-coordinator-state: the Store is being deleted, and its reclaimPolicy is Delete\n" +
				"delete volume claim box-master-2-copies: the Store is being deleted, and its reclaimPolicy is Delete\n" +
				"remove the finalizer: its pods have ended",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newReplicatedWorld(3)
			if _, _, settled := w.settle(100); !settled {
				t.Fatal("does not settle")
			}
			names := slices.Collect(maps.Keys(w.pods))
			test.change(w)
			got := describe(planner.Make(w.observe()).Steps)
			for _, name := range names {
				got = strings.ReplaceAll(got, name, "POD")
			}
			if got != test.want {
				t.Errorf("steps are\n%s\nnot\n%s", got, test.want)
			}
		})
	}
}

// The gravest thing is named, and what exactly.
func TestShortfall(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*facts.Observed)
		want   string
	}{
		{"nothing", func(*facts.Observed) {}, ""},
		{"no coordinator", func(o *facts.Observed) { o.Cluster, o.ClusterError = nil, "no answer" }, "CoordinatorDown: " +
			"whether all copies are there is not known, since the coordinator does not answer: no answer"},
		{"a recovery", func(o *facts.Observed) {
			o.Cluster.Recoveries = []facts.Recovery{
				{TabletsLeft: 0},
				{Member: "box-master-1", ServerID: "2.1", TabletsLeft: 5, WaitsFor: "segment 9 of 2.1, last seen on box-master-2"},
			}
			o.Cluster.Members[0].SegmentsShort = 1
		}, "RecoveryRuns: recovery of box-master-1 (2.1): tablets left: 5, it waits: segment 9 of 2.1, last seen on box-master-2"},
		{"recoveries", func(o *facts.Observed) {
			o.Cluster.Recoveries = []facts.Recovery{
				{Member: "box-master-0", ServerID: "1.0", TabletsLeft: 4, WaitsFor: "room"},
				{Member: "box-master-2", ServerID: "3.0", TabletsLeft: 5, WaitsFor: "segment 9", CanBeGivenUp: true},
				{Member: "box-master-3", ServerID: "4.0", TabletsLeft: 1, WaitsFor: "segment 2", CanBeGivenUp: true},
			}
		}, "RecoveryRuns: recoveries of box-master-0 (1.0), box-master-2 (3.0), box-master-3 (4.0): tablets left: 10; " +
			"that of server 3.0 waits: segment 9; if the volumes with its copies are gone for good: rcbox recovery accept-loss 3.0"},
		{
			"state in memory", func(o *facts.Observed) { o.Cluster.State = v1alpha1.StateMemory },
			"CoordinatorInMemory: the coordinator keeps its state in memory: if its process ends, the list of tables is lost, " +
				"and no table can be recovered from its copies. Set coordinator.state.type to Volume",
		},
		{
			"a process that was made without copies", func(o *facts.Observed) { o.Cluster.Members[1].Copies = 0 },
			"UnderReplicated: fewer copies than 1: box-master-1 keeps 0; after a restart a master keeps the configured number of copies",
		},
		{
			"copies are missing", func(o *facts.Observed) { o.Cluster.Members[1].SegmentsShort = 3 },
			"UnderReplicated: log segments with fewer copies than 1: box-master-1 (3 of 10)",
		},
		{"copies are missing because one is away", func(o *facts.Observed) {
			o.Cluster.Members[1].SegmentsShort = 3
			o.Cluster.Members[2].Connected = false
		}, "UnderReplicated: log segments with fewer copies than 1: box-master-1 (3 of 10); not up: box-master-2"},
		{
			"one is away", func(o *facts.Observed) { o.Cluster.Members[2].Connected = false },
			"UnderReplicated: masters that are not up, so the copies on them are missing: box-master-2",
		},
		{"the next process of one has not come yet", func(o *facts.Observed) {
			o.Cluster.Members[2].Connected, o.Cluster.Members[2].Copies = false, 0
		}, "UnderReplicated: masters that are not up, so the copies on them are missing: box-master-2"},
		{"one never came", func(o *facts.Observed) {
			o.Cluster.Members = o.Cluster.Members[:2]
			o.Cluster.Members[0].Serving = true
		}, "UnderReplicated: masters that are not up, so the copies on them are missing: box-master-2"},
		{"one cannot write", func(o *facts.Observed) {
			o.Cluster.Members[0].Tablets, o.Cluster.Members[0].Serving = 1, false
		}, "UnderReplicated: masters that do not serve yet, because backups have not taken their writes: box-master-0"},
		{"one that holds nothing does not serve", func(o *facts.Observed) { o.Cluster.Members[0].Serving = false }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newReplicatedWorld(3)
			if _, _, settled := w.settle(100); !settled {
				t.Fatal("does not settle")
			}
			o := w.observe()
			test.change(&o)
			got := ""
			if short := planner.Make(o).Shortfall; short != nil {
				got = short.Reason + ": " + short.Message
			}
			if got != test.want {
				t.Errorf("short is\n%s\nnot\n%s", got, test.want)
			}
		})
	}
	w := newWorld(1)
	if short := planner.Make(w.observe()).Shortfall; short != nil {
		t.Errorf("without copies nothing is short of them: %+v", short)
	}
}

func TestFirstReconcile(t *testing.T) {
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
	for _, process := range []facts.Process{facts.ProcessAbsent, facts.ProcessEnded} {
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

// Where the coordinator does not answer, nobody knows whether the next process serves already.
func TestLateReportOfAnEndWithoutCoordinator(t *testing.T) {
	w := newWorld(1)
	w.settle(100)
	w.store.Spec.Masters.Memory = resource.MustParse("2Gi")
	o := w.observe()
	o.Cluster = nil
	for i := range o.Pods {
		if o.Pods[i].Member == "box-master-0" {
			o.Pods[i].Process = facts.ProcessAbsent
		}
	}
	if got := describe(planner.Make(o).Steps); got != "" {
		t.Errorf("its process may serve, but steps are\n%s", got)
	}
}

// A default image that never ran is not kept; one that did is.
func TestDefaultImage(t *testing.T) {
	w := newWorld(1)
	w.reconcile(false)
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
