package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// If the status of one Server cannot be written, a command to the whole chassis is not given, and each server that has it on record gets
// that as the answer, also after further attempts.
func TestConflictIsNotGiven(t *testing.T) {
	const manager, victim = "192.168.5.201", "atom003"
	l, b, answered := newLost(), &told{}, make(chan struct{}, 2*lostServers+2)
	objects := []client.Object{l.chassis}
	for _, server := range l.servers {
		objects = append(objects, server)
	}
	api := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Chassis{}, &v1alpha1.Server{}).Build()
	clock := &poll.Clock{Read: func() (time.Time, time.Duration) { return noon, 0 }}
	r := &Reconciler{
		Client: api, Live: api, Clock: clock, Times: plan.DefaultTimes, Recorder: events.NewFakeRecorder(100),
		Poller: &poll.Poller{
			Pool: b, Clock: clock, Intervals: poll.DefaultIntervals, Changed: func(string) { answered <- struct{}{} },
		},
	}
	r.seeAll(t, answered)
	var times []time.Time
	for attempt := range 3 {
		triedAt := noon.Add(time.Duration(attempt) * time.Second)
		times = append(times, triedAt)
		observed, made := whole(t, api, triedAt)
		meddled := &v1alpha1.Server{}
		get(t, api, victim, meddled)
		meddled.Labels = map[string]string{"attempt": triedAt.String()}
		if err := api.Update(t.Context(), meddled); err != nil {
			t.Fatal(err)
		}
		if err := r.apply(t.Context(), clock.Look(), &round{}, observed, &fences{}, made); !isStale(err) {
			t.Fatal(err)
		}
	}
	if len(b.orders) > 0 {
		t.Errorf("it was told %v", b.orders)
	}
	seen := r.Poller.Seen("mercury1")
	isAt := func(answer *plan.Answer, at time.Time) bool { return answer.TriedAt.Equal(at) }
	if got := seen[manager].NotGiven; !slices.EqualFunc(got, times, isAt) {
		t.Errorf("not given: %v", got)
	}
	for i := range l.servers {
		server := &v1alpha1.Server{}
		get(t, api, l.servers[i].Name, server)
		if server.Name == victim {
			continue
		}
		for _, at := range times { // whichever of them is on record
			server.Status.Change.TriedAt = &metav1.Time{Time: at}
			answer := answerAbout(server, seen, []string{manager})
			if answer == nil {
				t.Errorf("%s has no answer to the command of %s", server.Name, at)
			} else if _, isNotGiven := errors.AsType[*plan.NotGivenError](answer.Err); !isNotGiven {
				t.Errorf("%s has the answer %v", server.Name, answer.Err)
			}
		}
	}
}

func get(t *testing.T, api client.Client, name string, into *v1alpha1.Server) {
	t.Helper()
	if err := api.Get(t.Context(), client.ObjectKey{Name: name}, into); err != nil {
		t.Fatal(err)
	}
}

// whole is a plan to have all servers shut down by one command to the chassis manager.
func whole(t *testing.T, api client.Client, triedAt time.Time) (*plan.Observed, *plan.Plan) {
	t.Helper()
	chassis := &v1alpha1.Chassis{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "mercury1"}, chassis); err != nil {
		t.Fatal(err)
	}
	observed := &plan.Observed{Chassis: chassis}
	made := &plan.Plan{Servers: map[string]*v1alpha1.ServerStatus{}, Chassis: chassis.Status.DeepCopy()}
	step := plan.Step{Action: bmc.ActionSoft, For: v1alpha1.ForOrder, Manager: "192.168.5.201", TriedAt: triedAt}
	list := &v1alpha1.ServerList{}
	if err := api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		server := &list.Items[i]
		observed.Servers = append(observed.Servers, plan.Server{Object: server})
		next := server.Status.DeepCopy()
		next.Change = &v1alpha1.PowerChange{
			For: v1alpha1.ForOrder, Stage: v1alpha1.StageShuttingDown, Since: metav1.Time{Time: noon}, Tries: 1,
			TriedAt: &metav1.Time{Time: triedAt}, By: v1alpha1.WitnessCMM,
		}
		made.Servers[server.Name] = next
		step.Servers = append(step.Servers, server.Name)
	}
	made.Steps = []plan.Step{step}
	return observed, made
}
