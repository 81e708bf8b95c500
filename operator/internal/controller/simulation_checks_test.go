package controller

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/record"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// noteRecorded is called when a status has been written.
func (s *simulation) noteRecorded() {
	status := &s.store().Status
	if status.HibernatedSince != nil {
		s.counts[isAsleep]++
	}
	s.checkSight()
}

// member is what is on record of a master: in its StoreMember, or in the Store, as an earlier operator has left it. Nil: nothing is.
func (s *simulation) member(name string) *v1alpha1.MemberStatus {
	store := s.joined()
	i := slices.IndexFunc(store.Status.Masters.Members, func(m v1alpha1.MemberStatus) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &store.Status.Masters.Members[i]
}

// joined is the Store with what its StoreMembers have.
func (s *simulation) joined() *v1alpha1.Store {
	store := s.store().DeepCopy()
	var members []v1alpha1.StoreMember
	for _, member := range all[*v1alpha1.StoreMember](s.api.objects) {
		members = append(members, *member)
	}
	record.Join(store, members)
	return store
}

// noteMade is called for each pod that is made.
func (s *simulation) noteMade(object client.Object) {
	if pod, isPod := object.(*corev1.Pod); isPod {
		number, _ := strconv.ParseInt(pod.Annotations[v1alpha1.AnnotationPodNumber], 10, 64) // else it is told of elsewhere
		s.made[memberName(pod)] = max(s.made[memberName(pod)], number)
	}
}

// checkCreate holds a pod or claim that the operator makes against what it promises.
func (s *simulation) checkCreate(by *simulatedOperator, object client.Object) {
	if claim, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
		s.checkMove(by, claim)
		return
	}
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return
	}
	number, err := strconv.ParseInt(pod.Annotations[v1alpha1.AnnotationPodNumber], 10, 64)
	if err != nil || number <= s.made[memberName(pod)] {
		s.violate("%s is number %d of its member, which has had %d", pod.Name, number, s.made[memberName(pod)])
	}
	if is := s.member(memberName(pod)); isMaster(pod) && (is == nil || is.PodNumber < number) {
		s.violate("%s is made before its number is on record: %+v", pod.Name, is)
	}
	if is := s.joined().Status.Coordinator.PodNumber; !isMaster(pod) && is < number {
		s.violate("%s is made before its number is on record: %d", pod.Name, is)
	}
	s.noteMade(pod)
	s.checkCopies(pod)
	for _, other := range s.pods() {
		if memberName(other) == memberName(pod) && other.DeletionTimestamp == nil && other.Status.Phase != corev1.PodFailed {
			s.violate("%s gets a second pod beside %s", memberName(pod), other.Name)
		}
	}
	if name := claimOf(pod); name != "" && s.api.objects[objectKey{kindOf[*corev1.PersistentVolumeClaim](), name}] == nil {
		s.violate("%s is made without its claim %s", pod.Name, name)
	}
}

// checkCopies: a master's pod is made with as many copies as were on record when it was planned; and that does not change while the spec
// says nothing.
func (s *simulation) checkCopies(pod *corev1.Pod) {
	inputs, err := resources.DecodeInputs(pod.Annotations[v1alpha1.AnnotationMadeFrom])
	if err != nil || inputs.Memory == nil || s.store().Spec.Replication.Factor != nil {
		return
	}
	copies := int32(0)
	if inputs.Replication != nil {
		copies = inputs.Replication.Factor
	}
	if decided := s.store().Status.Replication.Decided; decided == nil || decided.Factor != copies {
		s.violate("%s is made with %d copies, and on record is %+v", pod.Name, copies, decided)
	}
}

// checkStart holds a process that is started against what the operator promises of its pod.
func (s *simulation) checkStart(pod *corev1.Pod) {
	s.checkAddresses(pod)
	for _, other := range s.pods() {
		if memberName(other) == memberName(pod) && other.UID != pod.UID && other.DeletionTimestamp == nil && s.runs(other) {
			s.violate("%s is started beside %s, which is another one of %s", pod.Name, other.Name, memberName(pod))
		}
	}
}

