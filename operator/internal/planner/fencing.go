package planner

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	// defaultFenceAfter is that of the schema, for a Store from before the field.
	defaultFenceAfter = 3 * time.Minute
	// maxFences is what the status has room for.
	maxFences = 16
)

// FenceState is how far the fencing of a node is.
type FenceState struct {
	// Requested by this Store, and Done, by whomever.
	Requested bool
	Done      bool
	// Message is what whoever does it says.
	Message string
}

// followFencing fences nodes with which members were lost, and takes that back when they are back. What is to be done is on record before;
// from then on it does not matter any more whether the member has moved meanwhile.
func (p *planning) followFencing() {
	o := p.observed
	for _, fence := range o.Store.Status.Fences {
		state, node := o.Fences[fence.Node], o.Nodes[fence.Node]
		if fence.RequestedAt == nil && state.Requested {
			requestedAt := metav1.NewTime(o.Now.Truncate(time.Second))
			fence.RequestedAt = &requestedAt
		}
		back := p.whyReleased(&fence, node)
		p.lookAgainIn(UnsettledInterval)
		switch {
		case back != "" && fence.RequestedAt == nil:
			continue
		case back != "":
			p.add(UnfenceNode{Fence: fence, Why: back})
			fence.Message = "it is taken back: " + back
		case fence.RequestedAt != nil:
			fence.Done, fence.Message = state.Done, state.Message
		default:
			if fence.Message = p.whyNotFenced(&fence, state); fence.Message == "" {
				p.add(FenceNode{Fence: fence, Why: "it is not ready, and " + fence.Member + " was lost with it and is proven dead"})
			}
		}
		p.plan.Fences = append(p.plan.Fences, fence)
	}
	p.noteFences()
}

// noteFences: a node that is not ready, and with which a member was lost that is proven dead on record. No more nodes than copies make up
// for: what looks like more is mostly the loss of a network.
func (p *planning) noteFences() {
	spec := &p.observed.Store.Spec
	if spec.Recovery.Fencing.Type == "" || spec.Recovery.Fencing.Type == v1alpha1.FencingNone {
		return
	}
	for i := range p.plan.Masters {
		view := &p.plan.Masters[i]
		isNoted := func(f v1alpha1.FenceStatus) bool { return view.Lost != nil && f.Node == view.Lost.Node }
		recorded := p.observed.recordedLoss(view.Name)
		if view.Lost == nil || view.Lost.Cause != v1alpha1.NodeNotReady || view.Lost.ProvenAt.IsZero() ||
			recorded == nil || recorded.ProvenAt == nil || slices.ContainsFunc(p.plan.Fences, isNoted) ||
			len(p.plan.Fences) >= min(int(spec.Replication.Factor), maxFences) {
			continue
		}
		p.plan.Fences = append(p.plan.Fences, v1alpha1.FenceStatus{
			Node: view.Lost.Node, Type: spec.Recovery.Fencing.Type, Member: view.Name,
			Since: metav1.NewTime(view.Lost.Since.Truncate(time.Second)), Message: "it goes on record first",
			RemediationTemplate: spec.Recovery.Fencing.RemediationTemplate,
		})
	}
}

// whyReleased says why a node is not to be fenced any more; empty if it is.
func (p *planning) whyReleased(fence *v1alpha1.FenceStatus, node Node) string {
	switch {
	case node.Deleted:
		return "there is no such node any more"
	case node.Ready:
		return "the node is ready"
	case p.observed.Store.Spec.Recovery.Fencing.Type != fence.Type:
		return "recovery.fencing.type is not " + string(fence.Type) + " any more"
	default:
		return ""
	}
}

// whyNotFenced says what a node that is to be fenced waits for; empty if that can be now.
func (p *planning) whyNotFenced(fence *v1alpha1.FenceStatus, state FenceState) string {
	o := p.observed
	after, err := time.ParseDuration(o.Store.Spec.Recovery.Fencing.After)
	if err != nil {
		after = defaultFenceAfter
	}
	due := fence.Since.Add(after)
	_, isKnown := o.Nodes[fence.Node]
	isUnderWay := func(f v1alpha1.FenceStatus) bool { return f.RequestedAt != nil && !f.Done }
	lost := map[string]bool{}
	for _, m := range o.masters() {
		i := slices.IndexFunc(p.plan.Masters, func(v MemberView) bool { return v.Name == m.name })
		if i >= 0 && p.plan.Masters[i].Lost != nil {
			lost[o.lostDomain(m, p.plan.Masters[i].Lost.Node)] = true
		}
	}
	switch {
	case !isKnown:
		return "it to be known whether the node is ready"
	case state.Done || state.Message != "":
		return "somebody else, who is at it or has done it: " + orElse(state.Message, "it has the taint")
	case o.Now.Before(due):
		p.lookAgainIn(due.Sub(o.Now))
		return "the node to come back, until " + due.UTC().Format("15:04:05 UTC")
	case len(lost) > int(o.Store.Spec.Replication.Factor):
		return fmt.Sprintf("%d failure domains are lost, more than the %d that copies make up for: nodes have to come back",
			len(lost), o.Store.Spec.Replication.Factor)
	case slices.ContainsFunc(o.Store.Status.Fences, isUnderWay):
		return "another node that is being fenced"
	case o.Store.Spec.Paused:
		return "spec.paused to be taken back"
	case o.Store.Spec.Recovery.DryRun:
		return "nothing: it would be fenced now, but recovery.dryRun is set"
	default:
		return ""
	}
}

// releaseFences is for a Store that is being deleted.
func (p *planning) releaseFences() {
	for _, fence := range p.observed.Store.Status.Fences {
		if fence.RequestedAt != nil || p.observed.Fences[fence.Node].Requested {
			p.add(UnfenceNode{Fence: fence, Why: "the Store is being deleted"})
		}
	}
}
