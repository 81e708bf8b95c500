package planner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// order has somebody order a drill: of a member, or of any if that is empty.
func (w *world) order(name, member string) *facts.Operation {
	w.uids++
	w.operations = append(w.operations, facts.Operation{
		Name: name, UID: fmt.Sprintf("order%d", w.uids), CreatedAt: w.now, Generation: 1,
		Spec: v1alpha1.StoreOperationSpec{
			StoreRef: v1alpha1.StoreReference{Name: w.store.Name}, Type: v1alpha1.OperationDrill,
			Drill: &v1alpha1.DrillOperation{Member: member},
		},
	})
	return &w.operations[len(w.operations)-1]
}

// orderDrain has somebody order the drain of members.
func (w *world) orderDrain(members ...string) {
	for _, member := range members {
		w.order("drain-"+member, "").Spec = v1alpha1.StoreOperationSpec{
			StoreRef: v1alpha1.StoreReference{Name: w.store.Name}, Type: v1alpha1.OperationDrain,
			Drain: &v1alpha1.DrainOperation{Member: member},
		}
	}
}

// operation of a name, as it is on record.
func (w *world) operation(name string) v1alpha1.StoreOperationStatus {
	i := slices.IndexFunc(w.operations, func(operation facts.Operation) bool { return operation.Name == name })
	if i < 0 {
		panic("there is no StoreOperation " + name)
	}
	return w.operations[i].Status
}

// withdraw deletes a StoreOperation.
func (w *world) withdraw(name string) {
	w.operations = slices.DeleteFunc(w.operations, func(operation facts.Operation) bool { return operation.Name == name })
}

func (w *world) reconciles(n int) {
	for range n {
		w.reconcile(false)
		w.tick()
	}
}

func (w *world) lastDrill(t *testing.T) v1alpha1.Drill {
	t.Helper()
	if len(w.store.Status.Drills) == 0 {
		t.Fatal("there is no drill")
	}
	return w.store.Status.Drills[len(w.store.Status.Drills)-1]
}

func TestDrillByOrder(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Recovery.Target = "1s"
	w.order("once", "box-master-1")
	w.reconcile(false)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillWaiting || drill.Number != 1 {
		t.Fatalf("noted: %+v", drill)
	}
	before := w.cluster.members["box-master-1"].instance
	w.reconcile(false)
	if drill := w.lastDrill(t); drill.Member != "box-master-1" || !slices.Equal(drill.ServerIDs, []string{before}) || len(w.drilled) > 0 {
		t.Fatalf("chosen: %+v, ended: %v", drill, w.drilled)
	}
	plan, _ := w.reconcile(false)
	want := "drill 1: end box-master-1: ordered by StoreOperation once, and everything has its copies"
	if got := describe(plan.Steps); got != want {
		t.Fatalf("steps:\n%s", got)
	}
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRunning || drill.BeganAt == nil {
		t.Fatalf("begun: %+v", drill)
	}
	w.tick()
	w.reconcile(false)
	progressing := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing.Reason != v1alpha1.ReasonDrilling || progressing.Status != metav1.ConditionTrue {
		t.Errorf("Progressing is %+v", progressing)
	}
	w.reconciles(20)
	drill := w.lastDrill(t)
	if drill.State != v1alpha1.DrillSucceeded || drill.MeasuredMs != 1000 || drill.PromisedMs != 900 || drill.TargetMs != 1000 ||
		drill.Bytes != 100*mib || drill.EndedAt == nil || drill.Message != "1000 ms, on target" {
		t.Errorf("ended: %+v", drill)
	}
	if !slices.Equal(w.drilled, []string{"box-master-1"}) || len(w.masters()) != 3 {
		t.Errorf("ended: %v, there are %v", w.drilled, w.masters())
	}
	// What it took is what a recovery here is taken to need.
	if measured := w.store.Status.Capacity.Measured; measured == nil || measured.Member != "box-master-1" || measured.Ms != 1000 {
		t.Errorf("measured: %+v", measured)
	}
}

// The status of the reconcile that ended the process is lost: nothing is ended twice.
func TestInterruptedDrillIsFollowed(t *testing.T) {
	w := newHoldingWorld(t)
	w.order("once", "")
	w.reconcile(false)
	w.reconcile(false)
	w.reconcile(true)
	w.reconciles(20)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillSucceeded || len(w.drilled) != 1 {
		t.Errorf("ended: %+v, %v", drill, w.drilled)
	}
}

func TestDrillTooSlow(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Recovery.Target = "999ms"
	w.order("once", "")
	w.reconciles(20)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillTooSlow || drill.Message != "1000 ms, and the target is 999 ms" {
		t.Errorf("ended: %+v", drill)
	}
}

