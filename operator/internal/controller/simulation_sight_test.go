package controller

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// What a status says while nothing is wrong but what a store gets over by itself: another coordinator leads, and has yet to hear from the
// masters; or a master's pod is replaced, and the scheduler takes a moment.

const (
	// leaderPatience is how long a new leader waits for members before it takes them for dead; all are heard before that.
	leaderPatience = 10 * second
	// silenceMost is how long no coordinator answers; the store has another lead within 10 s.
	silenceMost = 8 * time.Second
	// hesitationMost is how long the scheduler finds no node for a pod.
	hesitationMost = 20
)

// sight is what happens in a world where only that does.
type sight struct {
	// tookOver is when the coordinator began to lead, and unheard until when it has not heard from a member.
	tookOver time.Time
	unheard  map[string]time.Time
	// pods that the scheduler has yet to find a node for, and how many seconds that takes.
	hesitates map[string]int
	// replaced is the last moment at which a master's pod was told to end, or was not up again.
	replaced time.Time
	// before are the conditions as they were when all was well.
	before []metav1.Condition
}

// isUnheard says whether the coordinator that leads has yet to hear from a member.
func (s *simulation) isUnheard(member string) bool {
	return s.sight != nil && s.now.Before(s.sight.unheard[member])
}

// hears has a coordinator that begins to lead hear from each member some seconds later.
func (s *simulation) hears() {
	if s.sight == nil {
		return
	}
	s.sight.tookOver, s.sight.unheard = s.now, map[string]time.Time{}
	for _, name := range slices.Sorted(maps.Keys(s.cluster.members)) {
		s.sight.unheard[name] = s.now.Add(time.Duration(s.random.IntN(int(leaderPatience/second))) * second)
	}
}

// hesitate says whether the scheduler finds no node for a pod yet, and has the pod say so.
func (s *simulation) hesitate(pod *corev1.Pod) bool {
	if s.sight == nil || !isMaster(pod) {
		return false
	}
	if _, known := s.sight.hesitates[pod.Name]; !known {
		s.sight.hesitates[pod.Name] = s.random.IntN(hesitationMost)
	}
	left := s.sight.hesitates[pod.Name]
	s.sight.hesitates[pod.Name]--
	conditions := []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no node is free",
	}}
	if left <= 0 {
		conditions = nil
	} else {
		s.counts[isHesitation]++
	}
	edit(s.api, pod.Name, func(pod *corev1.Pod) { pod.Status.Conditions = conditions })
	return left > 0
}

// noteSight remembers when a master was last away, for whatever reason.
func (s *simulation) noteSight() {
	if s.sight == nil || s.cluster.leader == "" {
		return
	}
	for name := range s.cluster.members {
		if s.isAway(name) {
			s.sight.replaced = s.now
		}
	}
	if s.lacksCopies() {
		s.sight.replaced = s.now
	}
}

// checkSight holds a status that is written against what there is to say.
func (s *simulation) checkSight() {
	if s.sight == nil || len(s.sight.before) == 0 {
		return
	}
	status := &s.store().Status
	isQuiet := s.now.Sub(s.sight.replaced) > 5*second
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		if strings.Contains(condition.Message, "kubectl delete") {
			s.violate("somebody is told to delete a volume, and its pod is new: %s: %s", condition.Type, condition.Message)
		}
		before := meta.FindStatusCondition(s.sight.before, condition.Type)
		isSame := condition.Status == before.Status && condition.Reason == before.Reason
		// What the message adds of the last recovery, or of who was not heard, is no alarm.
		if isQuiet && !isSame && condition.Type != v1alpha1.ConditionProgressing {
			s.violate("all masters are well since %s, the coordinator leads since %s, and %s is %s (%s: %s)",
				s.sight.replaced.Format("15:04:05"), s.sight.tookOver.Format("15:04:05"), condition.Type, condition.Status,
				condition.Reason, condition.Message)
		}
	}
}

// looks lets seconds pass, with a reconcile in each.
func (s *simulation) looks(seconds int) {
	for range seconds {
		if len(s.violations) > 0 {
			return
		}
		s.trace("reconcile: %v", s.operator.reconcile())
		s.tick()
	}
}

