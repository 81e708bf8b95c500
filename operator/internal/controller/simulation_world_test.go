package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/resources"
)

const second = time.Second

// process is what really runs in a pod; the pod's status is what its kubelet has said of it.
type process struct {
	running bool
	// restarts counts those before it.
	restarts int
}

// cluster is the state of the store's coordinators, which outlives them.
type cluster struct {
	term    uint64
	leader  types.UID // the pod; empty while nobody leads
	members map[string]*memberState
	// tablets of dead members that are on their way to others, and for how many seconds copies are still being made anew.
	lost, short uint64
}

type memberState struct {
	instance string
	tablets  uint64
	isDead   bool // known to be
	draining bool
	copies   uint64 // that others still need
}

func (s *simulation) pods() []*corev1.Pod { return all[*corev1.Pod](s.api.objects) }

func (s *simulation) store() *v1alpha1.Store {
	stores := all[*v1alpha1.Store](s.api.objects)
	if len(stores) == 0 {
		return nil
	}
	return stores[0]
}

func (s *simulation) isReplicated() bool {
	return s.store() != nil && s.store().Spec.Replication.Factor > 0
}

func isMaster(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentMaster
}

func memberName(pod *corev1.Pod) string { return pod.Labels[v1alpha1.LabelMember] }

// runs says whether the pod's process does.
func (s *simulation) runs(pod *corev1.Pod) bool {
	p := s.processes[pod.UID]
	return p != nil && p.running && !s.dead[pod.Spec.NodeName]
}

func (s *simulation) instance(pod *corev1.Pod) string {
	return fmt.Sprintf("%s-%d", pod.UID, s.processes[pod.UID].restarts)
}

// enlisted is the pod whose process is the member that the coordinator knows; nil if that has ended.
func (s *simulation) enlisted(name string) *corev1.Pod {
	member := s.cluster.members[name]
	for _, pod := range s.pods() {
		if member != nil && memberName(pod) == name && s.runs(pod) && s.instance(pod) == member.instance {
			return pod
		}
	}
	return nil
}

func (s *simulation) lacksCopies() bool {
	return s.isReplicated() && (s.cluster.lost > 0 || s.cluster.short > 0)
}

// tick lets kubelets, the scheduler and processes go on for a second.
func (s *simulation) tick() {
	s.now = s.now.Add(second)
	for _, pod := range s.pods() {
		switch {
		case pod.Spec.NodeName == "":
			s.schedule(pod)
		case s.dead[pod.Spec.NodeName]:
		case pod.DeletionTimestamp != nil:
			delete(s.processes, pod.UID)
			delete(s.api.objects, keyOf(pod))
		case pod.Status.Phase != corev1.PodFailed:
			s.kubelet(pod)
		}
	}
	s.releaseClaims()
	s.elect()
	if s.cluster.leader != "" {
		s.recover()
		s.enlist()
	}
}

// schedule gives a pod the node of its volume, or one that no other master is on.
func (s *simulation) schedule(pod *corev1.Pod) {
	claim, hasClaim := s.api.objects[objectKey{kindOf[*corev1.PersistentVolumeClaim](), claimOf(pod)}].(*corev1.PersistentVolumeClaim)
	if claimOf(pod) != "" && (!hasClaim || claim.DeletionTimestamp != nil) {
		return
	}
	node := ""
	if hasClaim {
		node = claim.Annotations[annotationSelectedNode]
	}
	if node == "" {
		node = s.freeNode(pod)
	}
	if node == "" || s.dead[node] {
		return
	}
	edit(s.api, pod.Name, func(pod *corev1.Pod) { pod.Spec.NodeName = node })
	if hasClaim && isMaster(pod) && claim.Spec.VolumeName == "" {
		s.provision(claim.Name, node)
	}
}

func (s *simulation) freeNode(pod *corev1.Pod) string {
	taken := map[string]bool{}
	for _, other := range s.pods() {
		taken[other.Spec.NodeName] = taken[other.Spec.NodeName] || isMaster(other) && isMaster(pod)
	}
	for _, node := range all[*corev1.Node](s.api.objects) {
		if !s.dead[node.Name] && !taken[node.Name] {
			return node.Name
		}
	}
	return ""
}

