package poll

import (
	"context"
	"errors"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
)

// logsShare limits the event log to this fraction of a question's time: one part in logsShare.
const logsShare = 5

// logProgress is how far the questions for an event log have read that needs several of them: first the sensors' names, then the log.
type logProgress struct {
	what string
	done int
}

// isBehind says whether a question has read further than the one before it, and not only something else again.
func (l logProgress) isBehind(slow *bmc.SlowError) bool {
	if slow.What == l.what {
		return slow.Done > l.done
	}
	return slow.Done > 0 && (l.what == "" || slow.What == bmc.SlowLog)
}

// askLog asks for the event log in a call of its own, so that a command need not wait for the other readings and the log. The outcome says
// nothing about the controller, whose other readings have just been answered. The next poll asks for the log again only if this question
// has read a part of it.
func (p *Poller) askLog(ctx context.Context, key Key, one *entry, jumps int) {
	ctx, cancel := context.WithTimeout(ctx, p.Intervals.Timeout/logsShare)
	defer cancel()
	at := p.Clock.Now()
	var entries []bmc.LogEntry
	err := p.Pool.Read(ctx, one.Target, func(ctx context.Context, session bmc.BMC) (err error) {
		if entries, err = session.Log(ctx); errors.Is(err, bmc.ErrSilent) {
			return &pool.AsideError{Err: err} // some controllers end a session, or a connection, for the log alone
		}
		return err
	})
	slow, isSlow := errors.AsType[*bmc.SlowError](err)
	p.note(key, one, jumps, func(seen *Seen) {
		if isSlow && one.log.isBehind(slow) {
			one.log = logProgress{what: slow.What, done: slow.Done}
			return
		}
		one.log = logProgress{}
		if seen.LogAt = at; err == nil {
			seen.Log = append([]bmc.LogEntry{}, entries...)
		}
	})
}
