package status_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/status"
)

// scene is a Store of two masters that is as its spec says; tests change it.
type scene struct {
	observed facts.Observed
	plan     planner.Plan
	outcome  status.Outcome
}

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newScene() *scene {
	formed := metav1.NewTime(start)
	s := &scene{}
	s.observed = facts.Observed{
		Now: start.Add(time.Hour),
		Store: &v1alpha1.Store{
			ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "default", Generation: 3},
			Spec:       v1alpha1.StoreSpec{Masters: v1alpha1.MastersSpec{Replicas: 2}},
			Status:     v1alpha1.StoreStatus{FormedAt: &formed, ClusterID: "a"},
		},
		Cluster: &facts.Cluster{ID: "a", BuildVersion: "1"},
	}
	s.plan.Coordinator = planner.MemberView{
		Name: "box-coordinator", Wanted: true, Up: true, PodNumber: 1, Pod: &facts.Pod{Name: "c-1", Ready: true},
	}
	for _, name := range []string{"box-master-0", "box-master-1"} {
		s.plan.Masters = append(s.plan.Masters, planner.MemberView{
			Name: name, Wanted: true, Up: true, PodNumber: 1, Pod: &facts.Pod{Name: name + "-1", UID: name},
			Reported: &facts.MemberReport{Name: name, Connected: true, Instance: name + "x", CapacityBytes: 200, LiveBytes: 101},
		})
	}
	return s
}

func (s *scene) noCoordinator() {
	s.observed.Cluster, s.observed.ClusterError = nil, "no answer"
	s.plan.Coordinator.Up = false
	for i := range s.plan.Masters {
		s.plan.Masters[i].Up, s.plan.Masters[i].Reported = false, nil
	}
}

func (s *scene) down(i int, tablets int64) {
	view := &s.plan.Masters[i]
	view.Up, view.Reported.Connected, view.Reported.Tablets = false, false, tablets
}

// told is a state of a Store, and what its conditions say.
type told struct {
	name   string
	change func(*scene)
	// condition=Status Reason: part of the message
	want []string
}

