// Package view makes text of what is seen of a Store. It is pure: everything that it shows is in a Snapshot, and the same Snapshot
// always gives the same text.
package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Snapshot is one look at a Store.
type Snapshot struct {
	Now   time.Time
	Store *v1alpha1.Store
	// LookedAt is when the operator looked at the Store last; zero if nobody knows.
	LookedAt time.Time
	// Pods of the Store.
	Pods []corev1.Pod
	// Nodes by name; nil where they may not be read.
	Nodes map[string]*corev1.Node
	// Cluster is the coordinator's answer; nil when there was none.
	Cluster *adminv1.GetClusterStatusResponse
	// ClusterError says why there was none.
	ClusterError string
	// LeaderPod is the name of the pod that answered.
	LeaderPod string
	// Tables, where they were asked for.
	Tables []*adminv1.Table
	// PodCPU is what pods use, in thousandths of a core, by the pod's name; nil where nobody measures.
	PodCPU map[string]int64
}

// State is what a member is at the moment.
type State string

// States of members, and of nodes that have none.
const (
	StateUp         State = "up"
	StateDraining   State = "draining"
	StateDrained    State = "drained"
	StateRecovering State = "recovering"
	StateDown       State = "down"
	StateStarting   State = "starting"
	StatePending    State = "pending"
	StateNoPod      State = "no pod"
	StateAsleep     State = "asleep"
	StateUnknown    State = "unknown"
	StateFree       State = "free"
	StateNotReady   State = "not ready"
	StateCordoned   State = "cordoned"
	StateIsolated   State = "isolated"
)

// Member is one master, or a node that could have one.
type Member struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Domain string `json:"domain"`
	Node   string `json:"node"`
	Pod    string `json:"pod"`

	ServerIDs     []string `json:"serverIds"`
	Tablets       uint64   `json:"tablets"`
	Objects       uint64   `json:"objects"`
	LiveBytes     uint64   `json:"liveBytes"`
	CapacityBytes uint64   `json:"capacityBytes"`
	SegmentsShort uint64   `json:"segmentsShort"`
	// Its room for copies of what others hold; 0 without any.
	BackupBytes     uint64 `json:"backupBytes"`
	BackupUsedBytes uint64 `json:"backupUsedBytes"`
	// Note says what is the matter with it; empty while all is well.
	Note string `json:"note"`
}

// Members are the Store's masters: those that should be there, have a pod, or are known to the coordinator; by number.
func (s *Snapshot) Members() []Member {
	ordinals := map[int]bool{}
	for ordinal := range int(s.Store.Spec.Masters.Replicas) {
		ordinals[ordinal] = true
	}
	add := func(name string) {
		if ordinal, ok := v1alpha1.MasterOrdinal(s.Store.Name, name); ok {
			ordinals[ordinal] = true
		}
	}
	for i := range s.Store.Status.Masters.Members {
		add(s.Store.Status.Masters.Members[i].Name)
	}
	for i := range s.Pods {
		add(s.Pods[i].Labels[v1alpha1.LabelMember])
	}
	for _, member := range s.Cluster.GetMembers() {
		add(member.GetName())
	}
	members := make([]Member, 0, len(ordinals))
	sorted := make([]int, 0, len(ordinals))
	for ordinal := range ordinals {
		sorted = append(sorted, ordinal)
	}
	slices.Sort(sorted)
	sources := s.sources()
	for _, ordinal := range sorted {
		members = append(members, sources.member(v1alpha1.MasterMember(s.Store.Name, ordinal)))
	}
	return members
}

// sources are what is known of members, by name.
type sources struct {
	*Snapshot
	reported   map[string]*adminv1.Member
	recorded   map[string]*v1alpha1.MemberStatus
	pods       map[string]*corev1.Pod
	recovering map[string]bool
}

func (s *Snapshot) sources() sources {
	from := sources{
		Snapshot: s, reported: map[string]*adminv1.Member{}, recorded: map[string]*v1alpha1.MemberStatus{},
		pods: map[string]*corev1.Pod{}, recovering: map[string]bool{},
	}
	for _, member := range s.Cluster.GetMembers() {
		from.reported[member.GetName()] = member
	}
	for i := range s.Store.Status.Masters.Members {
		member := &s.Store.Status.Masters.Members[i]
		from.recorded[member.Name] = member
	}
	for i := range s.Pods {
		pod := &s.Pods[i]
		name := pod.Labels[v1alpha1.LabelMember]
		if better(pod, from.pods[name], from.reported[name]) {
			from.pods[name] = pod
		}
	}
	for _, recovery := range s.Cluster.GetRecoveries() {
		if recovery.GetTabletsLeft() > 0 {
			from.recovering[recovery.GetMember()] = true
		}
	}
	return from
}

