package perf_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/perf"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// world plays API server, kubelet and the first client for one run.
type world struct {
	t     *testing.T
	o     perf.Observed
	plan  perf.Plan
	saved int
	// doesNotStart keeps clients' pods from running, nodeIsDead those that were told to end from ending.
	doesNotStart, nodeIsDead bool
}

func store() *v1alpha1.Store {
	return &v1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "default", UID: "store-uid"},
		Spec:       v1alpha1.StoreSpec{Masters: v1alpha1.MastersSpec{Replicas: 3, Cores: 1}},
		Status: v1alpha1.StoreStatus{
			Image: "store:1",
			Masters: v1alpha1.MastersStatus{Ready: 3, Members: []v1alpha1.MemberStatus{
				{Name: "box-master-0", MemberFigures: v1alpha1.MemberFigures{Node: "node-a"}},
				{Name: "box-master-1", MemberFigures: v1alpha1.MemberFigures{Node: "node-b"}},
				{Name: "box-master-2", MemberFigures: v1alpha1.MemberFigures{Node: "node-a"}},
			}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Message: "it serves"}},
		},
	}
}

func newRun(name string, change func(*v1alpha1.ClusterPerf)) *v1alpha1.ClusterPerf {
	run := &v1alpha1.ClusterPerf{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID(name + "01-uid"), CreationTimestamp: metav1.NewTime(start), Generation: 1,
		},
		Spec: v1alpha1.ClusterPerfSpec{
			StoreRef: v1alpha1.StoreReference{Name: "box"}, Tests: []v1alpha1.PerfTest{"basic"},
			Clients: v1alpha1.PerfClients{Replicas: 1}, Options: v1alpha1.PerfOptions{Seconds: 1},
			Concurrency: v1alpha1.PerfForbid, TimeoutSeconds: 600,
		},
	}
	if change != nil {
		change(run)
	}
	return run
}

func newWorld(t *testing.T, change func(*v1alpha1.ClusterPerf)) *world {
	t.Helper()
	return &world{t: t, o: perf.Observed{Now: start, Run: newRun("run", change), Store: store()}}
}

// reconcile makes a plan and carries it out.
func (w *world) reconcile() {
	w.t.Helper()
	w.o.Now = w.o.Now.Add(2 * time.Second)
	w.o.Pods = slices.DeleteFunc(w.o.Pods, func(pod perf.Pod) bool {
		return !w.nodeIsDead && !pod.EndsAt.IsZero() && w.o.Now.Sub(pod.EndsAt) > 4*time.Second
	})
	w.plan = perf.Make(w.o)
	w.o.Run.Status = w.plan.Status
	for _, step := range w.plan.Steps {
		switch step := step.(type) {
		case perf.CreateClient:
			w.create(perf.Pod{Name: fmt.Sprintf("run-client-%d", step.Index), Index: step.Index})
		case perf.CreateCleanup:
			w.create(perf.Pod{Name: "run-cleanup", Cleanup: true, Index: -1})
		case perf.DeletePod:
			w.o.Pods = slices.DeleteFunc(w.o.Pods, func(pod perf.Pod) bool { return pod.Name == step.Name && pod.UID == step.UID })
		case perf.SaveResults:
			if step.IP == "" {
				w.t.Error("results are to be read from nowhere")
			}
			w.saved++
		case perf.CheckTurn, perf.DeleteRun: // of other runs, and of the API server, there is nothing here
		}
	}
	for _, name := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionFailed, v1alpha1.ConditionProgressing} {
		if got := meta.FindStatusCondition(w.o.Run.Status.Conditions, name); got == nil || got.Reason == "" || got.Message == "" {
			w.t.Fatalf("condition %s is %+v", name, got)
		}
	}
}