// toldStates are the states of TestConditions.
func toldStates() []told {
	const (
		available   = v1alpha1.ConditionAvailable
		progressing = v1alpha1.ConditionProgressing
		degraded    = v1alpha1.ConditionDegraded
	)
	return []told{
		{"all is well", func(*scene) {}, []string{
			available + "=True Serving: 2 of 2 masters are up",
			progressing + "=False AsSpecified: the Store is as its spec says",
			degraded + "=False AsExpected: nothing is broken",
			v1alpha1.ConditionDataSafe + "=False Unreplicated: each object is in the memory of one master only",
			v1alpha1.ConditionRecoveryOnTarget + "=False Unreplicated: there are no copies to recover anything from",
			v1alpha1.ConditionNetworkReady + "=True PodNetwork: masters talk over the pod network",
		}},
		{"the coordinator cannot note anything", func(s *scene) { s.observed.Cluster.StateWait = "cannot write the root" }, []string{
			available + "=True Serving: 2 of 2 masters are up",
			degraded + "=True StateStuck: the coordinator cannot write its state, so that changes of tables and recoveries wait: cannot " +
				"write the root",
		}},
		{"a standby cannot start", func(s *scene) {
			s.plan.Coordinators = []planner.MemberView{s.plan.Coordinator, {
				Name: "box-coordinator-1", Wanted: true, Pod: &facts.Pod{Name: "c-2", Trouble: "Unschedulable: no node"},
			}}
		}, []string{degraded + "=True StandbysDown: standby coordinators that are not ready to take over: " +
			"box-coordinator-1 (Unschedulable: no node)"}},
		{"a coordinator must not lead", func(s *scene) {
			s.noCoordinator()
			s.observed.Refusal = "StateIncomplete: the root is missing"
		}, []string{available + "=False StateUnusable: the coordinator refuses to lead: StateIncomplete: the root is missing; clients"}},
		{"the store is made again from its volumes", func(s *scene) {
			s.noCoordinator()
			s.observed.Refusal = "Rebuilding: heard from 1 of 2 members"
		}, []string{available + "=False Rebuilding: the store is being made again from its volumes: heard from 1 of 2 members"}},
		{"another state is asked for", func(s *scene) {
			s.observed.Store.Status.Coordinator.State = v1alpha1.StateVolume
			s.observed.Store.Spec.Coordinator.State.Type = v1alpha1.StateKubernetes
		}, []string{progressing + "=False StateFixed: coordinator.state.type: Kubernetes has no effect, because this Store keeps its " +
			"state in Volume"}},
		{"an upgrade that can be finalized", func(s *scene) {
			s.observed.Cluster.Format = facts.Format{Active: 1, Newest: 2}
		}, []string{
			available + "=True Serving",
			progressing + "=False UpgradeCanBeFinalized: the Store is as its spec says; format 1 is in force, and every process reads 2",
		}},
		{"an upgrade that cannot be finalized yet", func(s *scene) {
			s.observed.Cluster.Format = facts.Format{Active: 1, Newest: 2, Hindrances: []string{"box-master-1 is old"}}
		}, []string{progressing + "=False AsSpecified"}},
		{"forming", func(s *scene) {
			s.observed.Store.Status.FormedAt = nil
			s.plan.Masters[1].Up, s.plan.Masters[1].Reported = false, nil
		}, []string{
			available + "=False Forming: 1 of 2 masters are up; waiting for box-master-1",
			progressing + "=True Waiting: waiting for box-master-1",
			degraded + "=False AsExpected",
		}},
		{"forming, but a pod finds no room", func(s *scene) {
			s.observed.Store.Status.FormedAt = nil
			s.plan.Masters[1].Up, s.plan.Masters[1].Reported = false, nil
			s.plan.Masters[1].Pod.Trouble = "Unschedulable: 0/3 nodes"
		}, []string{
			available + "=False Forming: 1 of 2 masters are up; waiting for box-master-1 (Degraded says why)",
			degraded + "=True MembersDown: not up: box-master-1 (Unschedulable: 0/3 nodes)",
		}},
		{"scaling out keeps a store available", func(s *scene) {
			s.plan.Masters = append(s.plan.Masters, planner.MemberView{Name: "box-master-2", Wanted: true})
		}, []string{
			available + "=True Serving: 2 of 3 masters are up",
			progressing + "=True Waiting: waiting for box-master-2",
			degraded + "=False AsExpected",
		}},
		{"a master with data is down", func(s *scene) { s.down(0, 3) }, []string{
			available + "=False MembersDown: the keys that box-master-0 had cannot be read or written; 1 of 2 masters are up",
			degraded + "=True MembersDown: not up: box-master-0",
		}},
		{"a master without data is down", func(s *scene) { s.down(0, 0) }, []string{
			available + "=True Serving: 1 of 2 masters are up",
			degraded + "=True MembersDown",
		}},
		{"all masters are down", func(s *scene) { s.down(0, 0); s.down(1, 0) }, []string{
			available + "=False MembersDown: no master is up",
		}},
		{"the coordinator is down", func(s *scene) {
			s.noCoordinator()
			s.plan.Coordinator.Pod = &facts.Pod{Name: "c-1", Trouble: "CrashLoopBackOff: exit code 1"}
		}, []string{
			available + "=False CoordinatorDown: the coordinator is down (Degraded says why)",
			progressing + "=True Waiting: waiting for the coordinator",
			degraded + "=True CoordinatorDown",
		}},
		{"the coordinator runs but does not answer the operator", (*scene).noCoordinator, []string{
			available + "=Unknown CoordinatorDown: the coordinator's pod c-1 is ready, but the operator gets no answer from it: no answer",
		}},
		{"first reconcile", func(s *scene) {
			s.noCoordinator()
			s.observed.Store.Status = v1alpha1.StoreStatus{}
			s.plan.Coordinator.Pod = nil
			s.plan.Steps = []steps.Step{steps.CreatePod{Member: "box-coordinator", Number: 1, Why: "it is new"}}
		}, []string{
			available + "=False Forming: waiting for the coordinator",
			progressing + "=True Applying: create pod 1 of box-coordinator: it is new",
			degraded + "=False AsExpected",
		}},
		{"scaling in refused", func(s *scene) {
			s.plan.Masters[1].Wanted = false
			s.outcome.Refused, s.outcome.RefusedMember = "it owns t.", "box-master-1"
			s.plan.Steps = []steps.Step{steps.RetireMember{Member: "box-master-1"}}
		}, []string{
			progressing + "=False ScaleInBlocked: box-master-1 stays; the coordinator says: it owns t. " +
				"To keep it, set masters.replicas to 2",
		}},
		{"scaling in drains", func(s *scene) {
			s.plan.Masters[1].Wanted = false
			s.plan.Masters[1].Reported.Draining = &facts.Draining{Tablets: 1, Copies: 14, WaitsFor: []string{"a", "b"}}
		}, []string{progressing + "=True Draining: draining box-master-1: 1 tablet, 14 copies left. box-master-1: a; b"}},
		{"scaling in without a coordinator", func(s *scene) {
			s.noCoordinator()
			s.plan.Masters[1].Wanted = false
		}, []string{progressing + "=True Waiting: scaling in waits for the coordinator"}},
		{"the coordinator is outdated", func(s *scene) { s.plan.Coordinator.Pending = "image: a -> b" }, []string{
			progressing + "=False RestartPending: outdated pods: c-1 (image: a -> b); restarting a master loses its data. " +
				"Delete it yourself: kubectl delete pod -n ",
		}},
		{"a master without data waits for its turn", func(s *scene) {
			s.plan.Masters[0].Pending, s.plan.Masters[1].Pending = "cores: 1 -> 2", "cores: 1 -> 2"
			s.plan.Steps = []steps.Step{steps.RetireMember{Member: "box-master-0", Why: "w"}}
		}, []string{progressing + "=True Applying: retire box-master-0: w"}},
		{"a name is taken", func(s *scene) { s.outcome.NameTaken = "Service box" }, []string{
			progressing + "=False NameTaken: Service box",
		}},
		{"something failed", func(s *scene) { s.outcome.Failed = "quota" }, []string{progressing + "=False ApplyFailed: quota"}},
		{"being deleted", func(s *scene) { s.observed.Store.DeletionTimestamp = &metav1.Time{Time: start} }, []string{
			available + "=False Deleting",
			progressing + "=True Deleting",
			degraded + "=False AsExpected",
		}},
	}
}

