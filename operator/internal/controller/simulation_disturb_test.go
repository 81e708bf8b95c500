package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// disturb lets something happen.
func (s *simulation) disturb() {
	switch n := s.random.IntN(100); {
	case n < 40:
		s.letReconcile()
	case n < 74, !s.storms && n < 97:
		s.tick()
	default:
		s.strike()
	}
}

// letReconcile: also one that does not lead any more, for some reconciles.
func (s *simulation) letReconcile() {
	if s.former != nil && s.chance(0.4) {
		s.trace("reconcile by the former operator: %v", s.former.reconcile())
		if s.chance(0.1) {
			s.trace("the former operator ends")
			s.former = nil
		}
		return
	}
	s.trace("reconcile: %v", s.operator.reconcile())
}

// takeOver: leader election has another operator lead, and the one that did knows nothing of that yet.
func (s *simulation) takeOver() {
	if s.former == nil && !s.isMeanwhile {
		s.former, s.operator = s.operator, s.startOperator()
		s.counts[isSecondOperator]++
		s.trace("%s leads, and %s works on", s.operator.name, s.former.name)
	}
}

func (s *simulation) hibernate() { s.hibernateBy(s.random) }

func (s *simulation) hibernateBy(random *rand.Rand) {
	if s.isReplicated() {
		s.hibernatedUntil = s.now.Add(time.Duration(random.IntN(40)) * second)
		s.change(func(spec *v1alpha1.StoreSpec) { spec.Hibernated = true })
	}
}

// takeBackOrders: whoever pauses a Store, or has it sleep, goes on some time.
func (s *simulation) takeBackOrders() {
	store := s.store()
	if store == nil {
		return
	}
	if store.Spec.Paused && !s.now.Before(s.pausedUntil) {
		s.change(func(spec *v1alpha1.StoreSpec) { spec.Paused = false })
	}
	if store.Spec.Hibernated && !s.now.Before(s.hibernatedUntil) {
		s.change(func(spec *v1alpha1.StoreSpec) { spec.Hibernated = false })
	}
}

// meanwhile is what happens while an operator is between what it saw and what it does: now and then right before something that cannot be
// taken back, and then to a master.
func (s *simulation) meanwhile(by *simulatedOperator, plan planner.Plan) {
	if s.isMeanwhile {
		return
	}
	s.isMeanwhile = true
	defer func() { s.isMeanwhile = false }()
	switch {
	case s.former != nil && s.chance(0.5):
		other := s.former
		if by == other {
			other = s.operator
		}
		s.trace("meanwhile, a reconcile by %s: %v", other.name, other.reconcile())
	case slices.ContainsFunc(plan.Steps, isIrrevocable) && s.chance(s.faults.worst):
		s.counts[isWorstMoment]++
		s.trace("meanwhile, at the worst moment:")
		onPod(func(s *simulation, pod *corev1.Pod) {
			if isMaster(pod) {
				s.trace("the process in %s ends", pod.Name)
				s.stop(pod, s.chance(0.5))
			}
		})(s)
		s.recover()
	case s.chance(s.faults.meanwhile):
		s.trace("meanwhile:")
		s.tick()
		if s.chance(0.5) {
			s.strike()
			s.tick()
		}
	}
}

func isIrrevocable(step steps.Step) bool {
	_, isRestart := step.(steps.RestartMember)
	_, isDrop := step.(steps.DropVolume)
	_, isMove := step.(steps.MoveMember)
	return isRestart || isDrop || isMove
}

// blow is one kind of thing that happens to a store, and how often, compared with others.
type blow struct {
	weight int
	falls  func(*simulation)
}

