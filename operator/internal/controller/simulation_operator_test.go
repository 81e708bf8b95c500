package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// simulatedOperator is one process of the operator's, with a cache of its own.
type simulatedOperator struct {
	s          *simulation
	name       string
	cache      *operatorClient
	reconciler *Reconciler
	// reconciling since then, and whether it has planned in this reconcile.
	reconcilingSince time.Time
	hasPlanned       bool
	// remembers: it has yet to ask the coordinator in this reconcile, if it finds anything to do.
	remembers bool
	// isLate: it stood still in this reconcile before it made a pod.
	isLate bool
	// isDeaf: its watch of pods stands still.
	isDeaf bool
	// wroteStatus: it has written the Store's status in this reconcile.
	wroteStatus bool
}

// errKilled is the operator's end between any two of its calls.
var errKilled = errors.New("the operator was killed")

// startOperator: all that a former one knew is gone, and its successor sees what there is.
func (s *simulation) startOperator() *simulatedOperator {
	s.started++
	o := &simulatedOperator{s: s, name: fmt.Sprintf("operator %d", s.started)}
	o.cache = s.api.newOperatorClient(o)
	live := liveReader{view{func() map[objectKey]client.Object { return s.api.objects }, s.api.Client}, s}
	o.reconciler = &Reconciler{
		Client: o.cache, Live: s.planted.readsLive(o, live), Nodes: cachedNodes{o},
		Recorder: tracer{s}, Dial: s.dial, Now: func() time.Time { return s.now },
		DefaultImage: "store:1", Namespace: "rcbox-system", plan: o.plan,
	}
	o.reconciler.Statuses = &rememberedStatus{o: o}
	return o
}

// rememberedStatus is the operator's StatusSource: what the coordinator has told it last, or now.
type rememberedStatus struct {
	o    *simulatedOperator
	last Sight
	from string
}

// Newest implements StatusSource.
func (r *rememberedStatus) Newest(_ types.NamespacedName, coordinators []*facts.Pod) (Sight, bool) {
	s := r.o.s
	isThere := slices.ContainsFunc(coordinators, func(pod *facts.Pod) bool { return pod.UID == r.from })
	isYoung := r.last.Cluster != nil && s.now.Sub(r.last.At) <= oldest
	if isThere && isYoung && s.listening.Float64() < s.faults.stale {
		s.counts[isRemembered]++
		r.o.remembers = true
		return r.last, true
	}
	failed := Sight{Error: noCoordinator}
	for _, pod := range coordinators {
		_, answer, err := ask(context.Background(), s.dial, pod.IP)
		if err != nil {
			failed.Error = err.Error()
			continue
		}
		r.last, r.from = Sight{Cluster: answer.cluster, LeaderPod: pod.Name, At: s.now}, pod.UID
		r.o.remembers = true
		return r.last, true
	}
	return failed, true
}

// Forget implements StatusSource.
func (r *rememberedStatus) Forget(types.NamespacedName) { r.last = Sight{} }

// cachedNodes is the operator's watch of nodes.
type cachedNodes struct{ o *simulatedOperator }

func (n cachedNodes) Node(name string) *corev1.Node {
	node, _ := n.o.cache.cache[objectKey{kindOf[*corev1.Node](), name}].(*corev1.Node)
	return node
}

func (cachedNodes) AreHidden() bool { return false }

// plan lets time pass between what was seen and what is done about it.
func (o *simulatedOperator) plan(observed facts.Observed) planner.Plan {
	plan := o.s.planted.makePlan(observed)
	if o.remembers {
		o.remembers = false // nothing is done by that plan
		return plan
	}
	o.s.tracePlan(plan)
	if !o.hasPlanned {
		o.hasPlanned = true
		o.s.meanwhile(o, plan)
	}
	return plan
}

// tracer has events in the trace: they say why.
type tracer struct{ s *simulation }

func (r tracer) Eventf(_, _ runtime.Object, _, reason, _, note string, arguments ...any) {
	r.s.counts[reason]++
	r.s.trace("  %s: "+note, append([]any{reason}, arguments...)...)
}

// write is one call of the operator's that changes something: it fails before or after it has, or the operator ends there.
func (s *simulation) write(what string, do func() error) error {
	if s.chance(s.faults.kill / 2) {
		s.trace("killed before: %s", what)
		panic(errKilled)
	}
	if s.chance(s.faults.write) {
		if s.chance(0.5) {
			s.trace("fails: %s", what)
			return apierrors.NewTimeoutError(what, 1)
		}
		s.trace("is refused for a conflict: %s", what)
		return conflict(what)
	}
	err := do()
	s.trace("%s: %v", what, err)
	switch {
	case s.chance(s.faults.kill / 2):
		s.trace("killed after: %s", what)
		panic(errKilled)
	case s.chance(s.faults.write):
		s.trace("its answer is lost: %s", what)
		return apierrors.NewTimeoutError(what, 1)
	}
	return err
}

// reconcile is one look at the Store with a cache that may be behind, each kind for itself.
func (o *simulatedOperator) reconcile() (err error) {
	s, stale := o.s, o.s.faults.stale
	if o == s.former {
		stale = 0.8
	}
	for _, kind := range []reflect.Type{
		kindOf[*v1alpha1.Store](), kindOf[*corev1.Pod](), kindOf[*corev1.PersistentVolumeClaim](), kindOf[*corev1.Node](),
	} {
		if !s.chance(stale) && (kind != kindOf[*corev1.Pod]() || !o.isDeaf) {
			o.cache.refresh(kind)
		}
	}
	if s.ordering.Float64() >= stale {
		o.cache.refresh(kindOf[*v1alpha1.StoreOperation]())
	}
	if s.membering.Float64() >= stale {
		o.cache.refresh(kindOf[*v1alpha1.StoreMember]())
	}
	o.reconcilingSince, o.hasPlanned, o.isLate, o.remembers, o.wroteStatus = s.now, false, false, false, false
	defer func() {
		if end := recover(); end != nil {
			if end != errKilled { //nolint:errorlint // the very value
				panic(end)
			}
			s.counts[isKilled]++
			if s.former == o {
				s.former = nil
			} else {
				s.operator = s.startOperator()
			}
			err = errKilled
		}
	}()
	quietly := ctrl.LoggerInto(context.Background(), logr.Discard())
	_, err = o.reconciler.Reconcile(quietly, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "sim"}})
	return err
}

func kindOf[Object client.Object]() reflect.Type { return reflect.TypeFor[Object]() }
