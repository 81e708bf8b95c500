package controller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// calm: nothing happens any more, and the Store comes to what its spec says; then it is deleted, and goes.
func (s *simulation) calm() {
	s.trace("from here on, nothing happens any more")
	s.faults, s.muteUntil, s.former, s.broken, s.rigid, s.isCalm = faults{}, s.now, nil, "", false, true
	for node := range s.dead {
		s.reviveNode(node)
	}
	s.bringNodesBack()
	s.change(func(spec *v1alpha1.StoreSpec) {
		spec.Paused, spec.Hibernated = false, false
		if spec.Recovery.RescheduleAfter == never {
			spec.Recovery.RescheduleAfter = "10s" // a node that is drained may be what a member waits for
		}
	})
	s.dropTables() // so that nothing that was made from an older spec has to stay
	if !s.isReplicated() && s.store().Spec.Coordinator.Replicas == 1 {
		s.endOutdatedCoordinator()
	}
	// Longer than a stranded process is waited for.
	quietSince, lines := s.now, len(s.lines)
	isQuiet := func() bool {
		// An operator may isolate a node after the last event, too: for what has happened before.
		if s.lacksNodes() {
			s.uncordon()
			s.takeBackIsolations()
		}
		if len(s.lines) != lines || !s.isAsSpecified() {
			quietSince, lines = s.now, len(s.lines)
		}
		return s.now.Sub(quietSince) >= 10*second
	}
	if !s.until(15*time.Minute, isQuiet) {
		s.violate("the Store does not come to what its spec says: %+v", s.store().Status.Conditions)
		return
	}
	if len(s.violations) > 0 {
		return
	}
	if differs := s.notAsAsked(); differs != "" {
		s.violate("the Store is said to be as specified: %s", differs)
	}
	if open := s.openSplit(); open != "" {
		s.violate("%s has not ended", open)
	}
	if open := s.openRestart(); open != "" {
		s.violate("%s has not ended", open)
	}
	if left := s.leftovers(); left != "" {
		s.violate("%s", left)
	}
	if s.isReplicated() && s.chance(0.5) && !s.sleepsAndWakes(isQuiet) {
		return
	}
	claims := len(all[*corev1.PersistentVolumeClaim](s.api.objects))
	s.trace("the Store is deleted")
	edit(s.api, "sim", func(store *v1alpha1.Store) { store.DeletionTimestamp = &metav1.Time{Time: s.now} })
	if !s.until(2*time.Minute, func() bool { return s.store() == nil }) {
		s.violate("the Store does not go")
	}
	if kept := len(all[*corev1.PersistentVolumeClaim](s.api.objects)); kept < claims {
		s.violate("of %d claims %d are left, and reclaimPolicy is Retain", claims, kept)
	}
	if live := slices.DeleteFunc(s.pods(), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }); len(live) > 0 {
		s.violate("the Store has gone before its pods")
	}
}

// bringNodesBack: a part of the Stores has to do without the drained nodes and the isolated ones, and with machines that fences keep off.
// Not so if a master has no node left to run on: then a member waits until nodes are back, which is right.
func (s *simulation) bringNodesBack() {
	if s.chance(0.5) || s.lacksNodes() {
		s.uncordon()
	}
	if s.lacksNodes() {
		s.takeBackIsolations()
	}
}

// lacksNodes: each master of this Store runs on a node of its own.
func (s *simulation) lacksNodes() bool {
	count := 0
	for _, node := range all[*corev1.Node](s.api.objects) {
		if s.takesPods(node.Name) {
			count++
		}
	}
	return count < int(s.store().Spec.Masters.Replicas)
}

// sleepsAndWakes: with an operator that ends now and then, all pods go, all volumes stay, and then it is as before.
func (s *simulation) sleepsAndWakes(isQuiet func() bool) bool {
	claims := len(all[*corev1.PersistentVolumeClaim](s.api.objects))
	s.makeTablets()
	s.faults.kill, s.hibernatedUntil = 0.05, s.now.Add(time.Hour)
	s.change(func(spec *v1alpha1.StoreSpec) { spec.Hibernated = true })
	if !s.until(5*time.Minute, func() bool { return len(s.pods()) == 0 }) {
		s.violate("the Store does not go to sleep: %+v", s.store().Status.Conditions)
	}
	s.change(func(spec *v1alpha1.StoreSpec) { spec.Hibernated = false })
	s.until(10*second, func() bool { return false })
	s.faults.kill = 0
	if !s.until(15*time.Minute, isQuiet) {
		s.violate("the Store does not wake up: %+v", s.store().Status.Conditions)
	}
	if kept := len(all[*corev1.PersistentVolumeClaim](s.api.objects)); kept < claims {
		s.violate("of %d claims %d have outlived the Store's sleep", claims, kept)
	}
	return len(s.violations) == 0
}

// endOutdatedCoordinator: one that is alone is the user's to restart, and the operator tells him to.
func (s *simulation) endOutdatedCoordinator() {
	isSaid := func() bool {
		progressing := meta.FindStatusCondition(s.store().Status.Conditions, v1alpha1.ConditionProgressing)
		return s.isAsSpecified() || progressing != nil && progressing.Reason == v1alpha1.ReasonRestartPending
	}
	if !s.until(15*time.Minute, isSaid) {
		return // what is missing is said of the Store
	}
	for _, pod := range s.pods() {
		if !isMaster(pod) {
			s.trace("somebody deletes %s", pod.Name)
			s.api.tellToEnd(pod)
		}
	}
}

func (s *simulation) until(within time.Duration, holds func() bool) bool {
	for end := s.now.Add(within); s.now.Before(end); {
		if err := s.operator.reconcile(); err != nil {
			s.trace("reconcile: %v", err)
		}
		s.tick()
		if len(s.violations) > 0 || holds() {
			return true
		}
	}
	return false
}

func (s *simulation) isAsSpecified() bool {
	store := s.store()
	is := func(condition string, status metav1.ConditionStatus) bool {
		return meta.IsStatusConditionPresentAndEqual(store.Status.Conditions, condition, status)
	}
	return store.Status.ObservedGeneration == store.Generation && is(v1alpha1.ConditionAvailable, metav1.ConditionTrue) &&
		is(v1alpha1.ConditionProgressing, metav1.ConditionFalse) &&
		(!s.isReplicated() || is(v1alpha1.ConditionDataSafe, metav1.ConditionTrue)) &&
		store.Status.Masters.Ready == store.Spec.Masters.Replicas && store.Status.Masters.Outdated == 0
}
