package facts

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// DecideCopies gives what is to be on record as the number of copies, and as the room for them, where the spec does not say: for a new
// Store the defaults, for one that there is what it has. A value of the spec is on record as well, so that taking it out of the spec
// changes nothing. It looks at Store, Pods and Claims.
func DecideCopies(o *Observed) *v1alpha1.DecidedCopies {
	spec, had := &o.Store.Spec, o.Store.Status.Replication.Decided
	decided := &v1alpha1.DecidedCopies{}
	switch {
	case spec.Replication.Factor != nil:
		decided.Factor, decided.Why = *spec.Replication.Factor, "it is replication.factor"
	case had != nil:
		decided.Factor, decided.Why = had.Factor, had.Why
	default:
		decided.Factor, decided.Why = o.firstCopies()
	}
	if decided.Factor == 0 {
		return decided
	}
	size := spec.Backups.Storage.Size
	if size == nil && had != nil {
		size = had.StorageSize
	}
	if size == nil {
		first := o.firstStorage(decided.Factor)
		size = &first
	}
	room := size.DeepCopy()
	decided.StorageSize = &room
	return decided
}

// CopiesUnrecorded says whether the spec leaves something open that is not on record yet. Until then no pod and no volume is made: what is
// made of a decision must not outlive it.
func CopiesUnrecorded(store *v1alpha1.Store, decided *v1alpha1.DecidedCopies) bool {
	recorded := store.Status.Replication.Decided
	isOpen := store.Spec.Replication.Factor == nil && (recorded == nil || recorded.Factor != decided.Factor)
	hasNoSize := recorded == nil || recorded.StorageSize == nil
	return isOpen || store.Spec.Backups.Storage.Size == nil && decided.StorageSize != nil && hasNoSize
}

// firstCopies is the number of copies of a Store whose spec says nothing, and on which nothing was decided. The operators before this
// decision was made wrote a status without it, and their default was 0: such a Store has what its pods were made with.
func (o *Observed) firstCopies() (factor int32, why string) {
	masters := 0
	for i := range o.Pods {
		pod := &o.Pods[i]
		if pod.Component != v1alpha1.ComponentMaster || pod.Inputs.Image == "" {
			continue
		}
		masters++
		if pod.Inputs.Replication != nil {
			factor = max(factor, pod.Inputs.Replication.Factor)
		}
	}
	switch {
	case masters > 0:
		return factor, "the pods that were there when this was decided have as many"
	case o.Store.Status.ObservedGeneration > 0:
		return o.Store.Status.Replication.Factor, "the Store had as many when this was decided"
	default:
		replicas := o.Store.Spec.Masters.Replicas
		factor = v1alpha1.DefaultFactor(replicas)
		return factor, fmt.Sprintf("replication.factor was not set when the Store was new, and masters.replicas was "+
			"%d: the least of %d and "+
			"masters.replicas - 1", replicas, v1alpha1.DefaultCopies)
	}
}

// firstStorage is each member's room for copies where the spec says nothing, and nothing was decided: as much as there is, or the default.
func (o *Observed) firstStorage(factor int32) resource.Quantity {
	var there resource.Quantity
	for i := range o.Pods {
		if replication := o.Pods[i].Inputs.Replication; replication != nil && replication.StorageSize.Cmp(there) > 0 {
			there = replication.StorageSize
		}
	}
	if there.IsZero() {
		for name, claim := range o.Claims {
			if _, _, isMasters := resources.ParseMasterClaim(name); isMasters && claim.AskedFor.Cmp(there) > 0 {
				there = claim.AskedFor
			}
		}
	}
	memory := o.Store.Spec.Masters.Memory
	if least := v1alpha1.LeastStorage(factor, memory); !there.IsZero() && there.Cmp(least) >= 0 {
		return there
	}
	return v1alpha1.DefaultStorage(factor, memory)
}
