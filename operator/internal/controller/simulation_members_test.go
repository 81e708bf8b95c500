package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/record"
)

// disturbMembers is what others do to StoreMembers: somebody deletes one, who may do everything; and, once in a simulation at most, an
// earlier operator had the Store until now, which had everything in the Store's status.
func (s *simulation) disturbMembers() {
	store := s.store()
	if store == nil || store.DeletionTimestamp != nil || s.isMeanwhile {
		return
	}
	const deletions, upgrades = 0.01, 0.02
	members := all[*v1alpha1.StoreMember](s.api.objects)
	if len(members) > 0 && s.membering.Float64() < deletions {
		member := members[s.membering.IntN(len(members))]
		// One of which the Store's status knows nothing yet is the only place that has the number of a pod (docs/store-members.md).
		isKnown := record.IsMissing(store, member.Name) && member.Record.PodNumber <= store.Status.Record.HighestPodNumber
		if !isKnown {
			return
		}
		s.trace("somebody deletes StoreMember %s", member.Name)
		s.counts[isMemberDeleted]++
		s.api.tellToEnd(member)
	}
	if store.Status.Record != nil && !s.wasFormer && s.membering.Float64() < upgrades {
		s.becomeFormer()
	}
}

// becomeFormer has the status as an earlier operator wrote it. It is gone, and what has to be right from now on is what its successor makes
// of that.
func (s *simulation) becomeFormer() {
	joined := s.joined()
	for ordinal := range 16 {
		if record.IsMissing(joined, v1alpha1.MasterMember("sim", ordinal)) {
			return // what an earlier operator knew is not known then
		}
	}
	s.wasFormer = true
	s.counts[isFormerStatus]++
	s.trace("the operator is replaced by a newer one")
	former := s.joined().Status
	former.Record, former.Masters.Unwell = nil, nil
	for _, member := range all[*v1alpha1.StoreMember](s.api.objects) {
		s.api.tellToEnd(member)
	}
	edit(s.api, "sim", func(store *v1alpha1.Store) { store.Status = former })
	s.former, s.operator = nil, s.startOperator()
}

// createMember makes a StoreMember that is not there.
func (c *operatorClient) createMember(object *v1alpha1.StoreMember) error {
	return c.writeMember("create "+object.GetName(), func() error {
		if _, there := c.simulatedAPI.objects[keyOf(object)]; there && !c.overwrites() {
			return apierrors.NewAlreadyExists(schema.GroupResource{}, object.GetName())
		}
		if c.s.store() == nil {
			return notFound("its owner")
		}
		if planted := c.s.planted; planted != nil && planted.drops != nil && record.IsFormer(&c.s.store().Status) {
			planted.drops(object)
		}
		return c.putCopy(object)
	})
}

// Update of an object that is in the version that it was seen in.
func (c *operatorClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	if !simulated(object) {
		return c.Client.Update(ctx, object, options...)
	}
	return c.writeMember("update "+object.GetName(), func() error {
		there, found := c.simulatedAPI.objects[keyOf(object)]
		switch {
		case !found:
			return notFound(object.GetName())
		case there.GetResourceVersion() != object.GetResourceVersion() && !c.overwrites():
			return conflict(object.GetName())
		default:
			return c.putCopy(object)
		}
	})
}

// writeMember is a write that may be the one before which an operator ends that has written its Store's status.
func (c *operatorClient) writeMember(what string, do func() error) error {
	isBetween := c.operator.wroteStatus
	if planted := c.s.planted; planted != nil && planted.writesLater && !isBetween {
		return nil
	}
	defer func() {
		if end := recover(); end != nil {
			if isBetween {
				c.s.counts[isKilledBetween]++
			}
			panic(end)
		}
	}()
	return c.s.write(what, do)
}

func (c *operatorClient) overwrites() bool { return c.s.planted != nil && c.s.planted.overwrites }

// putCopy stores a copy, and gives the caller's object its version.
func (c *operatorClient) putCopy(object client.Object) error {
	stored, isObject := object.DeepCopyObject().(client.Object)
	if !isObject {
		return fmt.Errorf("%T is no object", object)
	}
	c.put(stored)
	object.SetResourceVersion(stored.GetResourceVersion())
	object.SetUID(stored.GetUID())
	return nil
}

// createLate is what comes of a call that arrives when others have gone on.
func (c *operatorClient) createLate(object client.Object) error {
	c.s.counts[isLatePod]++
	c.s.noteMade(object)
	if c.s.store() == nil {
		return notFound("its owner") // who is gone, so that it would be removed at once
	}
	if _, there := c.simulatedAPI.objects[keyOf(object)]; there {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, object.GetName(), nil) // its spec cannot be changed
	}
	c.put(object)
	return nil
}
