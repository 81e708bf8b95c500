// Package planner decides what to do next for a Store: Make is a pure function from what was observed (package facts) to an ordered list of
// steps (package steps), each with its reason. There is no client and no clock in it.
//
// Make derives views of all members (derive.go), follows the rules in the order in which they are listed below, and settles which process
// ends next (lock.go). A rule sees what the rules before it gave, and names each condition under which it gives nothing.
package planner

import (
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// serving are the rules for a Store that is there to serve.
var serving = []rule{
	finalizer,
	formerOrders,
	objects,
	coordinatorPods,
	outdatedCoordinators,
	masterPods,
	addressPools,
	ungatedPods,
	silentPods,
	settings,
	formerVolumes,
	lostMembers,
	drainedNodes,
	recordedFences,
	newFences,
	failingNodes,
	withdrawnDrains,
	orderedDrains,
	finalizedUpgrades,
	orderedSplits,
	scalingIn,
	emptyMasters,
	outdatedProcesses,
	growClaim,
	drills,
	finishedOperations,
}

// settled are the rules that come when it is settled which process is the next to end.
var settled = []rule{
	startHibernation,
	hibernatedPods,
	wakeUp,
	undecidedCopies,
	notAllowed,
	paused,
}

// deleting are the rules for a Store that is being deleted.
var deleting = []rule{
	endedPods,
	livePods,
	reclaimedClaims,
	coordinatorState,
	allFences,
	allOperations,
	lastFinalizer,
}

// Make decides what to do next.
func Make(o facts.Observed) Plan {
	p := &planning{observed: &o, plan: Plan{Next: SettledInterval, Image: facts.ResolveImage(&o), Drills: drillsOf(o.Store)}}
	p.plan.Privileges = o.Privileges()
	p.plan.NotAllowed = o.NotAllowed(p.plan.Privileges)
	if o.Store.DeletionTimestamp != nil {
		p.plan.Next = UnsettledInterval
		p.follow(deleting)
		return p.plan
	}
	p.derive()
	p.follow(serving)
	p.settleLock()
	p.follow(settled)
	return p.plan
}

// MakeForEnd decides what to do for a Store whose namespace is being deleted: nothing can be made there any more, and pods are let go as
// if the Store were being deleted, which Kubernetes does only when they have gone.
func MakeForEnd(o facts.Observed) []steps.Step {
	o.NamespaceEnds = true
	p := &planning{observed: &o}
	p.follow([]rule{endedPods})
	return p.plan.Steps
}