func (w *world) create(pod perf.Pod) {
	for i := range w.o.Pods {
		if w.o.Pods[i].Name == pod.Name {
			w.t.Errorf("pod %s is made although it is there", pod.Name)
		}
	}
	pod.UID = "uid-of-" + pod.Name
	if !w.doesNotStart {
		pod.State, pod.IP, pod.Node = perf.PodRunning, "10.0.0.1", "node-c"
	}
	w.o.Pods = append(w.o.Pods, pod)
}

func (w *world) pod(name string) *perf.Pod {
	w.t.Helper()
	for i := range w.o.Pods {
		if w.o.Pods[i].Name == name {
			return &w.o.Pods[i]
		}
	}
	w.t.Fatalf("there is no pod %s: %+v", name, w.o.Pods)
	return nil
}

func (w *world) want(condition string, status metav1.ConditionStatus, reason string) string {
	w.t.Helper()
	got := meta.FindStatusCondition(w.o.Run.Status.Conditions, condition)
	if got == nil || got.Status != status || got.Reason != reason {
		w.t.Fatalf("%s is %+v, not %s (%s)", condition, got, status, reason)
	}
	return got.Message
}

// running brings the run to where its clients measure.
func (w *world) running() *world {
	w.t.Helper()
	for range 3 {
		w.reconcile()
	}
	w.want(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonRunning)
	return w
}

// over brings it to its end.
func (w *world) over() {
	w.t.Helper()
	w.o.Report = nil
	for range 6 {
		w.reconcile()
	}
	if len(w.o.Pods) > 0 || len(w.plan.Steps) > 0 {
		w.t.Errorf("left: pods %+v, steps %v", w.o.Pods, w.plan.Steps)
	}
}

func report(state string, done int32, rows ...perf.Row) *perf.Report {
	return &perf.Report{State: state, TestsDone: done, Rows: rows, Environment: perf.Environment{Kernel: "6.1", CPUs: 2, Load: "0.5"}}
}

func TestRunFromBeginToEnd(t *testing.T) {
	w := newWorld(t, func(run *v1alpha1.ClusterPerf) {
		run.Spec.Tests = []v1alpha1.PerfTest{"basic", "readThroughput"}
		run.Spec.Clients.Replicas = 2
	})
	w.reconcile()
	w.want(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonStarting)
	if w.o.Run.Status.StartTime == nil || !slices.Contains(w.plan.Steps, perf.Step(perf.CheckTurn{})) || len(w.o.Pods) > 0 {
		t.Errorf("it begins with %v, status %+v", w.plan.Steps, w.o.Run.Status)
	}
	if got := w.o.Run.Status.Environment; got.Image != "store:1" || got.ClientImage != "store:1" || got.Masters != 3 ||
		len(got.MasterNodes) != 2 {
		t.Errorf("environment is %+v", got)
	}
	if got := w.o.Run.Status.TablePrefix; got != "clusterperf-run-run01-" {
		t.Errorf("tables are called %s", got)
	}
	w.reconcile()
	w.reconcile()
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonRunning)
	if got := w.o.Run.Status.Environment.ClientNodes; len(got) != 2 {
		t.Errorf("clients are on nodes %v", got)
	}

	read := perf.Row{Name: "basic.read100", Value: "13.0", Unit: "us"}
	w.o.Report = report(perf.StateRunning, 1, read, perf.Row{Name: "basic.write100", Value: "30.5", Unit: "us"})
	w.reconcile()
	if got := w.o.Run.Status; got.Progress.Text != "1 of 2 tests, 50 %" || len(got.Results) != 2 || got.Summary.Write != "30.5 us" ||
		got.ResultsConfigMap != "run-results" || w.saved != 1 || got.Environment.Kernel != "6.1" {
		t.Errorf("status is %+v, saved %d times", got, w.saved)
	}
	w.reconcile()
	if w.saved != 1 {
		t.Error("the same results are saved again")
	}

	// A client that has nothing left to do ends.
	w.pod("run-client-1").State = perf.PodSucceeded
	w.o.Report = report(perf.StateComplete, 2, read, perf.Row{Name: "readThroughput.1", Value: "90.0", Unit: "k/s"},
		perf.Row{Name: "readThroughput.2", Value: "150.0", Unit: "k/s"})
	w.reconcile()
	w.want(v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonCompleted)
	w.want(v1alpha1.ConditionFailed, metav1.ConditionFalse, v1alpha1.ReasonNotFailed)
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonCleaningUp)
	if got := w.o.Run.Status; got.Summary.Throughput != "150.0 k/s" || w.saved != 2 || !got.TablesDropped {
		t.Errorf("status is %+v, saved %d times", got, w.saved)
	}
	w.over()
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonEnded)
	if w.plan.Next != 0 {
		t.Errorf("it is looked at again in %s", w.plan.Next)
	}
}

