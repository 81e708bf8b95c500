package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
)

// cluster is the state of the store's coordinators, which outlives them.
type cluster struct {
	term    uint64
	leader  types.UID // the pod; empty while nobody leads
	members map[string]*memberState
	// recoveries under way, and for how many seconds copies are still being made anew.
	recoveries []*recovery
	short      uint64
	// settings in force; nil for a build that takes none.
	settings *adminv1.Settings
}

// recovery is of a dead process's tablets, which come to others one by one.
type recovery struct {
	member string
	left   uint64
	// waitsUntil what it needs is there: a copy on a machine that is slow to come back.
	waitsUntil time.Time
}

type memberState struct {
	instance string
	// since when this process is known.
	since    time.Time
	tablets  uint64
	isDead   bool // known to be
	draining bool
	copies   uint64 // that others still need
}

// lost are the tablets that nobody serves.
func (c *cluster) lost() (tablets uint64) {
	for _, recovery := range c.recoveries {
		tablets += recovery.left
	}
	return tablets
}

func (c *cluster) lostOf(member string) (tablets uint64) {
	for _, recovery := range c.recoveries {
		if recovery.member == member {
			tablets += recovery.left
		}
	}
	return tablets
}

// elect has a coordinator lead that runs, if none does.
func (s *simulation) elect() {
	for _, pod := range s.pods() {
		if pod.UID == s.cluster.leader && s.runs(pod) {
			return
		}
	}
	s.cluster.leader = ""
	for _, pod := range s.pods() {
		if !isMaster(pod) && s.runs(pod) {
			s.cluster.leader = pod.UID
			s.cluster.term++
			s.hears()
			return
		}
	}
}

// recover gives what dead processes held to others, a tablet a second, and has copies made anew.
func (s *simulation) recover() {
	if !s.isReplicated() {
		return
	}
	s.cluster.short -= min(s.cluster.short, 1)
	var alive *memberState
	for _, name := range slices.Sorted(maps.Keys(s.cluster.members)) {
		member := s.cluster.members[name]
		if s.enlisted(name) != nil {
			member.isDead = false
			if !member.draining || alive == nil {
				alive = member
			}
			continue
		}
		s.beginRecovery(name, member)
		if !member.isDead {
			member.isDead, s.cluster.short = true, 3
		}
	}
	if alive != nil {
		s.recoverTablet(alive)
	}
	for _, name := range slices.Sorted(maps.Keys(s.cluster.members)) {
		leaving := s.cluster.members[name]
		if !leaving.draining {
			continue
		}
		leaving.copies -= min(leaving.copies, 1) // also those of one that is dead: they are made anew elsewhere
		if alive != nil && alive != leaving && !alive.draining && leaving.tablets > 0 {
			leaving.tablets--
			alive.tablets++
		}
	}
}

func (s *simulation) beginRecovery(name string, member *memberState) {
	if member.tablets == 0 {
		return
	}
	begun := &recovery{member: name, left: member.tablets, waitsUntil: s.now}
	member.tablets = 0
	if s.chance(s.faults.recovery) {
		begun.waitsUntil = s.now.Add(time.Duration(s.random.IntN(40)) * second)
		s.trace("the recovery of %s waits until %s", name, begun.waitsUntil.Format("15:04:05"))
	}
	s.cluster.recoveries = append(s.cluster.recoveries, begun)
}

func (s *simulation) recoverTablet(to *memberState) {
	for i, recovery := range s.cluster.recoveries {
		if s.now.Before(recovery.waitsUntil) {
			continue
		}
		to.tablets++
		if recovery.left--; recovery.left == 0 {
			s.cluster.recoveries = slices.Delete(s.cluster.recoveries, i, i+1)
		}
		return
	}
}

func (s *simulation) enlist() {
	for _, pod := range s.pods() {
		if !isMaster(pod) || !s.runs(pod) || pod.DeletionTimestamp != nil || s.keptOut[string(pod.UID)] {
			continue
		}
		member := s.cluster.members[memberName(pod)]
		if member == nil {
			member = &memberState{}
			s.cluster.members[memberName(pod)] = member
		}
		if member.instance == s.instance(pod) {
			continue
		}
		if s.enlisted(memberName(pod)) != nil {
			continue // two pods of one member: checkCreate has said so
		}
		if s.isReplicated() { // what its predecessor held is recovered first
			s.beginRecovery(memberName(pod), member)
			s.cluster.short = 3
		}
		member.instance, member.since, member.isDead = s.instance(pod), s.now, false
	}
}

// coordinatorOf is an admin.Client of the coordinator that has an IP, if one has.
type coordinatorOf struct {
	s  *simulation
	ip string
}

func (s *simulation) dial(ip string, _ int) (admin.Client, error) {
	if s.planted != nil && s.planted.client != nil {
		return s.planted.client(&coordinatorOf{s, ip}), nil
	}
	return &coordinatorOf{s, ip}, nil
}

func (c *coordinatorOf) Close() error { return nil }

// leads fails unless the process that was called leads, and answers.
func (c *coordinatorOf) leads() error {
	c.s.maybeKilled("a call to the coordinator")
	if c.s.now.Before(c.s.muteUntil) || c.s.chance(c.s.faults.coordinator) {
		return grpcstatus.Error(codes.DeadlineExceeded, "the coordinator does not answer")
	}
	for _, pod := range c.s.pods() {
		if pod.Status.PodIP == c.ip && pod.UID == c.s.cluster.leader && c.s.runs(pod) {
			return nil
		}
	}
	return grpcstatus.Error(codes.Unavailable, "nobody who leads is there")
}

