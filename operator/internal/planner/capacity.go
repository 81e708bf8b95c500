package planner

import (
	"fmt"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/capacity"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// defaultTarget is that of the schema, for a Store from before the field.
const defaultTarget = 2 * time.Second

// checkCapacity computes what the loss of a failure domain would cost now; nil without copies, and while nobody knows.
func (p *planning) checkCapacity() *capacity.Check {
	in := p.capacityInput()
	if len(in.Members) == 0 {
		return nil
	}
	check := capacity.MakeCheck(in)
	return &check
}

// capacityInput is made of the members that are up; there are none in it without copies.
func (p *planning) capacityInput() capacity.Input {
	store := p.observed.Store
	in := capacity.Input{
		Copies: int(store.Copies()), LeastCopies: int(store.LeastCopies()), Target: defaultTarget,
		Measured: p.observed.Measured(),
	}
	if target, err := time.ParseDuration(store.Spec.Recovery.Target); err == nil {
		in.Target = target
	}
	if store.Copies() == 0 || p.observed.Cluster == nil {
		return in
	}
	for i := range p.plan.Masters {
		if view := &p.plan.Masters[i]; view.Up {
			in.Members = append(in.Members, capacityOf(view.Reported))
		}
	}
	return in
}

// capacityOf a member, in whole percent of its logs: bytes would change what is said with every write to the store.
func capacityOf(reported *facts.MemberReport) capacity.Member {
	member := capacity.Member{
		Name: reported.Name, Domain: reported.Domain, Cores: max(len(reported.ServerIDs), 1), CapacityBytes: reported.CapacityBytes,
		LiveBytes: inPercent(reported.LiveBytes, reported.CapacityBytes),
	}
	log := reported.LiveBytes
	if backup := reported.Backup; backup != nil {
		member.RoomBytes = (backup.Frames - backup.Damaged) * backup.SegmentBytes
		if backup.Retired != "" {
			member.RoomBytes = 0
		}
		// What is replayed is the log with all that is dead in it.
		log = max(log, min(reported.Segments*backup.SegmentBytes, reported.CapacityBytes))
	}
	member.LogBytes = inPercent(log, reported.CapacityBytes)
	if reported.Draining != nil {
		member.Cores = 0 // it gets nothing any more
	}
	return member
}

// inPercent is the part rounded up to whole percents of the whole.
func inPercent(part, whole int64) int64 {
	const all = 100
	hundredth := (whole + all - 1) / all
	if hundredth == 0 {
		return part
	}
	return (part + hundredth - 1) / hundredth * hundredth
}

func (p *planning) refuses() bool {
	return p.observed.Store.Spec.Recovery.CapacityPolicy == v1alpha1.CapacityRefuse
}

// whyNotFewer says why no master may go for which the spec has no place any more; empty if they may.
func (p *planning) whyNotFewer() string {
	if !p.refuses() {
		return ""
	}
	store := p.observed.Store
	in := capacity.Without(p.capacityInput(), func(name string) bool {
		ordinal, _ := v1alpha1.MasterOrdinal(store.Name, name)
		return ordinal >= int(store.Spec.Masters.Replicas)
	})
	return whyHeldBack(in, fmt.Sprintf("scaling in to %d masters", store.Spec.Masters.Replicas))
}

// whyNotSmaller says why a master may not be restarted with less memory; empty if it may, or gets no less.
func (p *planning) whyNotSmaller(pod *facts.Pod) string {
	spec := p.observed.Store.Spec
	if !p.refuses() || pod.Inputs.Memory == nil || spec.Masters.Memory.Cmp(*pod.Inputs.Memory) >= 0 {
		return ""
	}
	now := pod.Inputs
	then := resources.InputsFor(p.observed.Store, v1alpha1.ComponentMaster, p.plan.Image, p.observed.StateType())
	in := p.capacityInput()
	for i := range in.Members {
		member := &in.Members[i]
		smaller := member.CapacityBytes / max(resources.StoreMemoryMiB(now), 1) * max(resources.StoreMemoryMiB(then), 0)
		member.CapacityBytes = min(member.CapacityBytes, smaller)
	}
	return whyHeldBack(in, "masters.memory: "+spec.Masters.Memory.String())
}

func whyHeldBack(in capacity.Input, change string) string {
	if len(in.Members) == 0 {
		return change + " waits until masters are up: recovery.capacityPolicy is Refuse"
	}
	check := capacity.MakeCheck(in)
	if check.Verdict == capacity.OnTarget || check.Verdict == capacity.OnTargetSoFar {
		return ""
	}
	return fmt.Sprintf("%s is held back, for recovery.capacityPolicy is Refuse, and afterwards: %s", change, check.Describe())
}
