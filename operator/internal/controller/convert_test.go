package controller

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

func waiting(reason, message string, last *corev1.ContainerStateTerminated) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name:                 v1alpha1.ComponentMaster,
		Image:                "store:1",
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		LastTerminationState: corev1.ContainerState{Terminated: last},
	}}}
}

// beside is the status of a pod with another container, which comes first.
func beside(status corev1.PodStatus, other corev1.ContainerStatus) corev1.PodStatus {
	status.ContainerStatuses = append([]corev1.ContainerStatus{other}, status.ContainerStatuses...)
	return status
}

// A sidecar's end is not the process's.
func TestCrashOfASidecar(t *testing.T) {
	at := metav1.NewTime(time.Unix(100, 0))
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at}}
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: "agent", LastTerminationState: ended}, {Name: v1alpha1.ComponentMaster},
	}}}
	pod.Labels = map[string]string{v1alpha1.LabelComponent: v1alpha1.ComponentMaster}
	if got := crashedAt(pod); !got.IsZero() {
		t.Errorf("the process counts as ended at %s", got)
	}
	pod.Status.ContainerStatuses[1].LastTerminationState = ended
	if got := crashedAt(pod); !got.Equal(at.Time) {
		t.Errorf("the process counts as ended at %s, not %s", got, at.Time)
	}
}

func TestProcessAndTrouble(t *testing.T) {
	for _, test := range []struct {
		name    string
		status  corev1.PodStatus
		process facts.Process
		trouble string
	}{
		{"new", corev1.PodStatus{}, facts.ProcessAbsent, ""},
		{"starting", waiting("ContainerCreating", "", nil), facts.ProcessAbsent, ""},
		{"no room", corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes",
		}}}, facts.ProcessAbsent, "Unschedulable: 0/3 nodes"},
		{
			"no image", waiting("ImagePullBackOff", strings.Repeat("long ", 100), nil), facts.ProcessAbsent,
			"image store:1 cannot be pulled: set spec.image, or the operator's storeImage, to an image of the store " +
				"(kubectl describe pod p)",
		},
		{
			"an image of something else", waiting("CrashLoopBackOff", "back-off 10s", &corev1.ContainerStateTerminated{
				ExitCode: 128, Reason: "StartError", Message: "failed to create containerd task: runc create failed: exec: \"server\"",
			}), facts.ProcessAbsent, "image store:1 has no program that can be started: set spec.image, or the " +
				"operator's storeImage, to " +
				"an image of the store (kubectl describe pod p)",
		},
		{"crash loop", waiting("CrashLoopBackOff", "back-off 10s", &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", Message: "first\nerror: no memory\n",
		}), facts.ProcessAbsent, "CrashLoopBackOff: exit code 1 (Error) error: no memory"},
		{"running", corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: v1alpha1.ComponentMaster, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}}, facts.ProcessRunning, ""},
		{"its sidecar runs, and it does not", beside(waiting("CrashLoopBackOff", "back-off 10s", nil), corev1.ContainerStatus{
			Name: "agent", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}), facts.ProcessAbsent, "CrashLoopBackOff: back-off 10s"},
		{"it runs, and its sidecar does not", beside(corev1.PodStatus{
			Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: v1alpha1.ComponentMaster, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		}, corev1.ContainerStatus{
			Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
		}), facts.ProcessRunning, ""},
		{"an init container fails before it", corev1.PodStatus{
			Phase: corev1.PodPending, ContainerStatuses: waiting("PodInitializing", "", nil).ContainerStatuses,
			InitContainerStatuses: []corev1.ContainerStatus{
				{Name: "first", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
				{Name: "second", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "no"},
				}},
			},
		}, facts.ProcessAbsent, "init container second: CrashLoopBackOff: no"},
		{
			"evicted",
			corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"},
			facts.ProcessEnded, "Evicted: low on memory",
		},
		{"failed", corev1.PodStatus{Phase: corev1.PodFailed}, facts.ProcessEnded, "Failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{Status: test.status}
			pod.Name, pod.Labels = "p", map[string]string{v1alpha1.LabelComponent: v1alpha1.ComponentMaster}
			if got := processOf(pod); got != test.process {
				t.Errorf("process is %d, not %d", got, test.process)
			}
			if got := troubleOf(pod); got != test.trouble {
				t.Errorf("trouble is %q, not %q", got, test.trouble)
			}
		})
	}
}

