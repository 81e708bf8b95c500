package planner_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
)

// order has somebody order a drill.
func (w *world) order(text string) {
	w.store.Annotations = map[string]string{v1alpha1.AnnotationDrill: text}
}

func (w *world) visits(n int) {
	for range n {
		w.visit(false)
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
	w.order("once box-master-1")
	w.visit(false)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillWaiting || drill.Number != 1 {
		t.Fatalf("noted: %+v", drill)
	}
	before := w.cluster.members["box-master-1"].instance
	w.visit(false)
	if drill := w.lastDrill(t); drill.Member != "box-master-1" || !slices.Equal(drill.ServerIDs, []string{before}) || len(w.drilled) > 0 {
		t.Fatalf("chosen: %+v, ended: %v", drill, w.drilled)
	}
	plan, _ := w.visit(false)
	want := "drill 1: end box-master-1: ordered by annotation, and everything has its copies"
	if got := describe(plan.Steps); got != want {
		t.Fatalf("steps:\n%s", got)
	}
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRunning || drill.BeganAt == nil {
		t.Fatalf("begun: %+v", drill)
	}
	w.tick()
	w.visit(false)
	progressing := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing.Reason != v1alpha1.ReasonDrilling || progressing.Status != metav1.ConditionTrue {
		t.Errorf("Progressing is %+v", progressing)
	}
	w.visits(20)
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

// The status of the visit that ended the process is lost: nothing is ended twice.
func TestInterruptedDrillIsFollowed(t *testing.T) {
	w := newHoldingWorld(t)
	w.order("once")
	w.visit(false)
	w.visit(false)
	w.visit(true)
	w.visits(20)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillSucceeded || len(w.drilled) != 1 {
		t.Errorf("ended: %+v, %v", drill, w.drilled)
	}
}

func TestDrillTooSlow(t *testing.T) {
	w := newHoldingWorld(t)
	w.store.Spec.Recovery.Target = "999ms"
	w.order("once")
	w.visits(20)
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
		"no such master":      {func(w *world) { w.order("x box-master-9") }, `there is no master "box-master-9"`},
		"a master that is idle": {func(w *world) {
			w.order("x box-master-2")
			w.cluster.members["box-master-2"].tablets = 0
		}, "box-master-2 is not up, or holds nothing"},
		"a loss that nobody has taken note of": {func(w *world) {
			w.store.Status.Losses, w.store.Status.LossCount = []v1alpha1.Loss{{Number: 1, Member: "box-master-0"}}, 1
		}, "DataSafe is not True"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHoldingWorld(t)
			w.order("x")
			test.change(w)
			w.visit(false)
			w.visit(false)
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
			w.order("x")
			w.visit(false)
			test.change(w)
			w.visit(false)
			if drill := w.lastDrill(t); drill.State != v1alpha1.DrillWaiting || !strings.Contains(drill.Message, test.want) {
				t.Errorf("the drill is %+v", drill)
			}
			test.undo(w)
			w.visits(30)
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
			w.order("x")
			w.visit(false)
			test.change(w)
			w.visit(false)
			if drill := w.lastDrill(t); drill.State != v1alpha1.DrillWaiting || !strings.Contains(drill.Message, test.want) {
				t.Errorf("the drill is %+v", drill)
			}
			w.now = w.now.Add(time.Minute + time.Second)
			w.visit(false)
			if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused || len(w.drilled) > 0 {
				t.Errorf("the drill is %+v, ended: %v", drill, w.drilled)
			}
		})
	}
}

func (w *world) drainByHand(name string) {
	w.store.Annotations[v1alpha1.AnnotationDrained] = name
	w.cluster.members[name].isDraining = true
}

func TestUnreplicatedStoreIsNotDrilled(t *testing.T) {
	w := newWorld(3)
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	w.order("x")
	w.visits(5)
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
	w.order("x")
	w.visits(5)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused || !strings.Contains(drill.Message, "writes would wait") {
		t.Errorf("the drill is %+v", drill)
	}
}

func TestOverlappingDrillIsRefused(t *testing.T) {
	w := newHoldingWorld(t)
	w.order("one")
	w.visits(3)
	for i := range 12 {
		w.order(strings.Repeat("x", i+1))
		w.visit(false)
	}
	list := w.store.Status.Drills
	last := list[len(list)-1]
	if len(list) != 10 || last.Number != 13 || last.State != v1alpha1.DrillRefused || last.Message != "drill 1 has not ended" {
		t.Errorf("%d drills, the last one %+v", len(list), last)
	}
	w.visits(20)
	if first := w.store.Status.Drills[0]; first.Number != 1 || first.State != v1alpha1.DrillSucceeded || len(w.drilled) != 1 {
		t.Errorf("the first one: %+v, ended: %v", first, w.drilled)
	}
}

// Without a record of the recovery nobody claims that there was one.
func TestDrillWithoutRecordFails(t *testing.T) {
	w := newHoldingWorld(t)
	w.order("once")
	for range 30 {
		w.visit(false)
		w.tick()
		w.cluster.recovered = nil
	}
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRunning ||
		drill.Message != "waiting: the coordinator has no record of the recovery" {
		t.Fatalf("the drill is %+v", drill)
	}
	w.now = w.now.Add(10 * time.Minute)
	w.visits(2)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillFailed || drill.MeasuredMs != 0 {
		t.Errorf("the drill is %+v", drill)
	}
}

func TestDrillsByTheClock(t *testing.T) {
	w := newHoldingWorld(t) // it is some minutes after midnight
	w.store.Spec.Recovery.Drill = &v1alpha1.DrillSpec{Schedule: "30 2 * * *", TimeZone: "Europe/Berlin", Window: "1h"}
	w.visits(5)
	notes := w.store.Status.DrillNotes
	if want := time.Date(2026, 1, 1, 1, 30, 0, 0, time.UTC); len(w.store.Status.Drills) > 0 || !notes.NextAt.Time.Equal(want) {
		t.Fatalf("drills %+v, notes %+v", w.store.Status.Drills, notes)
	}
	for day := range 3 {
		w.now = time.Date(2026, 1, 1+day, 1, 30, 5, 0, time.UTC)
		w.visits(30)
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
	w.visits(2)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillWaiting || drill.Message != "the drill waits: spec.paused is set" {
		t.Errorf("the drill is %+v", drill)
	}
	w.now = w.now.Add(time.Hour)
	w.visits(2)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillMissed || drill.Message != "it could not begin in time: spec.paused is set" {
		t.Errorf("the drill is %+v", drill)
	}
	w.store.Spec.Paused = false
	w.now = time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)
	w.visits(5)
	if drill := w.lastDrill(t); drill.State != v1alpha1.DrillMissed || drill.Number != 5 || len(w.drilled) != 3 {
		t.Errorf("the drill is %+v, ended: %v", drill, w.drilled)
	}
	w.refusesSchedules(t)
	w.store.Spec.Recovery.Drill = nil
	w.visits(1)
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
		w.visits(5)
		if drill := w.lastDrill(t); drill.State != v1alpha1.DrillRefused || drill.Number != count+1 {
			t.Errorf("the drill is %+v", drill)
		}
	}
	if plan := planner.Make(w.observe()); len(plan.Steps) > 0 {
		t.Errorf("steps:\n%s", describe(plan.Steps))
	}
}
