package controller

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// Events of quotas, and of restarts by order.
const (
	isRestartOrdered = "a restart is ordered"
	isQuotaShrunk    = "a quota shrinks"
	isQuotaRefusal   = "a quota refuses the next pod of a member that runs"
)

// quotas is a ResourceQuota of the namespace that shrinks and grows, while people order restarts. All chance is of a stream of its own:
// seeds without quotas keep their runs.
type quotas struct {
	random *rand.Rand
	// limit is how many pods the quota has room for; 0 without a quota.
	limit int
	until time.Time
	// ordered restarts so far.
	ordered int
	// admittedAt is when an operator's trial of a member's next pod was admitted last.
	admittedAt map[trialOf]time.Time
}

type trialOf struct{ operator, member string }

// oneQuotaIn is how few seeds have quotas.
const oneQuotaIn = 4

func newQuotas(seed uint64, planted *plantedBug) quotas {
	const stream = 8
	q := quotas{random: rand.New(rand.NewPCG(seed, stream)), admittedAt: map[trialOf]time.Time{}}
	isIn := q.random.IntN(oneQuotaIn) == 0
	if planted == nil && !isIn || planted != nil && !planted.quotas {
		q.random = nil
	}
	return q
}

// changeQuota is what people do until all is calm.
func (s *simulation) changeQuota() {
	q := &s.quotas
	if q.random == nil || s.store() == nil || s.store().DeletionTimestamp != nil {
		return
	}
	if q.limit > 0 && (s.isCalm || !s.now.Before(q.until)) {
		q.limit = 0
		s.trace("the quota is gone")
	}
	if s.isCalm {
		return
	}
	switch n := q.random.IntN(100); {
	case n < 5 && s.podsInQuota() > 0:
		// Mostly one pod fewer than there are; or as many, or one more.
		q.limit = max(s.podsInQuota()+max(q.random.IntN(5)-3, -1), 1)
		q.until = s.now.Add(time.Duration(20+q.random.IntN(60)) * second)
		s.counts[isQuotaShrunk]++
		s.trace("a quota for %d pods, and there are %d", q.limit, s.podsInQuota())
	case n < 15 && s.isReplicated():
		s.orderRestart()
	}
}

// orderRestart of all masters, or of one.
func (s *simulation) orderRestart() {
	q := &s.quotas
	q.ordered++
	operation := &v1alpha1.StoreOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("restart-%d", q.ordered)},
		Spec:       v1alpha1.StoreOperationSpec{StoreRef: v1alpha1.StoreReference{Name: "sim"}, Type: v1alpha1.OperationRestart},
	}
	if ordinal := q.random.IntN(4); ordinal < int(s.store().Spec.Masters.Replicas) {
		operation.Spec.Restart = &v1alpha1.RestartOperation{Members: []string{v1alpha1.MasterMember("sim", ordinal)}}
	}
	s.counts[isRestartOrdered]++
	s.trace("somebody orders %s: %+v", operation.Name, operation.Spec.Restart)
	s.api.put(operation)
}

// podsInQuota are those that a quota counts: all that have not ended.
func (s *simulation) podsInQuota() int {
	count := 0
	for _, pod := range s.pods() {
		if pod.Status.Phase != corev1.PodFailed {
			count++
		}
	}
	return count
}

// exceeds is what the API server says of one more pod; nil if the quota has room.
func (s *simulation) exceeds(name string) error {
	used := s.podsInQuota()
	if s.quotas.limit == 0 || used < s.quotas.limit {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name, fmt.Errorf(
		"exceeded quota: of-the-simulation, requested: pods=1, used: pods=%d, limited: pods=%d", used, s.quotas.limit))
}

// tryInQuota is an operator's trial of a pod that takes the place of another one.
func (s *simulation) tryInQuota(by *simulatedOperator, pod *corev1.Pod) error {
	trial := trialOf{by.name, memberName(pod)}
	delete(s.quotas.admittedAt, trial)
	if s.podsInQuota() <= s.quotas.limit || s.quotas.limit == 0 {
		s.quotas.admittedAt[trial] = s.now // also one for which there is room only without the pod that it follows
	} else {
		s.counts[isQuotaRefusal]++
	}
	return s.exceeds(pod.Name)
}

// callLatency is how long an operator may take from its last look to the arrival of its call, if it does not stand still.
const callLatency = 5 * second

// checkInQuota: no running process is ended on purpose, to be replaced, while a quota refuses its member's next pod: as far as the operator
// could know, which has asked not long before.
func (s *simulation) checkInQuota(by *simulatedOperator, pod *corev1.Pod) {
	const admissionCounts = 45 * second
	if s.quotas.limit == 0 || s.podsInQuota() <= s.quotas.limit || !s.isToBeReplaced(by, pod) {
		return
	}
	at, isAdmitted := s.quotas.admittedAt[trialOf{by.name, memberName(pod)}]
	if !isAdmitted || s.now.Sub(at) >= admissionCounts+callLatency {
		s.violate("%s is ended, and a quota for %d pods refuses its member's next one", pod.Name, s.quotas.limit)
	}
}

// isToBeReplaced: its member stays, by the spec that there is and by the one that the operator saw, and the operator saw its process run.
func (s *simulation) isToBeReplaced(by *simulatedOperator, pod *corev1.Pod) bool {
	saw, isKnown := by.cache.cache[keyOf(pod)].(*corev1.Pod)
	spec, hasSpec := by.cache.cache[keyOf(s.store())].(*v1alpha1.Store)
	if !isKnown || !hasSpec || processOf(saw) != facts.ProcessRunning {
		return false
	}
	for _, other := range s.pods() {
		if memberName(other) == memberName(pod) && other.UID != pod.UID && other.DeletionTimestamp == nil {
			return false // there is another one already
		}
	}
	stays := func(store *v1alpha1.Store) bool {
		if ordinal, isMasters := v1alpha1.MasterOrdinal("sim", memberName(pod)); isMasters {
			return int32(ordinal) < store.Spec.Masters.Replicas
		}
		ordinal, isCoordinators := v1alpha1.CoordinatorOrdinal("sim", memberName(pod))
		return isCoordinators && int32(ordinal) < store.Spec.Coordinator.Replicas
	}
	return stays(s.store()) && stays(spec)
}

// openRestart is one that has not ended, though all is calm; empty if there is none.
func (s *simulation) openRestart() string {
	for _, operation := range all[*v1alpha1.StoreOperation](s.api.objects) {
		if operation.Spec.Type == v1alpha1.OperationRestart && !operation.Status.HasEnded() {
			return operation.Name
		}
	}
	return ""
}

// restartsUntried takes the next pod of a master that is restarted by order for one that is admitted, because it is made as the present
// one.
func restartsUntried(o facts.Observed) planner.Plan {
	trials := map[string]facts.Trial{}
	for try := range steps.Of[steps.TryPod](planner.Make(withoutTrials(o)).Steps) {
		if strings.HasSuffix(try.Why, "orders its restart") {
			trials[try.Key] = facts.Trial{At: o.Now}
		}
	}
	for key, trial := range o.Trials {
		if _, isAssumed := trials[key]; !isAssumed {
			trials[key] = trial
		}
	}
	o.Trials = trials
	return planner.Make(o)
}

func withoutTrials(o facts.Observed) facts.Observed {
	o.Trials = nil
	return o
}
