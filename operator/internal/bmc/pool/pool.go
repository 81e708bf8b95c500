// Package pool keeps one session with each management controller, and bounds what is asked of all of them together: how many are spoken
// with at once, how many logins there are in a second, how many wait for one controller, and how often a password that was refused is tried
// (never). A controller that does not answer delays nobody but those who ask it.
package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// ErrClosed means that the pool was closed.
var ErrClosed = errors.New("the pool of sessions is closed")

// AsideError is the error of a call whose outcome says nothing about its controller: it neither answered nor was silent, and its session is
// kept. A call returns it around bmc.ErrSilent.
type AsideError struct{ Err error }

// Error is that of the error inside, which is not unwrapped: errors.Is would take the controller for a silent one.
func (e *AsideError) Error() string { return e.Err.Error() }

func isAside(err error) bool {
	_, is := errors.AsType[*AsideError](err)
	return is
}

// Target is a controller, and how to reach it.
type Target struct {
	// Name is the controller's own, such as atom007m.
	Name   string
	Access bmc.Access
	// SecretUID and SecretVersion are the UID and the resource version of the Secret that has the password.
	SecretUID, SecretVersion string
	// Refused is the recorded refusal of this login, from before this process was started: the login is not tried again. Nil: none is
	// recorded.
	Refused *bmc.RefusedError
}

// Config says how sessions are opened, and the bounds. Bounds that are 0 get their default.
type Config struct {
	// Dial opens a session.
	Dial func(context.Context, bmc.Access) (bmc.BMC, error)
	// DialConsole opens a session for the console alone. With isForced, it ends another one that the controller has for it.
	DialConsole func(ctx context.Context, access bmc.Access, isForced bool) (io.ReadWriteCloser, error)
	// AtOnce is how many controllers are spoken with at once; default 32.
	AtOnce int
	// SuspectsAtOnce is how many of them may be controllers that did not answer last time; default a quarter.
	SuspectsAtOnce int
	// Waiting is how many calls may wait for one controller; default 8.
	Waiting int
	// LoginsPerSecond are those to all controllers together; default 200.
	LoginsPerSecond int
	// KeepAlive is after how long without a call a session is used, so that the controller keeps it; default 25 s. Controllers forget
	// sessions after 60 s.
	KeepAlive time.Duration
	// Unused is after how long without a call a session is closed; default 10 min.
	Unused time.Duration
	// Random returns numbers from 0 to 1; default those of the machine.
	Random func() float64
}

// Times of controllers that do not answer, and of logins to one controller.
const (
	firstBackOff = 5 * time.Second
	// maxBackOff is short, since a chassis manager that answers again may be the witness that somebody waits for. What all silent
	// controllers take together is bounded by SuspectsAtOnce.
	maxBackOff = 30 * time.Second
	// loginEvery and loginBurst bound the logins to one controller: some freeze after many.
	loginEvery = 5 * time.Second
	loginBurst = 3
	// trusted is how long after an answer a session is taken to be alive. Before an order, an older one is tried.
	trusted = 5 * time.Second
)

// Pool is a set of sessions.
type Pool struct {
	config   Config
	ctx      context.Context //nolint:containedctx // it ends with the pool
	cancel   context.CancelFunc
	slots    chan struct{}
	suspects chan struct{}
	logins   *rate.Limiter
	calls    sync.WaitGroup

	mu          sync.Mutex
	closed      bool
	controllers map[string]*controller
	// gone are the controllers that were forgotten and still have something that must not be lost; the last one was forgotten last.
	gone []*controller
}

