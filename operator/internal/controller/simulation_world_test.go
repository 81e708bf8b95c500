package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

const second = time.Second

// process is what really runs in a pod; the pod's status is what its kubelet has said of it.
type process struct {
	running bool
	// restarts counts those before it, and crashedAt is when the last of them ended.
	restarts  int
	crashedAt time.Time
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
	return s.store() != nil && s.store().Copies() > 0
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
	return s.isReplicated() && (s.cluster.lost() > 0 || s.cluster.short > 0)
}

// tick lets kubelets, the scheduler and processes go on for a second.
func (s *simulation) tick() {
	s.now = s.now.Add(second)
	s.takeBackOrders()
	s.orderSplits()
	s.changeQuota()
	s.runBox()
	for name, since := range s.frozen {
		if s.now.Sub(since) >= notReadyAfter {
			s.callNotReady(name)
		}
	}
	s.emptyOutOfService()
	s.failOnBroken()
	for _, pod := range s.pods() {
		switch {
		case len(pod.Spec.SchedulingGates) > 0:
		case pod.Spec.NodeName == "" && s.hesitate(pod):
		case pod.Spec.NodeName == "":
			s.schedule(pod)
		case s.dead[pod.Spec.NodeName]:
		case pod.DeletionTimestamp != nil:
			delete(s.processes, pod.UID)
			s.endPod(pod)
		case pod.Status.Phase != corev1.PodFailed:
			s.kubelet(pod)
		}
	}
	s.releaseClaims()
	s.growVolumes()
	s.elect()
	if s.cluster.leader != "" {
		s.recover()
		s.enlist()
	}
	s.noteSight()
	maps.DeleteFunc(s.ended, func(member string, _ bool) bool { return !s.isAway(member) || s.cluster.members[member] == nil })
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
	isReturning := s.isIsolated(node) && !slices.Contains(resources.Avoided(pod), node)
	if isReturning && s.dead[node] || !isReturning && !s.takesPods(node) {
		return
	}
	edit(s.api, pod.Name, func(pod *corev1.Pod) { pod.Spec.NodeName = node })
	if hasClaim && isMaster(pod) && claim.Spec.VolumeName == "" {
		s.provision(claim.Name, s.nodeOfVolume(node))
	}
}

// nodeOfVolume is where a new claim's volume is: on its pod's node, or elsewhere, where one waits for the claim by name.
func (s *simulation) nodeOfVolume(ofPod string) string {
	if s.placing.Float64() >= s.faults.misplaced {
		return ofPod
	}
	for _, node := range all[*corev1.Node](s.api.objects) {
		if node.Name != ofPod && s.takesPods(node.Name) {
			s.counts[isMisplaced]++
			s.trace("a volume waits on %s, and the pod is placed on %s", node.Name, ofPod)
			return node.Name
		}
	}
	return ofPod
}

// canMount says whether the pod's volume can be used on its node.
func (s *simulation) canMount(pod *corev1.Pod) bool {
	claim, hasClaim := s.api.objects[objectKey{kindOf[*corev1.PersistentVolumeClaim](), claimOf(pod)}].(*corev1.PersistentVolumeClaim)
	return !hasClaim || !isMaster(pod) || claim.Annotations[annotationSelectedNode] == pod.Spec.NodeName
}

func (s *simulation) freeNode(pod *corev1.Pod) string {
	taken := map[string]bool{}
	for _, other := range s.pods() {
		taken[other.Spec.NodeName] = taken[other.Spec.NodeName] || isMaster(other) && isMaster(pod)
	}
	for _, node := range all[*corev1.Node](s.api.objects) {
		if s.takesPods(node.Name) && !taken[node.Name] {
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
		claim.Status.Capacity = claim.Spec.Resources.Requests.DeepCopy()
	})
}

// kubelet starts the process if it does not run, and says so now or a second later.
func (s *simulation) kubelet(pod *corev1.Pod) {
	p := s.processes[pod.UID]
	switch {
	case p == nil && !s.canMount(pod):
		return
	case p == nil:
		s.checkStart(pod)
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
		container := corev1.ContainerStatus{
			Name: resources.ContainerName(pod), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}
		if p := s.processes[pod.UID]; !p.crashedAt.IsZero() {
			container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(p.crashedAt)}
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{container}
	})
}

// stop ends a pod's process; its kubelet says so at once, or the process is running again before it has.
func (s *simulation) stop(pod *corev1.Pod, isTold bool) {
	if p := s.processes[pod.UID]; p != nil {
		p.running, p.crashedAt = false, s.now
	}
	if s.cluster.leader == pod.UID {
		s.cluster.leader = ""
	}
	if !isTold {
		return
	}
	edit(s.api, pod.Name, func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: resources.ContainerName(pod)}}
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

func (s *simulation) killNode(name string) {
	s.dead[name] = true
	for _, pod := range s.pods() {
		if pod.Spec.NodeName == name {
			s.stop(pod, false)
		}
	}
	if s.store().Spec.Recovery.Fencing.Type == v1alpha1.FencingBMC {
		s.trace("%s is called ready still", name)
		s.frozen[name] = s.now
		return
	}
	s.callNotReady(name)
}

// callNotReady is what Kubernetes does about a node that it has not heard for long enough.
func (s *simulation) callNotReady(name string) {
	delete(s.frozen, name)
	edit(s.api, name, func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionUnknown })
	for _, pod := range s.pods() {
		if pod.Spec.NodeName == name {
			edit(s.api, pod.Name, func(pod *corev1.Pod) {
				for i := range pod.Status.Conditions {
					pod.Status.Conditions[i].Status = corev1.ConditionFalse
				}
			})
		}
	}
}

func (s *simulation) reviveNode(name string) {
	if s.off[name] {
		return
	}
	delete(s.dead, name)
	delete(s.frozen, name)
	edit(s.api, name, func(node *corev1.Node) { node.Status.Conditions[0].Status = corev1.ConditionTrue })
}

// lostNodes are those that do not answer, and that a master or its present volume is on. A move waits for members that are to stay,
// whatever the operator has seen of their nodes, because their pods are young here. A node of a member that leaves, and has what others
// need, counts if the operator has seen that the node is lost.
func (s *simulation) lostNodes(by *simulatedOperator) int {
	lost := map[string]bool{}
	see := func(member, node string) {
		ordinal, _ := v1alpha1.MasterOrdinal("sim", member)
		isToStay := ordinal < int(s.store().Spec.Masters.Replicas)
		if s.dead[node] && (isToStay || s.isNeeded(member) && by.seesLost(node)) {
			lost[node] = true
		}
	}
	for member, claim := range s.presentClaims() {
		see(member, claim.Annotations[annotationSelectedNode])
	}
	for _, pod := range s.pods() {
		if isMaster(pod) && pod.DeletionTimestamp == nil {
			see(memberName(pod), pod.Spec.NodeName)
		}
	}
	return len(lost)
}

// isNeeded says whether the coordinator needs what a member has.
func (s *simulation) isNeeded(name string) bool {
	member := s.cluster.members[name]
	return member != nil && !s.isDrained(member)
}

// seesLost says whether its cache has that a node is lost.
func (o *simulatedOperator) seesLost(name string) bool {
	node := cachedNodes{o}.Node(name)
	return node != nil && nodeOf(node, false).Cause() != ""
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
