package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
	computed "rcbox.dev/rcbox/operator/internal/status"
)

// StatusSource has the newest status of each Store's coordinators without asking them. A status that it has may be some seconds old, so
// that it decides only whether there is anything to do or to write: a reconcile that finds something asks the coordinator itself, and plans
// from that answer alone (confirm). What goes on record, and what is done, rests on an answer of the same reconcile.
type StatusSource interface {
	// Newest is what was last seen of the coordinators in these pods. It is false until one of them has answered, or none: then the
	// Store is reconciled again.
	Newest(store types.NamespacedName, coordinators []*facts.Pod) (Sight, bool)
	// Forget ends what is done for a Store.
	Forget(store types.NamespacedName)
}

// Sight is what was seen of a Store's coordinators.
type Sight struct {
	// Cluster is the answer of the one that leads; nil if none has answered. It is shared, and must not be changed.
	Cluster *facts.Cluster
	// LeaderPod is the name of the pod that answered.
	LeaderPod string
	// Error says why none did, and Refusal why one that was elected must not lead.
	Error, Refusal string
	// At is when it was seen.
	At time.Time
	// NotKept: the coordinator has answered, and the answer was too large to be kept. Whoever needs it asks.
	NotKept bool
}

// noCoordinator is what is said of a Store none of whose coordinators runs.
const noCoordinator = "the coordinator does not run"

// remember has the reconcile go by what was last seen of the coordinators. False: nothing is known of them yet.
func (r *Reconciler) remember(ctx context.Context, v *reconcileState) bool {
	o := &v.observed
	coordinators := facts.Coordinators(o.Pods, o.Store.Status.Coordinator.Pod)
	seen, known := r.Statuses.Newest(types.NamespacedName{Namespace: o.Store.Namespace, Name: o.Store.Name}, coordinators)
	if !known {
		return false
	}
	if seen.NotKept {
		r.askCoordinator(ctx, v)
		return true
	}
	o.Cluster, o.LeaderPod, o.ClusterError, o.Refusal = seen.aged(o.Now), seen.LeaderPod, seen.Error, seen.Refusal
	// One that did not answer is not asked once more: an outage may end at any moment after any question, so that what is planned without
	// an answer is right whether there is one or not.
	v.isRemembered = seen.Cluster != nil
	return true
}

// aged is the cluster as it is seen now: recoveries have gone on meanwhile.
func (s *Sight) aged(now time.Time) *facts.Cluster {
	if s.Cluster == nil || len(s.Cluster.Recoveries) == 0 {
		return s.Cluster
	}
	cluster := *s.Cluster
	cluster.Recoveries = slices.Clone(cluster.Recoveries)
	for i := range cluster.Recoveries {
		cluster.Recoveries[i].Age += max(now.Sub(s.At), 0)
	}
	return &cluster
}

// confirm asks the coordinator and plans anew, if what was remembered of the coordinator leads to anything that is done or written.
func (r *Reconciler) confirm(ctx context.Context, v *reconcileState, plan planner.Plan) planner.Plan {
	if !v.isRemembered {
		return plan
	}
	leadsToNothing := len(plan.Steps) == 0 &&
		equality.Semantic.DeepEqual(*v.recorded, computed.Compute(v.observed, plan, computed.Outcome{}))
	if leadsToNothing {
		return plan
	}
	v.isRemembered = false
	r.askCoordinator(ctx, v)
	r.observeByCluster(ctx, v)
	return r.makePlan(v.observed)
}

// observeByCluster looks at what the coordinator's answer raises questions about.
func (r *Reconciler) observeByCluster(ctx context.Context, v *reconcileState) {
	r.observeDisplaced(ctx, v)
	r.observeFences(ctx, v)
	r.observeLock(ctx, v)
}

// askCoordinator leaves Cluster empty when there is no answer: that is a state of the Store, not a failure of the reconcile. Of several
// coordinators one leads, and only that one answers.
func (r *Reconciler) askCoordinator(ctx context.Context, v *reconcileState) {
	o := &v.observed
	o.Cluster, o.LeaderPod, o.Refusal, o.ClusterError = nil, "", "", noCoordinator
	for i, pod := range facts.Coordinators(o.Pods, o.Store.Status.Coordinator.Pod) {
		coordinator, answer, err := ask(ctx, r.Dial, pod.IP)
		if err != nil {
			// What the likeliest leader says tells most.
			if i == 0 {
				o.ClusterError = err.Error()
			}
			o.Refusal = orElse(refusalIn(err), o.Refusal)
			continue
		}
		if answer.refusal != "" {
			o.Refusal, o.ClusterError = answer.refusal, answer.refusal
			_ = coordinator.Close()
			continue
		}
		v.coordinator, o.Cluster, o.LeaderPod, o.Refusal = coordinator, answer.cluster, pod.Name, ""
		return
	}
}

// answer of a coordinator.
type answer struct {
	cluster *facts.Cluster
	// refusal is why a coordinator that was elected must not lead; empty for one that leads.
	refusal string
	// bytes that the answer takes in memory, about.
	bytes int
}

// ask gives a connection that is to be closed, and the status of the store.
func ask(ctx context.Context, dial admin.Dialer, ip string) (admin.Client, answer, error) {
	coordinator, err := dial(ip, resources.CoordinatorAdminPort)
	if err != nil {
		return nil, answer{}, fmt.Errorf("reach the coordinator: %w", err)
	}
	response, err := coordinator.Status(ctx)
	if err != nil {
		_ = coordinator.Close()
		return nil, answer{}, err
	}
	cluster := clusterOf(response)
	return coordinator, answer{&cluster, response.GetLeader().GetRefusal(), proto.Size(response) + elementBytes*elementsOf(&cluster)}, nil
}

// elementBytes is what an element of a list takes about, even an empty one.
const elementBytes = 256

func elementsOf(cluster *facts.Cluster) int {
	elements := len(cluster.Members) + len(cluster.Recoveries) + len(cluster.Losses) + len(cluster.Format.Hindrances)
	for i := range cluster.Members {
		elements += len(cluster.Members[i].Ports)
	}
	return elements
}

// refusalIn is why a coordinator that was elected must not lead, if an error says so.
func refusalIn(err error) string {
	if status.Code(err) != codes.FailedPrecondition {
		return ""
	}
	return status.Convert(err).Message()
}

// forgetStatus ends what is done for a Store that needs no coordinator's answer any more, or is another operator's.
func (r *Reconciler) forgetStatus(store types.NamespacedName) {
	if r.Statuses != nil {
		r.Statuses.Forget(store)
	}
}
