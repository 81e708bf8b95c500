package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/perf"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// perfHarness is a harness with a Store that serves, and a stand-in for the runs' first clients.
type perfHarness struct {
	*harness
	runs   *PerfReconciler
	report *perf.Report
	asked  []string
}

func (h *perfHarness) Report(_ context.Context, ip string) (*perf.Report, error) {
	h.asked = append(h.asked, ip)
	if h.report == nil {
		return nil, errors.New("connection refused")
	}
	return h.report, nil
}

func (h *perfHarness) Documents(context.Context, string) (map[string]string, error) {
	return map[string]string{"table.txt": "basic.read100 13.0 us", "results.json": "{}", "plot.svg": "<svg>"}, nil
}

func newPerfHarness(t *testing.T) *perfHarness {
	t.Helper()
	h := &perfHarness{harness: settled(t)}
	h.runs = &PerfReconciler{
		Client: h.client, Live: h.client, Recorder: h.events, Clients: h, Now: func() time.Time { return h.now },
		Namespace: "rcbox-system",
	}
	return h
}

func (h *perfHarness) create(name string, change func(*v1alpha1.ClusterPerf)) {
	h.t.Helper()
	run := &v1alpha1.ClusterPerf{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name + "-uid"), Generation: 1},
		Spec: v1alpha1.ClusterPerfSpec{
			StoreRef: v1alpha1.StoreReference{Name: "box"}, Tests: []v1alpha1.PerfTest{"basic"},
			Clients: v1alpha1.PerfClients{Replicas: 1}, Options: v1alpha1.PerfOptions{Seconds: 1},
			Concurrency: v1alpha1.PerfForbid, TimeoutSeconds: 600,
		},
	}
	if change != nil {
		change(run)
	}
	if err := h.client.Create(h.t.Context(), run); err != nil {
		h.t.Fatal(err)
	}
}

// look reconciles a run, and starts what pods there are.
func (h *perfHarness) look(name string) (ctrl.Result, error) {
	h.t.Helper()
	h.now = h.now.Add(2 * time.Second)
	key := client.ObjectKey{Namespace: "default", Name: name}
	result, err := h.runs.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: key})
	for _, pod := range h.perfPods(name) {
		if pod.Status.Phase != "" {
			continue
		}
		pod.UID = types.UID("uid-of-" + pod.Name)
		pod.Spec.NodeName = "node-a"
		if err := h.client.Update(h.t.Context(), &pod); err != nil {
			h.t.Fatal(err)
		}
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.9"}
		if err := h.client.Status().Update(h.t.Context(), &pod); err != nil {
			h.t.Fatal(err)
		}
	}
	return result, err
}

