package planner_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/capacity"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/status"
)

const mib = 1 << 20

// fill has each master hold so much of its log's 800 MiB.
func fill(o facts.Observed, logMiB int64) facts.Observed {
	for i := range o.Cluster.Members {
		member := &o.Cluster.Members[i]
		member.CapacityBytes, member.LiveBytes, member.Segments = 800*mib, logMiB/2*mib, logMiB/8
		member.Backup = &facts.Backup{Frames: 500, Free: 400, SegmentBytes: 8 * mib}
	}
	return o
}

func countOf[S steps.Step](plan planner.Plan) int {
	count := 0
	for range steps.Of[S](plan.Steps) {
		count++
	}
	return count
}

func TestScalingInWaitsForTheTarget(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy v1alpha1.CapacityPolicy
		logMiB int64
		held   string
	}{
		{"warned of only", v1alpha1.CapacityWarn, 800, ""},
		{"enough are left", v1alpha1.CapacityRefuse, 320, ""},
		{
			"too few are left", v1alpha1.CapacityRefuse, 480,
			"scaling in to 3 masters is held back, for recovery.capacityPolicy is Refuse, and afterwards: loss of box-master-0: 640 MiB " +
				"of log / (2 cores x 150 MiB/s",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newReplicatedWorld(4)
			if _, _, settled := w.settle(100); !settled {
				t.Fatal("does not settle")
			}
			w.store.Spec.Recovery.Target, w.store.Spec.Recovery.CapacityPolicy = "2s", test.policy
			w.store.Spec.Masters.Replicas = 3
			o := fill(w.observe(), test.logMiB)
			plan := planner.Make(o)
			if held := test.held != ""; !strings.HasPrefix(plan.HeldBack, test.held) || held != (plan.HeldBack != "") ||
				held == (countOf[steps.DrainMember](plan) > 0) {
				t.Fatalf("held back: %q, steps:\n%s", plan.HeldBack, describe(plan.Steps))
			}
			progressing := meta.FindStatusCondition(status.Compute(o, plan, status.Outcome{}).Conditions, v1alpha1.ConditionProgressing)
			if test.held != "" && (progressing.Reason != v1alpha1.ReasonHeldBack || progressing.Status != metav1.ConditionFalse) {
				t.Errorf("Progressing is %+v", progressing)
			}
		})
	}
}

// A drain that has begun goes on, whatever the logs have in them by then.
func TestDrainThatHasBegunIsNotHeldBack(t *testing.T) {
	w := newReplicatedWorld(4)
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	w.store.Spec.Recovery.CapacityPolicy = v1alpha1.CapacityRefuse
	w.store.Spec.Masters.Replicas = 3
	w.cluster.members["box-master-3"].isDraining = true
	if plan := planner.Make(fill(w.observe(), 800)); plan.HeldBack != "" || countOf[steps.RetireMember](plan) != 1 {
		t.Errorf("held back: %q, steps:\n%s", plan.HeldBack, describe(plan.Steps))
	}
}

func TestLessMemoryWaitsForTheTarget(t *testing.T) {
	for name, test := range map[string]struct {
		memory string
		liveMi int64
		held   string
	}{
		"more":     {"2Gi", 700, ""},
		"enough":   {"512Mi", 100, ""},
		"too tiny": {"384Mi", 400, "masters.memory: 384Mi is held back"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHoldingWorld(t)
			w.store.Spec.Recovery = v1alpha1.RecoverySpec{Target: "1m", CapacityPolicy: v1alpha1.CapacityRefuse}
			w.store.Spec.Masters.Memory = resource.MustParse(test.memory)
			plan := w.underLock(func(o facts.Observed) facts.Observed { return fill(o, 2*test.liveMi) })
			restarts := countOf[steps.RestartMember](plan)
			if !strings.HasPrefix(plan.HeldBack, test.held) || (test.held == "") != (plan.HeldBack == "") ||
				(restarts == 1) != (test.held == "") {
				t.Errorf("held back: %q, steps:\n%s", plan.HeldBack, describe(plan.Steps))
			}
		})
	}
}

// The result of a recovery counts from the reconcile after it on, and is kept when the coordinator has forgotten the recovery.
func TestMeasuredRecoveryCounts(t *testing.T) {
	w := newHoldingWorld(t)
	look := func(recoveries ...facts.Recovery) *capacity.Check {
		o := fill(w.observe(), 400)
		o.Cluster.Recoveries = recoveries
		plan := planner.Make(o)
		w.store.Status = status.Compute(o, plan, status.Outcome{})
		return plan.Capacity
	}
	if check := look(); check.Measured != nil || check.MiBPerSecond != capacity.DefaultMiBPerSecond {
		t.Fatalf("measured before anything was: %+v", check)
	}
	tiny := facts.Recovery{Member: "box-master-0", ServerID: "1.0", Bytes: 520, MeasuredMs: 256}
	// Two cores of one process: one recovery in two parts.
	first := facts.Recovery{Member: "box-master-1", ServerID: "2.0", Bytes: 200 * mib, MeasuredMs: 900}
	second := facts.Recovery{Member: "box-master-1", ServerID: "3.0", Bytes: 100 * mib, MeasuredMs: 1250}
	look(tiny)
	if check := look(tiny, first); check.Measured != nil {
		t.Fatalf("measured by a tiny one: %+v", check.Measured)
	}
	look(tiny, first, second)
	if measured := w.store.Status.Capacity.Measured; measured.Bytes != 200*mib {
		t.Fatalf("what was measured changes afterwards: %+v", measured)
	}
	w.store.Status.Capacity.Measured = nil
	look(tiny, first, second)
	for range 2 {
		check := look() // another coordinator leads
		if check.Measured == nil || check.Measured.Bytes != 300*mib || check.Measured.Ms != 1250 || check.MiBPerSecond != 150 {
			t.Fatalf("measured: %+v, %d MiB/s", check.Measured, check.MiBPerSecond)
		}
	}
}
