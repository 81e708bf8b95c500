package status_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/capacity"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
	"rcbox.dev/rcbox/operator/internal/status"
)

// replicatedScene is a Store of two masters with one copy of everything, all in order.
func replicatedScene() *scene {
	s := newScene()
	spec := &s.observed.Store.Spec
	spec.Replication = v1alpha1.ReplicationSpec{Factor: new(int32(1)), Durability: v1alpha1.Buffered}
	spec.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageVolume, Size: new(resource.MustParse("4Gi"))}
	s.observed.Cluster.State = v1alpha1.StateVolume
	for i := range s.plan.Masters {
		view := &s.plan.Masters[i]
		view.Claim = view.Name + "-copies"
		view.Pod.Inputs = resources.InputsFor(s.observed.Store, v1alpha1.ComponentMaster, "i", "")
		view.Reported.Copies, view.Reported.Serving, view.Reported.Segments = 1, true, 10
		view.Reported.Backup = &facts.Backup{Frames: 100, Free: 75, SegmentBytes: 8}
	}
	return s
}

func (s *scene) recovery(generation int, tablets int64, waits string) {
	recovery := facts.Recovery{
		Member: "box-master-1", ServerID: fmt.Sprintf("2.%d", generation), Age: 10 * time.Second,
		TabletsLeft: tablets, WaitsFor: waits, PromisedMs: 1000,
	}
	if tablets == 0 {
		recovery.MeasuredMs, recovery.Bytes = 840, 1234
	}
	s.observed.Cluster.Recoveries = append(s.observed.Cluster.Recoveries, recovery)
	if tablets > 0 {
		s.plan.Shortfall = &planner.Shortfall{
			Reason: v1alpha1.ReasonRecoveryRuns, Message: facts.DescribeRecoveries([]facts.Recovery{recovery}),
		}
	}
}

