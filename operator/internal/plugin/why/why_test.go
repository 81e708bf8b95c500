package why_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
	"rcbox.dev/rcbox/operator/internal/plugin/why"
)

// styleless: no colours.
var styleless = view.Style{}

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// evidence of a master that runs and is ready.
func evidence() *why.Evidence {
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "box"}}
	store.Spec.Masters.Replicas = 3
	store.Spec.Coordinator.Replicas = 1
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "box-master-0-bcdfg", UID: "uid", Labels: map[string]string{
			v1alpha1.LabelComponent: v1alpha1.ComponentMaster, v1alpha1.LabelMember: "box-master-0",
		}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceCPU: resource.MustParse("2")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: v1alpha1.ComponentMaster, Image: "rcbox/store:1",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return &why.Evidence{
		Now: now, Store: store, Member: "box-master-0", Pod: pod, Nodes: map[string]*corev1.Node{"node-1": node},
		Claims:   map[string]*corev1.PersistentVolumeClaim{},
		Reported: &adminv1.Member{Name: "box-master-0", Instance: "uid/1", Shards: []*adminv1.Shard{{Connected: true, Serving: true}}},
	}
}

func unscheduled(e *why.Evidence, message string) {
	e.Pod.Spec.NodeName, e.Pod.Status.ContainerStatuses, e.Pod.Status.Phase = "", nil, corev1.PodPending
	e.Pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message,
	}}
}

func waits(e *why.Evidence, reason, message string) {
	e.Pod.Status.Conditions[0].Status = corev1.ConditionFalse
	waiting := &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	e.Pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: waiting}
}

func crashed(e *why.Evidence, state corev1.ContainerStateTerminated) {
	waits(e, "CrashLoopBackOff", "back-off 5m0s restarting failed container")
	state.FinishedAt = metav1.NewTime(now.Add(-20 * time.Second))
	e.Pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &state
	e.Pod.Status.ContainerStatuses[0].RestartCount = 7
}

func notReady(e *why.Evidence) { e.Pod.Status.Conditions[0].Status = corev1.ConditionFalse }

func warn(e *why.Evidence, reason, message string) {
	e.Events = append(e.Events, corev1.Event{
		Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(now.Add(-time.Minute)),
	})
}

func claim(e *why.Evidence, change func(*corev1.PersistentVolumeClaim)) {
	class := "local-path"
	c := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}}
	c.Status.Phase = corev1.ClaimBound
	change(c)
	e.Claims["box-master-0-copies"] = c
}

