package controller

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// answering gives each pod that is applied for trial one answer, and objects to all others.
type answering struct {
	client.Client

	answer error
}

func (a answering) Apply(_ context.Context, _ runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if wanted := (&client.ApplyOptions{}).ApplyOptions(options); len(wanted.DryRun) != 1 || wanted.DryRun[0] != metav1.DryRunAll {
		return errors.New("it is no trial")
	}
	return a.answer
}

// Only the API server's judgement of the pod counts as a refusal.
func TestWhatIsARefusal(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	byWebhook := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Message: `admission webhook "a" denied the request: no`,
		}}
	}
	for _, test := range []struct {
		name             string
		answer           error
		refused, isNoted bool
	}{
		{"admitted", nil, false, true},
		{"a quota or a policy", apierrors.NewForbidden(pods, "p", errors.New("no")), true, true},
		{"validation", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), true, true},
		{"a webhook that says no with 400", byWebhook(http.StatusBadRequest), true, true},
		{"a webhook that says no with 422", byWebhook(http.StatusUnprocessableEntity), true, true},
		{"a webhook without dry run", apierrors.NewBadRequest(`admission webhook "a" does not support dry run`), false, true},
		{"a webhook that does not answer", apierrors.NewInternalError(errors.New("failed calling webhook")), false, false},
		{"too many requests", apierrors.NewTooManyRequestsError("later"), false, false},
		{"a time-out", apierrors.NewTimeoutError("too long", 1), false, false},
		{"no connection", errors.New("connection refused"), false, false},
	} {
		h := settled(t)
		store := h.store()
		r := &Reconciler{Client: answering{h.client, test.answer}, Now: func() time.Time { return h.now }}
		err := r.tryPod(t.Context(), &reconcileState{observed: facts.Observed{Store: store}}, steps.TryPod{
			Key: "key", Component: v1alpha1.ComponentMaster, Member: "box-master-0", Number: 2,
			Inputs: resources.InputsFor(store, v1alpha1.ComponentMaster, "store:2", v1alpha1.StateKubernetes),
		})
		trial := r.trials.of(store)["key"]
		if isNoted := !trial.At.IsZero(); (err == nil) != test.isNoted || isNoted != test.isNoted || (trial.Refused != "") != test.refused {
			t.Errorf("%s: %v, noted %v: %+v", test.name, err, isNoted, trial)
		}
		if isInVain := trial.VainAt.Equal(h.now) && trial.VainSince.Equal(h.now); isInVain == test.isNoted {
			t.Errorf("%s: asked in vain %v: %+v", test.name, isInVain, trial)
		}
	}
}

// A book is bounded, and what was said of a former Store of the same name does not count.
func TestTrialBook(t *testing.T) {
	var book trialBook
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "box", UID: "1"}}
	for i := range 2 * maxTrials {
		book.note(store, strings.Repeat("a", i+1), facts.Trial{At: time.Unix(int64(i), 0)})
	}
	kept := book.of(store)
	if _, isNewest := kept[strings.Repeat("a", 2*maxTrials)]; len(kept) != maxTrials || !isNewest {
		t.Errorf("kept are %d trials", len(kept))
	}
	delete(kept, strings.Repeat("a", 2*maxTrials))
	if len(book.of(store)) != maxTrials {
		t.Error("whoever reads the book changes it")
	}
	other := store.DeepCopy()
	other.UID = "2"
	if trials := book.of(other); len(trials) > 0 {
		t.Errorf("another Store has %v", trials)
	}
	book.note(other, "b", facts.Trial{})
	if len(book.of(store)) > 0 || len(book.of(other)) != 1 {
		t.Error("two Stores of one name share a book")
	}
	for second := range 3 {
		book.noteInVain(other, "b", time.Unix(int64(100+20*second), 0))
	}
	if got := book.of(other)["b"].UnansweredFor(time.Unix(150, 0)); got != 50*time.Second {
		t.Errorf("unanswered for %s", got)
	}
	book.forget(client.ObjectKeyFromObject(store))
	if len(book.of(other)) > 0 {
		t.Error("it is not forgotten")
	}
}

// A Store from before there were settings of pods: its pods say what they were made from in the words of that version, and stay.
func TestStoresFromBeforePodSettingsAreCarriedOver(t *testing.T) {
	h := settledWithCopies(t)
	before := map[string]*corev1.Pod{}
	for member, pod := range h.pods() {
		pod.Annotations[v1alpha1.AnnotationMadeFrom] = `{"image":"store:1","memory":"1Gi","cores":1,` +
			`"failureDomain":"kubernetes.io/hostname","replication":{"factor":1,"min":1,"durability":"Buffered","storage":"Volume",` +
			`"storageSize":"4Gi"}}`
		if pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator {
			pod.Annotations[v1alpha1.AnnotationMadeFrom] = `{"image":"store:1","state":"Volume"}`
		}
		if err := h.client.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		before[member] = pod
	}
	for range 5 {
		h.mustReconcile()
		h.now = h.now.Add(time.Minute)
	}
	for member, pod := range h.pods() {
		if before[member] == nil || before[member].Name != pod.Name {
			t.Errorf("%s has another pod, %s", member, pod.Name)
		}
	}
	if lock := h.store().Status.DisruptionLock; lock != nil || len(h.pods()) != len(before) {
		t.Errorf("on record as the next one to end is %+v; pods: %d", lock, len(h.pods()))
	}
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	// And a setting that is new restarts them, one after the other.
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Pod.SchedulerName = "other" })
	h.mustReconcile()
	lock := h.store().Status.DisruptionLock
	if lock == nil || lock.Member != "box-master-0" || !strings.Contains(lock.Why, "pod.schedulerName: none -> other") {
		t.Errorf("on record as the next one to end is %+v", lock)
	}
}
