package consoles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	// firstPause and maxPause are those before a session at the BMC is opened again. They grow: some BMCs freeze after many logins.
	firstPause = 2 * time.Second
	maxPause   = 30 * time.Second
	chunkBytes = 4096
)

// console is an open one. Its session at the BMC may break; it is opened again until the console is stopped.
type console struct {
	server, stream string
	now            func() time.Time
	// stop ends it, and its users are told why.
	stop context.CancelCauseFunc
	// urged has an element when somebody does not want to wait for the end of a pause.
	urged chan struct{}
	// done is closed once its session at the BMC has ended for good.
	done chan struct{}

	mutex sync.Mutex
	// changed is closed, and made anew, whenever something below changes.
	changed chan struct{}
	// history is the end of all output, of which position bytes came in all.
	history  []byte
	position int64
	line     io.ReadWriteCloser
	// trouble is why there is no line, and ended is why there will be none.
	trouble  string
	ended    error
	isForced bool
	user     *Session
	since    time.Time
	watchers int
	left     time.Time
}

func (c *console) attach(request Request) (*Session, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	s := &Session{console: c, user: request.User, client: request.Client, isWatching: request.Mode == Watch}
	switch {
	case s.isWatching && c.watchers >= maxWatchers:
		return nil, errTooManyWatchers
	case s.isWatching:
		c.watchers++
	default:
		if err := c.give(s, request.Mode); err != nil {
			return nil, err
		}
	}
	s.place = Place{Stream: c.stream, Position: c.begin()}
	if request.From.Stream == c.stream {
		s.place.Position = min(max(request.From.Position, c.begin()), c.position)
	}
	c.notify()
	return s, nil
}

// give makes a session the one that has the console.
func (c *console) give(to *Session, mode Mode) error {
	before := c.user
	switch {
	case before == nil:
		c.since = c.now()
	case before.user == to.user && before.client == to.client && to.client != "":
		c.displace(before, to.user)
	case mode == TakeOver:
		c.say(fmt.Sprintf("%s took the console over from %s", to.user, before.user))
		c.displace(before, to.user)
		c.since = c.now()
	default:
		return &TakenError{Server: c.server, Holder: Holder{User: before.user, Since: c.since}}
	}
	c.user = to
	if mode == TakeOver && c.line == nil {
		c.isForced = true
		select {
		case c.urged <- struct{}{}:
		default:
		}
	}
	return nil
}

// displace ends a session with the output so far: what comes next is of somebody else's doing.
func (c *console) displace(session *Session, by string) {
	session.displaced, session.until = &DisplacedError{Server: c.server, By: by}, c.position
}

// unused says whether nobody has the console or, unless watchers do not count, watches it, and since when.
func (c *console) unused(withWatchers bool) (time.Time, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.left, c.user == nil && (withWatchers || c.watchers == 0)
}

// keep has a session at the BMC, and opens it again when it breaks. It returns why there will be none any more.
func (c *console) keep(ctx context.Context, open Open) error {
	pause := firstPause
	for {
		lived, err := c.serve(ctx, open)
		if ctx.Err() != nil {
			return context.Cause(ctx) //nolint:wrapcheck // of this package
		}
		if isFinal(err) {
			return err
		}
		if lived >= maxPause { // some BMCs give out a console and take it back at once
			pause = firstPause
		}
		c.fail(err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx) //nolint:wrapcheck // of this package
		case <-c.urged:
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// isFinal: another attempt would fail like this one. A password that was refused is not tried again.
func isFinal(err error) bool {
	var unsupported *bmc.UnsupportedError
	var refused *bmc.RefusedError
	return errors.As(err, &unsupported) || errors.As(err, &refused)
}

// serve has one session at the BMC until it breaks, and says how long it lived.
func (c *console) serve(ctx context.Context, open Open) (lived time.Duration, err error) {
	line, err := open(ctx, c.server, c.takeForce())
	if err != nil {
		return 0, err
	}
	opened := c.now()
	stop := context.AfterFunc(ctx, func() { _ = line.Close() }) // which ends the read below
	defer stop()
	c.connect(line)
	buffer := make([]byte, chunkBytes)
	for {
		n, err := line.Read(buffer)
		c.append(buffer[:n])
		if err != nil {
			return c.now().Sub(opened), errors.Join(fmt.Errorf("the connection broke: %w", err), line.Close())
		}
	}
}

func (c *console) takeForce() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	isForced := c.isForced
	c.isForced = false
	return isForced
}

func (c *console) connect(line io.ReadWriteCloser) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.trouble != "" {
		c.say("connected again; what was printed or typed meanwhile is lost")
	}
	c.line, c.trouble, c.isForced = line, "", false
	c.notify()
	select {
	case <-c.urged:
	default:
	}
}

// fail says what is wrong, once for the same trouble.
func (c *console) fail(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if text := err.Error(); text != c.trouble {
		c.trouble = text
		c.say("not connected, and tried again: " + text)
	}
	c.line = nil
}

func (c *console) end(why error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.line, c.ended = nil, why
	c.notify()
}

// say puts a line of our own into the output, so that everybody finds it where it happened.
func (c *console) say(text string) {
	at := c.now().UTC().Format(time.TimeOnly)
	c.put([]byte(fmt.Sprintf("\r\n[rcbox %s UTC: console of %s: %s]\r\n", at, c.server, oneLine(text))))
}

// oneLine keeps texts of others from reaching terminals as escape sequences.
func oneLine(text string) string { return bmc.Printable(strings.ReplaceAll(text, "\n", "; ")) }

func (c *console) append(text []byte) {
	if len(text) == 0 {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.put(text)
}

func (c *console) put(text []byte) {
	c.history = append(c.history, text...)
	if excess := len(c.history) - historyBytes; excess > 0 {
		c.history = append(c.history[:0], c.history[excess:]...)
	}
	c.position += int64(len(text))
	c.notify()
}

// begin is the position of the oldest output that is kept.
func (c *console) begin() int64 { return c.position - int64(len(c.history)) }

func (c *console) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}
