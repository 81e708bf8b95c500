package planner_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// says is what a StoreOperation of a name says of itself.
func (w *world) says(name string) string {
	is := w.operation(name)
	complete := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionOperationComplete)
	if complete == nil {
		return "nothing"
	}
	return string(is.Phase) + " " + complete.Reason + ": " + complete.Message
}

// orderRestart of members, or of all masters.
func (w *world) orderRestart(name string, members ...string) {
	spec := v1alpha1.StoreOperationSpec{StoreRef: v1alpha1.StoreReference{Name: w.store.Name}, Type: v1alpha1.OperationRestart}
	if len(members) > 0 {
		spec.Restart = &v1alpha1.RestartOperation{Members: members}
	}
	w.order(name, "").Spec = spec
}

// All masters get new pods, one after the other, once each; also where the spec leaves restarts to people.
func TestRestartByOrder(t *testing.T) {
	for _, strategy := range []v1alpha1.UpdateStrategy{"", v1alpha1.UpdateOnDelete} {
		w := newHoldingWorld(t)
		w.store.Spec.UpdateStrategy = strategy
		w.now = w.now.Add(time.Minute)
		before := map[string]string{}
		for _, name := range w.masters() {
			before[name] = w.podOf(name).UID
		}
		w.orderRestart("all")
		w.order("drill", "")
		w.reconciles(1)
		if got := w.says("drill"); got != "Pending Waits: the drill waits until StoreOperation all has ended" {
			t.Errorf("a drill meanwhile: %s", got)
		}
		for range 200 {
			w.reconciles(1)
			if is := w.operation("all"); is.HasEnded() {
				break
			}
		}
		if got := w.says("all"); got != "Succeeded Done: 3 masters restarted" {
			t.Fatalf("strategy %q: %s", strategy, got)
		}
		if len(w.drilled) > 0 {
			t.Errorf("drilled meanwhile: %v", w.drilled)
		}
		for name, uid := range before {
			if w.podOf(name).UID == uid {
				t.Errorf("strategy %q: %s was not restarted", strategy, name)
			}
			before[name] = w.podOf(name).UID
		}
		w.withdraw("drill")
		w.reconciles(20)
		for name, uid := range before {
			if w.podOf(name).UID != uid {
				t.Errorf("strategy %q: %s was restarted twice", strategy, name)
			}
		}
		if len(w.broken) > 0 {
			t.Errorf("ended while copies were missing: %v", w.broken)
		}
	}
}

// A restart that is ordered while a drill is under way waits, and names the drill's order.
func TestRestartWaitsForADrill(t *testing.T) {
	w := newHoldingWorld(t)
	w.order("drill", "box-master-1")
	w.reconciles(3)
	w.orderRestart("all")
	w.reconciles(1)
	if got := w.says("all"); !strings.HasSuffix(got, ": StoreOperation drill comes first") {
		t.Errorf("the restart: %s", got)
	}
	w.reconciles(150)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillSucceeded && drill.State != v1alpha1.DrillTooSlow {
		t.Errorf("the drill: %+v", drill)
	}
	if got := w.says("all"); !strings.HasPrefix(got, "Succeeded ") {
		t.Errorf("the restart: %s", got)
	}
}

// Those that it names, and none once it is withdrawn; none at all without copies.
func TestRestartOfSome(t *testing.T) {
	w := newHoldingWorld(t)
	w.now = w.now.Add(time.Minute)
	first, second := w.podOf("box-master-1").UID, w.podOf("box-master-2").UID
	w.orderRestart("one", "box-master-1")
	w.reconciles(40)
	if w.podOf("box-master-1").UID == first || w.podOf("box-master-2").UID != second {
		t.Error("box-master-1 alone is to be restarted")
	}
	if got := w.says("one"); got != "Succeeded Done: 1 master restarted" {
		t.Error(got)
	}
	w.now = w.now.Add(time.Minute)
	w.orderRestart("never", "box-master-2")
	w.reconcile(false)
	w.withdraw("never")
	w.orderRestart("nobody", "box-master-9")
	w.reconciles(20)
	if w.podOf("box-master-2").UID != second {
		t.Error("box-master-2 was restarted, and the order was withdrawn")
	}
	if got := w.says("nobody"); !strings.HasPrefix(got, "Failed NoSuchMember: ") {
		t.Error(got)
	}
	w = newWorld(2)
	w.settle(100)
	w.orderRestart("all")
	w.reconciles(5)
	if got := w.says("all"); !strings.HasPrefix(got, "Failed Refused: there are no copies") {
		t.Error(got)
	}
}

