package consoles_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/consoles"
)

// wires are the serial lines of servers: a test speaks for the server.
type wires struct {
	*testing.T

	mutex sync.Mutex
	lines map[string]*line
	// refusal is why no line can be opened.
	refusal       error
	opens, forced int
	// closing is how long the end of a line takes, and isOpen says which lines have not ended.
	closing time.Duration
	isOpen  map[string]bool
}

type line struct {
	io.Reader
	io.Closer

	wires  *wires
	server *io.PipeWriter
	typed  strings.Builder
}

func (l *line) Write(keys []byte) (int, error) {
	l.wires.mutex.Lock()
	defer l.wires.mutex.Unlock()
	return l.typed.Write(keys)
}

// closer ends a line, once, and both of those who end it wait for that.
type closer struct {
	io.Closer

	begun chan struct{}
	done  chan struct{}
	do    func()
}

func (c *closer) Close() error {
	err := c.Closer.Close()
	select {
	case c.begun <- struct{}{}:
		c.do()
		close(c.done)
	case <-c.done:
	}
	return err
}

func (w *wires) open(_ context.Context, server string, isForced bool) (io.ReadWriteCloser, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.opens++
	if isForced {
		w.forced++
	}
	if w.refusal != nil {
		return nil, w.refusal
	}
	if w.isOpen[server] {
		w.Errorf("a console of %s is opened before the one before has ended", server)
	}
	w.isOpen[server] = true
	read, write := io.Pipe()
	end := &closer{Closer: read, begun: make(chan struct{}, 1), done: make(chan struct{}), do: func() {
		<-time.After(w.closing)
		w.mutex.Lock()
		defer w.mutex.Unlock()
		w.isOpen[server] = false
	}}
	w.lines[server] = &line{Reader: read, Closer: end, server: write, wires: w}
	return w.lines[server], nil
}

// counts are how often consoles were opened, and how often by force.
func (w *wires) counts() (opens, forced int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.opens, w.forced
}

// typed is what a server has got.
func (w *wires) typed() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.lines["atom007"].typed.String()
}

func (w *wires) refuse(why error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.refusal = why
}

func (w *wires) says(text string) {
	w.Helper()
	w.mutex.Lock()
	to := w.lines["atom007"].server
	w.mutex.Unlock()
	if _, err := to.Write([]byte(text)); err != nil {
		w.Fatal(err)
	}
}

// breaks ends the session at the BMC.
func (w *wires) breaks() {
	w.mutex.Lock()
	to := w.lines["atom007"].server
	w.mutex.Unlock()
	_ = to.CloseWithError(errors.New("the session was lost"))
}

func read(t *testing.T, session *consoles.Session) string {
	t.Helper()
	output, _, err := session.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

// reads expects that what comes next contains each of some texts.
func reads(t *testing.T, session *consoles.Session, texts ...string) {
	t.Helper()
	got := read(t, session)
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("%q lacks %q", got, text)
		}
	}
}

func attach(t *testing.T, hub *consoles.Hub, server, user string, mode consoles.Mode) *consoles.Session {
	t.Helper()
	session, err := hub.Attach(server, consoles.Request{User: user, Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return session
}

// run runs a test of a hub within a synctest bubble.
func run(t *testing.T, test func(*testing.T, *wires, *consoles.Hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &wires{T: t, lines: map[string]*line{}, isOpen: map[string]bool{}}
		hub := consoles.New(w.open, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		go hub.Run(ctx)
		test(t, w, hub)
		cancel()
		hub.Stop()
		for server, isOpen := range w.isOpen {
			if isOpen {
				t.Errorf("the console of %s is open after the end", server)
			}
		}
	})
}

func TestOneUserAtATime(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		_, err := hub.Attach("atom007", consoles.Request{User: "bob"})
		var taken *consoles.TakenError
		if !errors.As(err, &taken) || taken.Holder.User != "alice" ||
			!strings.Contains(err.Error(), "alice has the console of atom007 since "+time.Now().UTC().Format(time.RFC3339)) {
			t.Errorf("bob is told: %v", err)
		}
		attach(t, hub, "atom008", "bob", consoles.Use).Close()
		w.says("login: ")
		reads(t, alice, "login: ")
		if err := alice.Write(t.Context(), []byte("root\r")); err != nil || w.typed() != "root\r" {
			t.Errorf("%v: the server has got %q", err, w.typed())
		}
		alice.Close()
		alice.Close()
		bob := attach(t, hub, "atom007", "bob", consoles.Use)
		reads(t, bob, "login: ")
		if err := alice.Write(t.Context(), []byte("x")); err == nil {
			t.Error("who has left types")
		}
	})
}

