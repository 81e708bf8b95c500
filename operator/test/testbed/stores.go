package testbed

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Stores is a stand-in for the processes of all Stores. Each has one coordinator, whose state outlives its pods, and which serves the real
// admin API where its pod is. Masters enlist when they start. What a dead master of a store with copies held is served by another at once,
// and nothing is ever short of copies.
type Stores struct {
	t *testing.T

	mu   sync.Mutex
	list map[string]*Store
}

// Store is one of them.
type Store struct {
	// Coordinator says what it is told to.
	Coordinator *standin.Coordinator

	mu        sync.Mutex
	listeners map[types.UID]net.Listener
	instances map[string]types.UID // of each member, its pod
}

func newStores(t *testing.T) *Stores {
	t.Helper()
	return &Stores{t: t, list: map[string]*Store{}}
}

// Get gives the one of a name.
func (s *Stores) Get(name string) *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	store := s.list[name]
	if store == nil {
		store = &Store{
			Coordinator: standin.Start(), listeners: map[types.UID]net.Listener{}, instances: map[string]types.UID{},
		}
		store.Coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
			r.ClusterId = uint64(len(s.list) + 1)
			r.StateKind = adminv1.StateKind_STATE_KIND_KUBERNETES
			r.Leader = &adminv1.Leader{Term: 1}
		})
		s.t.Cleanup(store.Coordinator.Stop)
		s.list[name] = store
	}
	return store
}

func (s *Stores) started(ctx context.Context, pod *corev1.Pod) error {
	store := s.Get(pod.Labels[v1alpha1.LabelStore])
	if pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator {
		return store.lead(ctx, pod)
	}
	inputs, err := resources.DecodeInputs(pod.Annotations[v1alpha1.AnnotationMadeFrom])
	if err != nil {
		return fmt.Errorf("read what pod %s was made from: %w", pod.Name, err)
	}
	store.enlist(pod, inputs)
	return nil
}

func (s *Stores) ended(pod *corev1.Pod) {
	store := s.Get(pod.Labels[v1alpha1.LabelStore])
	store.mu.Lock()
	defer store.mu.Unlock()
	if listener := store.listeners[pod.UID]; listener != nil {
		_ = listener.Close() // nobody is there to hear of it
		delete(store.listeners, pod.UID)
		return
	}
	if member := pod.Labels[v1alpha1.LabelMember]; store.instances[member] == pod.UID {
		delete(store.instances, member)
		store.Coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { lose(r, member) })
	}
}

func (s *Store) lead(ctx context.Context, pod *corev1.Pod) error {
	address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(resources.CoordinatorAdminPort))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve the admin API of %s: %w", pod.Name, err)
	}
	s.mu.Lock()
	s.listeners[pod.UID] = listener
	s.mu.Unlock()
	s.Coordinator.Serve(listener)
	return nil
}

func (s *Store) enlist(pod *corev1.Pod, inputs resources.Inputs) {
	if slices.Contains(s.Coordinator.KeptOut(), string(pod.UID)) {
		return
	}
	name := pod.Labels[v1alpha1.LabelMember]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances[name] = pod.UID
	s.Coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		tablets := uint64(0)
		if before := find(r, name); before != nil {
			tablets = before.GetShards()[0].GetTabletCount()
		}
		standin.Enlist(r, name, string(pod.UID)+"-1", tablets)
		member := find(r, name)
		member.Domain, member.Draining = pod.Annotations[v1alpha1.AnnotationDomain], nil
		shard := member.GetShards()[0]
		shard.Serving, shard.Segments = true, 1
		if inputs.Replication != nil {
			const frames, segmentBytes = 512, 8 << 20
			shard.Replicas = uint32(inputs.Replication.Factor) //nolint:gosec // from 0 to 8
			shard.Backup = &adminv1.BackupStorage{Frames: frames, FramesFree: frames, SegmentBytes: segmentBytes}
		}
	})
}

// lose is what a coordinator says once it has noticed a death, and others serve what was lost.
func lose(r *adminv1.GetClusterStatusResponse, name string) {
	member := find(r, name)
	if member == nil {
		return
	}
	member.State = adminv1.MemberState_MEMBER_STATE_UNREACHABLE
	shard := member.GetShards()[0]
	shard.Connected = false
	if shard.GetReplicas() == 0 || shard.GetTabletCount() == 0 {
		return // with its only copy; a successor takes the tablets over, empty
	}
	for _, other := range r.GetMembers() {
		if other.GetState() == adminv1.MemberState_MEMBER_STATE_UP {
			other.GetShards()[0].TabletCount += shard.GetTabletCount()
			shard.TabletCount = 0
			return
		}
	}
}

func find(r *adminv1.GetClusterStatusResponse, name string) *adminv1.Member {
	i := slices.IndexFunc(r.GetMembers(), func(m *adminv1.Member) bool { return m.GetName() == name })
	if i < 0 {
		return nil
	}
	return r.GetMembers()[i]
}

// Tablets gives every member as many.
func (s *Store) Tablets(each uint64) {
	s.Coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.TableCount = 1
		for _, member := range r.GetMembers() {
			member.GetShards()[0].TabletCount = each
		}
	})
}