func TestWhatARunWaitsFor(t *testing.T) {
	younger := func(run *v1alpha1.ClusterPerf) { run.CreationTimestamp = metav1.NewTime(start.Add(-time.Minute)) }
	allow := func(run *v1alpha1.ClusterPerf) { run.Spec.Concurrency = v1alpha1.PerfAllow }
	started := func(run *v1alpha1.ClusterPerf) { run.Status.StartTime = &metav1.Time{Time: start} }
	progressing := func(status metav1.ConditionStatus, reason string) func(*v1alpha1.ClusterPerf) {
		return func(run *v1alpha1.ClusterPerf) {
			run.Status.CompletionTime = &metav1.Time{Time: start}
			meta.SetStatusCondition(&run.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionProgressing, Status: status, Reason: reason,
			})
		}
	}
	other := func(name string, changes ...func(*v1alpha1.ClusterPerf)) []v1alpha1.ClusterPerf {
		return []v1alpha1.ClusterPerf{*newRun(name, func(run *v1alpha1.ClusterPerf) {
			for _, change := range changes {
				change(run)
			}
		})}
	}
	for _, test := range []struct {
		name   string
		change func(*perf.Observed)
		reason string
		text   string
	}{
		{"nothing", func(*perf.Observed) {}, v1alpha1.ReasonStarting, ""},
		{"no Store", func(o *perf.Observed) { o.Store = nil }, v1alpha1.ReasonWaitsForStore, "there is no Store box in namespace default"},
		{
			"Store that goes", func(o *perf.Observed) { o.Store.DeletionTimestamp = &metav1.Time{Time: start} },
			v1alpha1.ReasonWaitsForStore, "Store box is being deleted",
		},
		{"Store not available", func(o *perf.Observed) {
			o.Store.Status.Conditions[0].Status, o.Store.Status.Conditions[0].Message = metav1.ConditionFalse, "1 of 3 masters"
		}, v1alpha1.ReasonWaitsForStore, "Store box is not Available: 1 of 3 masters"},
		{"older one", func(o *perf.Observed) { o.Others = other("z", younger) }, v1alpha1.ReasonWaitsForTurn, "z was there before"},
		{"same age, name before", func(o *perf.Observed) { o.Others = other("a") }, v1alpha1.ReasonWaitsForTurn, "a was there before"},
		{"same age, name after", func(o *perf.Observed) { o.Others = other("z") }, v1alpha1.ReasonStarting, ""},
		{
			"one that runs", func(o *perf.Observed) { o.Others = other("z", started) },
			v1alpha1.ReasonWaitsForTurn, "z is measuring Store box",
		},
		{"one that cleans up", func(o *perf.Observed) {
			o.Others = other("a", started, progressing(metav1.ConditionTrue, v1alpha1.ReasonCleaningUp))
		}, v1alpha1.ReasonWaitsForTurn, "a is measuring"},
		{"one that is over", func(o *perf.Observed) {
			o.Others = other("a", started, progressing(metav1.ConditionFalse, v1alpha1.ReasonEnded))
		}, v1alpha1.ReasonStarting, ""},
		{"one that cannot clean up", func(o *perf.Observed) {
			o.Others = other("a", started, progressing(metav1.ConditionFalse, v1alpha1.ReasonApplyFailed))
		}, v1alpha1.ReasonWaitsForTurn, "a is measuring"},
		{"one of another Store", func(o *perf.Observed) {
			o.Others = other("a", started, func(run *v1alpha1.ClusterPerf) { run.Spec.StoreRef.Name = "other" })
		}, v1alpha1.ReasonStarting, ""},
		{"both allow it", func(o *perf.Observed) {
			allow(o.Run)
			o.Others = other("a", started, allow)
		}, v1alpha1.ReasonStarting, ""},
		{"one allows it", func(o *perf.Observed) {
			allow(o.Run)
			o.Others = other("a", started)
		}, v1alpha1.ReasonWaitsForTurn, "a is measuring"},
		{
			"pods of one that was deleted", func(o *perf.Observed) { o.Strays = []string{"a-client-0"} },
			v1alpha1.ReasonWaitsForTurn, "pods of a run that was deleted are ending: a-client-0",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, nil)
			test.change(&w.o)
			w.reconcile()
			got := meta.FindStatusCondition(w.o.Run.Status.Conditions, v1alpha1.ConditionComplete)
			if got.Reason != test.reason || !strings.Contains(got.Message, test.text) {
				t.Errorf("it says %s: %s", got.Reason, got.Message)
			}
			if w.plan.Next == 0 {
				t.Error("nobody looks again")
			}
		})
	}
}

