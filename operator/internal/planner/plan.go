package planner

import (
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/capacity"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/planner/addressbook"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	// SettledInterval is how often a Store is looked at where nothing is to be done: some rules wait for a time, and figures change
	// without anybody telling of it.
	SettledInterval = 5 * time.Second
	// UnsettledInterval is how often it is looked at while something is awaited.
	UnsettledInterval = 2 * time.Second
)

// Plan is what to do next, and what was made of what was seen.
type Plan struct {
	// Steps in order. Each is right only if those before it succeeded.
	Steps []steps.Step
	// NotAllowed says what of the spec the Store may not have; then there are no steps. Privileges are what it has in any case.
	NotAllowed string
	Privileges *v1alpha1.PrivilegesStatus
	// Withheld are steps that would be taken if the Store were not paused.
	Withheld []steps.Step
	// Hibernation is set for a Store that is to sleep.
	Hibernation *Hibernation
	// IsWaking: it was hibernated, and pods are left that somebody may still be about to end for that.
	IsWaking bool
	// Image is that of new pods.
	Image string
	// Coordinators and Masters, by ordinal, are what is and what should be.
	Coordinators []MemberView
	Masters      []MemberView
	// Coordinator is the one that leads, as far as is known.
	Coordinator MemberView
	// Shortfall is what keeps the data from having all its copies; nil when nothing does, and for a Store without copies.
	Shortfall *Shortfall
	// Capacity is what the loss of a failure domain would cost; nil without copies, and while nobody knows.
	Capacity *capacity.Check
	// HeldBack says which change waits because of that, and why; empty when none does.
	HeldBack string
	// PodRefused is the pod that stays though it is to be replaced, because the API server refuses the next one; nil if there is none.
	PodRefused *PodRefusal
	// OrdersCarriedOver: no annotation is an order any more.
	OrdersCarriedOver bool
	// Drills is what becomes of them.
	Drills Drills
	// Addresses of masters' ports.
	Addresses Addresses
	// Fences are the nodes that are fenced, or are to be.
	Fences []v1alpha1.FenceStatus
	// Lock is the disruption lock that is to be on record: the one process that serves and that may be ended next; nil if there is none.
	Lock *v1alpha1.DisruptionLock
	// Next is when to look again, if nothing happens before.
	Next time.Duration
}

// PodRefusal is a pod that the operator would replace, and that stays because the API server refuses its member's next pod.
type PodRefusal struct {
	Member string
	// Message says what refuses, and what to do.
	Message string
}

// Addresses is what was made of pools and of who has what.
type Addresses struct {
	// Error says why there are no pools, if the Store's are not to be read.
	Error string
	// Sizes and Free addresses of the pools, in the order of ports.
	Pools []network.Pool
	Sizes []int32
	Free  []int32
	// Overlap names an older Store that takes addresses from the same range; empty if there is none.
	Overlap string
	// Quarantined, by address and pod.
	Quarantined []addressbook.Quarantined
	// Conflicts are pods whose ports are not what was asked for, and pods with the same address: a sentence for each.
	Conflicts []string
}

// SpareAddresses is how many should be free in each pool: each member that is lost with its node needs one while its former one is in
// quarantine.
func SpareAddresses(store *v1alpha1.Store) int32 {
	return max(store.Copies(), store.Spec.Recovery.MaxConcurrentReplacements, 1)
}
