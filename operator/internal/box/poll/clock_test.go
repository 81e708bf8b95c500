package poll_test

import (
	"context"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

var noon = time.Date(2026, 5, 20, 12, 0, 0, 0, time.UTC)

// clocks are a wall clock and a monotonic clock.
type clocks struct {
	wall  time.Time
	ticks time.Duration
}

func (c *clocks) read() (time.Time, time.Duration) { return c.wall, c.ticks }

func (c *clocks) pass(d time.Duration) { c.wall, c.ticks = c.wall.Add(d), c.ticks+d }

// A clock that is set forward or back jumps. A clock that runs a little faster or slower does not.
func TestClockJumps(t *testing.T) {
	c := &clocks{wall: noon}
	clock := &poll.Clock{Read: c.read}
	for n, by := range []time.Duration{0, time.Second, -time.Second, 5 * time.Minute, 0, -5 * time.Minute, time.Hour} {
		before := clock.Look()
		c.pass(time.Second)
		c.wall = c.wall.Add(by)
		got := clock.Look()
		isJump := by > 2*time.Second || by < -2*time.Second
		if (got.Jumps != before.Jumps) != isJump || isJump && !got.JumpedAt.Equal(c.wall) {
			t.Errorf("%d: set by %s: %+v", n, by, got)
		}
	}
}

// held is a pool in which a call waits until the test lets it go on.
type held struct {
	session

	before func()
}

func (h *held) Read(ctx context.Context, _ pool.Target, call func(context.Context, bmc.BMC) error) error {
	return call(ctx, h)
}

func (h *held) Order(ctx context.Context, _ pool.Target, call func(context.Context, bmc.BMC) error) error {
	h.before()
	return call(ctx, h)
}

func (*held) Forget(context.Context, string) error { return nil }

func (*held) Log(context.Context) ([]bmc.LogEntry, error) { return nil, nil }

func (h *held) Power(ctx context.Context) (bmc.Reading, error) {
	h.before()
	return h.session.Power(ctx)
}

// A command that has waited too long by either clock, or during a jump, is not given.
func TestCommandThatIsTooLate(t *testing.T) {
	for name, test := range map[string]struct {
		passes, isSet time.Duration
		isGiven       bool
	}{
		"at once":                                {0, 0, true},
		"in time":                                {4 * time.Second, 0, true},
		"too late":                               {6 * time.Second, 0, false},
		"too late, and a little slower":          {6 * time.Second, -1500 * time.Millisecond, false},
		"in time, and the clock was set forward": {time.Second, time.Hour, false},
		"too late, and the clock was set back":   {time.Minute, -time.Minute, false},
		"in time, and the clock was set back":    {time.Second, -time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clocks{wall: noon}
			clock := &poll.Clock{Read: c.read}
			answered := make(chan struct{}, 1)
			pool := &held{before: func() { c.pass(test.passes); c.wall = c.wall.Add(test.isSet) }}
			p := &poll.Poller{Pool: pool, Clock: clock, Intervals: poll.DefaultIntervals, Changed: func(string) { answered <- struct{}{} }}
			p.Set(chassis, map[string]poll.Want{"atom001": {}})
			planned := clock.Look()
			isGiven := false
			p.Command(t.Context(), poll.Key{Chassis: chassis, Name: "atom001"}, planned,
				plan.Step{TriedAt: noon, Until: noon.Add(5 * time.Second)}, func(context.Context, bmc.BMC, *plan.Answer) error {
					isGiven = true
					return nil
				})
			<-answered
			if isGiven != test.isGiven {
				t.Errorf("given: %v", isGiven)
			}
		})
	}
}

// A jump of the clock discards all readings, and the answers to questions that were asked before the jump.
func TestReadingsDoNotOutliveAJump(t *testing.T) {
	for _, by := range []time.Duration{0, time.Hour, -time.Hour} {
		c := &clocks{wall: noon}
		answered := make(chan struct{}, 1)
		pool := &held{before: func() {}}
		p := &poll.Poller{
			Pool: pool, Clock: &poll.Clock{Read: c.read}, Intervals: poll.DefaultIntervals,
			Changed: func(string) { answered <- struct{}{} },
		}
		p.Set(chassis, map[string]poll.Want{"atom001": {}})
		isRead := func() bool { return p.Seen(chassis)["atom001"].Power.Power == bmc.PowerOn }
		p.Round(t.Context())
		<-answered
		if !isRead() {
			t.Fatal("it was not read")
		}
		c.wall = c.wall.Add(by)
		if isRead() != (by == 0) {
			t.Errorf("set by %s: read before, and it counts: %v", by, isRead())
		}
		c.pass(10 * time.Minute)
		pool.before = func() { c.wall = c.wall.Add(by) }
		p.Round(t.Context())
		<-answered
		if isRead() != (by == 0) {
			t.Errorf("set by %s during the question, and it counts: %v", by, isRead())
		}
		pool.before = func() {}
		p.Round(t.Context())
		if by != 0 {
			<-answered
		}
		if !isRead() {
			t.Errorf("set by %s: it is not asked again", by)
		}
	}
}