// Whatever ends a run, what it has is kept, and its pods and tables go.
func TestFailures(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*world)
		reason string
		text   string
		// cleans says that another pod has to drop the tables.
		cleans bool
	}{
		{"a client fails", func(w *world) {
			pod := w.pod("run-client-1")
			pod.State, pod.Trouble = perf.PodFailed, "exit code 137 (OOMKilled)"
		}, v1alpha1.ReasonClientFailed, "client 1 (pod run-client-1): exit code 137 (OOMKilled)", true},
		{"the first client says so", func(w *world) {
			w.o.Report.State, w.o.Report.Error = perf.StateFailed, "readDist: timed out"
		}, v1alpha1.ReasonClientFailed, "client 0: readDist: timed out", true},
		{"the first client has ended", func(w *world) {
			w.pod("run-client-0").State = perf.PodSucceeded
		}, v1alpha1.ReasonClientLost, "client 0 was ended before", true},
		{"a pod is gone", func(w *world) { w.o.Pods = w.o.Pods[:1] }, v1alpha1.ReasonClientLost, "the pod of client 1 was deleted", true},
		{"a pod is being deleted", func(w *world) {
			w.pod("run-client-1").EndsAt = w.o.Now
		}, v1alpha1.ReasonClientLost, "pod run-client-1 of client 1 is being deleted", true},
		{"it takes too long", func(w *world) {
			w.o.Now = w.o.Now.Add(601 * time.Second)
		}, v1alpha1.ReasonTimedOut, "not complete within timeoutSeconds (600)", true},
		{"the Store is deleted", func(w *world) { w.o.Store = nil }, v1alpha1.ReasonStoreDeleted, "Store box was deleted", false},
		{"the Store is another one", func(w *world) {
			w.o.Store.UID = "another"
		}, v1alpha1.ReasonStoreDeleted, "Store box was deleted", false},
		{"complete without all tests", func(w *world) {
			w.o.Report.State = perf.StateComplete
		}, v1alpha1.ReasonClientFailed, "without all tests", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, func(run *v1alpha1.ClusterPerf) {
				run.Spec.Tests = []v1alpha1.PerfTest{"readDist", "readThroughput"}
				run.Spec.Clients.Replicas = 2
			}).running()
			w.o.Report = report(perf.StateRunning, 1, perf.Row{Name: "readDist", Value: "10.0", Unit: "us"})
			w.reconcile()
			test.change(w)
			w.reconcile()
			message := w.want(v1alpha1.ConditionFailed, metav1.ConditionTrue, test.reason)
			w.want(v1alpha1.ConditionComplete, metav1.ConditionFalse, test.reason)
			if !strings.Contains(message, test.text) || !strings.HasSuffix(message, "; the figures of 1 tests are kept") {
				t.Errorf("it says %q", message)
			}
			if got := w.o.Run.Status; len(got.Results) != 1 || got.CompletionTime == nil || w.saved != 1 {
				t.Errorf("status is %+v, saved %d times", got, w.saved)
			}
			w.o.Report = nil
			cleaned := false
			for range 8 {
				w.reconcile()
				for i := range w.o.Pods {
					if pod := &w.o.Pods[i]; pod.Cleanup {
						cleaned, pod.State = true, perf.PodSucceeded
					}
				}
			}
			w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonEnded)
			if cleaned != test.cleans || len(w.o.Pods) > 0 || !w.o.Run.Status.TablesDropped || w.plan.Next != 0 {
				t.Errorf("cleaned %v, pods %+v, status %+v", cleaned, w.o.Pods, w.o.Run.Status)
			}
		})
	}
}

