package pool_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
)

const (
	// latency is what a controller takes to answer, and silence how long a silent one is waited for.
	latency = 20 * time.Millisecond
	silence = 2 * time.Second
	// firstBackOff is at most how long a controller is left alone that did not answer once.
	firstBackOff = 5 * time.Second
)

// TestOneSessionEach reads 132 controllers ten times: 132 logins, and never more than 32 at once.
func TestOneSessionEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		targets := r.targets(132)
		for range 10 {
			if _, errs := round(t.Context(), p, targets); errors.Join(errs...) != nil {
				t.Fatal(errors.Join(errs...))
			}
		}
		p.Close()
		if len(r.logins) != 132 || r.most != 32 {
			t.Errorf("%d logins, %d at once", len(r.logins), r.most)
		}
		r.check(t)
	})
}

// TestSilentControllersDelayNobody freezes 40 of 132 controllers.
func TestSilentControllersDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		defer p.Close()
		targets := r.targets(132)
		silent := func(i int) bool { return i%3 == 0 && i < 120 }
		for i, target := range targets {
			r.change(target, func(f *fake) { f.silent = silent(i) })
		}
		for n, most := range []time.Duration{10 * time.Second, 500 * time.Millisecond, 500 * time.Millisecond} {
			if n == 2 { // all silent ones are tried again, together
				wait(firstBackOff)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			took, errs := round(ctx, p, targets)
			cancel()
			for i := range targets {
				switch {
				case silent(i) && !errors.Is(errs[i], bmc.ErrSilent):
					t.Errorf("round %d, %s is silent: %v", n, targets[i].Name, errs[i])
				case !silent(i) && (errs[i] != nil || took[i] > most):
					t.Errorf("round %d, %s: %v after %s", n, targets[i].Name, errs[i], took[i])
				}
			}
		}
		if health := p.Health(targets[0].Name); health.SilentSince.IsZero() || health.Silences != 2 {
			t.Errorf("got %+v", health)
		}
		if health := p.Health(targets[1].Name); health != (pool.Health{}) {
			t.Errorf("got %+v", health)
		}
	})
}

// TestBackOff reads a silent controller every second for an hour, and orders something between.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		defer p.Close()
		target := r.target(1)
		r.change(target, func(f *fake) { f.silent = true })
		for begin := time.Now(); time.Since(begin) < time.Hour; wait(time.Second) {
			if err := p.Read(t.Context(), target, power); !errors.Is(err, bmc.ErrSilent) {
				t.Fatal(err)
			}
		}
		if logins := r.fake(target).logins; logins < 110 || logins > 245 {
			t.Errorf("%d logins in an hour: between 15 and 30 seconds apart are 110 to 240, and some at the beginning", logins)
		}
		r.change(target, func(f *fake) { f.silent = false })
		for begin := time.Now(); p.Read(t.Context(), target, power) != nil; wait(time.Second) {
			if time.Since(begin) > 30*time.Second {
				t.Fatal("it answers again, and is left alone all the same")
			}
		}
		r.change(target, func(f *fake) { f.silent = true })
		for range 60 {
			_ = p.Read(t.Context(), target, power)
			wait(time.Second)
		}
		r.change(target, func(f *fake) { f.silent = false })
		if err := p.Order(t.Context(), target, off); err != nil {
			t.Errorf("an order waits for the next attempt: %v", err)
		}
		if err := p.Read(t.Context(), target, power); err != nil || p.Health(target.Name) != (pool.Health{}) {
			t.Errorf("it answers again: %v, %+v", err, p.Health(target.Name))
		}
	})
}

// wait is a pause in virtual time.
func wait(d time.Duration) { <-time.After(d) }

