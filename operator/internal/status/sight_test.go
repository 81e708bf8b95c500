package status_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/status"
)

// film is a scene at which somebody looks again and again: each status is the next look's old one.
type film struct {
	t interface {
		Helper()
		Errorf(format string, arguments ...any)
	}
	made time.Time
	last v1alpha1.StoreStatus
}

// look after so many seconds of the film at a scene that starts as one in which all is well.
func (f *film) look(second int, change func(*scene)) {
	f.t.Helper()
	s := safeScene()
	s.observed.Now = f.made.Add(time.Duration(second) * time.Second)
	for i := range s.plan.Masters {
		s.plan.Masters[i].Reported.Tablets = 3
	}
	if len(f.last.Conditions) > 0 {
		s.observed.Store.Status = *f.last.DeepCopy()
	}
	change(s)
	s.plan.Shortfall = planner.FindShortfall(&s.observed, s.plan.Masters)
	f.last = status.Compute(s.observed, s.plan, s.outcome)
}

// safeScene has three masters with two copies, all of which serve.
func safeScene() *scene {
	s := newScene()
	s.observed.Store.Spec.Replication.Factor, s.observed.Store.Spec.Masters.Replicas = new(int32(2)), 3
	s.observed.Cluster.State = v1alpha1.StateKubernetes
	third := s.plan.Masters[1]
	third.Name, third.Pod = "box-master-2", &facts.Pod{Name: "box-master-2-1", UID: "box-master-2"}
	third.Reported = &facts.MemberReport{
		Name: "box-master-2", Connected: true, Instance: "box-master-2x", CapacityBytes: 200, LiveBytes: 101,
	}
	s.plan.Masters = append(s.plan.Masters, third)
	for i := range s.plan.Masters {
		reported := s.plan.Masters[i].Reported
		reported.Serving, reported.Copies, reported.Segments = true, 2, 5
	}
	return s
}

func (f *film) expect(condition, want string) {
	f.t.Helper()
	got := meta.FindStatusCondition(f.last.Conditions, condition)
	if text := string(got.Status) + " " + got.Reason + ": " + got.Message; !strings.HasPrefix(text, want) {
		f.t.Errorf("%s is %s, not %s", condition, text, want)
	}
}

func (f *film) expectText(condition, part string) {
	f.t.Helper()
	if got := meta.FindStatusCondition(f.last.Conditions, condition); !strings.Contains(got.Message, part) {
		f.t.Errorf("%s says %q, and nothing of %q", condition, got.Message, part)
	}
}

func well(*scene) {}

func newFilm(t *testing.T) *film {
	t.Helper()
	f := &film{t: t, made: start.Add(time.Hour)}
	f.look(0, well)
	f.expect(v1alpha1.ConditionAvailable, "True Serving: 3 of 3 masters are up")
	f.expect(v1alpha1.ConditionDataSafe, "True Replicated")
	return f
}

// takesOver: another coordinator leads, and knows members from the state only.
func takesOver(s *scene) {
	s.observed.Cluster.IsNew = true
	for i := range s.plan.Masters {
		view := &s.plan.Masters[i]
		view.Up, view.Unheard = false, true
		reported := view.Reported
		reported.Connected, reported.Serving, reported.NotHeard, reported.CapacityBytes, reported.LiveBytes = false, false, true, 0, 0
	}
}

// A change of the leader: nothing is said to be broken that is not.
func TestALeaderChangeIsNoOutage(t *testing.T) {
	f := newFilm(t)
	before := f.last
	for second, change := range []func(*scene){
		(*scene).noCoordinator, (*scene).noCoordinator, (*scene).noCoordinator, takesOver, takesOver, takesOver, takesOver,
	} {
		f.look(second+1, change)
		for _, condition := range before.Conditions {
			f.expect(condition.Type, string(condition.Status)+" "+condition.Reason)
		}
		if f.last.Masters.Ready != 3 {
			t.Errorf("second %d: %d masters are ready", second+1, f.last.Masters.Ready)
		}
	}
	f.expectText(v1alpha1.ConditionAvailable,
		"3 of 3 masters are up; the new coordinator has not heard yet from box-master-0")
	if entry := f.last.Masters.Members[0]; entry.State != v1alpha1.MemberUp || entry.UsedPercent != 50 || entry.CapacityBytes != 200 {
		t.Errorf("a member is said to be %+v", entry)
	}
	f.look(9, well)
	f.expect(v1alpha1.ConditionAvailable, "True Serving: 3 of 3 masters are up")
	if got := f.last.Coordinator.SilentSince; got != nil {
		t.Errorf("silent since %v, and it answers", got)
	}
}

