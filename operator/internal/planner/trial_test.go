package planner_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// While the API server refuses the next pod, nothing that runs is restarted for it; once it does not, everything is.
func TestNothingIsRestartedForARefusedPod(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Image, w.refusedImage = "store:2", "store:2"
	began, trials := w.now, 0
	for range 100 {
		plan, _ := w.reconcile(false)
		trials += countOf[steps.TryPod](plan)
		if ends := countOf[steps.RestartMember](plan) + countOf[steps.DeletePod](plan); ends > 0 {
			t.Fatalf("steps:\n%s", describe(plan.Steps))
		}
		w.tick()
	}
	progressing := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing.Status != metav1.ConditionFalse || progressing.Reason != v1alpha1.ReasonPodRefused ||
		!strings.Contains(progressing.Message, "box-master-0 keeps its pod") ||
		!strings.Contains(progressing.Message, "pods of store:2 are forbidden") {
		t.Errorf("Progressing is %+v", progressing)
	}
	if most := int(w.now.Sub(began)/(30*time.Second)) + 1; trials < 2 || trials > most {
		t.Errorf("%d trials in %s", trials, w.now.Sub(began))
	}
	if w.store.Status.DisruptionLock != nil {
		t.Errorf("on record as the next one to end is %+v", w.store.Status.DisruptionLock)
	}
	w.refusedImage = ""
	if order := w.restarts(200); len(order) != 4 {
		t.Errorf("restarted are %v", order)
	}
}

// For each reason to end a running process: while the API server refuses the member's next pod, the process goes on, and what
// refuses is said with what to do. Nobody is asked more than once in 30 s.
func TestRefusedPodKeepsItsMember(t *testing.T) {
	const refusal = "the API server refuses the next one; it says: pods are forbidden: exceeded quota; correct that, or "
	for name, test := range map[string]struct {
		order  func(*world)
		reason string
		said   func(*world) string
		want   string
	}{
		"a restart by order": {
			func(w *world) { w.orderRestart("now", "box-master-1") }, v1alpha1.ReasonPodRefused,
			func(w *world) string { return conditionText(w, "now") },
			"1 master left, first box-master-1; box-master-1 keeps its pod, because " + refusal + "delete StoreOperation now",
		},
		"a rolling restart": {
			func(w *world) { w.store.Spec.Masters.Cores = 2 }, v1alpha1.ReasonPodRefused,
			func(w *world) string { return w.condition(v1alpha1.ConditionProgressing).Message },
			"box-master-0 keeps its pod, because " + refusal + "revert the spec",
		},
		"a drained node": {
			func(w *world) { w.cordon("box-master-1") }, v1alpha1.ReasonPodRefused,
			func(w *world) string { return w.evacuationOf("box-master-1").WaitsFor },
			"the API server to admit its next pod; it says: pods are forbidden: exceeded quota; correct that, or uncordon ",
		},
		"a drill by order": {
			func(w *world) { w.order("now", "box-master-1") }, v1alpha1.ReasonAsSpecified,
			func(w *world) string { return conditionText(w, "now") },
			"the API server refuses the next pod of box-master-1; it says: pods are forbidden: exceeded quota",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLocalWorld(t)
			w.now, w.isQuotaFull = w.now.Add(time.Minute), true
			test.order(w)
			began, trials := w.now, 0
			for range 70 {
				plan, _ := w.reconcile(false)
				trials += countOf[steps.TryPod](plan)
				if ends := len(plan.Steps) - countOf[steps.TryPod](plan) - countOf[steps.CancelDisruption](plan); ends > 0 {
					t.Fatalf("steps:\n%s", describe(plan.Steps))
				}
				w.tick()
			}
			if most := int(w.now.Sub(began)/(30*time.Second)) + 1; trials < 1 || trials > most {
				t.Errorf("%d trials in %s", trials, w.now.Sub(began))
			}
			if got := w.condition(v1alpha1.ConditionProgressing); got.Reason != test.reason {
				t.Errorf("Progressing is %+v", got)
			}
			if said := test.said(w); !strings.Contains(said, test.want) || len(said) > 300 {
				t.Errorf("said is %q", said)
			}
			if w.store.Status.DisruptionLock != nil {
				t.Errorf("on record as the next one to end is %+v", w.store.Status.DisruptionLock)
			}
		})
	}
}

// conditionText is what a StoreOperation says of itself.
func conditionText(w *world, operation string) string {
	return w.operation(operation).Conditions[0].Message
}

// A restart by order goes on by itself once the API server admits the pod, with one trial for each process that ends.
func TestEachRestartByOrderIsTriedOnce(t *testing.T) {
	w := newLocalWorld(t)
	w.now, w.isQuotaFull = w.now.Add(time.Minute), true
	w.orderRestart("all")
	w.reconciles(10)
	if got := w.operation("all").Conditions[0]; got.Reason != v1alpha1.ReasonPodRefused {
		t.Errorf("the StoreOperation says %+v", got)
	}
	w.isQuotaFull = false
	trials, restarts := 0, 0
	for range 200 {
		plan, _ := w.reconcile(false)
		trials += countOf[steps.TryPod](plan)
		restarts += countOf[steps.RestartMember](plan)
		w.tick()
	}
	if want := int(w.store.Spec.Masters.Replicas); restarts != want || trials != want {
		t.Errorf("%d restarts and %d trials of %d masters", restarts, trials, want)
	}
	if got := w.operation("all").Phase; got != v1alpha1.OperationSucceeded {
		t.Errorf("the StoreOperation is %s", got)
	}
}