func TestRefusedDrills(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		want   string
	}{
		"paused":              {func(w *world) { w.store.Spec.Paused = true }, "spec.paused is set"},
		"hibernated":          {func(w *world) { w.store.Spec.Hibernated = true }, "spec.hibernated is set"},
		"a master is drained": {func(w *world) { w.drainByHand("box-master-2") }, "a master is drained"},
		"a rolling restart":   {func(w *world) { w.store.Spec.Image = "store:2" }, "outdated pods are restarted first"},
		"nothing to recover":  {func(w *world) { w.dropTables() }, "no master holds anything that could be recovered"},
		"no such master":      {func(w *world) { w.withdraw("x"); w.order("y", "box-master-9") }, `there is no master "box-master-9"`},
		"a master that is idle": {func(w *world) {
			w.withdraw("x")
			w.order("y", "box-master-2")
			w.cluster.members["box-master-2"].tablets = 0
		}, "box-master-2 is not up, or holds nothing"},
		"a loss that nobody has taken note of": {func(w *world) {
			w.store.Status.Losses, w.store.Status.LossCount = []v1alpha1.Loss{{Number: 1, Member: "box-master-0"}}, 1
		}, "DataSafe is not True"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHoldingWorld(t)
			w.order("x", "")
			test.change(w)
			w.reconcile(false)
			w.reconcile(false)
			if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused || !strings.HasPrefix(drill.Message, test.want) {
				t.Errorf("the drill is %+v", drill)
			}
			if len(w.drilled) > 0 {
				t.Errorf("ended: %v", w.drilled)
			}
		})
	}
}

// An ordered drill waits a minute for what passes by itself: one that was given a second too early is carried out.
func TestOrderedDrillWaits(t *testing.T) {
	for name, test := range map[string]struct {
		change, undo func(*world)
		want         string
	}{
		"short of copies": {
			func(w *world) { w.cluster.short = 100 }, func(w *world) { w.cluster.short = 0 },
			"log segments with fewer copies than 1",
		},
		"a master is away": {
			func(w *world) { w.podOf("box-master-2").deadNode = true }, func(w *world) { w.podOf("box-master-2").deadNode = false },
			"masters that are not up",
		},
		"the status is older than what was seen": {func(w *world) {
			meta.SetStatusCondition(&w.store.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionDataSafe, Status: metav1.ConditionFalse,
				Reason: v1alpha1.ReasonUnderReplicated, Message: "of a moment ago",
			})
		}, func(*world) {}, "DataSafe is not True: of a moment ago"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHoldingWorld(t)
			w.order("x", "")
			w.reconcile(false)
			test.change(w)
			w.reconcile(false)
			if drill := w.lastDrill(t); drill.State != v1alpha1.DrillWaiting || !strings.Contains(drill.Message, test.want) {
				t.Errorf("the drill is %+v", drill)
			}
			test.undo(w)
			w.reconciles(30)
			if drill := w.lastDrill(t); drill.State != v1alpha1.DrillSucceeded || len(w.drilled) != 1 {
				t.Errorf("the drill is %+v, ended: %v", drill, w.drilled)
			}
		})
	}
	for name, test := range map[string]struct {
		change func(*world)
		want   string
	}{
		"nobody leads": {func(w *world) { w.stop(w.podOf("box-coordinator")) }, "the coordinator does not answer"},
		"scaling in":   {func(w *world) { w.store.Spec.Masters.Replicas = 2 }, "not all masters are up, or one is on its way out"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHoldingWorld(t)
			w.order("x", "")
			w.reconcile(false)
			test.change(w)
			w.reconcile(false)
			if drill := w.lastDrill(t); drill.State != v1alpha1.DrillWaiting || !strings.Contains(drill.Message, test.want) {
				t.Errorf("the drill is %+v", drill)
			}
			w.now = w.now.Add(time.Minute + time.Second)
			w.reconcile(false)
			if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused || len(w.drilled) > 0 {
				t.Errorf("the drill is %+v, ended: %v", drill, w.drilled)
			}
		})
	}
}

func (w *world) drainByHand(name string) {
	w.orderDrain(name)
	w.cluster.members[name].isDraining = true
}

func TestUnreplicatedStoreIsNotDrilled(t *testing.T) {
	w := newWorld(3)
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	w.order("x", "")
	w.reconciles(5)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused || !strings.HasPrefix(drill.Message, "there are no copies") {
		t.Errorf("the drill is %+v", drill)
	}
}

// Two masters with a copy each: without one, nobody could keep copies, and writes would wait.
func TestStoreTooSmallIsNotDrilled(t *testing.T) {
	w := newReplicatedWorld(2)
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	w.order("x", "")
	w.reconciles(5)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused || !strings.Contains(drill.Message, "writes would wait") {
		t.Errorf("the drill is %+v", drill)
	}
}