// A pod that does not run is told of, and is waited for until the time is up.
func TestPodsThatDoNotStart(t *testing.T) {
	w := newWorld(t, nil)
	w.doesNotStart = true
	w.reconcile()
	w.reconcile()
	w.pod("run-client-0").Trouble = "Unschedulable: 0/3 nodes are available"
	w.reconcile()
	message := w.want(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonStarting)
	if message != "0 of 1 clients run; pod run-client-0: Unschedulable: 0/3 nodes are available" {
		t.Errorf("it says %q", message)
	}
	w.o.Now = w.o.Now.Add(time.Hour)
	w.reconcile()
	if message := w.want(v1alpha1.ConditionFailed, metav1.ConditionTrue, v1alpha1.ReasonTimedOut); !strings.Contains(message, "0/3 nodes") {
		t.Errorf("it says %q", message)
	}
}

// While pods are being made, one that is gone is made again; nothing has been measured yet.
func TestAPodThatGoesBeforeAllRun(t *testing.T) {
	w := newWorld(t, func(run *v1alpha1.ClusterPerf) {
		run.Spec.Tests, run.Spec.Clients.Replicas = []v1alpha1.PerfTest{"readThroughput"}, 2
	})
	w.doesNotStart = true
	w.reconcile()
	w.reconcile()
	w.o.Pods = w.o.Pods[1:]
	w.reconcile()
	if len(w.o.Pods) != 2 {
		t.Errorf("pods are %+v", w.o.Pods)
	}
}

// What happened to the Store while a run measured is on record, the first thing only; what happened before is not.
func TestDisturbances(t *testing.T) {
	w := newWorld(t, nil)
	set := func(condition string, status metav1.ConditionStatus, reason string) {
		meta.SetStatusCondition(&w.o.Store.Status.Conditions, metav1.Condition{
			Type: condition, Status: status, Reason: reason, Message: "because",
		})
	}
	set(v1alpha1.ConditionRecovering, metav1.ConditionTrue, v1alpha1.ReasonRecoveryRuns)
	w.reconcile()
	w.reconcile()
	set(v1alpha1.ConditionRecovering, metav1.ConditionFalse, v1alpha1.ReasonNoneUnderWay)
	set(v1alpha1.ConditionAvailable, metav1.ConditionUnknown, v1alpha1.ReasonCoordinatorDown)
	w.reconcile()
	if got := w.o.Run.Status; got.RunningTime == nil || got.DisturbedBy != "" {
		t.Errorf("disturbed by %q", got.DisturbedBy)
	}
	set(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonDraining)
	w.reconcile()
	set(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonMembersDown)
	w.reconcile()
	if got := w.o.Run.Status.DisturbedBy; got != "Progressing was True (Draining): because" {
		t.Errorf("disturbed by %q", got)
	}
}