// New returns a pool. Close ends it.
func New(config Config) *Pool {
	config.AtOnce = or(config.AtOnce, 32)
	config.SuspectsAtOnce = or(config.SuspectsAtOnce, max(config.AtOnce/4, 1))
	config.Waiting = or(config.Waiting, 8)
	config.LoginsPerSecond = or(config.LoginsPerSecond, 200)
	config.KeepAlive = or(config.KeepAlive, 25*time.Second)
	config.Unused = or(config.Unused, 10*time.Minute)
	if config.Random == nil {
		config.Random = rand.Float64
	}
	p := &Pool{
		config:      config,
		slots:       make(chan struct{}, config.AtOnce),
		suspects:    make(chan struct{}, config.SuspectsAtOnce),
		logins:      rate.NewLimiter(rate.Limit(config.LoginsPerSecond), config.AtOnce),
		controllers: make(map[string]*controller),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.calls.Go(p.keepAlive)
	return p
}

func or[T int | time.Duration](value, preset T) T {
	if value == 0 {
		return preset
	}
	return value
}

// Read runs a call that asks and changes nothing. It may be run twice: again in a new session, when a kept one turns out to be forgotten by
// its controller. While a silent controller is left alone, it fails at once with bmc.ErrSilent.
func (p *Pool) Read(ctx context.Context, target Target, call func(context.Context, bmc.BMC) error) error {
	return p.use(ctx, target, use{call: call, repeatable: true, counts: true})
}

// Order runs a call that changes something. It is run once, and also when the controller did not answer lately.
func (p *Pool) Order(ctx context.Context, target Target, call func(context.Context, bmc.BMC) error) error {
	return p.use(ctx, target, use{call: call, urgent: true, counts: true})
}

// Console opens the console in a session of its own, since one with a console serves nothing else. The caller closes it. With isForced,
// another session that the controller has for the console is ended.
func (p *Pool) Console(ctx context.Context, target Target, isForced bool) (io.ReadWriteCloser, error) {
	var opened io.ReadWriteCloser
	err := p.use(ctx, target, use{urgent: true, counts: true, call: func(ctx context.Context, _ bmc.BMC) error {
		if err := p.logins.Wait(ctx); err != nil {
			return fmt.Errorf("%s: console: %w", target.Name, err)
		}
		var err error
		opened, err = p.config.DialConsole(ctx, target.Access, isForced)
		return err
	}})
	return opened, err
}

// use is one use of a session.
type use struct {
	call func(context.Context, bmc.BMC) error
	// repeatable: the call may be run twice.
	repeatable bool
	// urgent: it is tried although the controller did not answer lately.
	urgent bool
	// counts: it shows that somebody needs the session.
	counts bool
}

func (p *Pool) use(ctx context.Context, target Target, use use) error {
	c, err := p.enter(target.Name)
	if err != nil {
		return err
	}
	defer p.leave(c)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)() //nolint:contextcheck // the call ends with either

	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return p.ended(ctx, target)
	}
	suspect, err := c.gate(target, use.urgent, time.Now())
	if err != nil {
		return err
	}
	release, err := p.slot(ctx, suspect && !use.urgent)
	if err != nil {
		return p.ended(ctx, target)
	}
	defer release()
	return p.run(ctx, c, target, use)
}

// ended says why a context ended.
func (p *Pool) ended(ctx context.Context, target Target) error {
	if p.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", target.Name, ErrClosed)
	}
	return fmt.Errorf("%s: %w", target.Name, ctx.Err())
}

// enter counts a call as waiting for a controller.
func (p *Pool) enter(name string) (*controller, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%s: %w", name, ErrClosed)
	}
	c := p.controllers[name]
	if c == nil {
		c = newController(name)
		p.controllers[name] = c
	}
	if c.calls > p.config.Waiting {
		return nil, &bmc.BusyError{What: fmt.Sprintf("%d calls wait for %s", p.config.Waiting, name)}
	}
	if c.isGone {
		c.isGone = false
		p.gone = slices.DeleteFunc(p.gone, func(other *controller) bool { return other == c })
	}
	c.calls++
	p.calls.Add(1)
	return c, nil
}

func (p *Pool) leave(c *controller) {
	p.mu.Lock()
	c.calls--
	p.mu.Unlock()
	p.calls.Done()
}

