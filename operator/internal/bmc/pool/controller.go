package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// controller is what the pool knows of one controller.
type controller struct {
	name string
	// turn is held by the call that uses the session, and guards the fields below it.
	turn     chan struct{}
	session  bmc.BMC
	from     origin
	answered time.Time // the last answer in the session
	needed   time.Time // the last call that somebody made
	logins   *rate.Limiter
	// interrupted counts tries of a new password, of interruptedFrom, that did not end.
	interrupted     int
	interruptedFrom origin

	// calls are those that use it or wait, and isGone says that it was forgotten; both are guarded by the pool.
	calls  int
	isGone bool

	mu     sync.Mutex
	health Health
	retry  time.Time // until then it is left alone
	// refused are the last logins that were refused, newest last. Calls with an older Secret may still be under way when a newer one is
	// refused.
	refused []refusal
}

// refusal is a login that was refused.
type refusal struct {
	from origin
	err  error
}

// maxInterrupted is how often a new password is tried that a controller gives no answer about: some lock
// accounts after five wrong ones.
const maxInterrupted = 3

// maxGone bounds the controllers that are remembered after they were forgotten.
const maxGone = 1024

// maxRefusals bounds the refusals that are remembered of one controller.
const maxRefusals = 8

// Health is how a controller answered lately.
type Health struct {
	// SilentSince is when it first gave no answer; zero: it answers, or was never asked.
	SilentSince time.Time
	// Silences are calls without an answer in succession.
	Silences int
	// Refused is why it let nobody in with the last Secret that was tried; nil: it did.
	Refused error
}

// origin is what a session was opened from. The password is not part of it: the Secret's version stands for it.
type origin struct {
	address  netip.AddrPort
	protocol bmc.Protocol
	username string
	uid      string
	version  string
	suite    int
	bytes    int
	insecure bool
}

func from(target Target) origin {
	a := target.Access
	return origin{
		a.Address, a.Protocol, a.Username, target.SecretUID, target.SecretVersion, a.CipherSuite, a.PasswordBytes, a.InsecureSkipVerify,
	}
}

func newController(name string) *controller {
	return &controller{name: name, turn: make(chan struct{}, 1), logins: rate.NewLimiter(rate.Every(loginEvery), loginBurst)}
}

// drop closes the session.
func (c *controller) drop() {
	if c.session != nil {
		_ = c.session.Close()
		c.session = nil
	}
}

// gate says whether a call may be tried now, and whether the controller is suspected to be silent.
func (c *controller) gate(target Target, urgent bool, now time.Time) (suspect bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, refused := range c.refused {
		if refused.from == from(target) {
			return false, refused.err
		}
	}
	if target.Refused != nil {
		return false, target.Refused
	}
	if !urgent && now.Before(c.retry) {
		return false, fmt.Errorf("%s: %w since %s; the next attempt is after %s", c.name, bmc.ErrSilent,
			c.health.SilentSince.UTC().Format(time.RFC3339), c.retry.UTC().Format(time.RFC3339))
	}
	return c.health.Silences > 0, nil
}

// refuse remembers a login that was refused: the same one is not tried again.
func (c *controller) refuse(err error, target Target) {
	if _, ok := errors.AsType[*bmc.RefusedError](err); !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health, c.retry = Health{Refused: err}, time.Time{}
	c.refused = append(c.refused, refusal{from: from(target), err: err})
	if len(c.refused) > maxRefusals {
		c.refused = slices.Delete(c.refused, 0, 1)
	}
}

// interrupt counts logins that were a try of a new password and did not end. Too many of them are a refusal.
func (c *controller) interrupt(err error, target Target) error {
	if _, is := errors.AsType[*bmc.RotationError](err); !is {
		return err
	}
	if c.interruptedFrom != from(target) {
		c.interruptedFrom, c.interrupted = from(target), 0
	}
	if c.interrupted++; c.interrupted < maxInterrupted {
		return err
	}
	return &bmc.RefusedError{
		Address: target.Access.Address, Reason: bmc.RefusedNewPassword,
		Detail: fmt.Sprintf("it gave no answer about that %d times, and a new attempt could lock the account", c.interrupted),
	}
}

// judge learns from a call whether the controller answers. A call that was cancelled, or not made, says nothing.
func (c *controller) judge(err error, now time.Time, random float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case isAside(err):
	case errors.Is(err, bmc.ErrSilent):
		if c.health.Silences == 0 {
			c.health.SilentSince = now
		}
		c.health.Silences++
		wait := min(firstBackOff<<min(c.health.Silences-1, 8), maxBackOff)
		c.retry = now.Add(time.Duration(float64(wait) * (0.5 + random/2)))
	case c.session != nil:
		c.health, c.retry = Health{}, time.Time{}
	}
}

// forget discards all that may be found out anew without harm. A wrong password must not be tried again.
func (c *controller) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health, c.retry = Health{}, time.Time{}
	c.refused = slices.DeleteFunc(c.refused, func(r refusal) bool { return !r.isOfPassword() })
}

func (r *refusal) isOfPassword() bool {
	refused, is := errors.AsType[*bmc.RefusedError](r.err)
	return is && (refused.Reason == bmc.RefusedCredentials || refused.Reason == bmc.RefusedNewPassword)
}

// remembers says whether something would be lost with this controller: a refused password, tries of a new one, or recent logins.
func (c *controller) remembers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.refused) > 0 || c.interrupted > 0 || c.logins.Tokens() < loginBurst
}

// Health says how a controller answered lately.
func (p *Pool) Health(name string) Health {
	p.mu.Lock()
	c := p.controllers[name]
	p.mu.Unlock()
	if c == nil {
		return Health{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.health
}

// keepAlive uses sessions before controllers forget them, and closes those that nobody needs.
func (p *Pool) keepAlive() {
	ticker := time.NewTicker(p.config.KeepAlive / 5)
	defer ticker.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-ticker.C:
		}
		p.mu.Lock()
		controllers := make([]*controller, 0, len(p.controllers))
		for _, c := range p.controllers {
			controllers = append(controllers, c)
		}
		p.mu.Unlock()
		var looking sync.WaitGroup
		for _, c := range controllers {
			release, err := p.slot(p.ctx, false)
			if err != nil {
				break
			}
			looking.Go(func() {
				defer release()
				p.lookAfter(c)
			})
		}
		looking.Wait()
	}
}

func (p *Pool) lookAfter(c *controller) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	default:
		return // it is in use
	}
	now := time.Now()
	switch {
	case c.session == nil:
	case now.Sub(c.needed) >= p.config.Unused:
		c.drop()
	case now.Sub(c.answered) >= p.config.KeepAlive:
		if _, err := c.session.Power(p.ctx); errors.Is(err, bmc.ErrSilent) {
			c.drop() // the next call finds out whether the controller is silent or has forgotten the session
		} else if p.ctx.Err() == nil {
			c.answered = now
		}
	}
}
