package controller

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Events report changes: a lasting problem makes one event, however often its message is rewritten.
func TestEventsTellOfChanges(t *testing.T) {
	server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "atom007"}}
	api := fake.NewClientBuilder().WithScheme(newScheme(t)).WithStatusSubresource(server).WithObjects(server).Build()
	recorder := events.NewFakeRecorder(1000)
	r := &Reconciler{Client: api, Recorder: recorder}
	write := func(isOn metav1.ConditionStatus, order v1alpha1.OrderState, message string) {
		t.Helper()
		now := &v1alpha1.Server{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(server), now); err != nil {
			t.Fatal(err)
		}
		next := now.Status.DeepCopy()
		next.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPoweredOn, Status: isOn, Reason: "R", Message: message}}
		next.Order = &v1alpha1.OrderStatus{ID: "a", Action: v1alpha1.ActionOn, State: order, Message: message}
		if err := r.writeServer(t.Context(), now, next); err != nil {
			t.Fatal(err)
		}
	}
	for attempt := range 360 { // every 10 s for an hour
		write(metav1.ConditionFalse, v1alpha1.OrderRunning, fmt.Sprint("attempt ", attempt))
	}
	write(metav1.ConditionTrue, v1alpha1.OrderDone, "the server is on")
	write(metav1.ConditionTrue, v1alpha1.OrderDone, "the server is on")
	close(recorder.Events)
	var got []string
	for event := range recorder.Events {
		got = append(got, event)
	}
	want := []string{
		"Warning R attempt 0", "Normal OrderRunning On: attempt 0", "Normal R the server is on", "Normal OrderDone On: the server is on",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d events: %q", len(got), got[:min(len(got), 10)])
	}
}