// One drill at a time: those that are ordered meanwhile wait for their turns, and say for which one.
func TestOrderedDrillsTakeTurns(t *testing.T) {
	w := newHoldingWorld(t)
	w.order("one", "box-master-0")
	w.reconciles(3)
	w.order("two", "box-master-1")
	w.order("three", "box-master-2")
	w.reconciles(1)
	for _, name := range []string{"two", "three"} {
		waits := meta.FindStatusCondition(w.operation(name).Conditions, v1alpha1.ConditionOperationComplete)
		if w.operation(name).Phase != v1alpha1.OperationPending || waits.Message != "the drill waits until StoreOperation one has ended" {
			t.Errorf("%s: %+v", name, w.operation(name))
		}
	}
	w.withdraw("three")
	for range 60 {
		w.reconciles(1)
		w.cluster.members["box-master-1"].tablets = max(w.cluster.members["box-master-1"].tablets, 1)
	}
	if !slices.Equal(w.drilled, []string{"box-master-0", "box-master-1"}) || w.operation("two").Phase != v1alpha1.OperationSucceeded {
		t.Errorf("ended: %v, two: %+v", w.drilled, w.operation("two"))
	}
}

// What is due by the clock while another drill is under way is refused, and what is ordered of a Store before it was made.
func TestDrillsThatNeverBegin(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.CreationTimestamp = metav1.NewTime(w.now)
	w.order("former", "").CreatedAt = w.now.Add(-time.Second)
	w.order("one", "")
	w.reconciles(3)
	if is := w.operation("former"); is.Phase != v1alpha1.OperationFailed || is.Conditions[0].Reason != v1alpha1.ReasonOperationStoreIsNew {
		t.Errorf("an order that is older than the Store: %+v", is)
	}
	w.store.Spec.Recovery.Drill = &v1alpha1.DrillSpec{Schedule: "* * * * *", Window: "1h"}
	w.reconciles(1)
	w.now, w.cluster.recovered = w.now.Add(time.Minute), nil
	w.reconcile(false)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused || drill.Message != "drill 1 has not ended" {
		t.Errorf("due meanwhile: %+v", drill)
	}
}

// Deleting the StoreOperation withdraws the drill until the process was told to end, and not afterwards.
func TestWithdrawnDrill(t *testing.T) {
	for reconciles, ended := range []int{0, 0, 0, 1} {
		w := newHoldingWorld(t)
		w.order("once", "")
		w.reconciles(reconciles)
		w.withdraw("once")
		w.reconciles(20)
		if len(w.drilled) != ended {
			t.Errorf("withdrawn after %d reconciles: %v ended", reconciles, w.drilled)
		}
		if w.store.Status.DisruptionLock != nil {
			t.Errorf("withdrawn after %d reconciles: %+v is left", reconciles, w.store.Status.DisruptionLock)
		}
	}
}

// A StoreOperation whose status could not be written is not carried out again, however many others are.
func TestDrillIsNotRepeated(t *testing.T) {
	w := newHoldingWorld(t)
	w.forgetful = true
	for i := range 12 {
		w.order(fmt.Sprintf("order %d", i), "")
	}
	w.reconciles(100)
	if len(w.drilled) != 1 {
		t.Errorf("ended: %v", w.drilled)
	}
}

// Those that ended long ago are deleted.
func TestOperationsAreForgotten(t *testing.T) {
	w := newHoldingWorld(t)
	for i := range v1alpha1.MaxFinishedOperations + 5 {
		w.order(fmt.Sprintf("order %d", i), "").Status.Phase = v1alpha1.OperationFailed
	}
	w.order("open", "box-master-9")
	w.reconciles(3)
	if left := len(w.operations); left != v1alpha1.MaxFinishedOperations || w.operations[0].Name != "order 6" {
		t.Errorf("%d are left, the first one %s", left, w.operations[0].Name)
	}
}

// Without a record of the recovery nobody claims that there was one.
func TestDrillWithoutRecordFails(t *testing.T) {
	w := newHoldingWorld(t)
	w.order("once", "")
	for range 30 {
		w.reconcile(false)
		w.tick()
		w.cluster.recovered = nil
	}
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRunning ||
		drill.Message != "waiting: the coordinator has no record of the recovery" {
		t.Fatalf("the drill is %+v", drill)
	}
	w.now = w.now.Add(10 * time.Minute)
	w.reconciles(2)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillFailed || drill.MeasuredMs != 0 {
		t.Errorf("the drill is %+v", drill)
	}
}

