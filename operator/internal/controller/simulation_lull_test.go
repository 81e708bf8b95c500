package controller

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// lull is a long one between an operator's last look and the end of a master that holds something: it does not lead any more, and another
// one goes on meanwhile. False if there is none.
func (s *simulation) lull(by *simulatedOperator, object client.Object) bool {
	isSleeping := s.isToSleep(object)
	if !s.holds(object) && !isSleeping || s.isMeanwhile || !s.chance(s.faults.lull) {
		return false
	}
	s.counts[isLull]++
	s.trace("%s stands still before the end of %s", by.name, object.GetName())
	if s.former == nil {
		s.takeOver()
	}
	s.isMeanwhile = true
	defer func() { s.isMeanwhile = false }()
	if image := imageOf(object); image != "" && s.chance(0.5) {
		s.change(func(spec *v1alpha1.StoreSpec) { spec.Image = image }) // others are outdated, and this one is not any more
	}
	if isSleeping {
		s.hibernatedUntil = s.now // somebody wakes it up
	}
	for range 5 + s.random.IntN(40) {
		other := s.operator
		if other == by {
			other = s.former
		}
		if other == nil {
			break
		}
		s.trace("meanwhile, a reconcile by %s: %v", other.name, other.reconcile())
		s.tick()
		if len(s.ended) > 0 {
			break // the worst moment to go on
		}
		if s.chance(0.1) {
			s.strike()
		}
	}
	s.trace("%s goes on", by.name)
	return true
}

// lullBeforePod is a long one between an operator's last look and the call by which it makes a master's pod with ports: others have given
// addresses to pods when it arrives. False if there is none.
func (s *simulation) lullBeforePod(by *simulatedOperator, object client.Object) bool {
	pod, isPod := object.(*corev1.Pod)
	if !isPod || !isMaster(pod) || s.store() == nil || !s.store().Spec.HasPorts() || s.isMeanwhile || !s.chance(s.faults.latePod) {
		return false
	}
	s.counts[isLullBeforePod]++
	s.trace("%s stands still before it makes %s", by.name, pod.Name)
	by.isLate = true
	if s.former == nil {
		s.takeOver()
	}
	s.isMeanwhile = true
	defer func() { s.isMeanwhile = false }()
	for range 5 + s.random.IntN(20) {
		other := s.operator
		if other == by {
			other = s.former
		}
		if other == nil || s.store() == nil {
			break
		}
		s.trace("meanwhile, a reconcile by %s: %v", other.name, other.reconcile())
		s.tick()
		if s.chance(0.4) {
			s.strike()
		}
	}
	s.trace("%s goes on", by.name)
	return true
}

// imageOf is the one that a pod was made with.
func imageOf(object client.Object) string {
	pod, isPod := object.(*corev1.Pod)
	if !isPod || len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Image
}

// holds says whether an object is the pod of a process that ends with what it holds, and not by the order to sleep.
func (s *simulation) holds(object client.Object) bool {
	pod, isPod := object.(*corev1.Pod)
	store := s.store()
	return isPod && isMaster(pod) && s.isReplicated() && store.DeletionTimestamp == nil && store.Status.HibernatedSince == nil &&
		pod.DeletionTimestamp == nil && s.enlisted(memberName(pod)) == pod
}

// isToSleep says whether an object is a pod that is to end because the Store is hibernated.
func (s *simulation) isToSleep(object client.Object) bool {
	pod, isPod := object.(*corev1.Pod)
	store := s.store()
	return isPod && store.DeletionTimestamp == nil && store.Spec.Hibernated && store.Status.HibernatedSince != nil &&
		pod.DeletionTimestamp == nil
}

// checkAwake: no pod of a Store is ended for its sleep that is on record as awake.
func (s *simulation) checkAwake(wasToSleep bool, object client.Object) {
	store := s.store()
	if wasToSleep && store.DeletionTimestamp == nil && !store.Spec.Hibernated && store.Status.HibernatedSince == nil {
		s.violate("%s is ended, and the Store was woken up", object.GetName())
	}
}

// checkEndsAlone: of what operators end, one is away at a time, whatever each of them saw.
func (s *simulation) checkEndsAlone(by *simulatedOperator, object client.Object) {
	if !s.holds(object) {
		return
	}
	pod := object.(*corev1.Pod) //nolint:forcetypeassert // holds says so
	if s.hasJustBegun(by, pod) {
		return
	}
	name := memberName(pod)
	for other := range s.ended {
		if other != name && s.isAway(other) {
			s.violate("%s is ended, and %s was by an operator and is not back", object.GetName(), other)
		}
	}
	s.ended[name] = true
}
