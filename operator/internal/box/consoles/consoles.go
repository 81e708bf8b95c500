// Package consoles shares the serial consoles of servers: one user at a time has a server's console, others may watch, and what a console
// printed while its user was away is shown when the user comes back. It does not decide who may use a console.
package consoles

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// historyBytes of a console's output are kept for users who come back.
	historyBytes = 64 << 10
	// linger is how long a console stays open without a user. Then its session at the BMC is ended.
	linger = 10 * time.Minute
	// maxConsoles bounds the consoles that are open.
	maxConsoles = 128
	// maxWatchers bounds the users who watch one console.
	maxWatchers = 16
)

// Open opens the console of a server. With isForced, it ends another session that the BMC has for the console.
type Open func(ctx context.Context, server string, isForced bool) (io.ReadWriteCloser, error)

// Mode is what a user wants of a console.
type Mode int

const (
	// Use types and watches. It is refused while somebody else has the console.
	Use Mode = iota
	// Watch only watches.
	Watch
	// TakeOver types and watches. Whoever has the console loses it.
	TakeOver
)

// Place is a position in the output of a console. The zero value is the oldest output that is kept.
type Place struct {
	// Stream names the console since it was opened last; positions of other streams mean nothing.
	Stream   string
	Position int64
}

// Holder is the user who has a console, and since when. Without a user, nobody has it.
type Holder struct {
	User  string
	Since time.Time
}

// TakenError means that somebody else has the console.
type TakenError struct {
	Server string
	Holder Holder
}

// Error names the holder.
func (e *TakenError) Error() string {
	return fmt.Sprintf("%s has the console of %s since %s: --watch looks on, --force takes it over", e.Holder.User, e.Server,
		e.Holder.Since.UTC().Format(time.RFC3339))
}

// DisplacedError means that another user took the console over.
type DisplacedError struct{ Server, By string }

// Error names the other user.
func (e *DisplacedError) Error() string {
	return fmt.Sprintf("%s took the console of %s over", e.By, e.Server)
}

// LimitError means that a bound is reached.
type LimitError struct{ text string }

// Error says which bound, and what to do.
func (e *LimitError) Error() string { return e.text }

// ErrStopped means that this process ends. Another one may have the consoles already.
var ErrStopped = errors.New("the box controller ends")

var (
	errTooMany         = &LimitError{fmt.Sprintf("%d consoles are in use, and there can be no more: end one of them with ~.", maxConsoles)}
	errMadeRoom        = &LimitError{fmt.Sprintf("%d consoles are in use, and one that was only watched made room for a user", maxConsoles)}
	errTooManyWatchers = &LimitError{fmt.Sprintf("%d users watch this console, and there can be no more", maxWatchers)}
)

// Hub has the consoles that are open.
type Hub struct {
	open Open
	now  func() time.Time

	mutex    sync.Mutex
	consoles map[string]*console
	// closing are those that end their session at the BMC, by server.
	closing map[string]*console
	stopped bool
	running sync.WaitGroup
}

// New makes a hub. Stop ends it.
func New(open Open, now func() time.Time) *Hub {
	return &Hub{open: open, now: now, consoles: map[string]*console{}, closing: map[string]*console{}}
}

// Request is what somebody asks of a console.
type Request struct {
	User string
	Mode Mode
	// From is where the output is to begin.
	From Place
	// Client is a random name of the program that asks. When it asks again, its connection was lost: it does not wait for that to be
	// noticed here.
	Client string
}

// Attach gives a user the console of a server.
func (h *Hub) Attach(server string, request Request) (*Session, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.stopped {
		return nil, ErrStopped
	}
	one := h.consoles[server]
	if one == nil {
		if len(h.consoles) >= maxConsoles && !h.closeOldest(false) && (request.Mode == Watch || !h.closeOldest(true)) {
			return nil, errTooMany
		}
		one = h.start(server)
	}
	return one.attach(request)
}

// start makes a console. Its session at the BMC is opened once that of an earlier one has ended.
func (h *Hub) start(server string) *console {
	ctx, stop := context.WithCancelCause(context.Background())
	one := &console{
		server: server, stream: rand.Text(), now: h.now, stop: stop,
		changed: make(chan struct{}), urged: make(chan struct{}, 1), left: h.now(), done: make(chan struct{}),
	}
	earlier := h.closing[server]
	h.consoles[server] = one
	h.running.Go(func() {
		defer close(one.done)
		if earlier != nil {
			<-earlier.done
		}
		one.end(one.keep(ctx, h.open))
		h.mutex.Lock()
		defer h.mutex.Unlock()
		for _, list := range []map[string]*console{h.consoles, h.closing} {
			if list[server] == one {
				delete(list, server)
			}
		}
	})
	return one
}

// closeOldest closes the console that was left first, if any has no user; if need be, one that has watchers: those who only watch must not
// keep others from consoles.
func (h *Hub) closeOldest(withWatchers bool) bool {
	var oldest *console
	var oldestLeft time.Time
	for _, one := range h.consoles {
		if left, isUnused := one.unused(withWatchers); isUnused && (oldest == nil || left.Before(oldestLeft)) {
			oldest, oldestLeft = one, left
		}
	}
	if oldest == nil {
		return false
	}
	h.close(oldest)
	return true
}

// close ends a console that has no user; watchers, if there are any, are told. Nobody finds it any more.
func (h *Hub) close(one *console) {
	delete(h.consoles, one.server)
	h.closing[one.server] = one
	one.stop(errMadeRoom)
}

// Run closes consoles that nobody has used for a while, until the context ends.
func (h *Hub) Run(ctx context.Context) {
	const every = time.Minute
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			h.tidy()
		}
	}
}

func (h *Hub) tidy() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, one := range h.consoles {
		if left, isUnused := one.unused(false); isUnused && h.now().Sub(left) >= linger {
			h.close(one)
		}
	}
}

// Stop ends all consoles, and returns once their sessions at the BMCs are ended.
func (h *Hub) Stop() {
	h.mutex.Lock()
	h.stopped = true
	for _, one := range h.consoles {
		one.stop(ErrStopped)
	}
	h.mutex.Unlock()
	h.running.Wait()
}
