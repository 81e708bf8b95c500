package view_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

var update = flag.Bool("update", false, "write the golden texts anew")

// golden compares with testdata/NAME; `go test ./operator/internal/plugin/view -update` writes what is there.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s is now\n%s\ninstead of\n%s", name, text, want)
	}
}

const (
	mib    = 1 << 20
	second = uint64(time.Second)
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// scene is a Store whose every master is up: masters on nodes of their own, in racks of so many.
func scene(masters, perRack int) *view.Snapshot {
	store := &v1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "box", CreationTimestamp: ago(50 * time.Hour)},
		Spec: v1alpha1.StoreSpec{
			Masters:     v1alpha1.MastersSpec{Replicas: int32(masters)},
			Replication: v1alpha1.ReplicationSpec{Factor: new(int32(2))},
		},
		Status: v1alpha1.StoreStatus{
			Image: "rcbox/store:1", Locator: "tcp:host=box.team.svc,port=11100", Durability: v1alpha1.DurabilityBuffered,
			Coordinator: v1alpha1.CoordinatorStatus{
				Pod: "box-coordinator-bcdfg", Node: "node-0", State: v1alpha1.StateKubernetes,
				Standbys: []v1alpha1.StandbyStatus{{
					Name: "box-coordinator-1", Pod: "box-coordinator-1-hjklm", Node: "node-1", Running: true,
				}},
			},
			Replication: v1alpha1.ReplicationStatus{Factor: 2},
		},
	}
	s := &view.Snapshot{
		Now: now, LookedAt: now.Add(-7 * time.Second), Store: store, LeaderPod: "box-coordinator-bcdfg", Nodes: map[string]*corev1.Node{},
		Cluster: &adminv1.GetClusterStatusResponse{
			FormatVersion: 1, Upgrade: &adminv1.Upgrade{OldestFormat: 1, NewestFormat: 1}, ClusterTimeNs: 3600 * second, TableCount: 3,
			Durability: &adminv1.Durability{Mode: adminv1.DurabilityMode_DURABILITY_MODE_REPLICATED, Replicas: 2},
			Leader:     &adminv1.Leader{Name: "box-coordinator-bcdfg", Term: 4},
		},
	}
	if perRack > 0 {
		store.Spec.Placement.FailureDomain = "example.com/rack"
	}
	up := fmt.Sprintf("%[1]d of %[1]d masters are up", masters)
	for _, condition := range []metav1.Condition{
		{Type: "Available", Status: metav1.ConditionTrue, Reason: "Serving", Message: up},
		{Type: "DataSafe", Status: metav1.ConditionTrue, Reason: "Replicated", Message: "each object has 2 copies"},
		{Type: "Recovering", Status: metav1.ConditionFalse, Reason: "NoneUnderWay", Message: "no master was lost"},
		{Type: "Degraded", Status: metav1.ConditionFalse, Reason: "AsExpected", Message: "nothing is broken"},
		{Type: "Progressing", Status: metav1.ConditionFalse, Reason: "AsSpecified", Message: "the Store is as its spec says"},
		{Type: "RecoveryOnTarget", Status: metav1.ConditionTrue, Reason: "OnTarget", Message: "loss of box-master-0: 667 ms; target 2s"},
	} {
		condition.LastTransitionTime = ago(3 * time.Hour)
		store.Status.Conditions = append(store.Status.Conditions, condition)
	}
	s.Pods = append(s.Pods, pod("box-coordinator", "box-coordinator-bcdfg", "node-0", v1alpha1.ComponentCoordinator))
	for i := range masters {
		addMaster(s, i, perRack)
	}
	return s
}