// replicatedStates are the states of TestConditionsWithCopies.
func replicatedStates() []told {
	const (
		available   = v1alpha1.ConditionAvailable
		progressing = v1alpha1.ConditionProgressing
		degraded    = v1alpha1.ConditionDegraded
		safe        = v1alpha1.ConditionDataSafe
		recovering  = v1alpha1.ConditionRecovering
		onTarget    = v1alpha1.ConditionRecoveryOnTarget
	)
	return []told{
		{"all is well", func(*scene) {}, []string{
			available + "=True Serving", degraded + "=False AsExpected", recovering + "=False NoneUnderWay: no master was lost",
			safe + "=True Replicated: each object has 1 copy on other nodes than its master's, Buffered: they survive the end of all " +
				"processes and pods, and the loss of power of all but one of their nodes",
		}},
		{"nobody has looked at the capacity", func(*scene) {}, []string{onTarget + "=Unknown Forming: no master is up"}},
		{"on target", func(s *scene) { s.plan.Capacity = &capacity.Check{Verdict: capacity.OnTarget, MiBPerSecond: 150} }, []string{
			onTarget + "=True OnTarget: loss of",
		}},
		{"on target so far", func(s *scene) {
			s.plan.Capacity = &capacity.Check{Verdict: capacity.OnTargetSoFar, MiBPerSecond: 150}
		}, []string{
			onTarget + "=True OnTargetSoFar: loss of",
		}},
		{"too slow", func(s *scene) { s.plan.Capacity = &capacity.Check{Verdict: capacity.TooSlow, MiBPerSecond: 150} }, []string{
			onTarget + "=False TooSlow: loss of", degraded + "=False AsExpected",
		}},
		{"a change is held back", func(s *scene) { s.plan.HeldBack = "scaling in to 3 masters is held back" }, []string{
			progressing + "=False HeldBack: scaling in to 3 masters is held back",
		}},
		{"in memory", func(s *scene) {
			s.observed.Store.Spec.Backups.Storage.Type = v1alpha1.StorageMemory
			s.plan.Masters[0].Pod.Inputs = resources.InputsFor(s.observed.Store, v1alpha1.ComponentMaster, "i", "")
		}, []string{safe + "=True Replicated: each object has 1 copy on other nodes than its master's, in memory"}},
		{"nobody told a pod its domain", func(s *scene) {
			s.observed.Store.Spec.Placement.FailureDomain = "rack"
			s.plan.Masters[1].Pod.Inputs = resources.InputsFor(s.observed.Store, v1alpha1.ComponentMaster, "i", "")
		}, []string{safe + "=True Replicated: each object has 1 copy on other nodes than its master's, Buffered: they survive the end of " +
			"all processes and pods, and the loss of power of all but one of their nodes; the failure domains (rack) of some masters are " +
			"not known, because the operator cannot read their nodes: box-master-1"}},
		{"something is short", func(s *scene) {
			s.plan.Shortfall = &planner.Shortfall{Reason: v1alpha1.ReasonUnderReplicated, Message: "box-master-1 (3 of 10)"}
		}, []string{safe + "=False UnderReplicated: box-master-1 (3 of 10)", available + "=True Serving"}},
		{"a master has nobody to keep its copies", func(s *scene) {
			s.plan.Masters[0].Reported.Serving, s.plan.Masters[0].Reported.Tablets = false, 3
		}, []string{
			available + "=False MembersDown: box-master-0 does not answer, because too few other masters are up to keep copies" +
				"; 2 of 2 masters are up",
		}},
		{"one without tablets is not missed", func(s *scene) {
			s.plan.Masters[0].Reported.Serving, s.plan.Masters[0].Reported.Tablets = false, 0
		}, []string{available + "=True Serving"}},
		{"a recovery runs", func(s *scene) { s.recovery(2, 4, "") }, []string{
			available + "=False RecoveryRuns: some keys cannot be read or written yet; 2 of 2 masters are up; " +
				"recovery of box-master-1 (2.2): tablets left: 4",
			safe + "=False RecoveryRuns: recovery of box-master-1 (2.2): tablets left: 4",
			recovering + "=True RecoveryRuns: recovery of box-master-1 (2.2): tablets left: 4",
		}},
		{"a recovery waits", func(s *scene) { s.recovery(2, 4, "segment 7") }, []string{
			available + "=False RecoveryBlocked",
			safe + "=False RecoveryRuns: recovery of box-master-1 (2.2): tablets left: 4, it waits: segment 7",
			recovering + "=True RecoveryBlocked: recovery of box-master-1 (2.2): tablets left: 4, it waits: segment 7",
		}},
		{"recoveries wait, and all who are away are named", func(s *scene) {
			const away = "; members that are not connected (3): box-master-0, box-master-1, box-master-2"
			first := facts.Recovery{Member: "box-master-0", ServerID: "1.0", TabletsLeft: 4, CanBeGivenUp: true}
			first.WaitsFor = "no backup that answers has the head of the log of server 1.0" + away
			second := facts.Recovery{Member: "box-master-2", ServerID: "3.0", TabletsLeft: 4, CanBeGivenUp: true}
			second.WaitsFor = "no backup that answers has segment 3, 5, 8 of the log of server 3.0" + away
			s.observed.Cluster.Recoveries = []facts.Recovery{first, second}
			s.plan.Shortfall = planner.FindShortfall(&s.observed, s.plan.Masters)
		}, []string{
			available + "=False RecoveryBlocked: some keys cannot be read or written yet; 2 of 2 masters are up; recoveries of " +
				"box-master-0, box-master-2: tablets ...; members that are not connected: box-master-0 ...; " +
				"if the volumes with its copies are gone for good: rcbox recovery accept-loss 1.0",
			safe + "=False RecoveryRuns: recoveries of box-master-0, box-master-2: tablets left: 8; that of server 1.0 waits: " +
				"no backup that answers has the head of the log of ...; members that are not connected: box-master-0, " +
				"box-master-1, box-master-2; if the volumes with its copies are gone for good: rcbox recovery accept-loss 1.0",
		}},
		{"a recovery has ended", func(s *scene) { s.recovery(2, 0, "") }, []string{
			available + "=True Serving", safe + "=True Replicated",
			recovering + "=False NoneUnderWay: the last one: recovery of box-master-1 (2.2) took 840 ms, 1000 ms were expected; " +
				"its log had 1234 bytes",
		}},
		{"the coordinator is down", func(s *scene) {
			s.noCoordinator()
			s.plan.Shortfall = &planner.Shortfall{Reason: v1alpha1.ReasonCoordinatorDown, Message: "m"}
		}, []string{
			safe + "=Unknown CoordinatorDown: m", recovering + "=Unknown CoordinatorDown", onTarget + "=Unknown CoordinatorDown",
		}},
		{"something was lost all the same", func(s *scene) {
			s.observed.Store.Status.LossCount = 1
			s.observed.Store.Status.Losses = []v1alpha1.Loss{{Number: 1, Cause: v1alpha1.LossOfMember, Member: "box-master-0"}}
		}, []string{safe + "=False DataLost: loss 1"}},
		{"a storage has failed", func(s *scene) { s.plan.Masters[1].Reported.Backup.Retired = "write: no space left" }, []string{
			degraded + "=True BackupsFailed: the storage of box-master-1 takes no more copies: write: no space left",
		}},
		{"a device has stopped", func(s *scene) { s.plan.Masters[1].Reported.Backup.Stalled = "a write is not over" }, []string{
			degraded + "=True BackupsFailed: the storage of box-master-1 has stopped: a write is not over",
		}},
		{"a stopped device is named before damaged copies", func(s *scene) {
			s.plan.Masters[0].Reported.Backup.Stalled, s.plan.Masters[1].Reported.Backup.Damaged = "a write is not over", 2
		}, []string{degraded + "=True BackupsFailed: the storage of box-master-0 has stopped: a write is not over"}},
		{"of two stopped devices, the first is named", func(s *scene) {
			s.plan.Masters[0].Reported.Backup.Stalled, s.plan.Masters[1].Reported.Backup.Stalled = "a write", "a sync"
		}, []string{degraded + "=True BackupsFailed: the storage of box-master-0 has stopped: a write;"}},
		{"a stopped device after damaged copies", func(s *scene) {
			s.plan.Masters[0].Reported.Backup.Damaged, s.plan.Masters[1].Reported.Backup.Stalled = 2, "a sync is not over"
		}, []string{degraded + "=True BackupsFailed: the storage of box-master-1 has stopped: a sync is not over"}},
		{"a failed storage after a stopped one", func(s *scene) {
			s.plan.Masters[0].Reported.Backup.Stalled = "a write is not over"
			s.plan.Masters[1].Reported.Backup.Retired = "write: no space left"
		}, []string{degraded + "=True BackupsFailed: the storage of box-master-1 takes no more copies: write: no space left"}},
		{"copies are damaged", func(s *scene) { s.plan.Masters[1].Reported.Backup.Damaged = 2 }, []string{
			degraded + "=True BackupsFailed: 2 of 100 frames of box-master-1 are damaged",
		}},
		{"there is little room", func(s *scene) {
			for i := range s.plan.Masters {
				s.plan.Masters[i].Reported.CapacityBytes, s.plan.Masters[i].Reported.Backup.SegmentBytes = 1<<30, 8<<20
			}
		}, []string{
			degraded + "=True BackupsSmall: copies of all that masters can hold take 2048 MiB, and there is room for 1600 MiB",
		}},
		{"scaling in waits", func(s *scene) {
			s.plan.Masters[1].Wanted = false
			s.plan.Shortfall = &planner.Shortfall{Reason: v1alpha1.ReasonUnderReplicated, Message: "box-master-0 (1 of 2)"}
		}, []string{progressing + "=True Waiting: scaling in waits until all copies are there: box-master-0 (1 of 2)"}},
		{"a master is outdated", func(s *scene) {
			s.plan.Masters[0].Pending, s.plan.Masters[0].Reported.Tablets = "image: a -> b", 1
		}, []string{
			progressing + "=False RestartPending: outdated pods: box-master-0-1 (image: a -> b); while a master restarts, its data " +
				"cannot be read or written until it is recovered from copies. Delete it yourself: kubectl delete pod -n ",
		}},
		{"two masters are outdated", func(s *scene) {
			for i, pending := range []string{"image: a -> b", "memory: 1Gi -> 2Gi"} {
				s.plan.Masters[i].Pending, s.plan.Masters[i].Reported.Tablets = pending, 1
			}
		}, []string{
			progressing + "=False RestartPending: outdated pods: box-master-0-1 (image: a -> b), box-master-1-1 (memory: 1Gi -> 2Gi); " +
				"while a master restarts, its data cannot be read or written until it is recovered from copies. Delete them yourself, " +
				"one at a time, each while DataSafe is True: kubectl delete pod -n ",
		}},
		{"a volume is on a node that is gone", func(s *scene) {
			view := &s.plan.Masters[1]
			view.Up, view.Pod.Node, view.Pod.Process = false, "", facts.ProcessAbsent
			view.Pod.Trouble = "Unschedulable: 1 node had volume node affinity conflict"
			s.observed.Claims = map[string]facts.Claim{view.Claim: {Name: view.Claim, Node: "node-7"}}
		}, []string{
			degraded + "=True MembersDown: box-master-1 has no node: the volume of its claim box-master-1-copies is on node node-7. " +
				"It goes on when that node is back; if the node is gone for good, and Recovering is False: kubectl delete -n default " +
				"pvc/box-master-1-copies pod/box-master-1-1, and copies are made anew",
		}},
		{"a loss was accepted", func(s *scene) {
			s.observed.Store.Status.LossCount = 1
			s.observed.Store.Status.Losses = []v1alpha1.Loss{{
				Number: 1, Cause: v1alpha1.LossAccepted, Member: "box-master-0", Tablets: 4, TableCount: 1, Tables: []string{"t"},
				Missing: "of the log of server 2.0: 3 segments",
			}}
		}, []string{
			safe + "=False DataLost: loss 1, seen 0001-01-01 00:00:00 UTC: a user gave up copies, so that 4 tablets of box-master-0 may " +
				"lack objects; given up: of the log of server 2.0: 3 segments; of 1 table t",
		}},
		{"the coordinator is outdated", func(s *scene) {
			s.plan.Coordinator.Pending = "image: a -> b"
			s.plan.Coordinator.Pod.Inputs.State = v1alpha1.StateVolume
		}, []string{
			progressing + "=False RestartPending: outdated pods: c-1 (image: a -> b); while the coordinator restarts, no table can " +
				"be made and no lost master recovered. Delete it yourself: kubectl delete pod",
		}},
		{"being deleted", func(s *scene) { s.observed.Store.DeletionTimestamp = &metav1.Time{Time: start} }, []string{
			safe + "=False Deleting", recovering + "=False Deleting",
		}},
	}
}