func TestExplain(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*why.Evidence)
		parts  []string
	}{
		{"all is well", func(*why.Evidence) {}, []string{"runs and is ready"}},
		{"outdated", func(e *why.Evidence) {
			e.Store.Status.Masters.Members = []v1alpha1.MemberStatus{
				{MemberFigures: v1alpha1.MemberFigures{Pod: e.Pod.Name, Pending: "memory: 1Gi -> 2Gi"}},
			}
		}, []string{"runs and is ready", "memory: 1Gi -> 2Gi"}},

		{"no room", func(e *why.Evidence) {
			unscheduled(e, "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 Insufficient cpu, 3 Insufficient memory. "+
				"no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.")
		}, []string{
			"No node takes pod box-master-0-bcdfg: 3 nodes, each has not enough memory left (it asks for 1Gi); 1 node has a taint",
			"1 node has not enough cpu left (it asks for 2)",
		}},
		{"a taint by name", func(e *why.Evidence) {
			unscheduled(e, "0/1 nodes are available: 1 node(s) had untolerated taint {dedicated: db}. preemption: no")
		}, []string{"placement.tolerations) {dedicated: db}"}},
		{"hugepages", func(e *why.Evidence) {
			unscheduled(e, "0/1 nodes are available: 1 Insufficient hugepages-2Mi.")
		}, []string{"not enough hugepages-2Mi left (it asks for some)"}},
		{"a fifth on four nodes", func(e *why.Evidence) {
			unscheduled(e, "0/4 nodes are available: 4 node(s) didn't match pod anti-affinity rules.")
		}, []string{"4 nodes, each has a master of this Store already"}},
		{"a local volume's node is away", func(e *why.Evidence) {
			claim(e, func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "node-2"}
			})
			unscheduled(e, "0/4 nodes are available: 1 node(s) were unschedulable, "+
				"3 node(s) didn't match PersistentVolume's node affinity.")
		}, []string{
			"3 nodes, each is not where its volume is (claim box-master-0-copies, made on node node-2)",
			"1 node is cordoned", "copied anew",
		}},
		{"labels", func(e *why.Evidence) {
			unscheduled(e, "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.")
		}, []string{"placement.nodeSelector"}},
		{"a text that nobody knows", func(e *why.Evidence) { unscheduled(e, "out of luck") }, []string{"has no node: out of luck"}},
		{"the scheduler is silent", func(e *why.Evidence) { unscheduled(e, "") }, []string{"has not said why"}},
		{"a claim without a volume", func(e *why.Evidence) {
			claim(e, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })
			unscheduled(e, "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
			warn(e, "ProvisioningFailed", `storageclass.storage.k8s.io "local-path" not found`)
		}, []string{"waits for a volume for claim box-master-0-copies", "local-path"}},
		{"a claim that is gone", func(e *why.Evidence) {
			e.Claims["box-master-0-copies"] = nil
			unscheduled(e, `persistentvolumeclaim "box-master-0-copies" not found`)
		}, []string{"which does not exist", "delete pod box-master-0-bcdfg"}},
		{"a claim that is being deleted", func(e *why.Evidence) {
			claim(e, func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} })
			unscheduled(e, "x")
		}, []string{"is being deleted"}},

		{"no such image", func(e *why.Evidence) {
			waits(e, "ImagePullBackOff", "Back-off pulling image")
			warn(e, "Failed", `Failed to pull image "rcbox/store:1": rpc error: code = NotFound: not found`)
		}, []string{"cannot get the image rcbox/store:1", "none of that name and tag"}},
		{"a private image", func(e *why.Evidence) {
			waits(e, "ErrImagePull", "failed to authorize: 401 Unauthorized")
		}, []string{"wants credentials"}},
		{"a volume that cannot be mounted", func(e *why.Evidence) {
			waits(e, "ContainerCreating", "")
			warn(e, "FailedMount", "MountVolume.SetUp failed: no such device")
		}, []string{"waits for its volume on node node-1", "no such device"}},
		{"it starts", func(e *why.Evidence) {
			waits(e, "ContainerCreating", "")
			e.Pod.CreationTimestamp = metav1.NewTime(now.Add(-3 * time.Second))
		}, []string{"is being started on node node-1, for 3s"}},
		{"a bad reference", func(e *why.Evidence) {
			waits(e, "CreateContainerConfigError", `secret "x" not found`)
		}, []string{"CreateContainerConfigError", `secret "x" not found`}},

		{"out of memory", func(e *why.Evidence) {
			crashed(e, corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137})
		}, []string{"killed for lack of memory (limit 1Gi)", "masters.memory", "7 times", "20s ago"}},
		{"it ends with an error", func(e *why.Evidence) {
			crashed(e, corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: "error: the end"})
			e.PreviousLog = `{"level":"INFO","message":"serving"}` + "\n" + `{"level":"ERROR","message":"another store's storage"}` + "\n" +
				`{"level":"INFO","message":"bye"}`
		}, []string{"ended with exit code 1: another store's storage", "logs --previous"}},
		{"only kubelet has its last words", func(e *why.Evidence) {
			crashed(e, corev1.ContainerStateTerminated{ExitCode: 2, Message: "first\nerror: unexpected argument\n"})
		}, []string{"exit code 2: error: unexpected argument"}},
		{"a signal", func(e *why.Evidence) { crashed(e, corev1.ContainerStateTerminated{ExitCode: 139}) }, []string{"signal 11"}},
		{"evicted", func(e *why.Evidence) {
			e.Pod.Status.Phase, e.Pod.Status.Reason = corev1.PodFailed, "Evicted"
			e.Pod.Status.Message = "The node was low on resource: memory."
		}, []string{"has ended (Evicted): The node was low"}},

		{"the coordinator refuses it", func(e *why.Evidence) {
			notReady(e)
			e.Reported = nil
			e.Log = `{"level":"WARN","message":"the coordinator refuses this process","error":"member was removed"}`
		}, []string{"does not know its member", "refuses this process: member was removed"}},
		{"another process has its place", func(e *why.Evidence) {
			notReady(e)
			e.Reported.Instance = "other/1"
		}, []string{"place of an older process"}},
		{"too few backups", func(e *why.Evidence) {
			notReady(e)
			e.Reported.Shards[0].Serving, e.Reported.Shards[0].Replicas, e.Reported.Shards[0].BackupsUsable = false, 2, 1
		}, []string{"it wants 2 copies of its log and has 1 backups"}},
		{"cut off", func(e *why.Evidence) {
			notReady(e)
			e.Reported.Shards[0].Connected = false
		}, []string{"has lost its connection"}},
		{"nobody can be asked", func(e *why.Evidence) {
			notReady(e)
			e.Reported, e.ClusterError = nil, "no coordinator runs"
		}, []string{"cannot be asked why: no coordinator runs"}},

		{"its node is away", func(e *why.Evidence) {
			e.Nodes["node-1"].Status.Conditions[0].Status = corev1.ConditionUnknown
			notReady(e)
		}, []string{"Node node-1 of pod box-master-0-bcdfg is not ready"}},
		{"it should have ended", func(e *why.Evidence) {
			e.Pod.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Minute)}
			e.Nodes["node-1"].Status.Conditions[0].Status = corev1.ConditionUnknown
		}, []string{"was told to end, but its node node-1 does not answer"}},
		{"it is ending", func(e *why.Evidence) {
			e.Pod.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Minute)}
		}, []string{"has until 12:01:00 UTC"}},

		{"a standby", func(e *why.Evidence) {
			e.Pod.Labels[v1alpha1.LabelComponent] = v1alpha1.ComponentCoordinator
			e.Store.Spec.Coordinator.Replicas = 2
			e.Store.Status.Coordinator.Ready, e.Store.Status.Coordinator.Pod = true, "box-coordinator-xyz"
			notReady(e)
		}, []string{"is a standby: it answers no client"}},
		{"a standby that is ready", func(e *why.Evidence) {
			e.Pod.Labels[v1alpha1.LabelComponent] = v1alpha1.ComponentCoordinator
			e.Store.Spec.Coordinator.Replicas = 2
			e.Store.Status.Coordinator.Ready, e.Store.Status.Coordinator.Pod = true, "box-coordinator-xyz"
		}, []string{"is a standby: it answers no client"}},
		{"a coordinator that must not lead", func(e *why.Evidence) {
			e.Pod.Labels[v1alpha1.LabelComponent] = v1alpha1.ComponentCoordinator
			e.Store.Status.Coordinator.StateTrouble = "StateRolledBack: older"
			notReady(e)
		}, []string{"does not lead: StateRolledBack"}},

		{"no pod, and no place", func(e *why.Evidence) {
			e.Pod, e.Store.Spec.Masters.Replicas = nil, 0
		}, []string{"masters.replicas is 0"}},
		{"no pod, and none can be made", func(e *why.Evidence) {
			e.Pod = nil
			e.Store.Status.Conditions = []metav1.Condition{{Reason: v1alpha1.ReasonApplyFailed, Message: "exceeded quota"}}
		}, []string{"the operator cannot make it: exceeded quota"}},
		{"no pod, its claim goes", func(e *why.Evidence) {
			e.Pod = nil
			claim(e, func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} })
		}, []string{"its claim box-master-0-copies is being deleted"}},
		{"no pod, it sleeps", func(e *why.Evidence) { e.Pod, e.Store.Spec.Hibernated = nil, true }, []string{"the Store sleeps"}},
		{"no pod, and nobody makes one", func(e *why.Evidence) { e.Pod, e.Store.Spec.Paused = nil, true }, []string{"spec.paused"}},
		{"lost with its node", func(e *why.Evidence) {
			e.Store.Status.Masters.Members = []v1alpha1.MemberStatus{
				{
					Name: e.Member,
					MemberRecord: v1alpha1.MemberRecord{Lost: &v1alpha1.LostStatus{
						Node: "node-1", Cause: v1alpha1.NodeNotReady, WaitsFor: "5m0s are not over",
					}},
				},
			}
			unscheduled(e, "x")
		}, []string{"lost with node node-1 (NotReady)", "5m0s are not over"}},
		{"no pod yet", func(e *why.Evidence) { e.Pod = nil }, []string{"has not made one yet", "whether the operator runs"}},
		{"somebody else's pod", func(e *why.Evidence) {
			e.Store, e.Pod.Labels, e.Reported = nil, nil, nil
			notReady(e)
			warn(e, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
		}, []string{"runs, but is not ready: Readiness probe failed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := evidence()
			test.change(e)
			finding := why.Explain(e)
			text := finding.Text(styleless)
			for _, part := range test.parts {
				if !strings.Contains(text, part) {
					t.Errorf("%q is not in\n%s", part, text)
				}
			}
			if strings.Count(finding.Sentence, "\n") > 0 || finding.Sentence == "" {
				t.Errorf("no sentence: %q", finding.Sentence)
			}
		})
	}
}