func (h *perfHarness) mustLook(name string, times int) {
	h.t.Helper()
	for range times {
		if _, err := h.look(name); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *perfHarness) perfPods(name string) []corev1.Pod {
	h.t.Helper()
	list := &corev1.PodList{}
	if err := h.client.List(h.t.Context(), list, client.MatchingLabels{v1alpha1.LabelClusterPerf: name}); err != nil {
		h.t.Fatal(err)
	}
	return list.Items
}

func (h *perfHarness) get(name string) *v1alpha1.ClusterPerf {
	h.t.Helper()
	run := &v1alpha1.ClusterPerf{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, run); err != nil {
		h.t.Fatal(err)
	}
	return run
}

func (h *perfHarness) wantReason(name, reason string) string {
	h.t.Helper()
	got := meta.FindStatusCondition(h.get(name).Status.Conditions, v1alpha1.ConditionComplete)
	if got == nil || got.Reason != reason {
		h.t.Fatalf("%s is %+v, not %s", name, got, reason)
	}
	return got.Message
}

func TestRunIsCarriedOut(t *testing.T) {
	h := newPerfHarness(t)
	h.create("first", func(run *v1alpha1.ClusterPerf) {
		count := int64(7)
		run.Spec.Options.Count, run.Spec.Clients.AwayFromMasters = &count, true
	})
	h.mustLook("first", 2)
	pods := h.perfPods("first")
	if len(pods) != 1 || !metav1.IsControlledBy(&pods[0], h.get("first")) {
		t.Fatalf("pods are %+v", pods)
	}
	command := strings.Join(append(pods[0].Spec.Containers[0].Command, pods[0].Spec.Containers[0].Args...), " ")
	for _, part := range []string{
		"clusterperf -C tcp:host=box.default.svc,port=11100", "--tablePrefix clusterperf-first-first-", "--patience 600", "--seconds 1",
		"--count 7", "--httpListen 0.0.0.0:11500", " basic",
	} {
		if !strings.Contains(command, part) {
			t.Errorf("the command is %q, without %q", command, part)
		}
	}
	if pods[0].Spec.Containers[0].Image != "store:1" || pods[0].Spec.RestartPolicy != corev1.RestartPolicyNever ||
		*pods[0].Spec.AutomountServiceAccountToken || pods[0].Spec.Affinity.PodAntiAffinity == nil {
		t.Errorf("the pod is %+v", pods[0].Spec)
	}
	policy := &networkingv1.NetworkPolicy{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "first-client"}, policy); err != nil {
		t.Fatal(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	rule := policy.Spec.Ingress[0]
	if err != nil || !selector.Matches(labels.Set(pods[0].Labels)) || rule.Ports[0].Port.IntValue() != 11500 || len(rule.From) != 1 {
		t.Errorf("the policy is %+v", policy.Spec)
	}
	h.report = &perf.Report{State: perf.StateRunning}
	h.mustLook("first", 2)
	h.wantReason("first", v1alpha1.ReasonRunning)
	if !slices.Contains(h.asked, "10.0.0.9") {
		t.Errorf("asked were %v", h.asked)
	}
	// A reconcile of the Store leaves the clients alone.
	h.mustReconcile()
	if len(h.perfPods("first")) != 1 {
		t.Error("the Store's controller took the client's pod")
	}

	h.report = &perf.Report{State: perf.StateComplete, TestsDone: 1, Rows: []perf.Row{{Name: "basic.read100", Value: "13.0", Unit: "us"}}}
	h.mustLook("first", 1)
	h.wantReason("first", v1alpha1.ReasonCompleted)
	documents := &corev1.ConfigMap{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "first-results"}, documents); err != nil {
		t.Fatal(err)
	}
	if documents.Data["plot.svg"] != "<svg>" || !metav1.IsControlledBy(documents, h.get("first")) {
		t.Errorf("documents are %+v", documents)
	}
	h.mustLook("first", 2)
	if len(h.perfPods("first")) > 0 {
		t.Error("its pods are left")
	}
	before := h.writes
	result, err := h.look("first")
	if err != nil || result.RequeueAfter != 0 || h.writes != before {
		t.Errorf("a run that has ended is worked on: %+v, %v, %d writes", result, err, h.writes-before)
	}
	events := strings.Join(h.takeEvents(), "\n")
	for _, want := range []string{
		"Normal Starting", "Normal Running", "Normal Completed 1 figures; all of them in ConfigMap first-results",
	} {
		if !strings.Contains(events, want) {
			t.Errorf("no event %q in\n%s", want, events)
		}
	}
}

// Two runs that were made at the same time have the Store one after the other, also if caches are old.
func TestOneRunAtATime(t *testing.T) {
	h := newPerfHarness(t)
	h.create("b", nil)
	h.mustLook("b", 1)
	h.wantReason("b", v1alpha1.ReasonStarting)
	h.create("a", nil)
	h.mustLook("a", 1)
	if text := h.wantReason("a", v1alpha1.ReasonWaitsForTurn); text != "b is measuring Store box" {
		t.Errorf("it says %q", text)
	}
	// With a cache that has not seen b begin, a would have begun as well; the API server is asked.
	o := perf.Observed{Now: h.now, Run: h.get("a"), Store: h.store()}
	if _, err := h.runs.apply(t.Context(), o, perf.Make(o).Steps); !errors.Is(err, errStale) {
		t.Errorf("a begins: %v", err)
	}
	h.mustLook("b", 2)
	h.report = &perf.Report{State: perf.StateComplete, TestsDone: 1}
	h.mustLook("b", 3)
	h.mustLook("a", 2)
	h.wantReason("a", v1alpha1.ReasonStarting)
}

func TestRunWaitsForAStore(t *testing.T) {
	h := newPerfHarness(t)
	h.create("lost", func(run *v1alpha1.ClusterPerf) { run.Spec.StoreRef.Name = "other" })
	result, err := h.look("lost")
	if err != nil || result.RequeueAfter == 0 {
		t.Fatal(result, err)
	}
	h.wantReason("lost", v1alpha1.ReasonWaitsForStore)
	h.mustLook("lost", 1)
	before := h.writes
	h.mustLook("lost", 2)
	if h.writes != before {
		t.Errorf("%d writes while it waits", h.writes-before)
	}
}

func TestFailedPodTellsWhy(t *testing.T) {
	h := newPerfHarness(t)
	h.create("bad", nil)
	h.mustLook("bad", 3)
	pod := h.perfPods("bad")[0]
	pod.Status.Phase = corev1.PodFailed
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: resources.ContainerName(&pod)}}
	pod.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 2, Reason: "Error", Message: "usage\nerror: unexpected argument '--tablePrefix' found\n",
	}
	if err := h.client.Status().Update(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	h.mustLook("bad", 1)
	text := h.wantReason("bad", v1alpha1.ReasonClientFailed)
	if want := "exit code 2 (Error): error: unexpected argument '--tablePrefix' found"; !strings.HasSuffix(text, want) {
		t.Errorf("it says %q", text)
	}
	if events := strings.Join(h.takeEvents(), "\n"); !strings.Contains(events, "Warning ClientFailed") {
		t.Errorf("events are %s", events)
	}
	// Another pod drops the tables.
	h.mustLook("bad", 2)
	pods := h.perfPods("bad")
	if len(pods) != 1 || pods[0].Labels[v1alpha1.LabelComponent] != v1alpha1.ComponentPerfCleanup ||
		!slices.Contains(pods[0].Spec.Containers[0].Args, "--dropTables") {
		t.Fatalf("pods are %+v", pods)
	}
	pods[0].Status.Phase = corev1.PodSucceeded
	if err := h.client.Status().Update(t.Context(), &pods[0]); err != nil {
		t.Fatal(err)
	}
	h.mustLook("bad", 3)
	if run := h.get("bad"); !run.Status.TablesDropped || len(h.perfPods("bad")) > 0 {
		t.Errorf("status is %+v, pods %+v", run.Status, h.perfPods("bad"))
	}
}

