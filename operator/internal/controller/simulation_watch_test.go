package controller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// deafen has the watch of pods of an operator stand still that has seen no live pod yet, or the last one end: it knows of none that is made
// from then on, while its other watches go on and another operator works. Until its watch goes on, the Store sleeps now and then.
func (s *simulation) deafen() {
	const sleeps, heals = 0.1, 0.02
	isDraw := func(of float64) bool { return s.watching.Float64() < of }
	store := s.store()
	if store == nil || s.faults.deaf == 0 {
		return
	}
	deaf := s.deaf()
	switch {
	case deaf != nil && isDraw(heals):
		s.trace("%s hears of pods again", deaf.name)
		deaf.isDeaf = false
	case deaf != nil && !store.Spec.Hibernated && isDraw(sleeps):
		s.hibernateBy(s.watching)
	case deaf == nil && s.former == nil && !s.operator.seesLivePods() && isDraw(s.faults.deaf):
		s.counts[isDeaf]++
		s.trace("%s hears of no new pods", s.operator.name)
		s.operator.isDeaf = true
		s.takeOver()
	}
}

// deaf is the operator whose watch of pods stands still; nil if there is none.
func (s *simulation) deaf() *simulatedOperator {
	for _, o := range []*simulatedOperator{s.operator, s.former} {
		if o != nil && o.isDeaf {
			return o
		}
	}
	return nil
}

// seesLivePods says whether its cache has a pod that was not told to end.
func (o *simulatedOperator) seesLivePods() bool {
	isLive := func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil }
	return slices.ContainsFunc(all[*corev1.Pod](o.cache.cache), isLive)
}