func TestWatchers(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		bob := attach(t, hub, "atom007", "bob", consoles.Watch)
		if holder := bob.Holder(); holder.User != "alice" || holder.Since.IsZero() {
			t.Errorf("bob is told that %+v has it", holder)
		}
		w.says("login: ")
		reads(t, alice, "login: ")
		reads(t, bob, "login: ")
		if err := bob.Write(t.Context(), []byte("x")); err == nil || w.typed() != "" {
			t.Error("who watches types")
		}
		for i := range 15 {
			attach(t, hub, "atom007", fmt.Sprintf("watcher%d", i), consoles.Watch)
		}
		_, err := hub.Attach("atom007", consoles.Request{User: "one more", Mode: consoles.Watch})
		if _, isLimit := errors.AsType[*consoles.LimitError](err); !isLimit {
			t.Errorf("there is no bound: %v", err)
		}
		bob.Close()
		bob.Close()
		attach(t, hub, "atom007", "one more", consoles.Watch)
	})
}

func TestTakeOver(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		bob := attach(t, hub, "atom007", "bob", consoles.TakeOver)
		reads(t, alice, "bob took the console over from alice")
		_, _, err := alice.Read(t.Context())
		var displaced *consoles.DisplacedError
		if !errors.As(err, &displaced) || displaced.By != "bob" {
			t.Errorf("alice is told: %v", err)
		}
		alice.Close()
		if err := alice.Write(t.Context(), []byte("x")); err == nil {
			t.Error("alice still types")
		}
		if err := bob.Write(t.Context(), []byte("y")); err != nil || w.typed() != "y" {
			t.Errorf("bob types: %v", err)
		}
		if _, err := hub.Attach("atom007", consoles.Request{User: "alice"}); err == nil {
			t.Error("the end of a session that was displaced takes the console from bob")
		}
		if _, forced := w.counts(); forced != 0 {
			t.Error("the BMC's session is our own, and was ended")
		}
	})
}

// A client whose connection was lost has it back at once, with what it missed and nothing twice, and nobody else does.
func TestClientComesBack(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		request := consoles.Request{User: "alice", Client: "A"}
		alice, err := hub.Attach("atom007", request)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.says("seen ")
		synctest.Wait()
		output, from, err := alice.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		request.From = consoles.Place{Stream: from.Stream, Position: from.Position + int64(len(output))}
		w.says("missed")
		for _, other := range []consoles.Request{{User: "alice"}, {User: "alice", Client: "B"}, {User: "bob", Client: "A"}} {
			if _, err := hub.Attach("atom007", other); err == nil {
				t.Errorf("%+v has it, too", other)
			}
		}
		synctest.Wait()
		again, err := hub.Attach("atom007", request)
		if err != nil {
			t.Fatal(err)
		}
		if text := read(t, again); text != "missed" {
			t.Errorf("shown is %q", text)
		}
		// A place of another stream, or one that never was, is none.
		for _, place := range []consoles.Place{{Stream: "other", Position: 5}, {Stream: from.Stream, Position: -5}} {
			request.From = place
			once, err := hub.Attach("atom007", request)
			if err != nil {
				t.Fatal(err)
			}
			if text := read(t, once); text != "seen missed" {
				t.Errorf("from %+v, shown is %q", place, text)
			}
		}
		request.From = consoles.Place{Stream: from.Stream, Position: 1 << 40}
		if once, err := hub.Attach("atom007", request); err != nil || once.Place().Position != 11 {
			t.Errorf("%+v, %v", once.Place(), err)
		}
	})
}