// No coordinator answers any more: conditions say so once another one would lead, and until then since when it is so.
func TestASilentCoordinatorIsToldOf(t *testing.T) {
	f := newFilm(t)
	f.look(1, (*scene).noCoordinator)
	f.expect(v1alpha1.ConditionAvailable,
		"True Serving: status as last seen: no coordinator has answered since 13:00:01 UTC; 3 of 3 masters are up")
	f.look(6, (*scene).noCoordinator)
	f.expect(v1alpha1.ConditionAvailable,
		"True Serving: status as last seen: no coordinator has answered since 13:00:01 UTC; 3 of 3 masters are up")
	f.expect(v1alpha1.ConditionDataSafe, "True Replicated: status as last seen")
	f.look(11, (*scene).noCoordinator)
	f.expect(v1alpha1.ConditionAvailable, "Unknown CoordinatorDown")
	f.expect(v1alpha1.ConditionDegraded, "True CoordinatorDown")
	f.expect(v1alpha1.ConditionDataSafe, "Unknown CoordinatorDown")
	if f.last.Masters.Ready != 0 || f.last.Masters.Members[0].State != v1alpha1.MemberUnknown {
		t.Errorf("%+v", f.last.Masters)
	}
}

func TestALostConnectionIsToldOfOnceItLasts(t *testing.T) {
	away := func(s *scene) { s.down(1, 3) }
	f := newFilm(t)
	f.look(1, away)
	f.expect(v1alpha1.ConditionAvailable, "True Serving: 2 of 3 masters are up; not serving since 13:00:01 UTC: box-master-1")
	f.expect(v1alpha1.ConditionDegraded, "False AsExpected")
	// Copies that are away are away at once: whoever waits for DataSafe is about to take something away himself.
	f.expect(v1alpha1.ConditionDataSafe, "False UnderReplicated")
	f.look(3, well)
	f.look(10, away)
	f.look(19, away)
	f.expect(v1alpha1.ConditionAvailable, "True Serving: 2 of 3 masters are up; not serving since 13:00:10 UTC")
	f.look(20, away)
	f.expect(v1alpha1.ConditionAvailable, "False MembersDown: the keys that box-master-1 had")
	f.expect(v1alpha1.ConditionDegraded, "True MembersDown: not up: box-master-1")

	// A process that does not answer for a moment.
	f = newFilm(t)
	mute := func(s *scene) { s.plan.Masters[0].Reported.Serving = false }
	f.look(1, mute)
	f.expect(v1alpha1.ConditionAvailable, "True Serving")
	f.look(11, mute)
	f.expect(v1alpha1.ConditionAvailable, "False MembersDown: box-master-0 does not answer")

	// What the store acts on is told of at once.
	f = newFilm(t)
	f.look(1, func(s *scene) {
		s.down(1, 3)
		s.plan.Masters[1].Reported.Dead = true
	})
	f.expect(v1alpha1.ConditionAvailable, "False MembersDown")
	f = newFilm(t)
	f.look(1, func(s *scene) {
		s.down(1, 0)
		s.observed.Cluster.Recoveries = []facts.Recovery{{ServerID: "2.0", Member: "box-master-1", TabletsLeft: 3}}
	})
	f.expect(v1alpha1.ConditionAvailable, "False RecoveryRuns")
}

// An ordinary restart: the scheduler has not found the node yet, and nobody is told to delete a volume for that.
func TestARestartAsksNobodyToDeleteVolumes(t *testing.T) {
	restarts := func(second int) func(*scene) {
		return func(s *scene) {
			s.down(1, 0)
			s.plan.Masters[1].Claim = "claim"
			s.plan.Masters[1].Pod = &facts.Pod{
				Name: "box-master-1-2", CreatedAt: s.observed.Now.Add(-time.Duration(second) * time.Second),
				Trouble: "Unschedulable: no node",
			}
			s.observed.Claims = map[string]facts.Claim{"claim": {Name: "claim", Node: "node-1"}}
		}
	}
	f := newFilm(t)
	f.look(1, restarts(1))
	f.expect(v1alpha1.ConditionDegraded, "True MembersDown: not up: box-master-1 (Unschedulable: no node)")
	f.look(12, restarts(12))
	f.expect(v1alpha1.ConditionDegraded, "True MembersDown: not up: box-master-1")
	f.look(31, restarts(31))
	f.expect(v1alpha1.ConditionDegraded, "True MembersDown: box-master-1 has no node")
	f.expectText(v1alpha1.ConditionDegraded, "kubectl delete -n default pvc/claim")
}