func TestConditions(t *testing.T) {
	for _, test := range toldStates() {
		t.Run(test.name, func(t *testing.T) {
			s := newScene()
			test.change(s)
			got := status.Compute(s.observed, s.plan, s.outcome)
			if len(got.Conditions) != 9 {
				t.Errorf("there are %d conditions", len(got.Conditions))
			}
			for _, want := range test.want {
				name, rest, _ := strings.Cut(want, "=")
				condition := meta.FindStatusCondition(got.Conditions, name)
				text := string(condition.Status) + " " + condition.Reason + ": " + condition.Message
				if !strings.HasPrefix(text, rest) {
					t.Errorf("%s is %s, not %s", name, text, rest)
				}
				if condition.ObservedGeneration != 3 {
					t.Errorf("%s is about generation %d", name, condition.ObservedGeneration)
				}
			}
		})
	}
}

// TestDeletedStoreMemberOfAMemberThatLeaves: a pod of a later member of that name gets another number.
func TestDeletedStoreMemberOfAMemberThatLeaves(t *testing.T) {
	s := newScene()
	s.observed.Store.Status.Record = &v1alpha1.StoreRecord{
		Members: []v1alpha1.OrdinalRange{{First: 0, Last: 7}}, HighestPodNumber: 12,
	}
	if got := status.Compute(s.observed, s.plan, s.outcome).Masters.RetiredPodNumber; got != 12 {
		t.Errorf("members go on from %d", got)
	}
}

func TestMembers(t *testing.T) {
	s := newScene()
	s.observed.Store.Status.Masters.Members = []v1alpha1.MemberStatus{
		{Name: "box-master-1", MemberFigures: v1alpha1.MemberFigures{Tablets: 9, UsedPercent: 7}},
		{Name: "box-master-7", MemberRecord: v1alpha1.MemberRecord{PodNumber: 5}},
	}
	got := status.Compute(s.observed, s.plan, s.outcome).Masters
	if got.Members[0].UsedPercent != 50 || got.Members[0].State != v1alpha1.MemberUp {
		t.Errorf("member is %+v", got.Members[0])
	}
	if got.RetiredPodNumber != 5 || got.Replicas != 2 || got.Ready != 2 {
		t.Errorf("masters are %+v", got)
	}
	// Without an answer the last figures stay, and the state says so.
	s.noCoordinator()
	got = status.Compute(s.observed, s.plan, s.outcome).Masters
	if m := got.Members[1]; m.State != v1alpha1.MemberUnknown || m.Tablets != 9 || m.UsedPercent != 7 {
		t.Errorf("member is %+v", m)
	}
}

func TestTransitionTimes(t *testing.T) {
	s := newScene()
	first := status.Compute(s.observed, s.plan, s.outcome)
	s.observed.Store.Status = first
	s.observed.Now = s.observed.Now.Add(time.Hour)
	s.down(0, 3)
	s.plan.Masters[0].Reported.Dead = true
	second := status.Compute(s.observed, s.plan, s.outcome)
	for name, changed := range map[string]bool{v1alpha1.ConditionAvailable: true, v1alpha1.ConditionDataSafe: false} {
		before, after := meta.FindStatusCondition(first.Conditions, name), meta.FindStatusCondition(second.Conditions, name)
		if before.LastTransitionTime.Equal(&after.LastTransitionTime) == changed {
			t.Errorf("%s changed at %s, before at %s", name, after.LastTransitionTime, before.LastTransitionTime)
		}
	}
}