// TestOneLoginPerWrongPassword asks a controller with a wrong password all day long, in all ways.
func TestOneLoginPerWrongPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		defer p.Close()
		target := r.target(1)
		r.change(target, func(f *fake) { f.password = "changed" })
		ask := func() {
			for range 100 {
				errs := []error{p.Read(t.Context(), target, power), p.Order(t.Context(), target, off)}
				_, err := p.Console(t.Context(), target, false)
				for _, err := range append(errs, err) {
					if _, ok := errors.AsType[*bmc.RefusedError](err); !ok {
						t.Fatalf("got %v", err)
					}
				}
				wait(time.Minute)
			}
		}
		ask()
		if logins := r.fake(target).logins; logins != 1 || p.Health(target.Name).Refused == nil {
			t.Errorf("%d logins, %+v", logins, p.Health(target.Name))
		}
		target.SecretVersion = "2"
		ask()
		if logins := r.fake(target).logins; logins != 2 {
			t.Errorf("%d logins after another wrong Secret", logins)
		}
		for range 10 { // somebody still has the older one
			target.SecretVersion = "1"
			ask()
			target.SecretVersion = "2"
			ask()
		}
		if logins := r.fake(target).logins; logins != 2 {
			t.Errorf("%d logins with two wrong Secrets in turns", logins)
		}
		target.SecretVersion, target.Access.Password = "3", bmc.NewSecret("changed")
		if err := p.Read(t.Context(), target, power); err != nil || p.Health(target.Name).Refused != nil {
			t.Errorf("with the right one: %v", err)
		}
		if logins := r.fake(target).logins; logins != 3 {
			t.Errorf("%d logins with the right one", logins)
		}
	})
}

// TestRestartedController forgets its sessions. A reading is repeated in a new one; an order is run once at most.
func TestRestartedController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		defer p.Close()
		target := r.target(1)
		restart := func() { r.change(target, func(f *fake) { f.boots++ }) }
		for range 3 {
			if err := p.Read(t.Context(), target, power); err != nil {
				t.Error(err)
			}
			restart()
			wait(time.Minute / 4)
		}
		if err := p.Order(t.Context(), target, off); err != nil || r.fake(target).orders != 1 {
			t.Errorf("an order in a session of which nobody knew that it was gone: %v, %d times", err, r.fake(target).orders)
		}
		restart()
		runs := 0
		err := p.Order(t.Context(), target, func(ctx context.Context, session bmc.BMC) error { runs++; return off(ctx, session) })
		if !errors.Is(err, bmc.ErrSilent) || runs != 1 {
			t.Errorf("an order without an answer: %v, run %d times", err, runs)
		}
	})
}

// TestNewSecretOpensANewSession rotates a password.
func TestNewSecretOpensANewSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		target := r.target(1)
		for _, version := range []string{"1", "1", "2", "2"} {
			target.SecretVersion = version
			if err := p.Read(t.Context(), target, power); err != nil {
				t.Error(err)
			}
		}
		if logins := r.fake(target).logins; logins != 2 {
			t.Errorf("%d logins", logins)
		}
		if err := p.Forget(t.Context(), target.Name); err != nil || r.sessions != 0 {
			t.Errorf("forgotten: %v, %d sessions", err, r.sessions)
		}
		p.Close()
		r.check(t)
	})
}

// TestRotationsThatNeverEndAreFew: a controller that refuses the new password, and is silent when it is given that, is tried three times
// with a version of the Secret: each try is a login with a wrong password, after which controllers lock accounts.
func TestRotationsThatNeverEndAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logins := 0
		p := pool.New(pool.Config{Dial: func(context.Context, bmc.Access) (bmc.BMC, error) {
			logins++
			return nil, &bmc.RotationError{Err: bmc.ErrSilent}
		}})
		defer p.Close()
		target := pool.Target{Name: "atom001m", SecretVersion: "1"}
		for _, want := range []int{3, 6} {
			for range 20 {
				err := p.Order(t.Context(), target, func(context.Context, bmc.BMC) error { return nil })
				if err == nil {
					t.Fatal("a session was opened")
				}
				<-time.After(time.Minute)
			}
			refused, is := errors.AsType[*bmc.RefusedError](p.Health(target.Name).Refused)
			if !is || refused.Reason != bmc.RefusedNewPassword || logins != want {
				t.Errorf("after %d logins: %+v", logins, p.Health(target.Name))
			}
			target.SecretVersion += "1"
		}
	})
}

