package pool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
)

func isRefused(err error) bool { return errors.As(err, new(*bmc.RefusedError)) }

// TestForgottenControllersKeepRefusals: a controller that comes and goes is not given the same wrong password again, also if it refused
// that while it was being forgotten.
func TestForgottenControllersKeepRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		defer p.Close()
		target := r.target(1)
		r.change(target, func(f *fake) { f.password = "changed" })
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := p.Read(t.Context(), target, power); !isRefused(err) {
				t.Errorf("got %v", err)
			}
		})
		wait(latency / 2) // the login is under way
		for range 20 {
			if err := p.Forget(t.Context(), target.Name); err != nil {
				t.Error(err)
			}
			calls.Wait()
			if err := p.Read(t.Context(), target, power); !isRefused(err) {
				t.Errorf("got %v", err)
			}
			wait(time.Minute)
		}
		if logins := r.fake(target).logins; logins != 1 {
			t.Errorf("%d logins", logins)
		}
		target.SecretVersion, target.Access.Password = "2", bmc.NewSecret("changed")
		if err := p.Read(t.Context(), target, power); err != nil {
			t.Errorf("with the right one: %v", err)
		}
	})
}

// TestForgottenControllersKeepTries: the tries of a new password are counted on, and so are logins.
func TestForgottenControllersKeepTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			err    error
			pause  time.Duration
			logins int
		}{
			"tries":  {&bmc.RotationError{Err: bmc.ErrSilent}, time.Minute, 3},
			"logins": {errors.New("it was restarted"), 0, 3},
			// No password was tried, or the same one is of use again.
			"certificate": {&bmc.RefusedError{Reason: bmc.RefusedCertificate}, time.Minute, 20},
			"privilege":   {&bmc.RefusedError{Reason: bmc.RefusedPrivilege}, time.Minute, 20},
		} {
			logins := 0
			p := pool.New(pool.Config{Dial: func(context.Context, bmc.Access) (bmc.BMC, error) { logins++; return nil, test.err }})
			for range 20 {
				_ = p.Read(t.Context(), newRoom().target(1), power)
				if err := p.Forget(t.Context(), "atom001m"); err != nil {
					t.Error(err)
				}
				wait(test.pause)
			}
			if p.Close(); logins != test.logins {
				t.Errorf("%s: %d logins", name, logins)
			}
		}
	})
}

// TestForgottenControllersAreFew: of very many controllers that are gone, those that were forgotten last are remembered.
func TestForgottenControllersAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, all = 1024, 1034
		r := newRoom()
		p := r.open()
		defer p.Close()
		targets := r.targets(all)
		for _, target := range targets {
			r.change(target, func(f *fake) { f.password = "changed" })
			if err := p.Read(t.Context(), target, power); !isRefused(err) {
				t.Fatalf("got %v", err)
			}
			if err := p.Forget(t.Context(), target.Name); err != nil {
				t.Fatal(err)
			}
		}
		for i, target := range targets {
			want := 1
			if i < all-bound {
				want = 2
			}
			if _ = p.Read(t.Context(), target, power); r.fake(target).logins != want {
				t.Errorf("%s: %d logins", target.Name, r.fake(target).logins)
			}
		}
	})
}
