package pool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
)

// TestAsideSaysNothing: a call that says nothing about its controller neither ends the session, nor counts as an answer in it: an order
// after it does not go into a session that the controller has forgotten.
func TestAsideSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		target := r.target(1)
		if err := p.Read(t.Context(), target, power); err != nil {
			t.Fatal(err)
		}
		wait(6 * time.Second)
		for range 10 {
			var aside *pool.AsideError
			err := p.Read(t.Context(), target, func(context.Context, bmc.BMC) error { return &pool.AsideError{Err: bmc.ErrSilent} })
			if !errors.As(err, &aside) || errors.Is(err, bmc.ErrSilent) {
				t.Errorf("got %v", err)
			}
		}
		if health := p.Health(target.Name); health != (pool.Health{}) || r.fake(target).logins != 1 || r.sessions != 1 {
			t.Errorf("%+v, %d logins, %d sessions", health, r.fake(target).logins, r.sessions)
		}
		r.change(target, func(f *fake) { f.boots++ })
		if err := p.Order(t.Context(), target, off); err != nil || r.fake(target).orders != 1 {
			t.Errorf("an order: %v, run %d times", err, r.fake(target).orders)
		}
		p.Close()
		r.check(t)
	})
}