// Output that nobody looked at is shown to the next user; a connection that breaks is made again, visibly.
func TestOutputSurvives(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		alice.Close()
		w.says("panic")
		synctest.Wait()
		w.refuse(errors.New("its BMC\ndoes not answer \x1b[2J"))
		w.breaks()
		synctest.Wait()
		alice = attach(t, hub, "atom007", "alice", consoles.Use)
		reads(t, alice, "panic", "console of atom007: not connected, and tried again: the connection broke: the session was lost")
		text := read(t, alice)
		if !strings.Contains(text, "its BMC; does not answer [2J") {
			t.Errorf("then %q", text)
		}
		if err := alice.Write(t.Context(), []byte("x")); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("keys for nobody: %v", err)
		}
		// The same trouble is said once, and pauses grow.
		before, _ := w.counts()
		<-time.After(5 * time.Minute)
		after, _ := w.counts()
		if tried := after - before; tried < 8 || tried > 16 {
			t.Errorf("tried %d times in 5 min", tried)
		}
		w.refuse(nil)
		reads(t, alice, "connected again")
		w.says("again")
		if text := read(t, alice); text != "again" {
			t.Errorf("%q", text)
		}
	})
}

// Keys that are typed before the console is opened wait for that.
func TestKeysWaitForTheFirstConnection(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		session, err := hub.Attach("atom007", consoles.Request{User: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Write(t.Context(), []byte("first")); err != nil || w.typed() != "first" {
			t.Errorf("%v", err)
		}
	})
}

// Somebody else's session at the BMC is ended only if a user says so, and then at once.
func TestForce(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		w.refuse(&bmc.BusyError{What: "somebody else has the console"})
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		reads(t, alice, "somebody else has the console")
		<-time.After(61 * time.Second) // between two attempts
		opens, forced := w.counts()
		if forced != 0 {
			t.Error("it was ended without being asked for")
		}
		attach(t, hub, "atom007", "bob", consoles.TakeOver)
		if again, forced := w.counts(); forced != 1 || again != opens+1 {
			t.Errorf("forced %d times", forced)
		}
		w.refuse(nil)
		<-time.After(time.Minute)
		w.breaks()
		<-time.After(time.Minute)
		if _, forced := w.counts(); forced != 1 {
			t.Error("forced again, long after")
		}
	})
}

// A console that can never be opened ends, with the reason, and is not tried again by itself.
func TestNeverOpened(t *testing.T) {
	for _, why := range []error{
		&bmc.UnsupportedError{Address: netip.MustParseAddrPort("192.0.2.7:443"), What: "consoles"},
		&bmc.RefusedError{Address: netip.MustParseAddrPort("192.0.2.7:623"), Reason: bmc.RefusedCredentials},
	} {
		run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
			w.refuse(why)
			alice := attach(t, hub, "atom007", "alice", consoles.Use)
			if _, _, err := alice.Read(t.Context()); !errors.Is(err, why) {
				t.Errorf("alice is told: %v", err)
			}
			<-time.After(time.Hour)
			if opens, _ := w.counts(); opens != 1 {
				t.Errorf("tried %d times", opens)
			}
			w.refuse(nil)
			attach(t, hub, "atom007", "alice", consoles.Use)
			w.says("login: ")
		})
	}
}

// History has a bound, and who is too slow is told where the output goes on.
func TestHistory(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		for range 100 {
			w.says(strings.Repeat("x", 1000))
		}
		w.says("end")
		synctest.Wait()
		text, from, err := alice.Read(t.Context())
		if err != nil || len(text) != 64<<10 || !strings.HasSuffix(string(text), "end") || from.Position != 100_003-64<<10 {
			t.Errorf("%d bytes from %d", len(text), from.Position)
		}
	})
}

// Consoles that nobody uses are closed, and make room when there are too many.
func TestUnusedConsoles(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		w.closing = 3 * time.Second
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		<-time.After(time.Hour)
		if _, err := hub.Attach("atom007", consoles.Request{User: "bob"}); err == nil {
			t.Error("a console in use was closed")
		}
		alice.Close()
		<-time.After(9 * time.Minute)
		attach(t, hub, "atom007", "bob", consoles.Use).Close()
		if opens, _ := w.counts(); opens != 1 {
			t.Errorf("opened %d times", opens)
		}
		<-time.After(12 * time.Minute)
		w.mutex.Lock()
		isOpen := w.isOpen["atom007"]
		w.mutex.Unlock()
		if isOpen {
			t.Error("its session at the BMC was not ended")
		}
		attach(t, hub, "atom007", "bob", consoles.Use).Close()
		for i := range 127 {
			<-time.After(time.Second)
			attach(t, hub, fmt.Sprintf("other%d", i), "bob", consoles.Use)
		}
		// The one that nobody has ends for another one, which waits for nobody.
		attach(t, hub, "one-more", "bob", consoles.Use)
		_, err := hub.Attach("atom007", consoles.Request{User: "bob"})
		if _, isLimit := errors.AsType[*consoles.LimitError](err); !isLimit {
			t.Errorf("there is no bound: %v", err)
		}
	})
}