// provision makes a local volume.
func (s *simulation) provision(claim, node string) {
	s.api.put(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "volume-of-" + claim},
		Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}}}},
		}}},
	})
	edit(s.api, claim, func(claim *corev1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, annotationSelectedNode, node)
		claim.Spec.VolumeName = "volume-of-" + claim.Name
	})
}

// kubelet starts the process if it does not run, and says so now or a second later.
func (s *simulation) kubelet(pod *corev1.Pod) {
	p := s.processes[pod.UID]
	switch {
	case p == nil:
		s.processes[pod.UID] = &process{running: true}
		return
	case !p.running:
		p.running = true
		p.restarts++
		return
	}
	isReady := s.cluster.leader == pod.UID
	if isMaster(pod) {
		isReady = s.enlisted(memberName(pod)) == pod
	}
	s.setStatus(pod.Name, isReady)
}

func (s *simulation) setStatus(name string, isReady bool) {
	ready := corev1.ConditionFalse
	if isReady {
		ready = corev1.ConditionTrue
	}
	edit(s.api, name, func(pod *corev1.Pod) {
		if pod.Status.PodIP == "" {
			pod.Status.PodIP = "ip of " + pod.Name
		}
		pod.Status.Phase = corev1.PodRunning
		if len(pod.Status.Conditions) == 0 || pod.Status.Conditions[0].Status != ready {
			pod.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(s.now)},
			}
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}
	})
}

// stop ends a pod's process; its kubelet says so at once, or the process is running again before it has.
func (s *simulation) stop(pod *corev1.Pod, isTold bool) {
	if p := s.processes[pod.UID]; p != nil {
		p.running = false
	}
	if s.cluster.leader == pod.UID {
		s.cluster.leader = ""
	}
	if !isTold {
		return
	}
	edit(s.api, pod.Name, func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{}}
		pod.Status.Conditions = nil
	})
}

// releaseClaims lets claims go that were told to and that no pod uses.
func (s *simulation) releaseClaims() {
	for _, claim := range all[*corev1.PersistentVolumeClaim](s.api.objects) {
		uses := func(pod *corev1.Pod) bool { return claimOf(pod) == claim.Name && !s.dead[pod.Spec.NodeName] }
		if claim.DeletionTimestamp != nil && !slices.ContainsFunc(s.pods(), uses) {
			delete(s.api.objects, keyOf(claim))
		}
	}
}

// elect has a coordinator lead that runs, if none does.
func (s *simulation) elect() {
	for _, pod := range s.pods() {
		if pod.UID == s.cluster.leader && s.runs(pod) {
			return
		}
	}
	s.cluster.leader = ""
	for _, pod := range s.pods() {
		if !isMaster(pod) && s.runs(pod) {
			s.cluster.leader = pod.UID
			s.cluster.term++
			return
		}
	}
}

// recover gives what dead processes held to others, a tablet a second, and has copies made anew.
func (s *simulation) recover() {
	if !s.isReplicated() {
		return
	}
	s.cluster.short -= min(s.cluster.short, 1)
	var alive *memberState
	for _, name := range slices.Sorted(maps.Keys(s.cluster.members)) {
		member := s.cluster.members[name]
		if s.enlisted(name) != nil {
			member.isDead = false
			if !member.draining || alive == nil {
				alive = member
			}
			continue
		}
		s.cluster.lost += member.tablets
		member.tablets = 0
		if !member.isDead {
			member.isDead, s.cluster.short = true, 3
		}
	}
	if alive != nil && s.cluster.lost > 0 {
		alive.tablets++
		s.cluster.lost--
	}
	for _, name := range slices.Sorted(maps.Keys(s.cluster.members)) {
		leaving := s.cluster.members[name]
		if !leaving.draining {
			continue
		}
		leaving.copies -= min(leaving.copies, 1) // also those of one that is dead: they are made anew elsewhere
		if alive != nil && alive != leaving && !alive.draining && leaving.tablets > 0 {
			leaving.tablets--
			alive.tablets++
		}
	}
}

