package controller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// mostAside is how many nodes are drained at a time. With the dead and the isolated ones, fewer may be left than the largest Store needs:
// then some of its masters wait.
const mostAside = 2

func (s *simulation) node(name string) *corev1.Node {
	node, _ := s.api.objects[objectKey{kindOf[*corev1.Node](), name}].(*corev1.Node)
	return node
}

// aside are the nodes that are about to be emptied.
func (s *simulation) aside() []string {
	var names []string
	for _, node := range all[*corev1.Node](s.api.objects) {
		if nodeOf(node, false).Drained != "" {
			names = append(names, node.Name)
		}
	}
	return names
}

// isLeft says whether masters are to leave the node.
func (s *simulation) isLeft(name string) bool {
	return slices.Contains(s.aside(), name) || slices.Contains(s.isolatedNodes(), name)
}

// isIsolated says that it is, and that nothing else keeps pods from it.
func (s *simulation) isIsolated(name string) bool {
	node := s.node(name)
	isOtherwiseWell := node != nil && !slices.Contains(s.aside(), name) && !nodeOf(node, false).OutOfService
	return slices.Contains(s.isolatedNodes(), name) && isOtherwiseWell
}

// takesPods says whether a new pod of the Store may run there.
func (s *simulation) takesPods(name string) bool {
	node := s.node(name)
	return node != nil && !s.dead[name] && !s.isLeft(name) && !nodeOf(node, false).OutOfService
}

func (s *simulation) cordonNodeOf(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || len(s.aside()) >= mostAside {
		return
	}
	byKarpenter := s.chance(0.3)
	s.trace("%s is drained (by Karpenter: %v)", pod.Spec.NodeName, byKarpenter)
	edit(s.api, pod.Spec.NodeName, func(node *corev1.Node) {
		node.Spec.Unschedulable = !byKarpenter
		if byKarpenter {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule})
		}
	})
}

func (s *simulation) uncordon() {
	for _, name := range s.aside() {
		s.trace("%s is not drained any more", name)
		edit(s.api, name, func(node *corev1.Node) {
			node.Spec.Unschedulable = false
			isDrain := func(taint corev1.Taint) bool { return drainTaints[taint.Key] != "" }
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isDrain)
		})
	}
}

// isolateNodeOf is somebody's order.
func (s *simulation) isolateNodeOf(pod *corev1.Pod) {
	if s.isReplicated() && pod.Spec.NodeName != "" && len(s.isolatedNodes()) == 0 {
		s.trace("somebody isolates %s", pod.Spec.NodeName)
		s.api.put(&v1alpha1.StoreOperation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "isolate-" + pod.Spec.NodeName},
			Spec: v1alpha1.StoreOperationSpec{
				StoreRef: v1alpha1.StoreReference{Name: "sim"}, Type: v1alpha1.OperationIsolate,
				Isolate: &v1alpha1.IsolateOperation{Node: pod.Spec.NodeName},
			},
		})
	}
}

// isolatedNodes are those that StoreOperations isolate.
func (s *simulation) isolatedNodes() []string {
	var nodes []string
	for _, operation := range all[*v1alpha1.StoreOperation](s.api.objects) {
		if isolate := operation.Spec.Isolate; isolate != nil {
			nodes = append(nodes, isolate.Node)
		}
	}
	return nodes
}

// takeBackIsolations is somebody's who has repaired the nodes.
func (s *simulation) takeBackIsolations() {
	for _, operation := range all[*v1alpha1.StoreOperation](s.api.objects) {
		if operation.Spec.Isolate != nil {
			s.trace("%s is not isolated any more", operation.Spec.Isolate.Node)
			s.api.tellToEnd(operation)
		}
	}
}

// breakNodeOf: masters fail there again and again, from now on or no more.
func (s *simulation) breakNodeOf(pod *corev1.Pod) {
	if s.broken != "" {
		s.broken = ""
	} else if isMaster(pod) {
		s.broken = pod.Spec.NodeName
	}
	s.trace("masters fail again and again on %q", s.broken)
}

