package facts

import (
	"cmp"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/record"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// Member is what was observed of one member.
type Member struct {
	Name    string
	Ordinal int
	// Live pods, those that were not told to end; the one that counts comes first.
	Live []*Pod
	// Reported is what the coordinator knows; nil when it knows nothing.
	Reported *MemberReport
	// Claims of volumes that it has or had, the newest last; of a master.
	Claims []Claim
	// HighestPod is the highest number of any of its pods.
	HighestPod int64
	// IsKnown is whether it has been a member before.
	IsKnown bool
}

// Masters are all that should be there, have a pod, or are known to the coordinator; by ordinal.
func (o *Observed) Masters() []*Member {
	ordinals := map[int]*MemberReport{}
	for ordinal := range int(o.Store.Spec.Masters.Replicas) {
		ordinals[ordinal] = nil
	}
	for i := range o.Pods {
		pod := &o.Pods[i]
		ordinal, ok := v1alpha1.MasterOrdinal(o.Store.Name, pod.Member)
		if ok && !pod.Terminating() {
			ordinals[ordinal] = nil
		}
	}
	if o.Cluster != nil {
		for i := range o.Cluster.Members {
			reported := &o.Cluster.Members[i]
			if ordinal, ok := v1alpha1.MasterOrdinal(o.Store.Name, reported.Name); ok {
				ordinals[ordinal] = reported
			}
		}
	}
	members := make([]*Member, 0, len(ordinals))
	claims := o.claimsByMember()
	for ordinal, reported := range ordinals {
		m := o.gather(v1alpha1.MasterMember(o.Store.Name, ordinal), ordinal, reported)
		m.Claims = claims[m.Name]
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b *Member) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return members
}

// CoordinatorMembers are all that should be there or have a pod, by ordinal.
func (o *Observed) CoordinatorMembers() []*Member {
	var members []*Member
	for ordinal := range v1alpha1.MaxCoordinators {
		m := o.gather(v1alpha1.CoordinatorMemberAt(o.Store.Name, ordinal), ordinal, nil)
		if ordinal < o.WantedCoordinators() || len(m.Live) > 0 {
			members = append(members, m)
		}
	}
	return members
}

// claimsByMember are the claims of each master, the newest last.
func (o *Observed) claimsByMember() map[string][]Claim {
	number := func(claim Claim) int {
		_, number, _ := resources.ParseMasterClaim(claim.Name)
		return number
	}
	byMember := map[string][]Claim{}
	for name, claim := range o.Claims {
		if member, _, ok := resources.ParseMasterClaim(name); ok {
			claim.Name = name
			byMember[member] = append(byMember[member], claim)
		}
	}
	for _, claims := range byMember {
		slices.SortFunc(claims, func(a, b Claim) int { return cmp.Compare(number(a), number(b)) })
	}
	return byMember
}

func (o *Observed) gather(name string, ordinal int, reported *MemberReport) *Member {
	m := &Member{Name: name, Ordinal: ordinal, Reported: reported}
	m.HighestPod, m.IsKnown = o.recordedPodNumber(name)
	for i := range o.Pods {
		pod := &o.Pods[i]
		if pod.Member != name {
			continue
		}
		m.HighestPod, m.IsKnown = max(m.HighestPod, pod.Number), true
		if !pod.Terminating() {
			m.Live = append(m.Live, pod)
		}
	}
	// The one whose process has enlisted counts, else the oldest.
	slices.SortStableFunc(m.Live, func(a, b *Pod) int {
		if reported.Runs(a) != reported.Runs(b) {
			if reported.Runs(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Number, b.Number)
	})
	return m
}

// recordedPodNumber is what the status has: the member's, or that from which a new member goes on.
func (o *Observed) recordedPodNumber(name string) (number int64, known bool) {
	status := &o.Store.Status
	if _, ok := v1alpha1.CoordinatorOrdinal(o.Store.Name, name); ok {
		return status.Coordinator.PodNumber, status.Coordinator.PodNumber > 0
	}
	for i := range status.Masters.Members {
		if status.Masters.Members[i].Name == name {
			return status.Masters.Members[i].PodNumber, true
		}
	}
	if record.IsMissing(o.Store, name) {
		return max(status.Masters.RetiredPodNumber, status.Record.HighestPodNumber), true
	}
	return status.Masters.RetiredPodNumber, false
}

// Pod is the one that counts; nil when there is none.
func (m *Member) Pod() *Pod {
	if len(m.Live) == 0 {
		return nil
	}
	return m.Live[0]
}

// Tablets is how many parts of tables the member holds.
func (m *Member) Tablets() int64 {
	if m.Reported == nil {
		return 0
	}
	return m.Reported.Tablets
}

// Claim is the member's present one, and how many it has had at least; false if it has none.
func (m *Member) Claim() (claim Claim, number int, found bool) {
	if len(m.Claims) == 0 {
		return Claim{}, 0, false
	}
	claim = m.Claims[len(m.Claims)-1]
	_, number, _ = resources.ParseMasterClaim(claim.Name)
	return claim, number, true
}

// Up says whether the member's present process serves.
func (m *Member) Up() bool {
	return m.Reported != nil && m.Reported.Connected && m.Reported.Runs(m.Pod())
}

// Home is the node that a member's volume is tied to, or else that of its pod; empty if it has none.
func (m *Member) Home() (node string, withVolume bool) {
	if claim, _, found := m.Claim(); found && claim.TiedTo != "" {
		return claim.TiedTo, true
	}
	if pod := m.Pod(); pod != nil {
		return pod.Node, false
	}
	return "", false
}

// HasNothing says whether nobody needs anything that the member has: the coordinator says so, or knows no such member.
func (m *Member) HasNothing() bool {
	draining := m.Draining()
	return m.Reported == nil || draining != nil && draining.Drained
}

// Draining is how far the member is with leaving the store; nil unless it is to leave.
func (m *Member) Draining() *Draining {
	if m.Reported == nil {
		return nil
	}
	return m.Reported.Draining
}

// KeepsNone says whether the member's process was started without copies, or may have been. A coordinator reports 0 copies of a member
// that is away, too, so that its pod counts; without a pod, its next one is made from the spec.
func (m *Member) KeepsNone() bool {
	pod := m.Pod()
	switch {
	case m.Up() && m.Reported.Copies > 0:
		return false
	case pod != nil && pod.Inputs.Image != "":
		return pod.Inputs.Replication == nil
	default: // what the pod was made from cannot be read
		return pod != nil
	}
}

// LostDomain is the failure domain that was lost with the member.
func (o *Observed) LostDomain(m *Member, node string) string {
	if m.Reported != nil && m.Reported.Domain != "" {
		return m.Reported.Domain
	}
	if pod := m.Pod(); pod != nil && pod.Domain != "" {
		return pod.Domain
	}
	return node
}

// DownMember is a master that is not up, or not to stay where it is, and what would tell why.
type DownMember struct {
	Member string
	// Node of its pod, and its Claim; empty where there is none.
	Node  string
	Claim string
}

// Displaced are the masters that are not up, and that have been somewhere, and those whose nodes are drained.
func Displaced(o *Observed) []DownMember {
	var list []DownMember
	for _, m := range o.Masters() {
		if node, _ := m.Home(); m.Up() && o.DrainOf(node) == "" {
			continue
		}
		down := DownMember{Member: m.Name}
		if pod := m.Pod(); pod != nil {
			down.Node = pod.Node
		}
		if claim, _, found := m.Claim(); found {
			down.Claim = claim.Name
		}
		if down.Node != "" || down.Claim != "" {
			list = append(list, down)
		}
	}
	return list
}

// IsUsed says whether a pod that was not told to end has the volume of this claim.
func (o *Observed) IsUsed(claim string) bool {
	return slices.ContainsFunc(o.Pods, func(pod Pod) bool { return !pod.Terminating() && pod.Claim == claim })
}