func addMaster(s *view.Snapshot, i, perRack int) {
	node, name := fmt.Sprintf("node-%d", i), v1alpha1.MasterMember("box", i)
	labels := map[string]string{}
	if perRack > 0 {
		labels["example.com/rack"] = fmt.Sprintf("rack-%d", i/perRack)
	}
	s.Nodes[node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labels}}
	s.Nodes[node].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.Pods = append(s.Pods, pod(name, name+"-qrstv", node, v1alpha1.ComponentMaster))
	s.Cluster.Members = append(s.Cluster.Members, &adminv1.Member{
		Name: name, State: adminv1.MemberState_MEMBER_STATE_UP, Instance: string(uid(name)) + "/1",
		Shards: []*adminv1.Shard{{
			ServerId: uint64(i + 1), Locator: fmt.Sprintf("tcp:host=10.0.0.%d,port=12100", i+1), Connected: true, Serving: true,
			TabletCount: 3, ObjectCount: 123_456, LogCapacityBytes: 832 * mib, LogLiveBytes: uint64(i%8+1) * 100 * mib,
			Backup: &adminv1.BackupStorage{Frames: 512, FramesFree: 412, SegmentBytes: 8 * mib},
		}},
	})
}

func uid(name string) types.UID { return types.UID("uid-" + name) }

func pod(member, name, node, component string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: uid(member),
			Labels: map[string]string{v1alpha1.LabelStore: "box", v1alpha1.LabelMember: member, v1alpha1.LabelComponent: component},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func setFalse(s *view.Snapshot, name, reason, message string) {
	meta.SetStatusCondition(&s.Store.Status.Conditions, metav1.Condition{
		Type: name, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: ago(8 * time.Second),
	})
}

// breakThings has one of everything: a lost member, a drain, a pod without a node, a damaged backup, a blocked recovery, a loss.
func breakThings(s *view.Snapshot) {
	members := s.Cluster.GetMembers()
	members[1].State = adminv1.MemberState_MEMBER_STATE_UNREACHABLE
	s.Pods[2].Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: v1alpha1.ComponentMaster, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	}}
	members[2].Draining = &adminv1.Draining{Tablets: 2, Copies: 14, WaitsFor: []string{"2 tablets are to move (tables: fruit)"}}
	members[3].Shards[0].SegmentsShort = 2
	s.Store.Status.Masters.Outdated = 1
	s.Cluster.Recoveries = []*adminv1.Recovery{
		{ServerId: 9, Member: "box-master-0", StartedNs: 60 * second, TabletCount: 3, Bytes: 900 * mib, PromisedMs: 900, MeasuredMs: 1100},
		{
			ServerId: 2, Member: "box-master-1", StartedNs: 3592 * second, TabletCount: 8, TabletsLeft: 3, Bytes: 700 * mib,
			PromisedMs: 800, WaitsFor: "segment 7 of 2.0", LossToken: "5f3a9c01",
			Missing: []*adminv1.MissingLog{{
				ServerId: 2, SegmentCount: 1, SegmentsLeft: 80, BytesLeft: 640 * mib, LacksHead: true, Text: "segment 7",
			}},
		},
	}
	s.Cluster.Migrations = []*adminv1.Migration{
		{
			Table: "fruit", SourceMember: "box-master-2", TargetMember: "box-master-0", Bytes: 12 * mib, Objects: 999,
			Reason: "box-master-2 is drained",
		},
		{Table: "old", EndedNs: 1},
	}
	s.Store.Status.Losses = []v1alpha1.Loss{{
		Number: 1, Cause: v1alpha1.LossOfMember, Time: ago(time.Hour), Member: "box-master-3", Tables: []string{"fruit"}, TableCount: 1,
		Tablets: 2, Objects: 1000, Bytes: 5 * mib,
	}}
	s.Store.Status.LossCount = 1
	setFalse(s, v1alpha1.ConditionAvailable, v1alpha1.ReasonRecoveryBlocked, "some keys cannot be read or written yet")
	setFalse(s, v1alpha1.ConditionProgressing, v1alpha1.ReasonRestartPending,
		"outdated pods: box-master-3-qrstv (memory: 1Gi -> 2Gi); it is yours to delete it: kubectl delete pod -n team box-master-3-qrstv")
}

func TestPictureOfFourNodes(t *testing.T) {
	golden(t, "four.txt", scene(4, 0).Picture(view.Style{}, false))
}