func (s *simulation) failOnBroken() {
	for _, pod := range s.pods() {
		if isMaster(pod) && s.broken != "" && pod.Spec.NodeName == s.broken && s.runs(pod) && s.chance(0.2) {
			s.trace("the process in %s fails", pod.Name)
			s.stop(pod, true)
		}
	}
}

// emptyOutOfService is what Kubernetes does where it was told that a node is off: pods are evicted, and removed if nobody answers there.
func (s *simulation) emptyOutOfService() {
	for _, pod := range s.pods() {
		node := s.node(pod.Spec.NodeName)
		if node == nil || !nodeOf(node, false).OutOfService {
			continue
		}
		s.api.tellToEnd(pod)
		if !s.dead[node.Name] {
			continue
		}
		edit(s.api, pod.Name, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
		if len(pod.Finalizers) == 0 {
			delete(s.api.objects, keyOf(pod))
		}
	}
}

// checkPatch holds what the operator writes to nodes against what it promises.
func (s *simulation) checkPatch(before, after client.Object) {
	node, isNode := after.(*corev1.Node)
	if isNode && nodeOf(node, false).OutOfService && before.GetAnnotations()[v1alpha1.AnnotationFencedBy] == "" {
		s.checkFence(node.Name)
	}
}

// checkFence: a node that does not answer, with which a member was lost that is dead, and no more of them than there are copies.
func (s *simulation) checkFence(name string) {
	if !s.dead[name] {
		s.violate("%s is fenced, and answers", name)
	}
	isRecorded := func(fence v1alpha1.FenceStatus) bool { return fence.Node == name }
	if !slices.ContainsFunc(s.store().Status.Fences, isRecorded) {
		s.violate("%s is fenced, and that is not on record", name)
	}
	fenced := 0
	for _, node := range all[*corev1.Node](s.api.objects) {
		if nodeOf(node, false).OutOfService && node.Name != name {
			fenced++
		}
	}
	if fenced >= int(s.store().Copies()) {
		s.violate("%s is fenced beside %d others", name, fenced)
	}
	for _, pod := range s.pods() {
		if pod.Spec.NodeName == name && isMaster(pod) && s.enlisted(memberName(pod)) == pod {
			s.violate("%s is fenced, and %s runs there", name, pod.Name)
		}
	}
}

// checkIsolation: one node by itself at a time, and only where all other masters are well.
func (s *simulation) checkIsolation(name string) {
	var others []string
	for _, isolation := range s.store().Status.Isolations {
		if isolation.Cause == v1alpha1.IsolatedFailures && slices.Contains(s.isolatedNodes(), isolation.Node) {
			others = append(others, isolation.Node)
		}
	}
	if len(others) > 0 {
		s.violate("%s is isolated beside %v", name, others)
	}
	claims := s.presentClaims()
	for _, pod := range s.pods() {
		claim := claims[memberName(pod)]
		isThere := pod.Spec.NodeName == name || claim != nil && claim.Annotations[annotationSelectedNode] == name // or waits for it
		if isMaster(pod) && !isThere && s.enlisted(memberName(pod)) == nil && pod.DeletionTimestamp == nil {
			s.violate("%s is isolated, and %s elsewhere is not up either", name, memberName(pod))
		}
	}
}

// leftovers are what the operator should have taken back.
func (s *simulation) leftovers() string {
	for _, node := range all[*corev1.Node](s.api.objects) {
		if nodeOf(node, false).OutOfService || node.Annotations[v1alpha1.AnnotationFencedBy] != "" {
			return node.Name + " is still fenced"
		}
	}
	for _, fence := range all[*v1alpha1.NodeFence](s.api.objects) {
		return fence.Name + " is still there"
	}
	return ""
}
