// Package capacity computes what the loss of one failure domain would cost a store with copies: how long its tablets would be away, and
// whether the others have the room for what it held. It is pure, and its figures are whole MiB and milliseconds, so that a pocket
// calculator comes to the same.
package capacity

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// DefaultMiBPerSecond is what a core is taken to replay in a second until a recovery has shown it: the coordinator's guess, too.
	DefaultMiBPerSecond = 150
	// BeforeReplayMs is what goes by before anything is replayed: backups wait out what they have promised the dead server.
	BeforeReplayMs = 250
	// LeastMeasuredBytes of a log: a shorter recovery says more of waits than of speed.
	LeastMeasuredBytes = 64 << 20
	// usablePercent of a log can be live: the rest is what the cleaner needs to go on.
	usablePercent = 90

	mib = 1 << 20
)

// Member is one that is up.
type Member struct {
	Name string
	// Domain that it fails with; empty: it fails alone.
	Domain string
	// Cores that can replay what others held.
	Cores int
	// CapacityBytes of its logs; LogBytes of that are in use, and LiveBytes of these are of objects that are there.
	CapacityBytes, LogBytes, LiveBytes int64
	// RoomBytes for copies of what others hold.
	RoomBytes int64
}

// Measured is a recovery that has ended; nil where none has that says something.
type Measured struct {
	Member string
	Bytes  int64
	Ms     int64
	// Cores that were there to replay it.
	Cores int
}

// Input is what is known of the store.
type Input struct {
	Members []Member
	// Copies that each object is to have, and LeastCopies with which writes go on.
	Copies, LeastCopies int
	Target              time.Duration
	Measured            *Measured
}

// Verdict is what comes out, the gravest last.
type Verdict int

const (
	// OnTarget even if all logs were full.
	OnTarget Verdict = iota
	// OnTargetSoFar means with what the logs have in them now.
	OnTargetSoFar
	// TooSlow means that recovery takes longer than the target.
	TooSlow
	// NoRoomForCopies means that what is left could not keep the copies with which writes go on.
	NoRoomForCopies
	// NoRoomForData means that what is left could not take all that was held.
	NoRoomForData
)

// Loss is what the loss of a failure domain means.
type Loss struct {
	// Domain is the name of the domain, or of the member that fails alone.
	Domain string
	// Members that are lost.
	Members int
	// MiB of log to replay, Cores that do it, and Ms that it takes.
	MiB   int64
	Cores int
	Ms    int64
}

// Check is what was computed.
type Check struct {
	Verdict Verdict
	// Now is the worst loss of a domain, Full that with full logs.
	Now, Full Loss
	TargetMs  int64
	// MiBPerSecond of each core, and where that is from.
	MiBPerSecond int64
	Measured     *Measured
	// Data and Copies are the worst cases of what those that are left could hold; which domain that is may differ.
	Data, Copies Room
	// CopiesLeft of CopiesWanted is how many copies each object can have until the domain is back.
	CopiesLeft, CopiesWanted int
	// Cores that a master has: the least.
	Cores int
}

// Room is what is needed and what there is.
type Room struct {
	Domain              string
	NeededMiB, ThereMiB int64
}

// MakeCheck computes. There is at least one member.
func MakeCheck(in Input) Check {
	check := Check{
		TargetMs: in.Target.Milliseconds(), MiBPerSecond: DefaultMiBPerSecond, CopiesLeft: in.Copies, CopiesWanted: in.Copies,
	}
	if in.Measured != nil {
		check.Measured, check.MiBPerSecond = in.Measured, in.Measured.miBPerSecond()
	}
	for i, member := range in.Members {
		if i == 0 || member.Cores > 0 && member.Cores < check.Cores {
			check.Cores = max(member.Cores, 1)
		}
	}
	domains, all := byDomain(in.Members)
	for i, name := range slices.Sorted(maps.Keys(domains)) {
		check.lose(name, *domains[name], all, i == 0)
	}
	check.Verdict = check.verdict(in)
	return check
}

// share is what some members have together.
type share struct {
	members int
	// MiB would not do here: sums of what was rounded up are too much.
	logBytes, liveBytes, fullBytes int64
	// takers get what others held: those that are not drained.
	takers, cores            int
	capacityBytes, roomBytes int64
}

func (s *share) add(member Member) {
	s.members++
	s.logBytes += member.LogBytes
	s.liveBytes += member.LiveBytes
	s.fullBytes += max(member.CapacityBytes, member.LogBytes)
	if member.Cores > 0 {
		s.takers++
		s.cores += member.Cores
		s.capacityBytes += member.CapacityBytes
		s.roomBytes += member.RoomBytes
	}
}