// What Kubernetes refuses is told of, and tried again; somebody else's ConfigMap is not touched.
func TestRefusalsOfARun(t *testing.T) {
	h := newPerfHarness(t)
	h.create("run", nil)
	h.mustLook("run", 1)
	h.failWrite = func(what string) error {
		if strings.Contains(what, "Pod") {
			return apierrors.NewForbidden(corev1.Resource("pods"), "run", errors.New("exceeded quota"))
		}
		return nil
	}
	if _, err := h.look("run"); err == nil {
		t.Error("nobody tries again")
	}
	got := meta.FindStatusCondition(h.get("run").Status.Conditions, v1alpha1.ConditionProgressing)
	if got.Reason != v1alpha1.ReasonApplyFailed || !strings.Contains(got.Message, "exceeded quota") {
		t.Errorf("it says %+v", got)
	}
	h.failWrite = nil
	other := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "run-results"}, Data: map[string]string{"a": "b"},
	}
	if err := h.client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	h.mustLook("run", 2)
	h.report = &perf.Report{State: perf.StateComplete, TestsDone: 1}
	if _, err := h.look("run"); err == nil || !strings.Contains(err.Error(), "is not this run's") {
		t.Errorf("it says %v", err)
	}
	h.wantReason("run", v1alpha1.ReasonRunning)
	if err := h.client.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	h.mustLook("run", 1)
	h.wantReason("run", v1alpha1.ReasonCompleted)
}

func TestOldRunIsDeleted(t *testing.T) {
	h := newPerfHarness(t)
	h.create("old", func(run *v1alpha1.ClusterPerf) { run.Spec.TTLSecondsAfterFinished = new(int32) })
	h.mustLook("old", 3)
	h.report = &perf.Report{State: perf.StateComplete, TestsDone: 1}
	h.mustLook("old", 4)
	err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "old"}, &v1alpha1.ClusterPerf{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}
}

// readerOf asks a test server, whatever address it is told.
func readerOf(t *testing.T, handler http.HandlerFunc) *HTTPPerfReader {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	reader := NewHTTPPerfReader()
	reader.Client.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != "10.1.2.3:11500" {
				return nil, fmt.Errorf("asked %s", address)
			}
			return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		},
	}
	return reader
}

func TestClientsAreAskedOverHTTP(t *testing.T) {
	reader := readerOf(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/report":
			_, _ = w.Write([]byte(`{"state": "Running", "tests_done": 1, "environment": {"cpus": 2}, ` +
				`"rows": [{"name": "a", "p99": "3"}], "new": 1}`))
		case "/plot.svg":
			_, _ = w.Write(make([]byte, 300<<10))
		default:
			_, _ = w.Write([]byte("text of " + r.URL.Path))
		}
	})
	report, err := reader.Report(t.Context(), "10.1.2.3")
	if err != nil || report.State != perf.StateRunning || report.TestsDone != 1 || report.Environment.CPUs != 2 ||
		report.Rows[0].P99 != "3" {
		t.Errorf("%+v, %v", report, err)
	}
	documents, err := reader.Documents(t.Context(), "10.1.2.3")
	if err != nil || documents["table.txt"] != "text of /table.txt" || documents["omitted.txt"] != "plot.svg: more than 204800 bytes\n" {
		t.Errorf("%v, %v", documents, err)
	}
	if _, there := documents["plot.svg"]; there {
		t.Error("a part of a plot is kept")
	}
}

// A client's image may be anybody's: it sends the operator nowhere else, and takes no memory of it.
func TestClientsThatAnswerWrongly(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://10.9.9.9/", http.StatusFound)
		},
		"endless":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
		"not JSON":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) },
		"no success": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			if report, err := readerOf(t, handler).Report(t.Context(), "10.1.2.3"); err == nil || strings.Contains(err.Error(), "asked") {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}