// An operator that does not ask is one that this world objects to.
func TestUntriedPodsAreSeen(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Image, w.refusedImage = "store:2", "store:2"
	lies := func(o facts.Observed) planner.Plan {
		o.Trials = map[string]facts.Trial{}
		for try := range steps.Of[steps.TryPod](planner.Make(o).Steps) {
			o.Trials[try.Key] = facts.Trial{At: o.Now}
		}
		return planner.Make(o)
	}
	makePlan = lies
	defer func() {
		makePlan = planner.Make
		if seen := fmt.Sprint(recover()); !strings.Contains(seen, "the API server was not asked about its next pod") {
			t.Errorf("seen is %s", seen)
		}
	}()
	for range 100 {
		w.reconcile(false)
		w.tick()
	}
}

// An admission counts for longer than the pause after failed reconciles, which is 30 s at most, and not for ever.
func TestTrialsExpire(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Image = "store:2"
	if plan := w.underLock(asSeen); countOf[steps.RestartMember](plan) != 1 || countOf[steps.TryPod](plan) != 0 {
		t.Fatalf("steps:\n%s", describe(plan.Steps))
	}
	if plan := planner.Make(w.later(31 * time.Second)); countOf[steps.RestartMember](plan) != 1 {
		t.Errorf("after 31 s, steps:\n%s", describe(plan.Steps))
	}
	plan := planner.Make(w.later(45 * time.Second))
	if countOf[steps.RestartMember](plan) != 0 || countOf[steps.TryPod](plan) != 1 || countOf[steps.CancelDisruption](plan) != 0 {
		t.Errorf("after 45 s, steps:\n%s", describe(plan.Steps))
	}
}

// While a trial or a lock is withheld, there is no answer to look for half a second later.
func TestWithheldTrialsAreNotLookedFor(t *testing.T) {
	pause := func(w *world) { w.store.Spec.Paused = true }
	for name, test := range map[string]struct {
		change func(*world)
		isDue  func(*world)
	}{
		"paused, an outdated process": {pause, func(w *world) { w.store.Spec.Image = "store:2" }},
		"paused, a restart by order":  {pause, func(w *world) { w.orderRestart("now", "box-master-1") }},
		"paused, with a lock on record": {pause, func(w *world) {
			w.store.Spec.Image = "store:2"
			w.reconcile(false)
		}},
		"not allowed, an outdated process": {
			func(w *world) {
				w.store.Spec.Masters.Pod.Overlay = &runtime.RawExtension{Raw: []byte(`{"spec": {"hostNetwork": true}}`)}
			},
			func(w *world) { w.store.Spec.Image = "store:2" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newLocalWorld(t)
			test.isDue(w)
			if plan := planner.Make(w.observe()); plan.Next > time.Second {
				t.Fatalf("looked at again in %s, steps:\n%s", plan.Next, describe(plan.Steps))
			}
			test.change(w)
			if plan := planner.Make(w.observe()); len(plan.Steps) > 0 || plan.Next < 2*time.Second {
				t.Errorf("looked at again in %s, steps:\n%s", plan.Next, describe(plan.Steps))
			}
		})
	}
}

// later is what is seen some time later, when nothing has happened.
func (w *world) later(by time.Duration) facts.Observed {
	o := w.observe()
	o.Now = o.Now.Add(by)
	return o
}

func TestOverlaysHaveToBeAllowed(t *testing.T) {
	overlay := func(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
	sidecar := `{"spec": {"containers": [{"name": "agent", "image": "agent:1"}]}}`
	for _, test := range []struct {
		name, overlay string
		isAllowed     bool
		want          string
	}{
		{"not allowed", sidecar, false, "the chart's value allow.overlays (manager run --allow-overlays)"},
		{"allowed", sidecar, true, ""},
		{"a field of the operator", `{"spec": {"hostNetwork": true}}`, true, "spec.hostNetwork must not be changed: "},
	} {
		for _, component := range []string{"coordinator", "masters"} {
			w := newWorld(2)
			settings := &w.store.Spec.Masters.Pod
			if component == "coordinator" {
				settings = &w.store.Spec.Coordinator.Pod
			}
			settings.Overlay = overlay(test.overlay)
			o := w.observe()
			o.Allowed.Overlays = test.isAllowed
			plan := planner.Make(o)
			if !strings.Contains(plan.NotAllowed, test.want) || (test.want == "") != (plan.NotAllowed == "") ||
				test.want != "" && !strings.HasPrefix(plan.NotAllowed, "spec."+component+".pod.overlay: ") || len(plan.NotAllowed) > 300 {
				t.Errorf("%s in %s: %q", test.name, component, plan.NotAllowed)
			}
			if isBlocked := len(plan.Steps) == 0; isBlocked != (test.want != "") {
				t.Errorf("%s in %s: steps:\n%s", test.name, component, describe(plan.Steps))
			}
		}
	}
}