func TestPictureOfTrouble(t *testing.T) {
	s := scene(4, 2)
	breakThings(s)
	s.Store.Spec.Masters.Replicas = 5
	pending := pod("box-master-4", "box-master-4-wxz24", "", v1alpha1.ComponentMaster)
	pending.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/4 nodes are available",
	}}}
	s.Pods = append(s.Pods, pending)
	s.Nodes["node-9"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-9", Labels: map[string]string{"example.com/rack": "rack-1"}}}
	s.Nodes["control"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "control"}, Spec: corev1.NodeSpec{
		Taints: []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}},
	}}
	golden(t, "trouble.txt", s.Picture(view.Style{}, false))
	golden(t, "recoveries.txt", s.Recoveries(view.Style{}))
}

// 736 servers in 16 chassis: two slots free, and some of everything.
func TestPictureOfManyNodes(t *testing.T) {
	s := scene(736, 46)
	breakThings(s)
	s.Store.Spec.Masters.Replicas = 734
	for _, gone := range []int{100, 735} {
		s.Cluster.Members[gone] = &adminv1.Member{Name: "elsewhere"}
		s.Pods[gone+1] = corev1.Pod{}
	}
	s.Nodes["node-735"].Status.Conditions[0].Status = corev1.ConditionFalse
	text := s.Picture(view.Style{}, false)
	golden(t, "many.txt", text)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "oooo") && len(line) > 140 {
			t.Errorf("%d characters: %s", len(line), line)
		}
	}
}

// Where nodes are the failure domains, rows are of as many as fit.
func TestPictureOfManyNodesWithoutRacks(t *testing.T) {
	golden(t, "many-nodes.txt", scene(200, 0).Picture(view.Style{}, false))
}

func TestPictureWithoutTheCoordinator(t *testing.T) {
	s := scene(2, 0)
	s.Cluster, s.ClusterError, s.LeaderPod, s.Nodes = nil, "you lack a right", "", nil
	s.Store.Status.Masters.Members = []v1alpha1.MemberStatus{
		{
			Name: "box-master-0",
			MemberFigures: v1alpha1.MemberFigures{
				State: v1alpha1.MemberUp, Node: "node-0", Tablets: 2, CapacityBytes: 800 * mib, UsedPercent: 50,
			},
		},
		{
			Name:          "box-master-1",
			MemberFigures: v1alpha1.MemberFigures{State: v1alpha1.MemberUnknown, Node: "node-1", Message: "its node does not answer"},
		},
	}
	golden(t, "unasked.txt", s.Picture(view.Style{}, false))
}

// Nothing of a Store that sleeps is in trouble.
func TestPictureOfSleep(t *testing.T) {
	s := scene(2, 0)
	s.Cluster, s.ClusterError, s.LeaderPod, s.Pods = nil, "no coordinator runs", "", nil
	s.Store.Spec.Hibernated, s.Store.Spec.Paused = true, true
	setFalse(s, v1alpha1.ConditionAvailable, v1alpha1.ReasonHibernated, "it sleeps")
	setFalse(s, v1alpha1.ConditionProgressing, v1alpha1.ReasonHibernated, "it sleeps")
	golden(t, "asleep.txt", s.Picture(view.Style{}, false))
}

// A member that was lost with its node has the operator's word.
func TestLostMember(t *testing.T) {
	s := scene(2, 0)
	s.Cluster.Members = s.Cluster.Members[:1]
	s.Pods = s.Pods[:2]
	s.Store.Status.Masters.Members = []v1alpha1.MemberStatus{
		{
			Name: "box-master-1",
			MemberRecord: v1alpha1.MemberRecord{Lost: &v1alpha1.LostStatus{
				Node: "node-1", Cause: v1alpha1.NodeDeleted,
			}},
		},
	}
	if note := s.Members()[1].Note; note != "lost with node node-1 (Deleted); it moves to another" {
		t.Errorf("its note is %q", note)
	}
}