// better says which of two pods of a member counts: the one whose process has enlisted, else one that was not told to end.
func better(pod, than *corev1.Pod, reported *adminv1.Member) bool {
	switch {
	case than == nil:
		return true
	case runs(reported, pod) != runs(reported, than):
		return runs(reported, pod)
	default:
		return pod.DeletionTimestamp == nil && than.DeletionTimestamp != nil
	}
}

// runs says whether the process that the coordinator knows is the pod's.
func runs(member *adminv1.Member, pod *corev1.Pod) bool {
	return member != nil && pod != nil && pod.UID != "" && strings.HasPrefix(member.GetInstance(), string(pod.UID))
}

func (s sources) member(name string) Member {
	m := Member{Name: name, ServerIDs: []string{}}
	reported, recorded, pod := s.reported[name], s.recorded[name], s.pods[name]
	if recorded != nil {
		m.fromStatus(recorded)
	}
	if reported != nil {
		m.fromReport(reported)
	}
	if pod != nil {
		m.Pod = pod.Name
		m.Node = cmp.Or(pod.Spec.NodeName, m.Node)
	}
	m.Domain = s.domain(&m)
	m.State, m.Note = s.state(&m, reported, recorded, pod)
	switch {
	case s.Store.Spec.Hibernated && pod == nil:
		m.State, m.Note = StateAsleep, ""
	case recorded != nil && recorded.Lost != nil && m.State != StateUp:
		m.Note = LostText(recorded.Lost)
	}
	return m
}

// fromStatus takes what the operator has seen last; bytes in use are whole percents there.
func (m *Member) fromStatus(recorded *v1alpha1.MemberStatus) {
	const percent = 100
	m.Node, m.Domain, m.ServerIDs = recorded.Node, recorded.Domain, append(m.ServerIDs, recorded.ServerIDs...)
	m.Tablets, m.CapacityBytes = uint64(max(recorded.Tablets, 0)), uint64(max(recorded.CapacityBytes, 0))
	m.LiveBytes = m.CapacityBytes / percent * uint64(max(recorded.UsedPercent, 0))
	m.SegmentsShort = uint64(max(recorded.SegmentsShort, 0))
}

func (m *Member) fromReport(reported *adminv1.Member) {
	*m = Member{Name: m.Name, Node: m.Node, Domain: cmp.Or(reported.GetDomain(), m.Domain), ServerIDs: []string{}}
	for _, shard := range reported.GetShards() {
		m.ServerIDs = append(m.ServerIDs, serverID(shard.GetServerId()))
		m.Tablets += shard.GetTabletCount()
		m.Objects += shard.GetObjectCount()
		m.LiveBytes += shard.GetLogLiveBytes()
		m.CapacityBytes += shard.GetLogCapacityBytes()
		m.SegmentsShort += shard.GetSegmentsShort()
		if backup := shard.GetBackup(); backup != nil {
			segment := uint64(backup.GetSegmentBytes())
			m.BackupBytes += uint64(backup.GetFrames()) * segment
			m.BackupUsedBytes += uint64(backup.GetFrames()-min(backup.GetFramesFree(), backup.GetFrames())) * segment
		}
	}
}

// domain is what fails together with the member: by its node's label, else by what its process said, else its node.
func (s sources) domain(m *Member) string {
	label := cmp.Or(s.Store.Spec.Placement.FailureDomain, corev1.LabelHostname)
	if label == corev1.LabelHostname {
		return m.Node
	}
	if node := s.Nodes[m.Node]; node != nil && node.Labels[label] != "" {
		return node.Labels[label]
	}
	return m.Domain
}

