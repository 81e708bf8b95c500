package plan_test

import (
	"math/rand/v2"
	"time"

	"rcbox.dev/rcbox/operator/internal/box/plan"
)

const (
	// silentSeconds without a renewal of its Lease make a kubelet silent; after graceSeconds its node is not ready.
	silentSeconds = 3
	graceSeconds  = 15
	// lateSeconds may pass between the last look of an operator that was killed and a command's effect.
	lateSeconds = 2
)

// kubelets are what speaks for nodes, and the processes of Stores beside them: each may fail while the other lives.
type kubelets struct {
	chance *rand.Rand
	// heardAt is when each node's Lease was renewed last.
	heardAt map[string]int
	// downUntil: the kubelet does not run. crashedUntil: the process of the Store that asks for fences does not, and is declared dead;
	// otherCrashedUntil: the same of another Store, which is on each node.
	downUntil, crashedUntil, otherCrashedUntil map[string]int
	// cutOffUntil: no kubelet reaches the API server.
	cutOffUntil int
	// deadAt is when a node could last be taken for dead: it was not ready and no other Store was served there, or it was called ready and
	// nothing spoke for it.
	deadAt map[string]int
}

func newKubelets(chance *rand.Rand) *kubelets {
	return &kubelets{
		chance: chance, heardAt: map[string]int{}, downUntil: map[string]int{}, crashedUntil: map[string]int{},
		otherCrashedUntil: map[string]int{}, deadAt: map[string]int{},
	}
}

// passKubelets lets kubelets renew Leases, and fail.
func (s *sim) passKubelets(isCalm bool) {
	k := s.kubelets
	for _, b := range s.blades {
		if s.isReady(b) && s.now >= k.downUntil[b.node] && s.now >= k.cutOffUntil {
			k.heardAt[b.node] = s.now
		}
		switch kind := k.chance.IntN(60); {
		case isCalm:
		case kind == 0:
			k.downUntil[b.node] = s.now + 1 + k.chance.IntN(2*graceSeconds)
		case kind == 1:
			k.crashedUntil[b.node] = s.now + 1 + k.chance.IntN(2*graceSeconds)
		case kind == 2:
			k.otherCrashedUntil[b.node] = s.now + 1 + k.chance.IntN(2*graceSeconds)
		}
	}
	if k.chance.IntN(100) == 0 && !isCalm {
		k.cutOffUntil = s.now + 1 + k.chance.IntN(graceSeconds)
		s.say("no kubelet reaches the API server until %d", k.cutOffUntil)
	}
	for i, b := range s.blades {
		isDead := s.isOtherDead(i)
		if s.isCalledReady(b.node) {
			isDead = isDead && s.isSilent(b.node) && s.isMemberDead(i) && s.countSilentBeside(b)*4 < blades
		}
		if isDead {
			k.deadAt[b.node] = s.now
		}
	}
}

// mayBeCut: when the command was checked last, the node could be taken for dead.
func (s *sim) mayBeCut(node string) bool {
	deadAt, wasDead := s.kubelets.deadAt[node]
	if !wasDead || s.now-deadAt > s.late() {
		return false
	}
	if s.isCalledReady(node) {
		s.counts["fenced early"]++
	}
	return true
}

// late is how old the last check before a command may be.
func (s *sim) late() int {
	if s.isSent {
		return lateSeconds
	}
	return 0
}

func (s *sim) isCalledReady(node string) bool {
	heardAt, isHeard := s.kubelets.heardAt[node]
	return isHeard && s.now-heardAt < graceSeconds
}

func (s *sim) isSilent(node string) bool {
	heardAt, isHeard := s.kubelets.heardAt[node]
	return isHeard && s.now-heardAt >= silentSeconds
}

func (s *sim) countSilentBeside(b *blade) int {
	count := 0
	for _, other := range s.blades {
		if other != b && s.isCalledReady(other.node) && s.isSilent(other.node) {
			count++
		}
	}
	return count
}

// isMemberDead: the Store that asks for fences has no process on a blade, and that was found out.
func (s *sim) isMemberDead(i int) bool {
	b := s.blades[i]
	return !s.isReady(b) || s.now < s.kubelets.crashedUntil[b.node]
}

// isOtherDead is the same of another Store.
func (s *sim) isOtherDead(i int) bool {
	b := s.blades[i]
	return !s.isReady(b) || s.now < s.kubelets.otherCrashedUntil[b.node]
}

// node is what the operator sees of one.
func (s *sim) nodeOf(i int) plan.Node {
	b := s.blades[i]
	node := plan.Node{Name: b.node, SystemUUID: b.guid, Ready: s.isCalledReady(b.node)}
	if s.isolating != nil {
		node.CordonedFor, node.Cordoned = s.isolating.cordonedFor[b.node], s.isCordoned(i)
		s.report(&node)
	}
	if heardAt, isHeard := s.kubelets.heardAt[b.node]; isHeard && heardAt > s.clocks.jumpedAt {
		node.SilentFrom = at(heardAt + s.clocks.skew).Add(silentSeconds * time.Second)
	}
	if !s.isOtherDead(i) {
		node.Alive = []string{"a member of Store default/other"}
		node.Serving = []plan.Process{{Store: "default/other", Name: "a member"}}
	}
	return node
}

// seenRequests have each Store's word on its processes: it is looked up, and not claimed by the request.
func (s *sim) seenRequests() []plan.FenceRequest {
	var all []plan.FenceRequest
	for _, request := range s.requests {
		for i, b := range s.blades {
			request.ProvedDead = request.ProvedDead || b.node == request.Node && s.isMemberDead(i)
		}
		all = append(all, request)
	}
	return all
}