// A Store that was made this moment has nothing yet, and that is no reason to fail.
func TestPictureOfNothing(t *testing.T) {
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "box", CreationTimestamp: ago(0)}}
	store.Spec.Masters.Replicas = 1
	golden(t, "nothing.txt", (&view.Snapshot{Now: now, Store: store, ClusterError: "no coordinator runs"}).Picture(view.Style{}, false))
}

func TestColoursAreForTerminals(t *testing.T) {
	s := scene(4, 2)
	breakThings(s)
	if text := s.Picture(view.Style{}, true); strings.Contains(text, "\x1b") {
		t.Error("colours that nobody has asked for")
	}
	if text := s.Picture(view.Style{Colour: true}, true); !strings.Contains(text, "\x1b[31m") {
		t.Error("no red")
	}
}

// How old what is shown is, and nothing old for new: the operator is gone, and so is the coordinator.
func TestOldIsNotShownAsNew(t *testing.T) {
	s := scene(4, 0)
	shown := func() string { return s.Picture(view.Style{}, false) }
	expect := func(parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(shown(), part) {
				t.Errorf("%q is not in\n%s", part, shown())
			}
		}
	}
	expect("looked 7s ago", "4 of 4 up", "\nCONDITIONS\n")
	for i := range 4 {
		name := v1alpha1.MasterMember("box", i)
		s.Store.Status.Masters.Members = append(s.Store.Status.Masters.Members, v1alpha1.MemberStatus{
			Name: name, MemberFigures: v1alpha1.MemberFigures{State: v1alpha1.MemberUp},
		})
	}
	s.Cluster, s.ClusterError, s.LeaderPod = nil, "no coordinator runs", ""
	expect("what the operator has seen last (7s ago)", "4 of 4 up")
	s.LookedAt = now.Add(-58 * time.Second)
	expect("has not looked for 58s", "0 of 4 up, 4 not known", "CONDITIONS, as the operator saw them 58s ago",
		"it was up when the operator looked, 58s ago")
	if document := s.Document(); !document.Stale || document.OperatorLookedAt == "" || document.Members[0].State != view.StateUnknown {
		t.Errorf("as JSON: %+v", document)
	}
	s.LookedAt = time.Time{}
	expect("has not said when it looked")
}

// A leader that has just begun has yet to hear from members: they are not down.
func TestMembersThatANewLeaderHasYetToHearFrom(t *testing.T) {
	s := scene(3, 0)
	leading, patience := uint64(2000), uint64(5000)
	s.Cluster.Leader.LeadingMs, s.Cluster.Leader.PatienceMs = &leading, &patience
	for _, member := range s.Cluster.Members[1:] {
		member.State, member.Contact = adminv1.MemberState_MEMBER_STATE_UNREACHABLE, adminv1.MemberContact_MEMBER_CONTACT_NOT_YET
	}
	picture := s.Picture(view.Style{}, false)
	if !strings.Contains(picture, "1 of 3 up, 2 not known") || !strings.Contains(picture, "has yet to hear from it") {
		t.Error(picture)
	}
	leading = patience
	if picture := s.Picture(view.Style{}, false); !strings.Contains(picture, "1 of 3 up\n") {
		t.Error(picture)
	}
}

// Nodes that get no pods are not free.
func TestCordonedNodesAreNotFree(t *testing.T) {
	s := scene(2, 0)
	for _, name := range []string{"node-7", "node-8", "node-9"} {
		s.Nodes[name] = s.Nodes["node-0"].DeepCopy()
		s.Nodes[name].Name = name
	}
	s.Nodes["node-8"].Spec.Unschedulable = true
	s.Store.Status.Isolations = []v1alpha1.IsolationStatus{{Node: "node-9"}}
	states := map[string]view.State{}
	for _, domain := range s.Domains() {
		for _, slot := range domain.Slots {
			states[slot.Node] = slot.State
		}
	}
	if states["node-7"] != view.StateFree || states["node-8"] != view.StateCordoned || states["node-9"] != view.StateIsolated {
		t.Errorf("%v", states)
	}
}