// A coordinator's restart loses what it knew of: tables at the last look are a loss, none are an event.
func TestCoordinatorRestart(t *testing.T) {
	s := newScene()
	s.observed.Cluster.ID = "b"
	old := s.observed.Store.Status
	got := status.Compute(s.observed, s.plan, s.outcome)
	if got.LossCount != 0 || got.ClusterID != "b" {
		t.Errorf("status is %+v", got)
	}
	if events := status.Events(&old, &got); events[0].Reason != "CoordinatorRestarted" {
		t.Errorf("events are %+v", events)
	}
	s.observed.Store.Status.Tables = 2
	s.observed.Store.Status.LossesSeen = 9
	s.observed.Cluster.Losses = []facts.Loss{{Member: "box-master-0", Tablets: 1}}
	got = status.Compute(s.observed, s.plan, s.outcome)
	if got.LossCount != 2 || got.Losses[0].Cause != v1alpha1.LossOfCoordinator || got.Losses[0].TableCount != 2 ||
		got.Losses[1].Cause != v1alpha1.LossOfMember || got.LossesSeen != 1 {
		t.Errorf("status is %+v", got)
	}
}

// A Store made anew of kept tables is not born with the losses of the one that was deleted.
func TestLossesOfAStoreThatWasDeletedAreNotOfItsSuccessor(t *testing.T) {
	s := newScene()
	s.observed.Store.Status = v1alpha1.StoreStatus{}
	s.observed.Pods = []facts.Pod{{Member: "box-master-0", Number: 1, UID: "new"}, {Member: "box-master-1", Number: 2, UID: "second"}}
	s.observed.Cluster.Losses = []facts.Loss{
		{Member: "box-master-0", Tablets: 1, Uncounted: true, Instance: "of-the-former"},
		{Member: "box-master-9", Tablets: 1, Objects: 7, Instance: "of-the-former"},
	}
	got := status.Compute(s.observed, s.plan, s.outcome)
	if got.LossCount != 0 || got.LossesSeen != 2 {
		t.Errorf("%d losses, %d seen: %+v", got.LossCount, got.LossesSeen, got.Losses)
	}
	// Its own: the only pod's container was started again, and a pod that is not the first.
	s.observed.Store.Status = got
	own := []facts.Loss{
		{Member: "box-master-0", Tablets: 1, Uncounted: true, Instance: "new"},
		{Member: "box-master-1", Tablets: 1, Objects: 2, Instance: "first"},
	}
	s.observed.Cluster.Losses = append(s.observed.Cluster.Losses, own...)
	got = status.Compute(s.observed, s.plan, s.outcome)
	if got.LossCount != 2 || got.LossesSeen != 4 {
		t.Fatalf("%d losses, %d seen: %+v", got.LossCount, got.LossesSeen, got.Losses)
	}
	// Nobody knows how much a process held that had not reported: that is not nothing.
	for i, want := range []string{"took 1 tablet with it, with an unknown number of objects", "took 2 objects"} {
		if text := status.DescribeLoss(got.Losses[i]); !strings.Contains(text, want) {
			t.Errorf("%q does not contain %q", text, want)
		}
	}
}

// An answer that counts fewer losses than before (it is older) makes no loss, and none twice.
func TestOlderAnswer(t *testing.T) {
	s := newScene()
	s.observed.Store.Status.LossesSeen, s.observed.Store.Status.LossCount = 3, 3
	s.observed.Cluster.Losses = []facts.Loss{{Member: "box-master-0"}}
	if got := status.Compute(s.observed, s.plan, s.outcome); got.LossCount != 3 || got.LossesSeen != 3 {
		t.Errorf("%d losses, %d seen", got.LossCount, got.LossesSeen)
	}
}

func TestLongTextsAreCut(t *testing.T) {
	s := newScene()
	s.outcome.Failed = strings.Repeat("long ", 1000)
	got := status.Compute(s.observed, s.plan, s.outcome)
	if n := len(meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionProgressing).Message); n > 300 {
		t.Errorf("the message has %d bytes", n)
	}
	for _, event := range status.Events(&s.observed.Store.Status, &got) {
		if len(event.Note) > 1000 {
			t.Errorf("the note has %d bytes", len(event.Note))
		}
	}
}