func TestConditionsWithCopies(t *testing.T) {
	for _, test := range replicatedStates() {
		t.Run(test.name, func(t *testing.T) {
			s := replicatedScene()
			test.change(s)
			got := status.Compute(s.observed, s.plan, s.outcome)
			for _, want := range test.want {
				name, rest, _ := strings.Cut(want, "=")
				condition := meta.FindStatusCondition(got.Conditions, name)
				text := string(condition.Status) + " " + condition.Reason + ": " + condition.Message
				if !strings.HasPrefix(text, rest) {
					t.Errorf("%s is\n%s, not\n%s", name, text, rest)
				}
			}
		})
	}
}

func TestReplicationInForce(t *testing.T) {
	s := replicatedScene()
	s.plan.Masters[0].Reported.Copies, s.plan.Masters[1].Reported.Copies = 3, 2
	s.plan.Masters[1].Reported.SegmentsShort = 4
	got := status.Compute(s.observed, s.plan, s.outcome)
	if got.Replication != (v1alpha1.ReplicationStatus{Factor: 2, SegmentsShort: 4, CoordinatorState: v1alpha1.StateVolume}) ||
		got.Durability != v1alpha1.DurabilityBuffered {
		t.Errorf("in force: %+v, %s", got.Replication, got.Durability)
	}
	member := got.Masters.Members[1]
	if member.Copies != 2 || member.SegmentsShort != 4 || member.Claim != "box-master-1-copies" ||
		*member.Backup != (v1alpha1.BackupStatus{Frames: 100, UsedPercent: 25}) {
		t.Errorf("member is %+v", member)
	}
	// Without an answer it stays as it was; and the weakest pod counts.
	s.observed.Store.Status = got
	s.noCoordinator()
	s.plan.Masters[1].Pod.Inputs.Replication = nil
	again := status.Compute(s.observed, s.plan, s.outcome)
	if again.Replication != got.Replication || *again.Masters.Members[1].Backup != *member.Backup ||
		again.Durability != v1alpha1.DurabilityUnreplicated {
		t.Errorf("in force: %+v, %s, %+v", again.Replication, again.Durability, again.Masters.Members[1])
	}
}