func TestDrillsByTheClock(t *testing.T) {
	w := newHoldingWorld(t) // it is some minutes after midnight
	w.store.Spec.Recovery.Drill = &v1alpha1.DrillSpec{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin", Window: "1h"}
	w.reconciles(5)
	notes := w.store.Status.DrillNotes
	if want := time.Date(2026, 1, 1, 1, 30, 0, 0, time.UTC); len(w.store.Status.Drills) > 0 || !notes.NextAt.Time.Equal(want) {
		t.Fatalf("drills %+v, notes %+v", w.store.Status.Drills, notes)
	}
	for day := range 3 {
		w.now = time.Date(2026, 1, 1+day, 1, 30, 5, 0, time.UTC)
		w.reconciles(30)
		for _, member := range w.cluster.members {
			member.tablets = max(member.tablets, 1)
		}
	}
	if !slices.Equal(w.drilled, []string{"box-master-0", "box-master-1", "box-master-2"}) {
		t.Errorf("in turn: %v, %+v", w.drilled, w.store.Status.Drills)
	}
	// What keeps it from beginning for too long makes it missed; a pause of the operator's does, too, and many are missed but once.
	w.store.Spec.Paused = true
	w.now = time.Date(2026, 1, 4, 1, 30, 5, 0, time.UTC)
	w.reconciles(2)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillWaiting || drill.Message != "the drill waits: spec.paused is set" {
		t.Errorf("the drill is %+v", drill)
	}
	w.now = w.now.Add(time.Hour)
	w.reconciles(2)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillMissed || drill.Message != "it could not begin in time: spec.paused is set" {
		t.Errorf("the drill is %+v", drill)
	}
	w.store.Spec.Paused = false
	w.now = time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)
	w.reconciles(5)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillMissed || drill.Number != 5 || len(w.drilled) != 3 {
		t.Errorf("the drill is %+v, ended: %v", drill, w.drilled)
	}
	w.refusesSchedules(t)
	w.store.Spec.Recovery.Drill = nil
	w.reconciles(1)
	if notes := w.store.Status.DrillNotes; notes.NextAt != nil || notes.Schedule != "" {
		t.Errorf("notes are left: %+v", notes)
	}
}

// refusesSchedules that cannot be read, or are never due: each once.
func (w *world) refusesSchedules(t *testing.T) {
	t.Helper()
	for _, schedule := range []string{"61 * * * *", "0 0 31 2 *"} {
		w.store.Spec.Recovery.Drill.Schedule = schedule
		count := w.store.Status.DrillNotes.Count
		w.reconciles(5)
		if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused || drill.Number != count+1 {
			t.Errorf("the drill is %+v", drill)
		}
	}
	if plan := planner.Make(w.observe()); len(plan.Steps) > 0 {
		t.Errorf("steps:\n%s", describe(plan.Steps))
	}
}

// While the API server does not say whether it admits the next pod, a scheduled drill gives its process back once, and waits.
func TestScheduledDrillWithoutAnAnswer(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Recovery.Drill = &v1alpha1.DrillSpec{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin", Window: "10m"}
	w.reconciles(5)
	w.now, w.isMute = time.Date(2026, 1, 1, 1, 30, 0, 0, time.UTC), true
	given := 0
	for second := range 300 {
		plan, _ := w.reconcile(false)
		given += countOf[steps.CancelDisruption](plan)
		drill := w.lastDrill(t)
		if second > 70 && (drill.State != v1alpha1.DrillWaiting || drill.Member != "" || w.store.Status.DisruptionLock != nil ||
			drill.Message != "the drill waits: the API server has not said yet whether it admits the next pod of box-master-0") {
			t.Fatalf("after %d s: %+v, on record as the next one to end is %+v", second, drill, w.store.Status.DisruptionLock)
		}
		w.now = w.now.Add(time.Second)
	}
	if given != 1 {
		t.Errorf("given back %d times", given)
	}
	w.isMute = false
	w.reconciles(2)
	if drill := w.lastDrill(t); drill.Member != "box-master-0" {
		t.Errorf("once it answers: %+v", drill)
	}
}

// An ordered drill waits for an answer for a minute, and is refused.
func TestOrderedDrillWithoutAnAnswer(t *testing.T) {
	w := newHoldingWorld(t)
	w.order("once", "box-master-1")
	w.isMute = true
	w.reconciles(50)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillWaiting || drill.Member != "box-master-1" {
		t.Errorf("after 50 s: %+v", drill)
	}
	w.reconciles(20)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused ||
		drill.Message != "the API server has not said yet whether it admits the next pod of box-master-1" || len(w.drilled) > 0 {
		t.Errorf("after 70 s: %+v", drill)
	}
}