// Events are told where the finding does not have their text already, the newest of each reason.
func TestEventsAreDetails(t *testing.T) {
	e := evidence()
	notReady(e)
	warn(e, "Unhealthy", "older")
	warn(e, "Unhealthy", "newer")
	warn(e, "BackOff", "another")
	text := why.Explain(e).Text(styleless)
	if !strings.Contains(text, "newer") || !strings.Contains(text, "another") || strings.Contains(text, "older") {
		t.Error(text)
	}
}

// onPorts gives the Store's masters a port each.
func onPorts(e *why.Evidence) {
	e.Store.Spec.Network = v1alpha1.NetworkSpec{
		Provider:    v1alpha1.NetworkDevicePlugin,
		Attachments: []v1alpha1.NetworkAttachment{{NetworkAttachmentDefinition: "vf", ResourceName: "intel.com/rcbox"}},
	}
	requests := e.Pod.Spec.Containers[0].Resources.Requests
	requests["intel.com/rcbox"], requests["hugepages-2Mi"] = resource.MustParse("1"), resource.MustParse("256Mi")
}

func refused(e *why.Evidence, reason, message string) {
	onPorts(e)
	e.Pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}
}

// What ports can lack is said in a sentence, and that it is tried again.
func TestExplainPorts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*why.Evidence)
		parts  []string
	}{
		"no device": {func(e *why.Evidence) {
			refused(e, "UnexpectedAdmissionError", "Allocate failed due to requested number of devices unavailable for intel.com/rcbox. "+
				"Requested: 1, Available: 0, which is unexpected")
			e.Store.Status.Masters.Members = []v1alpha1.MemberStatus{
				{
					Name:         "box-master-0",
					MemberRecord: v1alpha1.MemberRecord{Refusals: &v1alpha1.RefusalStatus{Count: 4, Since: metav1.NewTime(now)}},
				},
			}
		}, []string{
			"Node node-1 did not admit pod box-master-0-bcdfg: it has no free port to hand out", "up to 5 minutes",
			"4 pods of box-master-0 in a row were refused since 2026-11-22 12:00:00 UTC",
		}},
		"unhealthy": {func(e *why.Evidence) {
			refused(e, "UnexpectedAdmissionError", "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices")
		}, []string{"says that no port there is healthy"}},
		"NUMA": {func(e *why.Evidence) {
			refused(e, "TopologyAffinityError", "Resources cannot be allocated with Topology locality")
		}, []string{"no NUMA node of it has enough free CPUs, memory, huge pages and a port together"}},
		"hyper-threads": {func(e *why.Evidence) {
			refused(e, "SMTAlignmentError", "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2")
		}, []string{"masters.cores is no multiple"}},
		"huge pages by now": {func(e *why.Evidence) {
			refused(e, "OutOfhugepages-2Mi", "Pod was rejected: Node didn't have enough resource: hugepages-2Mi")
		}, []string{"it has no huge pages left"}},
		"CPUs by now": {func(e *why.Evidence) {
			refused(e, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu")
		}, []string{"it has not enough cpu left by now"}},
		"no node has a port": {func(e *why.Evidence) {
			onPorts(e)
			unscheduled(e, "0/3 nodes are available: 2 Insufficient intel.com/rcbox, 1 Insufficient hugepages-2Mi.")
		}, []string{
			"2 nodes, each has no free port (intel.com/rcbox: it asks for 1; is the device plugin up there",
			"1 node has not enough huge pages left (hugepages-2Mi: it asks for 256Mi; reserve them before the kubelet starts)",
		}},
		"no address": {func(e *why.Evidence) {
			onPorts(e)
			e.Pod = nil
			e.Store.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionNetworkReady, Reason: v1alpha1.ReasonAddressesExhausted,
				Message: "box-master-0 waits for a free address",
			}}
		}, []string{"box-master-0 has no pod: box-master-0 waits for a free address"}},
		"its former pod may send": {func(e *why.Evidence) {
			e.Pod.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Second)}
			e.Pod.Finalizers = []string{v1alpha1.FinalizerAddresses}
			e.Pod.Annotations = map[string]string{v1alpha1.AnnotationAddresses: "10.0.0.1"}
		}, []string{"It stays until it is known that it sends nothing any more under its addresses 10.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := evidence()
			test.change(e)
			text := why.Explain(e).Text(view.Style{})
			for _, part := range test.parts {
				if !strings.Contains(text, part) {
					t.Errorf("%q is not in\n%s", part, text)
				}
			}
		})
	}
}

// A pod whose process is ready, and whose sidecar is not, is not said to wait for the coordinator.
func TestSidecars(t *testing.T) {
	e := evidence()
	e.Pod.Status.Conditions[0].Status = corev1.ConditionFalse
	e.Pod.Status.ContainerStatuses[0].Ready = true
	agent := corev1.ContainerStatus{
		Name: "agent", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	}
	e.Pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{agent}, e.Pod.Status.ContainerStatuses...)
	got := why.Explain(e).Text(styleless)
	for _, want := range []string{
		"The process of pod box-master-0-bcdfg is ready, and its container agent is not: ImagePullBackOff", "-c agent",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it says %q, and not %q", got, want)
		}
	}
	e.Pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	if got := why.Explain(e).Text(styleless); strings.Contains(got, "agent") {
		t.Errorf("the process does not run, and it says %q", got)
	}
}