// When it began is noted once: counted back from two clocks it would be another second at every look, and the status be written
// for nothing.
func TestRecoveriesAreRecorded(t *testing.T) {
	s := replicatedScene()
	s.recovery(1, 4, "")
	first := status.Compute(s.observed, s.plan, s.outcome)
	began := first.Recoveries[0].Since
	if want := s.observed.Now.Add(-10 * time.Second); !began.Time.Equal(want) {
		t.Errorf("it began at %s, not %s", began, want)
	}
	s.observed.Store.Status = first
	s.observed.Now = s.observed.Now.Add(7 * time.Second)
	if again := status.Compute(s.observed, s.plan, s.outcome).Recoveries[0].Since; !again.Equal(began) {
		t.Errorf("it began at %s, then at %s", began, again)
	}
	// Those under way are all kept, and the last of the others.
	s.observed.Cluster.Recoveries = nil
	s.recovery(1, 4, "")
	for id := range 40 {
		s.recovery(2+id, 0, "")
	}
	list := status.Compute(s.observed, s.plan, s.outcome).Recoveries
	if len(list) != 32 || list[0].ServerID != "2.1" || list[31].ServerID != "2.41" {
		t.Errorf("%d recoveries from %s to %s", len(list), list[0].ServerID, list[len(list)-1].ServerID)
	}
}