// byDomain is what the members have that fail together, and all members.
func byDomain(members []Member) (domains map[string]*share, all share) {
	domains = map[string]*share{}
	for _, member := range members {
		name := cmp.Or(member.Domain, member.Name)
		if domains[name] == nil {
			domains[name] = &share{}
		}
		domains[name].add(member)
		all.add(member)
	}
	return domains, all
}

// lose looks at the loss of one domain, and keeps what is worse than what was seen before.
func (c *Check) lose(name string, lost, all share, first bool) {
	survivors, cores := all.takers-lost.takers, all.cores-lost.cores
	left, room := all.capacityBytes-lost.capacityBytes, all.roomBytes-lost.roomBytes
	loss := func(bytes int64) Loss {
		found := Loss{Domain: name, Members: lost.members, MiB: toMiB(bytes), Cores: cores}
		found.Ms = replayMs(found.MiB, cores, c.MiBPerSecond)
		return found
	}
	if now := loss(lost.logBytes); first || now.Ms > c.Now.Ms {
		c.Now = now
	}
	if full := loss(lost.fullBytes); first || full.Ms > c.Full.Ms {
		c.Full = full
	}
	data := Room{Domain: name, NeededMiB: toMiB(all.liveBytes), ThereMiB: left / 100 * usablePercent / mib}
	if first || data.spare() < c.Data.spare() {
		c.Data = data
	}
	copies := max(min(c.CopiesWanted, survivors-1), 0)
	c.CopiesLeft = min(c.CopiesLeft, copies)
	kept := Room{Domain: name, NeededMiB: toMiB(all.logBytes) * int64(copies), ThereMiB: room / mib}
	if first || kept.spare() < c.Copies.spare() {
		c.Copies = kept
	}
}

func (r Room) spare() int64 { return r.ThereMiB - r.NeededMiB }

func (c *Check) verdict(in Input) Verdict {
	switch {
	case c.Now.Cores == 0 || c.Data.spare() < 0:
		return NoRoomForData
	case c.CopiesLeft < in.LeastCopies || c.Copies.spare() < 0:
		return NoRoomForCopies
	case c.Now.Ms > c.TargetMs:
		return TooSlow
	case c.Full.Ms > c.TargetMs:
		return OnTargetSoFar
	default:
		return OnTarget
	}
}

// neverMs is what a recovery takes that nobody carries out: so long that it is worse than any other.
const neverMs = int64(1) << 52

func replayMs(amount int64, cores int, perSecond int64) int64 {
	if cores == 0 {
		return neverMs
	}
	return BeforeReplayMs + ceil(amount*1000, int64(cores)*perSecond)
}

// miBPerSecond of a core, as the recovery has shown it: rounded down, and never nothing.
func (m *Measured) miBPerSecond() int64 {
	replayed := max(m.Ms-BeforeReplayMs, 1)
	return max(m.Bytes/mib*1000/replayed/int64(max(m.Cores, 1)), 1)
}

// MastersFor is how many masters of this kind bring the loss of as many as are lost now to the target; the bytes stay what they are.
func (c *Check) MastersFor(loss Loss) int64 {
	perCore := c.MiBPerSecond * max(c.TargetMs-BeforeReplayMs, 1)
	return int64(loss.Members) + ceil(ceil(loss.MiB*1000, perCore), int64(max(c.Cores, 1)))
}

// MiBOnTarget is how much log a domain can have with the cores that there are: what the target leaves time for.
func (c *Check) MiBOnTarget() int64 {
	return max(c.TargetMs-BeforeReplayMs, 0) * c.MiBPerSecond * int64(c.Now.Cores) / 1000
}

// Without is the input with these members gone, and what they held spread evenly over those that stay: as draining them does.
func Without(in Input, gone func(name string) bool) Input {
	var staying []Member
	var log, live int64
	for _, member := range in.Members {
		if gone(member.Name) {
			log += member.LogBytes
			live += member.LiveBytes
		} else {
			staying = append(staying, member)
		}
	}
	for i := range staying {
		staying[i].LogBytes += ceil(log, int64(len(staying)))
		staying[i].LiveBytes += ceil(live, int64(len(staying)))
	}
	in.Members = staying
	return in
}

func toMiB(bytes int64) int64 { return ceil(bytes, mib) }

func ceil(amount, by int64) int64 { return (amount + by - 1) / by }