func (s *simulation) enlist() {
	for _, pod := range s.pods() {
		if !isMaster(pod) || !s.runs(pod) || pod.DeletionTimestamp != nil || s.keptOut[string(pod.UID)] {
			continue
		}
		member := s.cluster.members[memberName(pod)]
		if member == nil {
			member = &memberState{}
			s.cluster.members[memberName(pod)] = member
		}
		if member.instance == s.instance(pod) {
			continue
		}
		if s.enlisted(memberName(pod)) != nil {
			continue // two pods of one member: checkCreate has said so
		}
		if s.isReplicated() { // what its predecessor held is recovered first
			s.cluster.lost, s.cluster.short = s.cluster.lost+member.tablets, 3
			member.tablets = 0
		}
		member.instance, member.isDead = s.instance(pod), false
	}
}

func (s *simulation) killNode(name string) {
	s.dead[name] = true
	edit(s.api, name, func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown })
	for _, pod := range s.pods() {
		if pod.Spec.NodeName == name {
			s.stop(pod, false)
			edit(s.api, pod.Name, func(pod *corev1.Pod) {
				for i := range pod.Status.Conditions {
					pod.Status.Conditions[i].Status = corev1.ConditionFalse
				}
			})
		}
	}
}

func (s *simulation) reviveNode(name string) {
	delete(s.dead, name)
	edit(s.api, name, func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionTrue })
}

// lostNodes are those that do not answer, and that a master that is to stay or its present volume is on.
func (s *simulation) lostNodes() int {
	stays := func(member string) bool {
		ordinal, _ := v1alpha1.MasterOrdinal("sim", member)
		return ordinal < int(s.store().Spec.Masters.Replicas)
	}
	lost := map[string]bool{}
	for member, claim := range s.presentClaims() {
		if node := claim.Annotations[annotationSelectedNode]; s.dead[node] && stays(member) {
			lost[node] = true
		}
	}
	for _, pod := range s.pods() {
		if isMaster(pod) && stays(memberName(pod)) && pod.DeletionTimestamp == nil && s.dead[pod.Spec.NodeName] {
			lost[pod.Spec.NodeName] = true
		}
	}
	return len(lost)
}

// presentClaims are the newest of each master.
func (s *simulation) presentClaims() map[string]*corev1.PersistentVolumeClaim {
	present, numbers := map[string]*corev1.PersistentVolumeClaim{}, map[string]int{}
	for _, claim := range all[*corev1.PersistentVolumeClaim](s.api.objects) {
		if member, number, ok := resources.ParseMasterClaim(claim.Name); ok && number > numbers[member] {
			present[member], numbers[member] = claim, number
		}
	}
	return present
}

// coordinatorOf is an admin.Client of the coordinator that has an IP, if one has.
type coordinatorOf struct {
	s  *simulation
	ip string
}

func (s *simulation) dial(ip string, _ int) (admin.Client, error) { return &coordinatorOf{s, ip}, nil }

func (c *coordinatorOf) Close() error { return nil }

// leads fails unless the process that was called leads, and answers.
func (c *coordinatorOf) leads() error {
	if c.s.now.Before(c.s.muteUntil) || c.s.chance(c.s.faults.coordinator) {
		return grpcstatus.Error(codes.DeadlineExceeded, "the coordinator does not answer")
	}
	for _, pod := range c.s.pods() {
		if pod.Status.PodIP == c.ip && pod.UID == c.s.cluster.leader && c.s.runs(pod) {
			return nil
		}
	}
	return grpcstatus.Error(codes.Unavailable, "nobody who leads is there")
}

func (c *coordinatorOf) Status(context.Context) (*adminv1.GetClusterStatusResponse, error) {
	if err := c.leads(); err != nil {
		return nil, err
	}
	s := c.s
	response := &adminv1.GetClusterStatusResponse{
		ClusterId: 1, BuildVersion: "simulated", StateKind: adminv1.StateKind_STATE_KIND_KUBERNETES,
		Leader: &adminv1.Leader{Term: s.cluster.term},
	}
	if s.store().Spec.Coordinator.State.Type == v1alpha1.StateVolume {
		response.StateKind = adminv1.StateKind_STATE_KIND_FILE
	}
	if s.cluster.lost > 0 {
		response.Recoveries = []*adminv1.Recovery{{ServerId: 1, Member: "somebody", TabletsLeft: s.cluster.lost}}
	}
	for i, name := range slices.Sorted(maps.Keys(s.cluster.members)) {
		response.Members = append(response.Members, s.report(name, uint64(i+1)))
		response.TableCount += s.cluster.members[name].tablets
	}
	return response, nil
}