// checkMove: a second claim is for a member whose node is lost, of which nothing is lost by that, and that is on record; or for one that
// the coordinator has let go, because its node is drained.
func (s *simulation) checkMove(by *simulatedOperator, claim *corev1.PersistentVolumeClaim) {
	name, number, isMasters := resources.ParseMasterClaim(claim.Name)
	if !isMasters || number < 2 {
		return
	}
	before := s.presentClaims()[name]
	if before == nil {
		return
	}
	node := before.Annotations[annotationSelectedNode]
	if !s.dead[node] && !s.isLeft(node) {
		s.violate("%s gets the claim %s, and its node %s is neither lost nor drained", name, claim.Name, node)
	}
	member := s.cluster.members[name]
	s.checkProof(name, node)
	if s.enlisted(name) != nil || member != nil && s.owned(name) > 0 {
		s.violate("%s gets the claim %s, and runs, or holds what nobody else does", name, claim.Name)
	}
	if member == nil && s.isLeft(node) {
		return // the coordinator has let it go: nobody needs what it had
	}
	if lost := s.lostNodes(by); lost > int(s.store().Copies()) {
		s.violate("%s gets the claim %s, and %d nodes are lost", name, claim.Name, lost)
	}
	is := s.member(name)
	if is == nil || is.Lost == nil || is.Lost.ProvenAt == nil || is.Lost.Node != before.Annotations[annotationSelectedNode] {
		s.violate("%s gets the claim %s, and why is not on record", name, claim.Name)
	}
	for other, at := range s.moved {
		node := ""
		if present := s.presentClaims()[other]; present != nil {
			node = present.Annotations[annotationSelectedNode]
		}
		wanted, _ := v1alpha1.MasterOrdinal("sim", other)
		if other != name && s.enlisted(other) == nil && !s.dead[node] && !s.isLeft(node) && s.now.Sub(at) < 5*time.Minute &&
			wanted < int(s.store().Spec.Masters.Replicas) {
			s.violate("%s moves while %s is on its way, and one may be", name, other)
		}
	}
	s.moved[name] = s.now
}

// checkDelete holds the end of a pod or claim by the operator against what it promises.
func (s *simulation) checkDelete(by *simulatedOperator, object client.Object) {
	if s.store() == nil || s.store().DeletionTimestamp != nil {
		return
	}
	switch object := object.(type) {
	case *v1alpha1.NodeFence:
		s.checkRelease(object)
	case *corev1.PersistentVolumeClaim:
		s.checkDrop(object)
	case *corev1.Pod:
		switch {
		case !s.runs(object) || object.DeletionTimestamp != nil:
		case s.store().Status.HibernatedSince != nil && s.store().Spec.Hibernated:
			s.checkSleeps(object)
		case isMaster(object):
			s.checkInQuota(by, object)
			s.checkMasterEnds(by, object)
		default:
			s.checkInQuota(by, object)
			s.checkCoordinatorEnds(by, object)
		}
	}
}

// checkDrop: what a member had before goes when it is up with another volume, and everything has its copies.
func (s *simulation) checkDrop(claim *corev1.PersistentVolumeClaim) {
	member, _, isMasters := resources.ParseMasterClaim(claim.Name)
	if up := s.enlisted(member); !isMasters || s.lacksCopies() || up == nil || claimOf(up) == claim.Name {
		s.violate("the claim %s is deleted, and may be needed", claim.Name)
	}
}

// checkSleeps: whoever is to sleep ends in order, coordinators after the masters, which tell them what they have written out.
func (s *simulation) checkSleeps(pod *corev1.Pod) {
	isAwake := func(other *corev1.Pod) bool {
		return isMaster(other) && s.runs(other) && s.enlisted(memberName(other)) == other
	}
	if !isMaster(pod) && slices.ContainsFunc(s.pods(), isAwake) {
		s.violate("%s is ended before the masters have", pod.Name)
	}
}

// checkMasterEnds is about one whose process runs.
func (s *simulation) checkMasterEnds(by *simulatedOperator, pod *corev1.Pod) {
	name := memberName(pod)
	if s.enlisted(name) != pod {
		return // it holds nothing
	}
	member := s.cluster.members[name]
	if !s.isReplicated() {
		if member.tablets > 0 {
			s.violate("%s is ended, and it holds %d tablets, of which there is one copy", pod.Name, member.tablets)
		}
		return
	}
	if s.hasJustBegun(by, pod) {
		return
	}
	s.checkReplaced(by, pod)
	if s.lacksCopies() {
		s.violate("%s is ended while something is short of copies", pod.Name)
	}
	for other := range s.cluster.members {
		if other != name && s.isAway(other) {
			s.violate("%s is ended while %s is away", pod.Name, other)
		}
	}
}

// hasJustBegun: the enlisted process in a pod holds no tablets, and is younger than the operator's look, which saw a pod without a process.
func (s *simulation) hasJustBegun(by *simulatedOperator, pod *corev1.Pod) bool {
	member := s.cluster.members[memberName(pod)]
	return member.tablets == 0 && !member.since.Before(by.reconcilingSince)
}

// isAway: also one that still runs, and was told to end.
func (s *simulation) isAway(member string) bool {
	pod := s.enlisted(member)
	return pod == nil || pod.DeletionTimestamp != nil
}

// checkCoordinatorEnds is about one that is known to run, and about what the operator saw of the others: a standby answers nobody, so that
// one whose node has just died is taken for one that could lead.
func (s *simulation) checkCoordinatorEnds(by *simulatedOperator, pod *corev1.Pod) {
	if processOf(pod) != facts.ProcessRunning {
		return
	}
	for _, other := range all[*corev1.Pod](by.cache.cache) {
		if other.UID != pod.UID && !isMaster(other) && other.DeletionTimestamp == nil && processOf(other) == facts.ProcessRunning {
			return
		}
	}
	if s.store().Spec.Coordinator.Replicas > 1 {
		s.violate("%s is ended, and no coordinator is left that could lead", pod.Name)
	}
}