// slot waits until fewer controllers are spoken with than may be at once. Suspects wait for each other first, so that a room full of dead
// controllers leaves room for the living.
func (p *Pool) slot(ctx context.Context, suspect bool) (release func(), err error) {
	if suspect {
		select {
		case p.suspects <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err() //nolint:wrapcheck // the caller does
		}
	}
	select {
	case p.slots <- struct{}{}:
		return func() {
			<-p.slots
			if suspect {
				<-p.suspects
			}
		}, nil
	case <-ctx.Done():
		if suspect {
			<-p.suspects
		}
		return nil, ctx.Err() //nolint:wrapcheck // the caller does
	}
}

// run uses a controller's session, and opens one where there is none.
func (p *Pool) run(ctx context.Context, c *controller, target Target, use use) error {
	if use.counts {
		c.needed = time.Now()
	}
	if c.session != nil && c.from != from(target) {
		c.drop()
	}
	if c.session != nil && !use.repeatable && time.Since(c.answered) > trusted {
		if _, err := c.session.Power(ctx); errors.Is(err, bmc.ErrSilent) {
			c.drop()
		}
	}
	kept := c.session != nil
	err := p.attempt(ctx, c, target, use)
	if kept && use.repeatable && errors.Is(err, bmc.ErrSilent) {
		// A controller that was restarted, or closed the session, says nothing in it.
		err = p.attempt(ctx, c, target, use)
	}
	c.judge(err, time.Now(), p.config.Random())
	if err != nil && p.ctx.Err() != nil {
		return p.ended(ctx, target)
	}
	return err
}

func (p *Pool) attempt(ctx context.Context, c *controller, target Target, use use) error {
	if c.session == nil {
		if err := p.login(ctx, c, target); err != nil {
			return err
		}
	}
	err := use.call(ctx, c.session)
	switch {
	case isAside(err): // the next call finds out whether the session is alive
	case errors.Is(err, bmc.ErrSilent):
		c.drop()
	case ctx.Err() == nil:
		c.answered = time.Now()
	}
	return err
}

func (p *Pool) login(ctx context.Context, c *controller, target Target) error {
	if !c.logins.Allow() { // it does not wait for that, because it has a slot
		return &bmc.BusyError{Address: target.Access.Address, What: "it was logged into too often in the last seconds"}
	}
	if err := p.logins.Wait(ctx); err != nil {
		return fmt.Errorf("%s: login: %w", target.Name, err)
	}
	session, err := p.config.Dial(ctx, target.Access)
	if err != nil {
		err = c.interrupt(err, target)
		if refused, is := errors.AsType[*bmc.RefusedError](err); is {
			refused.AtLogin = true
		}
		c.refuse(err, target)
		return err
	}
	c.session, c.from, c.answered = session, from(target), time.Now()
	return nil
}

// Forget closes the session with a controller that is gone. The pool still knows which passwords the controller has refused: it may be gone
// for a moment only, and locks an account after a few wrong ones.
func (p *Pool) Forget(ctx context.Context, name string) error {
	c, err := p.enter(name)
	if err != nil {
		return err
	}
	defer p.leave(c)
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", name, ctx.Err())
	}
	defer func() { <-c.turn }()
	c.drop()
	c.forget()
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.calls == 1 { // this one
		p.retire(c)
	}
	return nil
}

// retire removes a controller that nobody uses, unless it remembers something. The caller holds the mutex.
func (p *Pool) retire(c *controller) {
	if !c.remembers() {
		delete(p.controllers, c.name)
		return
	}
	c.isGone = true
	if p.gone = append(p.gone, c); len(p.gone) <= maxGone {
		return
	}
	oldest := p.gone[0]
	p.gone = slices.DeleteFunc(p.gone, func(c *controller) bool {
		isLost := c == oldest || !c.remembers()
		if isLost {
			delete(p.controllers, c.name)
		}
		return isLost
	})
}

// Close ends all calls and sessions, and returns when nothing of the pool runs any more.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.calls.Wait()
	var closing sync.WaitGroup
	for _, c := range p.controllers {
		p.slots <- struct{}{}
		closing.Go(func() {
			defer func() { <-p.slots }()
			c.drop()
		})
	}
	closing.Wait()
}