// A short run has measured everything by the time when its pods are first seen to run.
func TestARunThatIsShort(t *testing.T) {
	w := newWorld(t, nil)
	w.reconcile()
	w.reconcile()
	w.o.Report = report(perf.StateComplete, 1)
	w.reconcile()
	w.want(v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonCompleted)
	if status := w.o.Run.Status; status.RunningTime == nil || !slices.Equal(status.Environment.ClientNodes, []string{"node-c"}) {
		t.Errorf("status is %+v", status)
	}
}

func TestMessageWhileItRuns(t *testing.T) {
	w := newWorld(t, nil).running()
	w.o.Report = report(perf.StateRunning, 0)
	w.o.Report.Note = "1000 B: reading"
	w.reconcile()
	message := w.want(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonRunning)
	if message != "0 of 1 tests, 0 %; 1000 B: reading" {
		t.Errorf("it says %q", message)
	}
}

func TestFirstClientThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t, nil).running()
	w.o.ReportError = "connection refused"
	w.reconcile()
	if message := w.want(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonRunning); !strings.Contains(message, "refused") {
		t.Errorf("it says %q", message)
	}
}

// Tables that cannot be dropped are told of, with their names, and nobody waits for ever.
func TestTablesThatAreLeft(t *testing.T) {
	for name, happens := range map[string]func(*world){
		"the pod fails": func(w *world) {
			if len(w.o.Pods) > 0 {
				w.pod("run-cleanup").State, w.pod("run-cleanup").Trouble = perf.PodFailed, "exit code 1"
			}
		},
		"the Store stays unavailable": func(w *world) {
			w.o.Store.Status.Conditions[0].Status = metav1.ConditionFalse
			w.o.Now = w.o.Now.Add(2 * time.Minute)
		},
		"the pod does not start": func(w *world) { w.o.Now = w.o.Now.Add(2 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil).running()
			w.pod("run-client-0").State = perf.PodFailed
			w.reconcile()
			w.doesNotStart = true
			for range 10 {
				w.reconcile()
				happens(w)
			}
			message := w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonTablesLeft)
			if !strings.Contains(message, `"clusterperf-run-run01-"`) || w.o.Run.Status.TablesDropped {
				t.Errorf("it says %q", message)
			}
			w.over()
			w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonTablesLeft)
		})
	}
}

// Documents that cannot be saved keep the Store from others until the run's time is up, and no longer; its figures are kept all the same.
func TestDocumentsThatCannotBeSaved(t *testing.T) {
	w := newWorld(t, nil).running()
	refused := func() {
		w.o.Report = report(perf.StateComplete, 1, perf.Row{Name: "readDist", Value: "1.0", Unit: "us"})
		meta.SetStatusCondition(&w.o.Run.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonApplyFailed, Message: "forbidden",
		})
	}
	refused()
	if plan := perf.Make(w.o); len(plan.Steps) != 1 {
		t.Errorf("steps are %v", plan.Steps)
	}
	w.o.Now = w.o.Now.Add(time.Hour)
	w.reconcile()
	message := w.want(v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonCompleted)
	if message != "1 figures; their documents could not be saved" || w.saved != 0 || len(w.o.Run.Status.Results) != 1 {
		t.Errorf("it says %q, saved %d times, status %+v", message, w.saved, w.o.Run.Status)
	}
}

func TestAPodOnADeadNodeKeepsNobodyWaiting(t *testing.T) {
	w := newWorld(t, nil).running()
	w.o.Report = report(perf.StateComplete, 1)
	w.reconcile()
	w.pod("run-client-0").EndsAt, w.nodeIsDead = w.o.Now, true
	w.reconcile()
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonCleaningUp)
	w.o.Now = w.o.Now.Add(time.Minute)
	w.reconcile()
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonEnded)
}

