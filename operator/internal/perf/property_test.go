package perf_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/perf"
)

// Whatever happens to pods, Store and status, a run ends once, by one of two conditions, and leaves no pods; and no client is made
// after all have run.
func TestRunsEnd(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(500) {
		w := newWorld(t, func(run *v1alpha1.ClusterPerf) {
			run.Spec.Tests = []v1alpha1.PerfTest{"readDist", "readThroughput"}
			run.Spec.Clients.Replicas = 3
		})
		random := rand.New(rand.NewPCG(seed, 0))
		for range 40 {
			happen(w, random)
			carefulReconcile(w, random.IntN(10) == 0)
		}
		// From here on nothing goes wrong any more.
		w.o.Store, w.doesNotStart = store(), false
		for range 400 {
			for i := range w.o.Pods {
				pod := &w.o.Pods[i]
				if pod.State == perf.PodPending {
					pod.State, pod.IP = perf.PodRunning, "10.0.0.1"
				}
				if pod.Cleanup {
					pod.State = perf.PodSucceeded
				}
			}
			w.o.Report = nil
			carefulReconcile(w, false)
		}
		status := w.o.Run.Status
		complete := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionComplete)
		failed := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionFailed)
		progressing := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing)
		if status.CompletionTime == nil || complete == failed || len(w.o.Pods) > 0 || progressing.Status != metav1.ConditionFalse {
			t.Fatalf("seed %d: pods %+v, status %+v", seed, w.o.Pods, status)
		}
		if complete && status.Progress.TestsDone != status.Progress.Tests {
			t.Fatalf("seed %d: complete with %s", seed, status.Progress.Text)
		}
		outcomes[meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionComplete).Reason]++
	}
	// The seeds are of some use only if they end in every way.
	for _, reason := range []string{
		v1alpha1.ReasonCompleted, v1alpha1.ReasonClientFailed, v1alpha1.ReasonClientLost, v1alpha1.ReasonStoreDeleted,
		v1alpha1.ReasonTimedOut,
	} {
		if outcomes[reason] == 0 {
			t.Errorf("no run ended by %s: %v", reason, outcomes)
		}
	}
}

// carefulReconcile is a reconcile that checks what holds for each. With lost, the status is not written.
func carefulReconcile(w *world, lost bool) {
	w.t.Helper()
	before := *w.o.Run.Status.DeepCopy()
	// Only a first client that runs can be asked, and only before the end.
	if !slices.ContainsFunc(w.o.Pods, func(pod perf.Pod) bool { return pod.Index == 0 && pod.State == perf.PodRunning }) ||
		before.CompletionTime != nil {
		w.o.Report = nil
	}
	w.reconcile()
	after := w.o.Run.Status
	for _, condition := range after.Conditions {
		if len(condition.Message) > 300 {
			w.t.Fatalf("the message of %s has %d bytes: %s", condition.Type, len(condition.Message), condition.Message)
		}
	}
	for _, step := range w.plan.Steps {
		if _, creates := step.(perf.CreateClient); creates && (before.RunningTime != nil || before.StartTime == nil) {
			w.t.Fatalf("%s, of a run with %+v", step.Describe(), before)
		}
	}
	if before.CompletionTime != nil {
		for _, name := range []string{v1alpha1.ConditionComplete, v1alpha1.ConditionFailed} {
			was, is := meta.FindStatusCondition(before.Conditions, name), meta.FindStatusCondition(after.Conditions, name)
			if was.Status != is.Status || was.Reason != is.Reason || !before.CompletionTime.Equal(after.CompletionTime) {
				w.t.Fatalf("a run that has ended ends again: %+v, then %+v", was, is)
			}
		}
	}
	if lost {
		w.o.Run.Status = before
	}
}

// happen lets something happen that a planner cannot keep from happening.
func happen(w *world, random *rand.Rand) {
	pod := &perf.Pod{}
	if len(w.o.Pods) > 0 {
		pod = &w.o.Pods[random.IntN(len(w.o.Pods))]
	}
	done := w.o.Run.Status.Progress
	switch random.IntN(60) {
	case 0:
		pod.State, pod.Trouble = perf.PodFailed, "exit code 1"+strings.Repeat(", because of something", 20)
	case 1:
		pod.State = perf.PodSucceeded
	case 2:
		pod.EndsAt = w.o.Now
	case 3:
		w.o.Pods = nil
	case 4:
		w.o.Store = nil
	case 5:
		w.o.Store = store()
		w.o.Store.UID = "another"
	case 6:
		w.o.Now = w.o.Now.Add(5 * time.Minute)
	case 7, 8, 9:
		w.doesNotStart = !w.doesNotStart
	case 10, 11, 12:
		w.o.Report = nil
	case 13:
		w.o.Report = report(perf.StateFailed, 0)
	case 14, 15, 16, 17, 18, 19:
		if done != nil && len(w.o.Pods) > 0 {
			next := min(done.TestsDone+1, done.Tests)
			state := perf.StateRunning
			if next == done.Tests {
				state = perf.StateComplete
			}
			w.o.Report = report(state, next, perf.Row{Name: "readDist", Value: "1.0", Unit: "us"})
		}
	}
}