// simulateSight brings a Store to what its spec says; then leaders change and masters' pods are replaced, one after the other.
func simulateSight(t *testing.T, seed uint64, planted *plantedBug) *simulation {
	t.Helper()
	s := newSimulation(t, seed, planted)
	s.quotas.random = nil // the store does not get over these by itself
	s.change(func(spec *v1alpha1.StoreSpec) {
		spec.Replication.Factor, spec.Masters.Replicas, spec.Coordinator.Replicas = new(1+int32(seed%2)), 4, 2
		spec.Network, spec.Recovery.RescheduleAfter = v1alpha1.NetworkSpec{}, "5m"
	})
	if !s.until(5*time.Minute, s.isAsSpecified) || len(s.violations) > 0 {
		s.violate("it does not come to what its spec says: %+v", s.store().Status.Conditions)
		return s
	}
	s.makeTablets()
	s.looks(10)
	s.sight = &sight{hesitates: map[string]int{}, before: slices.Clone(s.store().Status.Conditions)}
	for range 5 {
		if s.chance(0.6) {
			s.counts[isAnotherLeader]++
			s.trace("another coordinator is to lead")
			s.cluster.leader, s.muteUntil = "", s.now.Add(time.Duration(s.random.IntN(int(silenceMost/second)))*second)
		} else {
			s.counts[isReplaced]++
			for _, pod := range s.pods() {
				if isMaster(pod) && pod.DeletionTimestamp == nil {
					s.trace("somebody deletes %s", pod.Name)
					s.api.tellToEnd(pod)
					s.sight.replaced = s.now
					break
				}
			}
		}
		s.looks(40)
	}
	return s
}

// sightHasToHappen in as many seeds as are run by default.
var sightHasToHappen = []string{isAnotherLeader, isReplaced, isHesitation}

// TestSimulatedSight: a status claims neither that members are down, nor that copies are missing, nor that a volume is to be deleted, where
// the store gets over it by itself.
func TestSimulatedSight(t *testing.T) {
	happened := &coverage{counts: map[string]int{}, seeds: map[string]int{}}
	const seeds = 10
	t.Cleanup(func() {
		t.Logf("what happened:\n%s", happened)
		for _, what := range sightHasToHappen {
			if happened.counts[what] == 0 {
				t.Errorf("in %d seeds it never happened: %s", seeds, what)
			}
		}
	})
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			s := simulateSight(t, seed, nil)
			happened.add(s.counts)
			if len(s.violations) > 0 {
				t.Errorf("%s\n\nwhat led to it:\n%s", strings.Join(s.violations, "\n"), strings.Join(s.lines, "\n"))
			}
		})
	}
}

// TestPlantedSights shows that the simulation would see it.
func TestPlantedSights(t *testing.T) {
	for _, bug := range []*plantedBug{
		{
			name: "members that a new leader has not heard from count as down", plan: takesUnheardForDown,
			reported: "all masters are well since",
		},
		{
			name: "a pod that finds no node is told of at once", plan: losesPatience,
			reported: "somebody is told to delete a volume",
		},
	} {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(10) {
				s := simulateSight(t, seed, bug)
				isIt := func(violation string) bool { return strings.Contains(violation, bug.reported) }
				if slices.ContainsFunc(s.violations, isIt) {
					t.Logf("seen by seed %d: %s", seed, s.violations[0])
					return
				}
			}
			t.Error("not seen by 10 seeds")
		})
	}
}

func takesUnheardForDown(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	for i := range plan.Masters {
		plan.Masters[i].Unheard = false
	}
	return plan
}

// losesPatience takes each pod for old.
func losesPatience(o facts.Observed) planner.Plan {
	plan := planner.Make(o)
	for i := range plan.Masters {
		if view := &plan.Masters[i]; view.Pod != nil {
			old := *view.Pod
			old.CreatedAt = old.CreatedAt.Add(-time.Hour)
			view.Pod = &old
		}
	}
	return plan
}