func TestOldRunsGo(t *testing.T) {
	w := newWorld(t, func(run *v1alpha1.ClusterPerf) {
		seconds := int32(100)
		run.Spec.TTLSecondsAfterFinished = &seconds
	}).running()
	w.o.Report = report(perf.StateComplete, 1)
	w.reconcile()
	w.reconcile()
	w.reconcile()
	if left := w.plan.Next; left < 90*time.Second || left > 100*time.Second || len(w.plan.Steps) > 0 {
		t.Errorf("looked at again in %s, steps %v", left, w.plan.Steps)
	}
	w.o.Now = w.o.Now.Add(100 * time.Second)
	w.reconcile()
	if len(w.plan.Steps) != 1 || !strings.HasPrefix(w.plan.Steps[0].Describe(), "delete the run") {
		t.Errorf("steps are %v", w.plan.Steps)
	}
}

func TestCompared(t *testing.T) {
	row := func(name, value string) v1alpha1.PerfResult {
		return v1alpha1.PerfResult{Name: name, Value: value, Unit: "us"}
	}
	former := func(name string, ended time.Duration, change func(*v1alpha1.ClusterPerf)) v1alpha1.ClusterPerf {
		return *newRun(name, func(run *v1alpha1.ClusterPerf) {
			at := metav1.NewTime(start.Add(-ended))
			run.Status = v1alpha1.ClusterPerfStatus{
				StartTime: &at, CompletionTime: &at,
				Results: []v1alpha1.PerfResult{row("basic.read100", "10.0"), row("basic.write100", "0.0")},
				Conditions: []metav1.Condition{
					{Type: v1alpha1.ConditionComplete, Status: metav1.ConditionTrue},
					{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonEnded},
				},
			}
			if change != nil {
				change(run)
			}
		})
	}
	w := newWorld(t, nil)
	w.o.Others = []v1alpha1.ClusterPerf{
		former("oldest", 3*time.Hour, nil), former("former", 2*time.Hour, nil),
		former("another-question", time.Hour, func(run *v1alpha1.ClusterPerf) { run.Spec.Options.Seconds = 9 }),
		former("disturbed", time.Hour, func(run *v1alpha1.ClusterPerf) { run.Status.DisturbedBy = "Recovering was True" }),
		former("failed", time.Hour, func(run *v1alpha1.ClusterPerf) { run.Status.Conditions[0].Status = metav1.ConditionFalse }),
	}
	w.running()
	w.o.Report = report(perf.StateComplete, 1, perf.Row{Name: "basic.read100", Value: "12.5", Unit: "us"},
		perf.Row{Name: "basic.write100", Value: "30.0", Unit: "us"}, perf.Row{Name: "basic.read1K", Value: "x", Unit: "us"})
	w.reconcile()
	status := w.o.Run.Status
	if status.ComparedTo != "former" || status.Results[0].Change != "+25.0 %" || status.Results[1].Change != "" ||
		status.Results[2].Change != "" {
		t.Errorf("compared to %q: %+v", status.ComparedTo, status.Results)
	}
}

// What a pod says is bounded: its image may be anybody's.
func TestReportsAreBounded(t *testing.T) {
	w := newWorld(t, nil).running()
	r := report(perf.StateRunning, 7)
	for i := range 300 {
		r.Rows = append(r.Rows, perf.Row{Name: fmt.Sprintf("%d-%s", i, strings.Repeat("n", 1000)), Value: "1", Unit: "us"})
	}
	r.Rows = append(r.Rows, r.Rows[0], perf.Row{})
	w.o.Report = r
	w.reconcile()
	status := w.o.Run.Status
	if len(status.Results) != 256 || status.ResultsOmitted != 44 || len(status.Results[0].Name) != 200 || status.Progress.TestsDone != 1 {
		t.Errorf("%d results, %d omitted, progress %+v", len(status.Results), status.ResultsOmitted, status.Progress)
	}
}
