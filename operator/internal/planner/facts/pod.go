package facts

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Process is what is known of the process in a pod.
type Process int

const (
	// ProcessAbsent means that no process runs in the pod now (it never has, or the container is waiting to be started
	// again), so that the pod holds no data.
	ProcessAbsent Process = iota
	// ProcessRunning means that the container runs, as far as its kubelet has said.
	ProcessRunning
	// ProcessEnded means that the pod has ended for good: it was evicted, or its node refused it.
	ProcessEnded
)

// Pod is the part of a pod that matters here.
type Pod struct {
	Name            string
	UID             string
	ResourceVersion string
	// Component and Member as its labels say.
	Component string
	Member    string
	// Number counts the member's pods from 1.
	Number    int64
	CreatedAt time.Time
	// EndsAt is when it was told to have ended; zero for a pod that was not told to end.
	EndsAt  time.Time
	Process Process
	Ready   bool
	// NotReadySince is when it ceased to be ready, or never was; zero for one that is.
	NotReadySince time.Time
	IP            string
	Node          string
	// Inputs are what it was made from.
	Inputs resources.Inputs
	// Claim is the name of its volume claim; empty if it has none.
	Claim string
	// Domain is the failure domain that its process is told; DomainKnown is whether it was written to the pod already.
	Domain      string
	DomainKnown bool
	// CrashedAt is when its process last ended by itself; zero if it never has.
	CrashedAt time.Time
	// Restarts is how often its containers were started anew.
	Restarts int32
	// Addresses of its ports; none for a pod on the pod network alone.
	Addresses []netip.Addr
	// Ended: its kubelet says that all has ended that ran in it, or it never was on a node.
	Ended bool
	// IsHeld: it stays until it is let go, though it was told to end.
	IsHeld bool
	// EndCancelled is what its annotation says of an end that was taken back; empty without one.
	EndCancelled string
	// Gated: it gets no node, and so sends nothing, before it is ungated.
	Gated bool
	// Attached is what Multus says of its ports; AttachedKnown is whether it has.
	Attached      []network.Attached
	AttachedKnown bool
	// Refused is why its kubelet did not admit it, in Kubernetes' words; empty if it did.
	Refused string
	// Trouble is why it does not run, in Kubernetes' words; empty when it does, or is on its way.
	Trouble string
	// Unschedulable is what the scheduler says while it finds no node; empty if it has one, or has not looked.
	Unschedulable string
	// Avoids are nodes that were isolated when it was made, and on which it may not run.
	Avoids []string
	// NeverRan: no container of it was ever started.
	NeverRan bool
	// Misplaced is why it can never start where it is, for a pod that never ran; empty if it can, or nobody looked.
	Misplaced string
	// ImageUnusable: its image cannot be pulled, or has no such program; Trouble says what.
	ImageUnusable bool
}

// Terminating says whether the pod was told to end. Such a pod blocks nothing: on a dead node it may stay for ever.
func (p *Pod) Terminating() bool { return !p.EndsAt.IsZero() }

// PodRef names one very pod: a deletion goes only through if the uid and, if there is one, the resource version still match.
type PodRef struct {
	Name            string
	UID             string
	ResourceVersion string
}

// Ref names this very pod, in the state in which it was seen.
func (p *Pod) Ref() PodRef {
	return PodRef{Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
}

// Coordinators are the pods to ask, but for those that were told to end: first the one that led when somebody looked last, then the oldest.
func Coordinators(pods []Pod, lastLeader string) []*Pod {
	var list []*Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Component == v1alpha1.ComponentCoordinator && !pod.Terminating() && pod.Process == ProcessRunning && pod.IP != "" {
			list = append(list, pod)
		}
	}
	slices.SortStableFunc(list, func(a, b *Pod) int {
		if led := a.Name == lastLeader; led != (b.Name == lastLeader) {
			if led {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Number, b.Number)
	})
	return list
}
