package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
	"rcbox.dev/rcbox/operator/internal/members"
	"rcbox.dev/rcbox/operator/internal/nodelease"
)

// heartbeats are when this process has seen the Lease of each node renewed. What kubelets write as the time is compared with nothing but
// what they wrote before: their clocks may be wrong.
type heartbeats struct {
	mutex sync.Mutex
	last  map[string]heartbeat
}

type heartbeat struct {
	renewTime metav1.MicroTime
	seenAt    time.Time
	patience  time.Duration
	// jumps is the number of clock jumps before seenAt.
	jumps int
}

// note takes down a Lease as it was at a time.
func (h *heartbeats) note(lease *coordinationv1.Lease, now poll.Moment) {
	if lease.Spec.RenewTime == nil {
		return
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.last == nil {
		h.last = map[string]heartbeat{}
	}
	if before, isThere := h.last[lease.Name]; isThere && before.jumps == now.Jumps && before.renewTime.Equal(lease.Spec.RenewTime) {
		return
	}
	h.last[lease.Name] = heartbeat{*lease.Spec.RenewTime, now.Wall, nodelease.Patience(lease), now.Jumps}
}

func (h *heartbeats) forget(node string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	delete(h.last, node)
}

// silentFrom is the time from which a kubelet counts as silent if its Lease is not renewed before; zero if this process has seen no renewal
// since the last clock jump.
func (h *heartbeats) silentFrom(node string, jumps int) time.Time {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	last, isThere := h.last[node]
	if !isThere || last.jumps != jumps {
		return time.Time{}
	}
	return last.seenAt.Add(last.patience)
}

// watch notes each renewal, and has nothing reconciled for it.
func (h *heartbeats) watch(clock *poll.Clock) handler.EventHandler {
	note := func(object client.Object) {
		if lease, isLease := object.(*coordinationv1.Lease); isLease && lease.Namespace == corev1.NamespaceNodeLease {
			h.note(lease, clock.Look())
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queueOfRequests) { note(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queueOfRequests) { note(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queueOfRequests) { h.forget(e.Object.GetName()) },
	}
}

func (r *Reconciler) isSilent(node string) bool {
	now := r.Clock.Look()
	from := r.heard.silentFrom(node, now.Jumps)
	return !from.IsZero() && !now.Wall.Before(from)
}

// isProvedDead says whether a Store's own status has it that this very request was decided on for a member that its coordinator has
// declared dead. Whoever may make NodeFences can claim nothing by that: only the operator may write the status, and StoreMembers. The death
// is in the StoreMember before the Store has the fence, so that a StoreMember that was read too early means no. The kubelet of a node
// that is called Ready is listened to once more, at the API server itself: a watch may lag behind.
func (r *Reconciler) isProvedDead(ctx context.Context, from client.Reader, observed *plan.Observed,
	fence *v1alpha1.NodeFence,
) (bool, error) {
	i := slices.IndexFunc(observed.Nodes, func(n plan.Node) bool { return n.Name == fence.Spec.Node })
	if i < 0 || !observed.Nodes[i].Ready {
		return false, nil
	}
	store := &v1alpha1.Store{}
	if err := from.Get(ctx, client.ObjectKey{Namespace: fence.Namespace, Name: fence.Spec.StoreName}, store); err != nil {
		return false, client.IgnoreNotFound(err) //nolint:wrapcheck // it says which Store
	}
	if err := members.Join(ctx, from, store); err != nil {
		return false, err
	}
	if !isDecided(store, fence) || !r.isSilent(fence.Spec.Node) {
		return isDecided(store, fence), nil
	}
	lease := &coordinationv1.Lease{}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: fence.Spec.Node}, lease); err != nil {
		return false, fmt.Errorf("read the Lease of node %s: %w", fence.Spec.Node, err)
	}
	now := r.Clock.Look()
	r.heard.note(lease, now)
	observed.Nodes[i].SilentFrom = r.heard.silentFrom(fence.Spec.Node, now.Jumps)
	return true, nil
}

// isDecided: the Store's status has the fence, and its StoreMember the member's death.
func isDecided(store *v1alpha1.Store, fence *v1alpha1.NodeFence) bool {
	at := slices.IndexFunc(store.Status.Fences, func(f v1alpha1.FenceStatus) bool {
		return f.Node == fence.Spec.Node && f.Type == v1alpha1.FencingBMC && f.Since.Equal(&fence.Spec.LostSince)
	})
	return at >= 0 && slices.ContainsFunc(store.Status.Masters.Members, func(m v1alpha1.MemberStatus) bool {
		return m.Name == store.Status.Fences[at].Member && m.Node == fence.Spec.Node && m.DeadSince != nil &&
			m.Lost != nil && m.Lost.Node == fence.Spec.Node && m.Lost.ProvenAt != nil
	})
}

// aliveByNode are processes of Stores that no coordinator has declared dead, by node: masters, and coordinators that lead.
func aliveByNode(stores []v1alpha1.Store) map[string][]string {
	all := map[string][]string{}
	for i := range stores {
		store := &stores[i]
		add := func(node, process string) {
			all[node] = append(all[node], fmt.Sprintf("%s of Store %s/%s", process, store.Namespace, store.Name))
		}
		for j := range store.Status.Masters.Members {
			if member := &store.Status.Masters.Members[j]; member.Node != "" && member.Pod != "" && member.DeadSince == nil {
				add(member.Node, member.Name)
			}
		}
		if coordinator := &store.Status.Coordinator; coordinator.Node != "" && coordinator.Pod != "" {
			add(coordinator.Node, "coordinator "+coordinator.Pod)
		}
	}
	return all
}

// servingByNode are the serving processes of Stores, by node: masters that serve according to their coordinators, and coordinators that
// answer.
func servingByNode(stores []v1alpha1.Store) map[string][]plan.Process {
	all := map[string][]plan.Process{}
	for i := range stores {
		store := &stores[i]
		add := func(node, process string) {
			all[node] = append(all[node], plan.Process{Store: store.Namespace + "/" + store.Name, Name: process})
		}
		for j := range store.Status.Masters.Members {
			member := &store.Status.Masters.Members[j]
			isServing := member.State == v1alpha1.MemberUp && member.DeadSince == nil && member.NotServingSince == nil
			if member.Node != "" && member.Pod != "" && isServing {
				add(member.Node, member.Name)
			}
		}
		coordinator := &store.Status.Coordinator
		if coordinator.Node != "" && coordinator.Pod != "" && coordinator.Ready && coordinator.SilentSince == nil {
			add(coordinator.Node, "coordinator "+coordinator.Pod)
		}
	}
	return all
}
