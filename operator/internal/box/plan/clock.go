package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clockTolerance is how far a recorded time may be in the future, because it may come from the clock of another operator.
const clockTolerance = 2 * time.Second

// elapsed is the time that has certainly passed since a recorded time. If the clock was set later than that, it is the time since the clock
// was set.
func (p *planning) elapsed(since time.Time) time.Duration {
	if p.JumpedAt.After(since) {
		since = p.JumpedAt
	}
	return p.now.Sub(since)
}

// isToCome says whether a recorded time is in the future, because the clock was set back since.
func (p *planning) isToCome(at *metav1.Time) bool {
	return at != nil && at.After(p.now.Add(clockTolerance))
}

// lastingMost is the longest time after which a planned command may still start a server.
func (p *planning) lastingMost() time.Duration {
	return max(p.grace(), p.Times.WholeGrace) + p.model.StartTime(p.Times.Start) + time.Second
}

// correctTimes corrects recorded times after the clock was set. A beginning in the future becomes now. A proof in the future is dropped. A
// command to start a server that was given before the clock was set may still take effect for lastingMost after that.
func (m *machine) correctTimes() {
	next := m.next
	if last := next.LastOff; last != nil && m.isToCome(&last.At) {
		next.LastOff = nil
	}
	m.correctIsolation()
	began := []**metav1.Time{&next.Power.Since, &next.MMC.SilentSince}
	if order := next.Order; order != nil {
		began = append(began, &order.Since)
	}
	if change := next.Change; change != nil {
		began = append(began, &change.TriedAt)
		if m.isToCome(&change.Since) {
			change.Since = *stamp(m.now)
		}
	}
	if boot := next.Boot; boot != nil {
		began = append(began, &boot.TriedAt)
		if m.isToCome(&boot.Since) {
			boot.Since = *stamp(m.now)
		}
	}
	if light := next.Light; light != nil && m.isToCome(&light.TriedAt) {
		light.TriedAt = *stamp(m.now)
	}
	for _, at := range began {
		if m.isToCome(*at) {
			*at = stamp(m.now)
		}
	}
	until := next.Power.MayStartUntil
	if until == nil {
		return
	}
	if settled := m.JumpedAt.Add(m.lastingMost()); !m.JumpedAt.IsZero() && until.Time.Before(settled.Truncate(time.Second)) {
		next.Power.MayStartUntil = stamp(settled)
	} else if most := m.now.Add(m.lastingMost()); until.After(most) {
		next.Power.MayStartUntil = stamp(most)
	}
}
