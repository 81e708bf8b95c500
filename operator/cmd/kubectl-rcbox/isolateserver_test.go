package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// isolated has the box controller's part on record for atom001.
func isolated(objects []client.Object, stage v1alpha1.ServerIsolationStage, reason, message string) []client.Object {
	server, isServer := objects[1].(*v1alpha1.Server)
	if !isServer {
		return objects
	}
	server.Status.Isolation = &v1alpha1.ServerIsolationStatus{Since: metav1.Now(), Reason: "ECC errors", Stage: stage}
	meta.SetStatusCondition(&server.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionIsolated, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	})
	return objects
}

func TestIsolateServer(t *testing.T) {
	h := newHarness(t, isolated(mercury(), v1alpha1.StageIsolated, "Isolated", "ECC errors; it is off")...)
	if text := h.must("isolate-server", "atom001", "--reason", " ECC errors "); text != "atom001: isolated: ECC errors; it is off\n" {
		t.Errorf("isolated: %q", text)
	}
	if of := h.server("atom001").Spec.Isolated; of == nil || of.Reason != "ECC errors" {
		t.Errorf("the order is %+v", of)
	}
	for _, wrong := range [][]string{{}, {"--reason", " "}, {"--reason", "x", "--undo"}, {"--reason", "x", "--force"}} {
		if code, _, _ := h.run(append([]string{"isolate-server", "atom002"}, wrong...)...); code != exitUsage {
			t.Errorf("%v: exit code %d", wrong, code)
		}
	}
	h = newHarness(t, isolated(mercury(), v1alpha1.StageMembersLeave, reasonDataWouldBeLost, "its power stays")...)
	code, out, errs := h.run("isolate-server", "atom001", "--reason", "ECC errors")
	if code != exitFailed || !strings.Contains(out, "atom001: its power stays") || !strings.Contains(errs, "not as ordered") {
		t.Errorf("data would be lost: %d, %s, %s", code, out, errs)
	}
}

// Coordinators leave a node once it is cordoned and no master is left there, unless tables would be lost by that.
func TestIsolateServerEvicts(t *testing.T) {
	for name, test := range map[string]struct {
		state      v1alpha1.StateType
		isCordoned bool
		isEvicted  bool
	}{
		"cordoned":        {v1alpha1.StateKubernetes, true, true},
		"not yet":         {v1alpha1.StateKubernetes, false, false},
		"state in memory": {v1alpha1.StateMemory, true, false},
	} {
		objects := isolated(carrying(1, "n1"), v1alpha1.StageMembersLeave, "MembersLeave", "waiting for the coordinator")
		for _, object := range objects {
			switch of := object.(type) {
			case *corev1.Node:
				of.Spec.Unschedulable = test.isCordoned
			case *v1alpha1.Store:
				of.Status.Masters.Members = nil
				withCoordinator(test.state)(of)
			}
		}
		h := newHarness(t, objects...)
		code, out, errs := h.run("isolate-server", "atom001", "--reason", "ECC errors", "--timeout", (50 * time.Millisecond).String())
		if code != exitFailed || out != "atom001: waiting for the coordinator\n" || !strings.Contains(errs, "still under way") {
			t.Errorf("%s: %d, %q, %q", name, code, out, errs)
		}
		pod := &corev1.Pod{}
		err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "box-coordinator-x"}, pod)
		if isEvicted := client.IgnoreNotFound(err) == nil && err != nil; isEvicted != test.isEvicted {
			t.Errorf("%s: evicted %v (%v)", name, isEvicted, err)
		}
	}
}

// A server comes back if nothing speaks against it, or by force.
func TestIsolateServerUndo(t *testing.T) {
	objects := mercury()
	server, isServer := objects[1].(*v1alpha1.Server)
	if !isServer {
		t.Fatal("there is no atom001")
	}
	server.Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "ECC errors"}
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionHealthy} {
		meta.SetStatusCondition(&server.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "R"})
	}
	meta.SetStatusCondition(&server.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAsRecorded, Status: metav1.ConditionFalse, Reason: "BladeSwapped", Message: "another blade",
	})
	h := newHarness(t, objects...)
	code, _, errs := h.run("isolate-server", "1-2", "--undo")
	if code != exitFailed || !strings.Contains(errs, "nothing was brought back: atom001: AsRecorded is False: another blade; --force") ||
		h.server("atom001").Spec.Isolated == nil {
		t.Errorf("%d, %s", code, errs)
	}
	if h.server("atom001").Spec.Qualification == v1alpha1.QualificationWaived {
		t.Error("without --force, the measurement is waived")
	}
	text := h.must("isolate-server", "1-2", "--undo", "--force")
	if !strings.Contains(text, "atom002 was not isolated\nignored: atom001: AsRecorded is False: another blade\n") ||
		!strings.Contains(text, "atom001: in use again\n") || h.server("atom001").Spec.Isolated != nil ||
		h.server("atom001").Spec.Qualification != v1alpha1.QualificationWaived ||
		h.server("atom002").Spec.Qualification == v1alpha1.QualificationWaived {
		t.Errorf("by force: %s", text)
	}
	if against := whyNotQualified(h.server("atom003")); len(against) != 3 || against[2] != "atom003: Healthy is not known yet" {
		t.Errorf("a server of which nothing is known: %v", against)
	}
}

// A server that returns and does not qualify ends the wait; --force waives the measurement, and the next isolation asks for it again.
func TestIsolateServerUndoDoesNotQualify(t *testing.T) {
	const slow = "ECC errors; its memory is copied at 1 MB/s"
	h := newHarness(t, isolated(mercury(), v1alpha1.StageReturning, reasonNotQualified, slow)...)
	code, out, errs := h.run("isolate-server", "atom001", "--undo")
	if code != exitFailed || !strings.Contains(out, "atom001: "+slow) || !strings.Contains(errs, "not as ordered") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	if code, _, errs := h.run("isolate-server", "atom001", "--undo", "--force", "--wait=false"); code != 0 || errs != "" ||
		h.server("atom001").Spec.Qualification != v1alpha1.QualificationWaived {
		t.Errorf("by force: %d, %s", code, errs)
	}
	if code, _, errs := h.run("isolate-server", "atom001", "--reason", "slow memory", "--wait=false"); code != 0 ||
		h.server("atom001").Spec.Qualification != v1alpha1.QualificationRequired {
		t.Errorf("isolated again: %d, %s", code, errs)
	}
}
