package controller

import (
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// An event about a step fits in 300 characters, whatever others have said about it, and is not cut off with dots.
func TestEventsOfStepsFit(t *testing.T) {
	h := newHarness(t)
	v := &reconcileState{observed: facts.Observed{Store: h.store()}}
	why := "it failed: " + strings.Repeat("the disk does not answer; ", 80)
	h.reconciler.report(t.Context(), v, steps.IsolateNode{Node: "node-7", Why: why})
	told := h.takeEvents()
	if len(told) != 1 {
		t.Fatalf("events are %v", told)
	}
	_, note, _ := strings.Cut(told[0], "isolate")
	note = "isolate" + note
	if len(note) > maxMessage || strings.HasSuffix(note, "...") || !strings.HasPrefix(note, "isolate node node-7: it failed") {
		t.Errorf("the event has %d bytes: %s", len(note), note)
	}
}
