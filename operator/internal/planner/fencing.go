package planner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	// defaultFenceAfter is that of the schema, for a Store from before the field.
	defaultFenceAfter = 3 * time.Minute
	// proofInterval is how often a NodeFence is looked at while the proof is waited for: the operator watches none.
	proofInterval = time.Second
	// returnAfter is how long a member that has moved keeps the machine off that it was on, if it does not come up elsewhere.
	returnAfter = time.Minute
	// maxFences is what the status has room for.
	maxFences = 16
)

var (
	recordedFences = rule{name: "recorded fences", gives: (*planning).followFencing}

	newFences = rule{
		name: "new fences",
		blockedBy: []blocker{
			{"spec.recovery.fencing.type is None", func(p *planning) bool {
				kind := p.observed.Store.Spec.Recovery.Fencing.Type
				return kind == "" || kind == v1alpha1.FencingNone
			}},
		},
		gives: (*planning).noteFences,
	}
)

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
			p.add(steps.UnfenceNode{Fence: fence, Why: back})
			fence.Message = "the fence is withdrawn: " + back
		case fence.RequestedAt != nil:
			fence.Done, fence.Message = state.Done, state.Message
		default:
			if fence.Message = p.whyNotFenced(&fence, state); fence.Message == "" {
				why := p.howLost(fence.Node) + ", and " + fence.Member + " was lost with it and is proven dead"
				p.add(steps.FenceNode{Fence: fence, Why: why})
				p.lookAgainIn(lockInterval)
			}
		}
		isUntainted := node.Ready && !node.OutOfService // no member moves before the taint is set
		if fence.Type == v1alpha1.FencingBMC && fence.RequestedAt != nil && (!fence.Done || isUntainted) {
			p.lookAgainIn(proofInterval)
		}
		p.plan.Fences = append(p.plan.Fences, fence)
	}
}

// howLost says what is known of a node that is to be fenced.
func (p *planning) howLost(node string) string {
	if p.observed.IsSilent(node) {
		return "its kubelet is silent"
	}
	return "it is not ready"
}

// noteFences: a node that is not ready, or silent, and with which a member was lost that is proven dead on record. No more nodes than
// copies make up for: what looks like more is mostly the loss of a network.
func (p *planning) noteFences() {
	spec := &p.observed.Store.Spec
	for i := range p.plan.Masters {
		view := &p.plan.Masters[i]
		isNoted := func(f v1alpha1.FenceStatus) bool { return view.Lost != nil && f.Node == view.Lost.Node }
		recorded := p.observed.Recorded(view.Name).Lost
		if !view.Lost.isSudden() || view.Lost.ProvenAt.IsZero() ||
			recorded == nil || recorded.ProvenAt == nil || slices.ContainsFunc(p.plan.Fences, isNoted) ||
			len(p.plan.Fences) >= min(int(p.observed.Store.Copies()), maxFences) {
			continue
		}
		p.plan.Fences = append(p.plan.Fences, v1alpha1.FenceStatus{
			Node: view.Lost.Node, Type: spec.Recovery.Fencing.Type, Member: view.Name,
			Since: metav1.NewTime(view.Lost.Since.Truncate(time.Second)), Message: "the status to record the request",
			RemediationTemplate: spec.Recovery.Fencing.RemediationTemplate,
		})
		p.lookAgainIn(lockInterval)
	}
}

// hasLeft: a fenced node's machine is proved to be off, and the Store does not need that any more, so it may be switched on again.
func (p *planning) hasLeft(fence *v1alpha1.FenceStatus) bool {
	o := p.observed
	isOn := func(pod facts.Pod) bool { return pod.Node == fence.Node }
	if !fence.Done || !o.IsProvedOff(fence.Node) || o.Cluster == nil || slices.ContainsFunc(o.Pods, isOn) {
		return false
	}
	// Nobody knows who is lost with it while no coordinator answers, or while a volume's node cannot be read.
	mayBeThere := func(m *facts.Member) bool {
		claim, _, _ := m.Claim()
		home, _ := m.Home()
		return m.Ordinal < int(o.Store.Spec.Masters.Replicas) && (home == fence.Node || claim.IsHomeUnknown)
	}
	if slices.ContainsFunc(p.masters, mayBeThere) {
		return false
	}
	for i := range p.plan.Masters {
		view := &p.plan.Masters[i]
		// Its volume is detached from a node only while that is known to be off. One that finds no other place is not waited for: its
		// node's machine may be the only one that has room for it.
		if view.Name == fence.Member && view.Wanted && !view.Up && (view.Pod == nil || o.Now.Sub(view.Pod.CreatedAt) < returnAfter) {
			return false
		}
	}
	return true
}

// whyReleased says why a node is not to be fenced any more; empty if it is.
func (p *planning) whyReleased(fence *v1alpha1.FenceStatus, node facts.Node) string {
	switch {
	case node.Deleted:
		return "there is no such node any more"
	case node.Ready && !p.observed.IsSilent(fence.Node):
		return "the node is ready"
	case p.hasLeft(fence):
		return "the node's server was proved to be off, and the Store's member there has moved"
	case p.observed.Store.Spec.Recovery.Fencing.Type != fence.Type:
		return "recovery.fencing.type is not " + string(fence.Type) + " any more"
	default:
		return ""
	}
}

// whyNotFenced says what a node that is to be fenced waits for; empty if that can be now.
func (p *planning) whyNotFenced(fence *v1alpha1.FenceStatus, state facts.FenceState) string {
	o := p.observed
	after, err := time.ParseDuration(o.Store.Spec.Recovery.Fencing.After)
	if err != nil {
		after = defaultFenceAfter
	}
	due := fence.Since.Add(after)
	_, isKnown := o.Nodes[fence.Node]
	isUnderWay := func(f v1alpha1.FenceStatus) bool { return f.RequestedAt != nil && !f.Done }
	domains := p.lostDomains()
	switch {
	case !isKnown:
		return "the operator to learn whether the node is ready"
	case state.Done || state.Message != "":
		return "another controller, which fences the node or has fenced it: " + cmp.Or(state.Message, "it has the taint")
	case o.Now.Before(due):
		p.lookAgainIn(due.Sub(o.Now))
		return "the node to come back, until " + due.UTC().Format("15:04:05 UTC")
	case domains > int(o.Store.Copies()):
		return fmt.Sprintf("nodes to come back: %d failure domains are lost, and the copies survive the loss of only %d",
			domains, o.Store.Copies())
	case slices.ContainsFunc(o.Store.Status.Fences, isUnderWay):
		return "another node that is being fenced"
	case o.Store.Spec.Paused:
		return "spec.paused: false"
	case o.Store.Spec.Recovery.DryRun:
		return "recovery.dryRun: false (fencing is due, and a dry run only reports it)"
	default:
		return ""
	}
}

// releaseFences is for a Store that is being deleted.
func (p *planning) releaseFences() {
	for _, fence := range p.observed.Store.Status.Fences {
		if fence.RequestedAt != nil || p.observed.Fences[fence.Node].Requested {
			p.add(steps.UnfenceNode{Fence: fence, Why: "the Store is being deleted"})
		}
	}
}
