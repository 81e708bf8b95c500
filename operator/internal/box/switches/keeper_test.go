package switches_test

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/switches"
)

var errSilent = errors.New("no answer")

// standIn is a switch in memory.
type standIn struct {
	mutex    sync.Mutex
	ports    map[string]switches.Port
	silent   bool
	sessions int
	enabled  []bool
}

func (s *standIn) dial(context.Context, *switches.Target) (switches.Session, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.sessions++
	return s, nil
}

func (s *standIn) Ports(ctx context.Context) (map[string]switches.Port, error) {
	s.mutex.Lock()
	isSilent := s.silent
	s.mutex.Unlock()
	if isSilent {
		<-ctx.Done()
		return nil, errSilent
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return maps.Clone(s.ports), nil
}

func (s *standIn) Enable(_ context.Context, index int, enabled bool) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for name, port := range s.ports {
		if port.Index == index {
			port.Enabled = enabled
			s.ports[name] = port
		}
	}
	s.enabled = append(s.enabled, enabled)
	return nil
}

func (*standIn) Close() error { return nil }

func (s *standIn) set(change func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	change()
}

var addresses = []netip.AddrPort{netip.MustParseAddrPort("192.168.5.211:161"), netip.MustParseAddrPort("192.168.5.212:161")}

// TestKeeper: a switch that is silent keeps nobody waiting, and is asked once in a while; what was last ordered for a port counts.
func TestKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := map[netip.AddrPort]*standIn{}
		for _, address := range addresses {
			all[address] = &standIn{ports: map[string]switches.Port{"slot1": {Index: 7, Enabled: true, Up: true}}}
		}
		first, second := all[addresses[0]], all[addresses[1]]
		k := &switches.Keeper{
			Dial: func(ctx context.Context, target *switches.Target) (switches.Session, error) {
				return all[target.Address].dial(ctx, target)
			},
			Now: time.Now, Changed: func(string) {},
		}
		target := func(n int, password string) switches.Target {
			return switches.Target{Address: addresses[n], Username: "box", Password: bmc.NewSecret(password)}
		}
		k.Set("mercury1", map[int32]switches.Target{1: target(0, "a"), 2: target(1, "a")})
		k.Set("mercury2", nil) // of another chassis
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { _ = k.Start(ctx); close(ended) }()
		pass := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		isOn := func(nic int32) bool { return k.Seen("mercury1", nic).Ports["slot1"].Enabled }
		first.set(func() { first.silent = true })
		pass(time.Second)
		if isOn(1) || !isOn(2) {
			t.Errorf("%+v %+v", k.Seen("mercury1", 1), k.Seen("mercury1", 2))
		}
		k.Enable("mercury1", 1, "slot1", false)
		k.Enable("mercury1", 2, "slot1", false)
		pass(time.Second)
		if isOn(2) {
			t.Error("a switch waits for another one")
		}
		pass(time.Minute)
		if seen := k.Seen("mercury1", 1); seen.Err == nil || !seen.At.IsZero() || first.sessions > 10 {
			t.Errorf("asked %d times: %+v", first.sessions, seen)
		}
		// It was told to be off while the switch was silent, and then to be on.
		first.set(func() { first.silent = false })
		k.Enable("mercury1", 1, "slot1", false)
		k.Enable("mercury1", 1, "slot1", true)
		pass(time.Minute)
		if len(first.enabled) == 0 || !isOn(1) {
			t.Errorf("switched %v", first.enabled)
		}
		// Another password: what was seen by the former one does not count.
		second.set(func() { second.silent = true })
		k.Set("mercury1", map[int32]switches.Target{1: target(0, "a"), 2: target(1, "b")})
		if seen := k.Seen("mercury1", 2); !seen.At.IsZero() || !isOn(1) {
			t.Errorf("%+v", seen)
		}
		cancel()
		<-ended
	})
	var none *switches.Keeper
	none.Set("mercury1", nil)
	none.Enable("mercury1", 1, "slot1", false)
	if seen := none.Seen("mercury1", 1); !seen.At.IsZero() {
		t.Errorf("%+v", seen)
	}
}