func (s *simulation) report(name string, id uint64) *adminv1.Member {
	member := s.cluster.members[name]
	isUp := s.enlisted(name) != nil
	reported := &adminv1.Member{
		Name: name, Instance: member.instance, State: adminv1.MemberState_MEMBER_STATE_UNREACHABLE,
		Shards: []*adminv1.Shard{{
			ServerId: id, Connected: isUp, Serving: true, TabletCount: member.tablets, LogCapacityBytes: 1 << 30,
			Replicas: uint32(s.store().Spec.Replication.Factor), Segments: 10, SegmentsShort: s.cluster.short,
		}},
	}
	if isUp {
		reported.State = adminv1.MemberState_MEMBER_STATE_UP
	}
	if member.draining {
		reported.Draining = &adminv1.Draining{Drained: s.isDrained(member), Tablets: member.tablets, Copies: member.copies}
	}
	return reported
}

func (s *simulation) isDrained(member *memberState) bool {
	return member.draining && member.tablets == 0 && member.copies == 0 && s.cluster.lost == 0
}

// answer carries something out, and may lose the answer.
func (c *coordinatorOf) answer(do func() error) error {
	if err := c.leads(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	if c.s.chance(c.s.faults.coordinator) {
		return grpcstatus.Error(codes.DeadlineExceeded, "the answer was lost")
	}
	return nil
}

func (c *coordinatorOf) RemoveMember(_ context.Context, name, instance string) error {
	return c.answer(func() error {
		member := c.s.cluster.members[name]
		if member != nil && member.tablets > 0 {
			return &admin.RefusedError{Member: name, Message: fmt.Sprintf("%s owns %d tablets", name, member.tablets)}
		}
		c.s.trace("the coordinator lets %s go", name)
		c.s.checkRemove(name)
		if instance != "" {
			c.s.keptOut[instance] = true
		}
		if member != nil && !c.s.isDrained(member) && c.s.isReplicated() {
			c.s.cluster.short = 3
		}
		delete(c.s.cluster.members, name)
		return nil
	})
}

// SetSettings is not asked for: the simulated coordinator says of no setting that it is in force, as an older build does.
func (c *coordinatorOf) SetSettings(context.Context, *adminv1.Settings) error {
	return errors.New("no settings are known")
}

func (c *coordinatorOf) DrainMember(_ context.Context, name string) error {
	return c.answer(func() error {
		member := c.s.cluster.members[name]
		if member == nil {
			return grpcstatus.Error(codes.NotFound, "no such member")
		}
		for other, staying := range c.s.cluster.members {
			if other != name && !staying.draining {
				member.draining, member.copies = true, 3
				return nil
			}
		}
		return &admin.RefusedError{Member: name, Message: "nobody would stay but " + name}
	})
}

func (c *coordinatorOf) UndrainMember(_ context.Context, name string) error {
	return c.answer(func() error {
		if member := c.s.cluster.members[name]; member != nil {
			member.draining = false
		}
		return nil
	})
}

func (s *simulation) describe() string {
	var parts []string
	for _, pod := range s.pods() {
		parts = append(parts, fmt.Sprintf("%s on %q (%s, ends: %v, runs: %v)",
			pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.DeletionTimestamp != nil, s.runs(pod)))
	}
	for _, name := range slices.Sorted(maps.Keys(s.cluster.members)) {
		parts = append(parts, fmt.Sprintf("%s: %+v", name, *s.cluster.members[name]))
	}
	return fmt.Sprintf("dead nodes %v\n  %s", slices.Sorted(maps.Keys(s.dead)), strings.Join(parts, "\n  "))
}