// TestQueueIsBounded lets twenty ask a controller that takes its time.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		target := r.target(1)
		errs := make(chan error, 20)
		held := make(chan struct{})
		for range 20 {
			go func() {
				errs <- p.Read(t.Context(), target, func(context.Context, bmc.BMC) error { <-held; return nil })
			}()
		}
		synctest.Wait()
		if refused := len(errs); refused != 11 { // one is served, eight wait
			t.Errorf("%d are refused", refused)
		}
		close(held)
		var busy, served int
		for range 20 {
			var tooMany *bmc.BusyError
			switch err := <-errs; {
			case err == nil:
				served++
			case errors.As(err, &tooMany):
				busy++
			}
		}
		if busy != 11 || served != 9 {
			t.Errorf("%d are refused, %d served", busy, served)
		}
		p.Close()
		r.check(t)
	})
}

// TestLoginsAreSpread opens 736 sessions at once, and lets one controller throw everybody out all the time.
func TestLoginsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open(func(c *pool.Config) { c.LoginsPerSecond = 100 })
		defer p.Close()
		if _, errs := round(t.Context(), p, r.targets(736)); errors.Join(errs...) != nil {
			t.Fatal(errors.Join(errs...))
		}
		for i, first := range r.logins {
			second := slices.IndexFunc(r.logins[i:], func(at time.Time) bool { return at.Sub(first) >= time.Second })
			if second < 0 {
				second = len(r.logins) - i
			}
			if second > 100+32 {
				t.Fatalf("%d logins in a second", second)
			}
		}
		target := r.target(1)
		wait(time.Minute)
		before := r.fake(target).logins
		for begin := time.Now(); time.Since(begin) < time.Minute; wait(100 * time.Millisecond) {
			_ = p.Order(t.Context(), target, func(context.Context, bmc.BMC) error { return bmc.ErrSilent })
		}
		if logins := r.fake(target).logins - before; logins > 15 {
			t.Errorf("%d logins to one controller in a minute", logins)
		}
	})
}

// TestKeepAlive keeps a session that somebody needed lately, and no other.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		target := r.target(1)
		if err := p.Read(t.Context(), target, power); err != nil {
			t.Fatal(err)
		}
		for range 9 {
			before := r.fake(target).reads
			wait(time.Minute)
			if reads := r.fake(target).reads - before; reads < 2 || reads > 3 {
				t.Errorf("used %d times in a minute", reads)
			}
		}
		wait(2 * time.Minute)
		r.mu.Lock()
		sessions := r.sessions
		r.mu.Unlock()
		if logins := r.fake(target).logins; logins != 1 || sessions != 0 {
			t.Errorf("%d logins, %d sessions after 11 minutes", logins, sessions)
		}
		p.Close()
		r.check(t)
	})
}

// TestCloseEndsEverything closes the pool while calls run and wait. The bubble of synctest fails if a goroutine is left over.
func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		targets := r.targets(100)
		for i, target := range targets {
			r.change(target, func(f *fake) { f.silent = i%2 == 0 })
		}
		const stubborn = 3 * time.Second
		finished := false
		go func() {
			_ = p.Read(context.WithoutCancel(t.Context()), r.target(101), func(context.Context, bmc.BMC) error {
				wait(stubborn)
				finished = true
				return nil
			})
		}()
		wait(2 * latency)
		ended := make(chan error, 300)
		for range 3 {
			for _, target := range targets {
				go func() { ended <- p.Read(t.Context(), target, power) }()
			}
		}
		wait(latency / 2)
		begin := time.Now()
		p.Close()
		if took := time.Since(begin); took > stubborn || !finished {
			t.Errorf("after %s, the call that runs has finished: %v", took, finished)
		}
		r.check(t)
		for range 300 {
			if err := <-ended; err != nil && !errors.Is(err, pool.ErrClosed) {
				t.Error(err)
			}
		}
		if err := p.Read(t.Context(), targets[1], power); !errors.Is(err, pool.ErrClosed) {
			t.Errorf("a closed pool: %v", err)
		}
		r.check(t)
	})
}

// TestCancelledCallIsNoSilence gives up early, again and again.
func TestCancelledCallIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom()
		p := r.open()
		defer p.Close()
		target := r.target(1)
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), latency/2)
			if err := p.Read(ctx, target, power); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			cancel()
			wait(10 * time.Second)
		}
		if health := p.Health(target.Name); health != (pool.Health{}) {
			t.Errorf("got %+v", health)
		}
	})
}
