package pool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
)

// The pool of the property, and its controllers.
const (
	fewControllers = 5
	fewAtOnce      = 2
)

// step is something that happens to a controller, or to somebody who asks it.
type step struct {
	kind       string
	controller int
	wait       time.Duration
	wrong      bool // the new Secret is
}

// TestRules draws what happens to a few controllers and their pool, and holds the rules: one call at a time to a controller, few
// controllers at once, one login for each wrong Secret, an order once, no session after the end, and the truth whenever a controller
// answers.
func TestRules(t *testing.T) {
	kinds := []string{"read", "order", "read", "order", "freeze", "restart", "password", "secret", "forget", "wait"}
	rapid.Check(t, func(drawn *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(drawn *rapid.T) step {
			return step{
				kind:       rapid.SampledFrom(kinds).Draw(drawn, "kind"),
				controller: rapid.IntRange(0, fewControllers-1).Draw(drawn, "controller"),
				wait:       time.Duration(rapid.IntRange(1, 100_000).Draw(drawn, "ms")) * time.Millisecond,
				wrong:      rapid.Bool().Draw(drawn, "wrong"),
			}
		}), 1, 60).Draw(drawn, "steps")
		var broken []string
		synctest.Test(t, func(t *testing.T) { broken = run(t.Context(), steps) })
		for _, rule := range broken {
			drawn.Error(rule)
		}
	})
}

// run returns the rules that were broken.
func run(ctx context.Context, steps []step) []string {
	r := newRoom()
	p := r.open(func(c *pool.Config) { c.AtOnce = fewAtOnce })
	targets := r.targets(fewControllers)
	var calls sync.WaitGroup
	for _, step := range steps {
		target := &targets[step.controller]
		switch step.kind {
		case "read", "order":
			asked := *target
			calls.Go(func() { r.ask(ctx, p, asked, step.kind == "order") })
		case "freeze":
			r.change(*target, func(f *fake) { f.silent = !f.silent })
		case "restart":
			r.change(*target, func(f *fake) { f.boots++ })
		case "password":
			r.change(*target, func(f *fake) { f.password, f.boots = "another", f.boots+1 })
		case "secret":
			target.SecretVersion += "1"
			password := r.fake(*target).password
			if step.wrong {
				password = "wrong in " + target.SecretVersion
			}
			target.Access.Password = bmc.NewSecret(password)
		case "forget":
			name := target.Name
			calls.Go(func() {
				if err := p.Forget(ctx, name); err != nil && !known(err) {
					r.complain("%s is forgotten: %v", name, err)
				}
			})
		case "wait":
			wait(step.wait)
		}
	}
	calls.Wait()
	// In the end everybody answers, and everybody has the right Secret.
	for i := range targets {
		r.change(targets[i], func(f *fake) { f.silent = false })
		targets[i].SecretVersion += "-last"
		targets[i].Access.Password = bmc.NewSecret(r.fake(targets[i]).password)
	}
	wait(3 * time.Minute)
	for _, target := range targets {
		if err := p.Read(ctx, target, power); err != nil {
			r.complain("in the end %s: %v", target.Name, err)
		}
	}
	p.Close()
	for key, n := range r.refusals {
		if n > 1 && strings.Contains(key, "wrong") { // a password that was right may be in several Secrets
			r.complain("%s: %d logins with one wrong Secret", key, n)
		}
	}
	if r.most > fewAtOnce || r.sessions != 0 {
		r.complain("%d at once, %d sessions left over", r.most, r.sessions)
	}
	return r.broken
}

// ask reads or orders something.
func (r *room) ask(ctx context.Context, p *pool.Pool, target pool.Target, order bool) {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !order {
		if err := p.Read(limited, target, power); err != nil && !known(err) {
			r.complain("%s: %v", target.Name, err)
		}
		return
	}
	runs := 0
	err := p.Order(limited, target, func(ctx context.Context, session bmc.BMC) error { runs++; return off(ctx, session) })
	if runs > 1 || err == nil && runs != 1 || err != nil && !known(err) {
		r.complain("%s: an order was run %d times: %v", target.Name, runs, err)
	}
}

func (r *room) complain(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, fmt.Sprintf(format, a...))
}

// known says whether an error is one of those that callers are told of.
func known(err error) bool {
	var refused *bmc.RefusedError
	var busy *bmc.BusyError
	return errors.Is(err, bmc.ErrSilent) || errors.As(err, &refused) || errors.As(err, &busy) || errors.Is(err, context.DeadlineExceeded)
}