func TestFullMemory(t *testing.T) {
	full := func(s *scene) { s.plan.Masters[1].Reported.IsFull = true }
	f := newFilm(t)
	before := f.last
	f.look(1, full)
	f.expect(v1alpha1.ConditionAvailable, "True MemoryFull: every key can be read, but box-master-1 refuses writes that need memory")
	f.expect(v1alpha1.ConditionDegraded, "True MemoryFull: the memory of box-master-1 is full of objects")
	f.expectText(v1alpha1.ConditionDegraded, "raise masters.replicas or masters.memory")
	var told []string
	for _, event := range status.Events(&before, &f.last) {
		told = append(told, event.Type+" "+event.Reason)
	}
	if strings.Join(told, ", ") != "Warning MemoryFull" {
		t.Errorf("events: %v", told)
	}
	f.look(2, well)
	f.expect(v1alpha1.ConditionAvailable, "True Serving")
	f.expect(v1alpha1.ConditionDegraded, "False AsExpected")
}

// The scheduler's words are in one condition, and a quota does not leave nothing broken.
func TestOneConditionSaysWhy(t *testing.T) {
	const why = "Unschedulable: 0/3 nodes are available"
	f := newFilm(t)
	f.look(1, func(s *scene) {
		s.observed.Store.Status.FormedAt = nil
		s.plan.Masters[1].Up, s.plan.Masters[1].Reported, s.plan.Masters[1].Pod.Trouble = false, nil, why
	})
	f.look(20, func(s *scene) {
		s.observed.Store.Status.FormedAt = nil
		s.plan.Masters[1].Up, s.plan.Masters[1].Reported, s.plan.Masters[1].Pod.Trouble = false, nil, why
	})
	said := 0
	for _, condition := range f.last.Conditions {
		said += strings.Count(condition.Message, why)
	}
	if said != 1 {
		t.Errorf("said %d times: %+v", said, f.last.Conditions)
	}
	f.expect(v1alpha1.ConditionDegraded, "True MembersDown: not up: box-master-1 ("+why)

	f = newFilm(t)
	f.look(1, func(s *scene) {
		s.plan.Masters[2].Up, s.plan.Masters[2].Reported, s.plan.Masters[2].Pod = false, nil, nil
		s.outcome.Failed = "create pod box-master-2-x: exceeded quota: compute"
	})
	f.expect(v1alpha1.ConditionDegraded,
		"True MembersDown: without a pod, for the operator cannot make one (Progressing says why): box-master-2")
	f.expect(v1alpha1.ConditionProgressing, "False ApplyFailed: create pod box-master-2-x: exceeded quota")
}

// The time of observation is that of the last change, and changes with nothing else.
func TestObservedAt(t *testing.T) {
	f := newFilm(t)
	first := f.last
	if first.ObservedAt == nil || !first.ObservedAt.Equal(&metav1.Time{Time: f.made}) {
		t.Fatalf("observed at %v", first.ObservedAt)
	}
	f.look(7, well)
	if !f.last.ObservedAt.Equal(first.ObservedAt) {
		t.Errorf("nothing has changed, and it was observed at %v", f.last.ObservedAt)
	}
	f.look(9, func(s *scene) { s.down(1, 3) })
	if want := f.made.Add(9 * time.Second); !f.last.ObservedAt.Time.Equal(want) {
		t.Errorf("a change was observed at %v", f.last.ObservedAt)
	}
}

// Whatever the order in which a new leader hears from members, and however long it is silent before: as long as all that is wrong is that
// it has yet to hear, no condition gets worse.
func TestNoConditionSaysLessWhenTheLeaderChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &film{t: t, made: start.Add(time.Hour)}
		f.look(0, well)
		before := f.last
		second := 0
		for range rapid.IntRange(0, 8).Draw(t, "silent") {
			second++
			f.look(second, (*scene).noCoordinator)
		}
		heard := map[int]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "looks") {
			second += rapid.IntRange(0, 2).Draw(t, "pause")
			heard[rapid.IntRange(0, 5).Draw(t, "heard")] = true
			f.look(second, func(s *scene) {
				known := safeScene()
				takesOver(s)
				for i := range s.plan.Masters {
					if heard[i] {
						tablets := s.plan.Masters[i].Reported.Tablets
						s.plan.Masters[i] = known.plan.Masters[i]
						s.plan.Masters[i].Reported.Tablets = tablets
					}
				}
			})
			for _, condition := range before.Conditions {
				got := meta.FindStatusCondition(f.last.Conditions, condition.Type)
				if got.Status != condition.Status || got.Reason != condition.Reason {
					t.Fatalf("second %d: %s is %s %s: %s", second, got.Type, got.Status, got.Reason, got.Message)
				}
			}
		}
	})
}