func (s sources) state(
	m *Member, reported *adminv1.Member, recorded *v1alpha1.MemberStatus, pod *corev1.Pod,
) (state State, note string) {
	if s.Cluster == nil {
		state, note = stateUnasked(recorded, pod)
		if state == StateUp && s.isStale() {
			return StateUnknown, "it was up when the operator looked, " + s.lookAge() + " ago"
		}
		return state, note
	}
	if reported.GetState() == adminv1.MemberState_MEMBER_STATE_UP && (pod == nil || runs(reported, pod)) {
		return stateUp(m, reported, recorded)
	}
	if reported.GetContact() == adminv1.MemberContact_MEMBER_CONTACT_NOT_YET && s.isNewLeader() && runs(reported, pod) {
		return StateUnknown, "the coordinator has just begun to lead, and has yet to hear from it"
	}
	trouble := PodTrouble(pod)
	switch {
	case s.recovering[m.Name]:
		return StateRecovering, cmp.Or(trouble, "what it held comes back on others")
	case pod == nil && reported == nil:
		return StateNoPod, "it has no pod yet"
	case pod == nil:
		return StateDown, "it has no pod"
	case pod.Spec.NodeName == "":
		return StatePending, cmp.Or(trouble, "it has no node yet")
	case reported != nil && reported.GetState() != adminv1.MemberState_MEMBER_STATE_UP && (trouble != "" || runs(reported, pod)):
		return StateDown, cmp.Or(trouble, "the coordinator has no connection to it")
	case trouble != "":
		return StateDown, trouble
	default:
		return StateStarting, "its process has not enlisted yet"
	}
}

func stateUp(m *Member, reported *adminv1.Member, recorded *v1alpha1.MemberStatus) (state State, note string) {
	draining := reported.GetDraining()
	switch {
	case draining.GetDrained():
		return StateDrained, "nobody needs anything that it has"
	case draining != nil:
		return StateDraining, drainingText(draining)
	}
	for _, shard := range reported.GetShards() {
		if !shard.GetServing() {
			return StateStarting, "server " + serverID(shard.GetServerId()) + " does not answer requests yet"
		}
		if retired := shard.GetBackup().GetRetiredReason(); retired != "" {
			note = "takes no more copies: " + retired
		}
		if stalled := shard.GetBackup().GetStalledReason(); stalled != "" && note == "" {
			note = "its storage has stopped: " + stalled
		}
		if damaged := shard.GetBackup().GetFramesDamaged(); damaged > 0 && note == "" {
			note = count(uint64(damaged), "frame") + " with damaged copies"
		}
	}
	if note == "" && m.SegmentsShort > 0 {
		note = count(m.SegmentsShort, "piece") + " of its log short of copies"
	}
	if recorded != nil && recorded.Pending != "" && note == "" {
		note = "outdated: " + recorded.Pending
	}
	return StateUp, note
}

// stateUnasked is what can be said without the coordinator: what the operator saw last, if that was not long ago.
func stateUnasked(recorded *v1alpha1.MemberStatus, pod *corev1.Pod) (state State, note string) {
	trouble := PodTrouble(pod)
	switch {
	case recorded == nil && pod == nil:
		return StateNoPod, "it has no pod yet"
	case pod != nil && pod.Spec.NodeName == "":
		return StatePending, trouble
	case trouble != "":
		return StateDown, trouble
	case recorded == nil:
		return StateStarting, ""
	}
	note = recorded.Message
	switch recorded.State {
	case v1alpha1.MemberUp:
		return StateUp, note
	case v1alpha1.MemberUnreachable:
		return StateDown, note
	case v1alpha1.MemberStarting:
		return StateStarting, note
	default:
		return StateUnknown, note
	}
}

// LostText says what becomes of a member that was lost with its node.
func LostText(lost *v1alpha1.LostStatus) string {
	text := fmt.Sprintf("lost with node %s (%s)", lost.Node, lost.Cause)
	if lost.WaitsFor != "" {
		return text + "; its move to another node waits for " + lost.WaitsFor
	}
	return text + "; it moves to another"
}

// PodTrouble says in Kubernetes' words why a pod does not run; empty where it does, or is on its way.
func PodTrouble(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	if pod.DeletionTimestamp != nil {
		return "its pod was told to end"
	}
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.Reason + ": " + condition.Message
		}
	}
	if process := resources.ProcessStatus(pod); process != nil {
		waiting := process.State.Waiting
		if waiting != nil && waiting.Reason != "" && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
			return waiting.Reason
		}
	}
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return "its pod has ended: " + cmp.Or(pod.Status.Reason, string(pod.Status.Phase))
	}
	return ""
}