func (c *coordinatorOf) Status(context.Context) (*adminv1.GetClusterStatusResponse, error) {
	if err := c.leads(); err != nil {
		return nil, err
	}
	s := c.s
	response := &adminv1.GetClusterStatusResponse{
		ClusterId: 1, BuildVersion: "simulated", StateKind: adminv1.StateKind_STATE_KIND_KUBERNETES,
		Leader: &adminv1.Leader{Term: s.cluster.term}, Settings: s.cluster.settings,
	}
	if s.sight != nil {
		patience := uint64(leaderPatience.Milliseconds())
		leading := uint64(s.now.Sub(s.sight.tookOver).Milliseconds())
		response.Leader.LeadingMs, response.Leader.PatienceMs = &leading, &patience
	}
	if s.store().Spec.Coordinator.State.Type == v1alpha1.StateVolume {
		response.StateKind = adminv1.StateKind_STATE_KIND_FILE
	}
	for i, recovery := range s.cluster.recoveries {
		reported := &adminv1.Recovery{ServerId: uint64(100 + i), Member: recovery.member, TabletsLeft: recovery.left}
		if s.now.Before(recovery.waitsUntil) {
			reported.WaitsFor = "a copy"
		}
		response.Recoveries = append(response.Recoveries, reported)
	}
	for i, name := range slices.Sorted(maps.Keys(s.cluster.members)) {
		response.Members = append(response.Members, s.report(name, uint64(i+1)))
		response.TableCount += s.cluster.members[name].tablets
	}
	return response, nil
}

func (s *simulation) report(name string, id uint64) *adminv1.Member {
	member := s.cluster.members[name]
	isUp := s.enlisted(name) != nil
	reported := &adminv1.Member{
		Name: name, Instance: member.instance, State: adminv1.MemberState_MEMBER_STATE_UNREACHABLE,
		Shards: []*adminv1.Shard{{
			ServerId: id, Connected: isUp, Serving: true, TabletCount: s.owned(name), LogCapacityBytes: 1 << 30,
			Replicas: s.copiesOf(s.enlisted(name)), Segments: 10, SegmentsShort: s.cluster.short,
		}},
	}
	switch {
	case isUp:
		reported.State = adminv1.MemberState_MEMBER_STATE_UP
	case member.isDead:
		reported.Contact = adminv1.MemberContact_MEMBER_CONTACT_DEAD
	}
	if s.isUnheard(name) { // it is known from the state only
		reported.State, reported.Contact = adminv1.MemberState_MEMBER_STATE_UNREACHABLE, adminv1.MemberContact_MEMBER_CONTACT_NOT_YET
		shard := reported.GetShards()[0]
		shard.Connected, shard.Serving, shard.LogCapacityBytes, shard.Segments, shard.SegmentsShort = false, false, 0, 0, 0
	}
	if member.draining {
		reported.Draining = &adminv1.Draining{Drained: s.isDrained(member), Tablets: member.tablets, Copies: member.copies}
	}
	return reported
}

// owned are a member's tablets, also those of a dead process that others do not have yet.
func (s *simulation) owned(name string) uint64 {
	tablets := s.cluster.members[name].tablets
	if s.enlisted(name) == nil {
		tablets += s.cluster.lostOf(name)
	}
	return tablets
}

func (s *simulation) isDrained(member *memberState) bool {
	return member.draining && member.tablets == 0 && member.copies == 0 && s.cluster.lost() == 0
}

// answer carries something out, and may lose the answer.
func (c *coordinatorOf) answer(do func() error) error {
	if err := c.leads(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	if c.s.chance(c.s.faults.coordinator) {
		return grpcstatus.Error(codes.DeadlineExceeded, "the answer was lost")
	}
	return nil
}

// RemoveMember refuses as the coordinator does: what owns tablets stays, and what may have the last copies of something.
func (c *coordinatorOf) RemoveMember(_ context.Context, name, instance string) error {
	return c.answer(func() error {
		s := c.s
		if member := s.cluster.members[name]; member != nil {
			if owned := s.owned(name); owned > 0 {
				return &admin.RefusedError{Member: name, Message: fmt.Sprintf("%s owns %d tablets", name, owned)}
			}
			if s.lacksCopies() && !s.isDrained(member) {
				return &admin.RefusedError{Member: name, Message: "copies that it keeps may be the last"}
			}
			if s.isReplicated() && !s.isDrained(member) {
				s.cluster.short = 3
			}
		}
		s.trace("the coordinator lets %s go", name)
		if instance != "" {
			s.keptOut[instance] = true
		}
		delete(s.cluster.members, name)
		return nil
	})
}

func (c *coordinatorOf) DrainMember(_ context.Context, name string) error {
	return c.answer(func() error {
		member := c.s.cluster.members[name]
		if member == nil {
			return grpcstatus.Error(codes.NotFound, "no such member")
		}
		for other, staying := range c.s.cluster.members {
			if other != name && !staying.draining {
				if !member.draining {
					c.s.trace("%s is drained", name)
					member.draining, member.copies = true, 3
				}
				return nil
			}
		}
		return &admin.RefusedError{Member: name, Message: "nobody would stay but " + name}
	})
}

func (*coordinatorOf) FinalizeUpgrade(context.Context, int32) error {
	return errors.New("these stores have one format")
}

func (c *coordinatorOf) UndrainMember(_ context.Context, name string) error {
	return c.answer(func() error {
		if member := c.s.cluster.members[name]; member != nil {
			member.draining = false
		}
		return nil
	})
}
