package pool_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
)

// room is a room full of fake controllers, in virtual time.
type room struct {
	mu       sync.Mutex
	fakes    map[netip.AddrPort]*fake
	talking  int // controllers that are spoken with
	most     int // the most at once
	logins   []time.Time
	broken   []string // rules that were broken
	sessions int      // that are open
	refusals map[string]int
}

// fake is a controller.
type fake struct {
	silent   bool
	password string
	boots    int // sessions of an earlier one are forgotten
	logins   int
	reads    int
	orders   int
	busy     bool
}

func newRoom() *room {
	return &room{fakes: make(map[netip.AddrPort]*fake), refusals: make(map[string]int)}
}

// target makes the n-th controller, whose password is "right".
func (r *room) target(n int) pool.Target {
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(n >> 8), byte(n)}), 623)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fakes[address] == nil {
		r.fakes[address] = &fake{password: "right"}
	}
	return pool.Target{
		Name: fmt.Sprintf("atom%03dm", n), SecretVersion: "1",
		Access: bmc.Access{Address: address, Protocol: bmc.IPMI, Username: "admin", Password: bmc.NewSecret("right")},
	}
}

func (r *room) targets(n int) []pool.Target {
	targets := make([]pool.Target, n)
	for i := range targets {
		targets[i] = r.target(i + 1)
	}
	return targets
}

// change changes a controller.
func (r *room) change(target pool.Target, change func(*fake)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.fakes[target.Access.Address])
}

func (r *room) fake(target pool.Target) fake {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.fakes[target.Access.Address]
}

// talk is one exchange with a controller. It fails after silence if the controller is, or knows no such session.
func (r *room) talk(ctx context.Context, f *fake, boots *int) error {
	r.mu.Lock()
	if f.busy {
		r.broken = append(r.broken, "a controller is asked two things at once")
	}
	f.busy = true
	r.talking++
	r.most = max(r.most, r.talking)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		f.busy = false
		r.talking--
	}()
	wait := latency
	r.mu.Lock()
	silent := f.silent || boots != nil && *boots != f.boots
	r.mu.Unlock()
	if silent {
		wait = silence
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	if silent {
		return bmc.ErrSilent
	}
	return nil
}

func (r *room) dial(ctx context.Context, access bmc.Access) (bmc.BMC, error) {
	r.mu.Lock()
	f := r.fakes[access.Address]
	f.logins++
	r.logins = append(r.logins, time.Now())
	boots := f.boots
	r.mu.Unlock()
	if err := r.talk(ctx, f, nil); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if access.Password.Reveal() != f.password {
		r.refusals[access.Address.String()+" "+access.Password.Reveal()]++
		return nil, &bmc.RefusedError{Address: access.Address, Reason: bmc.RefusedCredentials}
	}
	r.sessions++
	return &session{room: r, fake: f, boots: boots}, nil
}

func (r *room) open(pools ...func(*pool.Config)) *pool.Pool {
	config := pool.Config{Dial: r.dial, DialConsole: func(ctx context.Context, access bmc.Access, _ bool) (io.ReadWriteCloser, error) {
		_, err := r.dial(ctx, access)
		return nil, err
	}}
	for _, change := range pools {
		change(&config)
	}
	return pool.New(config)
}

// session is a session with a fake.
type session struct {
	bmc.BMC

	room   *room
	fake   *fake
	boots  int
	closed bool
}

func (s *session) Power(ctx context.Context) (bmc.Reading, error) {
	if err := s.room.talk(ctx, s.fake, &s.boots); err != nil {
		return bmc.Reading{}, err
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if s.closed {
		s.room.broken = append(s.room.broken, "a closed session is used")
	}
	s.fake.reads++
	return bmc.Reading{Power: bmc.PowerOn}, nil
}

func (s *session) Do(ctx context.Context, _ bmc.Action) error {
	s.room.mu.Lock()
	if s.boots == s.fake.boots && !s.fake.silent {
		s.fake.orders++
	}
	s.room.mu.Unlock()
	return s.room.talk(ctx, s.fake, &s.boots)
}

func (s *session) Close() error {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	if s.closed {
		s.room.broken = append(s.room.broken, "a session is closed twice")
	}
	s.closed = true
	s.room.sessions--
	return nil
}

func power(ctx context.Context, session bmc.BMC) error { _, err := session.Power(ctx); return err }
func off(ctx context.Context, session bmc.BMC) error   { return session.Do(ctx, bmc.ActionOff) }

// round reads all controllers at once. It returns how long each took, and its error.
func round(ctx context.Context, p *pool.Pool, targets []pool.Target) ([]time.Duration, []error) {
	took, errs := make([]time.Duration, len(targets)), make([]error, len(targets))
	var reading sync.WaitGroup
	begin := time.Now()
	for i, target := range targets {
		reading.Go(func() {
			errs[i] = p.Read(ctx, target, power)
			took[i] = time.Since(begin)
		})
	}
	reading.Wait()
	return took, errs
}

// check fails for rules that were broken, and for sessions that are left over.
func (r *room) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rule := range r.broken {
		t.Error(rule)
	}
	if r.sessions != 0 {
		t.Errorf("%d sessions are left over", r.sessions)
	}
}