// An upgrade is finalized when every process reads the format, and not before.
func TestUpgradeIsFinalizedByOrder(t *testing.T) {
	w := newHoldingWorld(t)
	w.format = facts.Format{Active: 1, Newest: 1}
	w.order("upgrade", "").Spec = v1alpha1.StoreOperationSpec{
		StoreRef: v1alpha1.StoreReference{Name: w.store.Name}, Type: v1alpha1.OperationFinalize,
		Finalize: &v1alpha1.FinalizeOperation{Format: 2},
	}
	for _, step := range []struct {
		format facts.Format
		says   string
		active int64
	}{
		{
			facts.Format{Active: 1, Newest: 1}, "Pending Waits: the coordinator reads formats up to 1: set spec.image of the Store to a " +
				"newer version, or delete this StoreOperation", 1,
		},
		{
			facts.Format{Active: 1, Newest: 2, Hindrances: []string{"member m reads format 1"}},
			"Pending Waits: not every process reads the format: member m reads format 1", 1,
		},
		{facts.Format{Active: 1, Newest: 3}, "Succeeded Done: format 2 is in force", 2},
	} {
		w.format = step.format
		w.reconciles(2)
		if got := w.says("upgrade"); got != step.says || w.format.Active != step.active {
			t.Errorf("%+v: %s, format %d is in force", step.format, got, w.format.Active)
		}
	}
}

// The scenarios hold planners to this: an order is carried out once, not after it was withdrawn, and on nothing that is newer than it.
func TestPlantedOrders(t *testing.T) {
	defer func() { makePlan = planner.Make }()
	var seen []facts.Operation
	for _, test := range []struct {
		bug      string
		plan     func(facts.Observed) planner.Plan
		scenario func(*world) int
	}{
		{"a drill does not know its order", func(o facts.Observed) planner.Plan {
			for i := range o.Store.Status.Drills {
				o.Store.Status.Drills[i].OrderUID = ""
			}
			return planner.Make(o)
		}, (*world).drillsWithoutStatus},
		{"what was withdrawn is in a cache for ever", func(o facts.Observed) planner.Plan {
			if len(o.Operations) > 0 {
				seen = o.Operations
			}
			o.Operations = seen
			return planner.Make(o)
		}, (*world).drillsAfterWithdrawal},
		{"a restart is for pods of any age", func(o facts.Observed) planner.Plan {
			for i := range o.Operations {
				o.Operations[i].CreatedAt = o.Now
			}
			return planner.Make(o)
		}, (*world).repeatedRestarts},
	} {
		makePlan = planner.Make
		if found := test.scenario(newHoldingWorld(t)); found != 0 {
			t.Errorf("%s: without the bug, %d processes are ended in vain", test.bug, found)
		}
		makePlan, seen = test.plan, nil
		if found := test.scenario(newHoldingWorld(t)); found == 0 {
			t.Errorf("%s: that is not found", test.bug)
		}
	}
}

// drillsWithoutStatus are those beyond the first one of an order whose status is never written.
func (w *world) drillsWithoutStatus() int {
	w.forgetful = true
	w.order("once", "box-master-1")
	for range 100 {
		w.reconciles(1)
		w.cluster.members["box-master-1"].tablets = max(w.cluster.members["box-master-1"].tablets, 1)
	}
	return len(w.drilled) - 1
}

// drillsAfterWithdrawal are those of an order that is withdrawn right before the process would end.
func (w *world) drillsAfterWithdrawal() int {
	w.order("once", "")
	w.reconciles(2)
	w.withdraw("once")
	w.reconciles(20)
	return len(w.drilled)
}

// repeatedRestarts are the pods beyond one more for the master whose restart is ordered.
func (w *world) repeatedRestarts() int {
	w.now = w.now.Add(time.Minute)
	before := w.podOf("box-master-1").Number
	w.orderRestart("once", "box-master-1")
	w.reconciles(60)
	return int(w.podOf("box-master-1").Number - before - 1)
}