// Each recovery is told of twice, its begin and its end; one that ended between two looks, once. A Store that has never been safe
// is no news.
func TestRecoveryEvents(t *testing.T) {
	s := replicatedScene()
	reasons := func() string {
		got := status.Compute(s.observed, s.plan, s.outcome)
		var list []string
		for _, event := range status.Events(&s.observed.Store.Status, &got) {
			list = append(list, event.Type+" "+event.Reason)
		}
		s.observed.Store.Status = got
		return strings.Join(list, ", ")
	}
	s.plan.Shortfall = &planner.Shortfall{Reason: v1alpha1.ReasonUnderReplicated, Message: "m"}
	for i, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, ""},
		{func() { s.plan.Shortfall = nil }, "Normal Replicated"},
		{func() { s.recovery(1, 3, "") }, "Warning RecoveryBegan, Warning RecoveryRuns, Warning RecoveryRuns"},
		{func() {}, ""},
		{func() { s.observed.Cluster.Recoveries[0].WaitsFor = "segment 7" }, "Warning RecoveryBlocked, Warning RecoveryBlocked"},
		{func() {
			s.observed.Cluster.Recoveries, s.plan.Shortfall = nil, nil
			s.recovery(1, 0, "")
			s.recovery(2, 0, "")
		}, "Normal Recovered, Normal Recovered, Normal Serving, Normal Replicated"},
		{func() {}, ""},
	} {
		step.change()
		if got := reasons(); got != step.want {
			t.Errorf("step %d: events are %s; not %s", i, got, step.want)
		}
	}
}
