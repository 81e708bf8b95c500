package poll

import (
	"sync"
	"time"
)

// jumpTolerance is by how much the wall clock and the monotonic clock may differ between two readings. Small corrections of the wall clock
// are no jump.
const jumpTolerance = 2 * time.Second

// Clock reads the wall clock, and compares it with a monotonic clock to notice that somebody has set the wall clock or that the machine was
// suspended. Readings from before such a jump prove nothing after it, because their age is unknown.
type Clock struct {
	// Read reads both clocks at one moment.
	Read func() (wall time.Time, ticks time.Duration)

	mutex sync.Mutex
	last  Moment
}

// Moment is a reading of a Clock.
type Moment struct {
	// Wall is the time on the wall clock, and Ticks the time on the monotonic clock.
	Wall  time.Time
	Ticks time.Duration
	// Jumps counts the jumps of the wall clock. JumpedAt is the wall time right after the last one.
	Jumps    int
	JumpedAt time.Time
}

// NewClock returns the clock of this machine.
func NewClock() *Clock {
	start := time.Now()
	return &Clock{Read: func() (time.Time, time.Duration) {
		now := time.Now()
		return now.Round(0), now.Sub(start)
	}}
}

// Look reads the clock.
func (c *Clock) Look() Moment {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	wall, ticks := c.Read()
	if !c.last.Wall.IsZero() {
		by := wall.Sub(c.last.Wall) - (ticks - c.last.Ticks)
		if by > jumpTolerance || by < -jumpTolerance {
			c.last.Jumps++
			c.last.JumpedAt = wall
		}
	}
	c.last.Wall, c.last.Ticks = wall, ticks
	return c.last
}

// Now is the time on the wall clock.
func (c *Clock) Now() time.Time { return c.Look().Wall }

// isLate says whether it is too late for a command that was planned at a moment and must begin before a time. It is too late if either
// clock says so, or if the wall clock has jumped since.
func isLate(planned, now Moment, until time.Time) bool {
	return now.Jumps != planned.Jumps || now.Wall.After(until) || now.Ticks-planned.Ticks > until.Sub(planned.Wall)
}
