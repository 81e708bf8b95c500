package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/tunnel"
	"rcbox.dev/rcbox/operator/internal/resources"
	"rcbox.dev/rcbox/operator/proxy"
	"rcbox.dev/rcbox/operator/proxy/wire"
)

const (
	// fresh is how long it holds which pods there are and who leads, where somebody asks again and again.
	fresh = time.Second
	// leaderTimeout is how long a leader is looked for, attemptTimeout how long all coordinators together have to answer, and
	// attemptPause lies between two attempts.
	leaderTimeout  = 15 * time.Second
	attemptTimeout = 4 * time.Second
	attemptPause   = 250 * time.Millisecond
)

// Processes are those of a Store, as clients see them: a proxy.Directory.
type Processes struct {
	cluster *Cluster
	store   *v1alpha1.Store

	mu       sync.Mutex
	pods     []corev1.Pod
	listedAt time.Time

	leaderMu sync.Mutex
	leader   string
	leaderAt time.Time
}

// Processes of a Store.
func (c *Cluster) Processes(store *v1alpha1.Store) *Processes {
	return &Processes{cluster: c, store: store}
}

// ClientTarget is the port of the leader for clients, AdministratorTarget that for administrators.
func ClientTarget() proxy.Target { return proxy.Target{Port: resources.CoordinatorClientPort} }

// AdministratorTarget is the port of the leader for administrators.
func AdministratorTarget() proxy.Target { return proxy.Target{Port: resources.CoordinatorAdminPort} }

// Find implements proxy.Directory.
func (p *Processes) Find(ctx context.Context, address wire.Address) (proxy.Target, error) {
	if address.Port == resources.CoordinatorClientPort {
		return ClientTarget(), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Also where the address is known: another pod may have it by now.
	if p.cluster.Now().Sub(p.listedAt) >= fresh {
		if err := p.list(ctx); err != nil {
			return proxy.Target{}, err
		}
	}
	for i := range p.pods {
		if pod := &p.pods[i]; pod.Status.PodIP == address.Host && !hasEnded(pod) {
			return proxy.Target{Member: pod.Labels[v1alpha1.LabelMember], Port: int(address.Port)}, nil
		}
	}
	return proxy.Target{}, fmt.Errorf("no pod of Store %s/%s has the address %s: the client looks for its server again",
		p.store.Namespace, p.store.Name, address.Host)
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// list the pods. The caller has locked p.
func (p *Processes) list(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := p.cluster.List(ctx, pods, client.InNamespace(p.store.Namespace),
		client.MatchingLabels{v1alpha1.LabelStore: p.store.Name}); err != nil {
		return explain(err, "list the pods of Store %s/%s", p.store.Namespace, p.store.Name)
	}
	p.pods, p.listedAt = pods.Items, p.cluster.Now()
	return nil
}

// podsNow are those that there are.
func (p *Processes) podsNow(ctx context.Context) ([]corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.list(ctx); err != nil {
		return nil, err
	}
	return p.pods, nil
}

// Dial implements proxy.Directory.
func (p *Processes) Dial(ctx context.Context, target proxy.Target) (net.Conn, error) {
	find := p.podOf
	if target.Member == "" {
		find = p.leaderPod
	}
	pod, err := find(ctx, target.Member)
	if err != nil {
		return nil, err
	}
	connection, err := tunnel.Dial(ctx, p.cluster.Config, p.store.Namespace, pod, target.Port)
	if err != nil {
		return nil, explain(err, "forward a port (create and get on pods/portforward)")
	}
	return connection, nil
}

// podOf a member, which runs.
func (p *Processes) podOf(ctx context.Context, member string) (string, error) {
	pods, err := p.podsNow(ctx)
	if err != nil {
		return "", err
	}
	var best *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[v1alpha1.LabelMember] != member || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		// Of two, the older one was told to end, or soon is.
		isNewer := best != nil && pod.DeletionTimestamp == nil && best.CreationTimestamp.Before(&pod.CreationTimestamp)
		if best == nil || best.DeletionTimestamp != nil || isNewer {
			best = pod
		}
	}
	if best == nil {
		return "", fmt.Errorf("%s has no pod that runs: the client tries again (kubectl rcbox why -n %s %s)",
			member, p.store.Namespace, member)
	}
	return best.Name, nil
}

// leaderPod is the coordinator that leads. Where none does at the moment, one is waited for.
func (p *Processes) leaderPod(ctx context.Context, _ string) (string, error) {
	p.leaderMu.Lock()
	defer p.leaderMu.Unlock()
	if p.leader != "" && p.cluster.Now().Sub(p.leaderAt) < fresh {
		return p.leader, nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	for {
		pods, err := p.podsNow(ctx)
		if err == nil {
			var found *Coordinator
			if found, err = p.cluster.coordinatorWithin(ctx, pods, attemptTimeout); err == nil {
				found.Close()
				p.leader, p.leaderAt = found.Pod, p.cluster.Now()
				return p.leader, nil
			}
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return "", fmt.Errorf("look for the coordinator that leads: %w", ctx.Err())
			}
			return "", fmt.Errorf("no coordinator of Store %s/%s leads: %w", p.store.Namespace, p.store.Name, err)
		case <-time.After(attemptPause):
		}
	}
}

func (c *Cluster) coordinatorWithin(ctx context.Context, pods []corev1.Pod, limit time.Duration) (*Coordinator, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.Coordinator(ctx, pods)
}