var blows = []blow{
	{3, func(s *simulation) {
		s.change(func(spec *v1alpha1.StoreSpec) {
			spec.Masters.Replicas = max(2, s.store().Copies()+1) + s.random.Int32N(3)
		})
	}},
	{2, func(s *simulation) {
		s.images++
		s.maybeRefuse(fmt.Sprintf("store:new%d", s.images))
		s.change(func(spec *v1alpha1.StoreSpec) { spec.Image = fmt.Sprintf("store:new%d", s.images) })
	}},
	{1, func(s *simulation) {
		s.pausedUntil = s.now.Add(time.Duration(s.random.IntN(20)) * second)
		s.change(func(spec *v1alpha1.StoreSpec) { spec.Paused = true })
	}},
	{4, (*simulation).makeTablets},
	{1, (*simulation).dropTables},
	{2, func(s *simulation) {
		s.trace("the coordinator is mute")
		s.muteUntil = s.now.Add(time.Duration(s.random.IntN(20)) * second)
	}},
	{1, func(s *simulation) {
		s.trace("another coordinator is to lead")
		s.cluster.leader = ""
	}},
	{2, func(s *simulation) {
		if len(s.dead) > 0 {
			s.reviveNode(slices.Sorted(maps.Keys(s.dead))[0])
		}
	}},
	{3, onPod(func(s *simulation, pod *corev1.Pod) {
		s.trace("somebody deletes %s", pod.Name)
		s.api.tellToEnd(pod)
	})},
	{4, onPod(func(s *simulation, pod *corev1.Pod) {
		s.trace("the process in %s ends", pod.Name)
		s.stop(pod, s.chance(0.5))
	})},
	{2, onPod((*simulation).evict)},
	{2, onPod((*simulation).killNodeOf)},
	{1, (*simulation).evictFromDead},
}

// rareBlows do not fall where a bug is planted: it is seen sooner without them.
var rareBlows = []blow{
	{2, (*simulation).takeOver},
	{1, (*simulation).hibernate},
	{2, onPod((*simulation).cordonNodeOf)},
	{2, (*simulation).uncordon},
	{1, onPod((*simulation).isolateNodeOf)},
	{1, (*simulation).takeBackIsolations},
	{4, onPod((*simulation).breakNodeOf)},
	{2, (*simulation).changeSettings},
	{1, (*simulation).growStorage},
	{2, (*simulation).moreCopies},
}

// onPod is a blow to any pod.
func onPod(falls func(*simulation, *corev1.Pod)) func(*simulation) {
	return func(s *simulation) {
		if pods := s.pods(); len(pods) > 0 {
			falls(s, pods[s.random.IntN(len(pods))])
		}
	}
}

// temper makes each seed's world one in which some things never happen and others often do: what takes many steps would be disturbed too
// soon if everything happened everywhere.
func (s *simulation) temper() {
	more := rareBlows
	if s.planted != nil {
		more = s.planted.blows
	}
	kinds := slices.Concat(blows, more)
	for i := range kinds {
		for range kinds[i].weight * []int{0, 1, 1, 4}[s.random.IntN(4)] {
			s.blows = append(s.blows, kinds[i].falls)
		}
	}
}

// strike is what nobody has asked the operator about.
func (s *simulation) strike() {
	if len(s.blows) > 0 {
		s.blows[s.random.IntN(len(s.blows))](s)
	}
}

func (s *simulation) makeTablets() {
	for _, member := range s.cluster.members {
		if !member.draining && member.instance != "" {
			member.tablets++
		}
	}
}

func (s *simulation) evict(pod *corev1.Pod) {
	if !s.dead[pod.Spec.NodeName] && pod.Spec.NodeName != "" {
		s.trace("%s is evicted", pod.Name)
		s.stop(pod, true)
		edit(s.api, pod.Name, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	}
}

// killNodeOf leaves as many nodes as the largest Store needs.
func (s *simulation) killNodeOf(pod *corev1.Pod) {
	const most = 3
	if node := pod.Spec.NodeName; node != "" && len(s.dead) < most && !s.dead[node] {
		s.trace("%s dies", node)
		s.killNode(node)
	}
}

// evictFromDead is what Kubernetes does with pods on nodes that it has given up.
func (s *simulation) evictFromDead() {
	for _, pod := range s.pods() {
		if s.dead[pod.Spec.NodeName] {
			s.api.tellToEnd(pod)
		}
	}
}

func (s *simulation) change(change func(*v1alpha1.StoreSpec)) {
	edit(s.api, "sim", func(store *v1alpha1.Store) {
		change(&store.Spec)
		store.Generation++
		s.trace("the spec: masters %d, image %q, paused %v, hibernated %v",
			store.Spec.Masters.Replicas, store.Spec.Image, store.Spec.Paused,
			store.Spec.Hibernated)
	})
}

func (s *simulation) dropTables() {
	s.cluster.recoveries = nil
	for _, member := range s.cluster.members {
		member.tablets = 0
	}
}
