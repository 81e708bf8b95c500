package planner

import (
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/planner/addressbook"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

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

// openBook reads the pools.
func (p *planning) openBook() {
	pools, err := network.Pools(&p.observed.Store.Spec)
	p.book = addressbook.New(p.observed, pools)
	if err != nil {
		p.plan.Addresses.Error = err.Error()
	}
	p.plan.Addresses.Pools = pools
}

// closeBook lets pods go that have ended, and says what is left.
func (p *planning) closeBook(masters []*facts.Member) {
	b, addresses := p.book, &p.plan.Addresses
	addresses.Quarantined, addresses.Conflicts = b.Quarantined(masters), b.Conflicts(masters)
	addresses.Overlap = b.Overlap()
	addresses.Sizes, addresses.Free = b.Room()
	p.ungatePods(masters)
	p.releasePods()
}

// releasePods lets pods vanish that send nothing any more. That is on record before: of a pod that is gone it could not be seen.
func (p *planning) releasePods() {
	for i := range p.observed.Pods {
		pod := &p.observed.Pods[i]
		if !pod.Terminating() || !pod.IsHeld {
			continue
		}
		p.lookAgainIn(UnsettledInterval)
		if p.book.IsSilent(pod) && !p.observed.IsOnRecord(pod.Name) {
			p.add(steps.ReleasePod{Member: pod.Member, Pod: facts.PodRef{Name: pod.Name, UID: pod.UID}, Why: "it sends nothing any more"})
		}
	}
}

// releaseAll is for a Store that is being deleted, or sleeps: pods that have ended go, and so do, when it is deleted, those whose time is
// up. What they may send is nobody's concern then but that of other Stores in the same network.
func (p *planning) releaseAll() {
	o := p.observed
	book := addressbook.New(o, nil)
	for i := range o.Pods {
		pod := &o.Pods[i]
		isLate := (o.Store.DeletionTimestamp != nil || o.NamespaceEnds) && !o.Now.Before(pod.EndsAt.Add(goneAfter))
		if pod.Terminating() && pod.IsHeld && (isLate || book.IsSilent(pod)) {
			p.add(steps.ReleasePod{Member: pod.Member, Pod: facts.PodRef{Name: pod.Name, UID: pod.UID}, Why: "it has ended"})
		}
	}
}

// SpareAddresses is how many should be free in each pool: each member that is lost with its node needs one while its former one is in
// quarantine.
func SpareAddresses(store *v1alpha1.Store) int32 {
	return max(store.Copies(), store.Spec.Recovery.MaxConcurrentReplacements, 1)
}