func TestClusterOf(t *testing.T) {
	cluster := clusterOf(&adminv1.GetClusterStatusResponse{
		ClusterId: 1, TableCount: 1 << 63, LossesDropped: 3, FormatVersion: 1, Upgrade: &adminv1.Upgrade{NewestFormat: 2},
		Members: []*adminv1.Member{
			{Name: "a", State: adminv1.MemberState_MEMBER_STATE_UP, Shards: []*adminv1.Shard{
				{ServerId: 1, TabletCount: 2, LogCapacityBytes: 10, LogLiveBytes: 5},
				{ServerId: 1<<32 | 2, TabletCount: 3, LogCapacityBytes: 10},
			}},
			{Name: "b", State: adminv1.MemberState_MEMBER_STATE_UNREACHABLE},
			// A state that this build does not know is not one that serves.
			{Name: "c", State: adminv1.MemberState(99)},
		},
		Losses: []*adminv1.Loss{{Member: "a", Tables: []string{"t", "u"}, TablesDropped: 5, ServerIds: []uint64{1 << 32}}},
	})
	if cluster.Tables != 1<<63-1 {
		t.Errorf("%d tables", cluster.Tables)
	}
	a := cluster.Members[0]
	if !a.Connected || a.Tablets != 5 || a.CapacityBytes != 20 || a.LiveBytes != 5 || a.ServerIDs[1] != "2.1" {
		t.Errorf("member is %+v", a)
	}
	if cluster.Members[1].Connected || cluster.Members[2].Connected {
		t.Errorf("members are %+v", cluster.Members)
	}
	if format := cluster.Format; format.Active != 1 || format.Newest != 2 || !format.CanBeFinalized() {
		t.Errorf("formats are %+v", format)
	}
	if loss := cluster.Losses[0]; loss.TableCount != 7 || loss.ServerIDs[0] != "0.1" {
		t.Errorf("loss is %+v", loss)
	}
}

// What is said of copies, summed over the shards of a member: the worst counts.
func TestClusterOfCopies(t *testing.T) {
	cluster := clusterOf(&adminv1.GetClusterStatusResponse{
		ClusterTimeNs: 90e9, StateKind: adminv1.StateKind_STATE_KIND_FILE,
		Members: []*adminv1.Member{
			{Name: "a", Domain: "rack-1", Shards: []*adminv1.Shard{
				{
					Replicas: 3, Segments: 10, SegmentsShort: 1, Serving: true,
					Backup: &adminv1.BackupStorage{Frames: 100, FramesFree: 40, FramesDamaged: 1, SegmentBytes: 8},
				},
				{
					Replicas: 2, Segments: 5, SegmentsShort: 2,
					Backup: &adminv1.BackupStorage{Frames: 100, FramesFree: 50, SegmentBytes: 8, RetiredReason: "disk full"},
				},
			}},
			{Name: "b", Shards: []*adminv1.Shard{{Serving: true}}},
		},
		Recoveries: []*adminv1.Recovery{
			{ServerId: 1<<32 | 2, Member: "c", StartedNs: 60e9, TabletsLeft: 4, WaitsFor: "x", Bytes: 5, PromisedMs: 6},
			{StartedNs: 91e9, MeasuredMs: 9},
		},
	})
	a := cluster.Members[0]
	if a.Copies != 2 || a.Segments != 15 || a.SegmentsShort != 3 || a.Serving || a.Domain != "rack-1" ||
		*a.Backup != (facts.Backup{Frames: 200, Free: 90, Damaged: 1, SegmentBytes: 8, Retired: "disk full"}) {
		t.Errorf("member is %+v, %+v", a, a.Backup)
	}
	if b := cluster.Members[1]; b.Copies != 0 || b.Backup != nil || !b.Serving {
		t.Errorf("member is %+v", b)
	}
	if cluster.State != v1alpha1.StateVolume {
		t.Errorf("state in %q", cluster.State)
	}
	want := facts.Recovery{
		ServerID: "2.1", Member: "c", Age: 30 * time.Second, TabletsLeft: 4, WaitsFor: "x", Bytes: 5, PromisedMs: 6,
	}
	if got := cluster.Recoveries; got[0] != want || got[1].Age != 0 || got[1].MeasuredMs != 9 {
		t.Errorf("recoveries are %+v", got)
	}
	if unknown := clusterOf(&adminv1.GetClusterStatusResponse{StateKind: 99}); unknown.State != "" {
		t.Errorf("a state that this build does not know is taken for %q", unknown.State)
	}
}

// A port of which a process does not know whether it has a link has not lost it, and a peer that answers is reached.
func TestPortsOfMembers(t *testing.T) {
	up, down := true, false
	member := memberOf(&adminv1.Member{Network: []*adminv1.NetworkPort{
		{Ip: "10.0.0.1", LinkUp: &up, Pings: []*adminv1.PeerPing{{Member: "b", RoundTripNs: 7_000}, {Member: "c"}}},
		{Ip: "10.1.0.1", LinkUp: &down},
		{Ip: "10.2.0.1"},
	}})
	want := []facts.Port{{IP: "10.0.0.1", Unreached: []string{"c"}}, {IP: "10.1.0.1", LinkDown: true}, {IP: "10.2.0.1"}}
	if !reflect.DeepEqual(member.Ports, want) {
		t.Errorf("%v, not %v", member.Ports, want)
	}
}