// A console that is opened while an earlier session of it still ends waits for that: a BMC has one at a time.
func TestOpenedAgainAtOnce(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		w.closing = 3 * time.Second
		attach(t, hub, "atom007", "alice", consoles.Use).Close()
		for i := range 128 {
			<-time.After(time.Millisecond)
			attach(t, hub, fmt.Sprintf("other%d", i), "bob", consoles.Use).Close()
		}
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		if err := alice.Write(t.Context(), []byte("x")); err != nil {
			t.Error(err)
		}
	})
}

func TestStop(t *testing.T) {
	run(t, func(t *testing.T, _ *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		hub.Stop()
		if _, _, err := alice.Read(t.Context()); !errors.Is(err, consoles.ErrStopped) {
			t.Errorf("alice is told: %v", err)
		}
		if _, err := hub.Attach("atom008", consoles.Request{User: "bob"}); !errors.Is(err, consoles.ErrStopped) {
			t.Errorf("bob is told: %v", err)
		}
	})
}

// Watchers make room for somebody who types: a right to watch is common, and must not keep others from consoles.
func TestWatchersMakeRoom(t *testing.T) {
	run(t, func(t *testing.T, _ *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		var watching []*consoles.Session
		for i := range 128 {
			<-time.After(time.Second)
			watching = append(watching, attach(t, hub, fmt.Sprintf("other%d", i), "bob", consoles.Watch))
		}
		_, err := hub.Attach("atom008", consoles.Request{User: "bob", Mode: consoles.Watch})
		if _, isLimit := errors.AsType[*consoles.LimitError](err); !isLimit {
			t.Errorf("a watcher ends the console of another one: %v", err)
		}
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		_, _, err = watching[0].Read(t.Context())
		if _, isLimit := errors.AsType[*consoles.LimitError](err); !isLimit {
			t.Errorf("the watcher that had to go is told: %v", err)
		}
		for _, session := range append(watching, alice) {
			session.Close()
		}
	})
}

// A displaced user reads no further than that, also where the output does not end.
func TestDisplacedReadsNoFurther(t *testing.T) {
	run(t, func(t *testing.T, w *wires, hub *consoles.Hub) { //nolint:thelper // the test itself
		alice := attach(t, hub, "atom007", "alice", consoles.Use)
		w.says("before")
		synctest.Wait()
		attach(t, hub, "atom007", "bob", consoles.TakeOver)
		w.says("secret of bob")
		synctest.Wait()
		if text := read(t, alice); !strings.Contains(text, "bob took the console over") || strings.Contains(text, "secret of bob") {
			t.Errorf("alice reads %q", text)
		}
		w.says("and more")
		synctest.Wait()
		output, _, err := alice.Read(t.Context())
		if _, isDisplaced := errors.AsType[*consoles.DisplacedError](err); !isDisplaced || len(output) > 0 {
			t.Errorf("alice reads %q, %v", output, err)
		}
	})
}

// A BMC that gives out its console and takes it back at once is not logged into every 2 s: some freeze after many logins.
func TestLinesThatBreakAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opens := 0
		hub := consoles.New(func(context.Context, string, bool) (io.ReadWriteCloser, error) {
			opens++
			ours, theirs := net.Pipe()
			return ours, theirs.Close()
		}, time.Now)
		attach(t, hub, "atom007", "alice", consoles.Use)
		<-time.After(5 * time.Minute)
		hub.Stop()
		if opens < 8 || opens > 16 {
			t.Errorf("opened %d times in 5 min", opens)
		}
	})
}
