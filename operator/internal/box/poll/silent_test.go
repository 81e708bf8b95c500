package poll_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// session is one with a BMC that answers at once.
type session struct{ bmc.BMC }

func (session) Power(context.Context) (bmc.Reading, error) {
	return bmc.Reading{Power: bmc.PowerOn}, nil
}
func (session) Identity(context.Context) (bmc.Identity, error) { return bmc.Identity{}, nil }
func (session) Sensors(context.Context, func(string) bool) ([]bmc.Sensor, error) {
	return []bmc.Sensor{}, nil
}
func (session) Console(context.Context) (io.ReadWriteCloser, error) { return nil, bmc.ErrSilent }
func (session) Log(context.Context) ([]bmc.LogEntry, error)         { return nil, nil }
func (session) Close() error                                        { return nil }

// TestSilentBMCsDelayNobody: of 132 BMCs, 40 are silent; each of the other 92 is asked again within 10 seconds, also while the 40 are
// found to be silent. Time is virtual. Somebody who asked one after the other would take 80 seconds for a round.
func TestSilentBMCsDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, silent, limit, silence = 132, 40, 10 * time.Second, 2 * time.Second
		isSilent := func(n int) bool { return n%3 == 0 && n < 3*silent }
		address := func(n int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 5, byte(n + 1)}), 623)
		}
		dead := map[netip.AddrPort]bool{}
		wanted := map[string]poll.Want{}
		for n := range all {
			dead[address(n)] = isSilent(n)
			name := fmt.Sprintf("atom%03d", n+1)
			wanted[name] = poll.Want{Role: poll.Server, Target: pool.Target{Name: name, Access: bmc.Access{Address: address(n)}}}
		}
		sessions := pool.New(pool.Config{Dial: func(ctx context.Context, access bmc.Access) (bmc.BMC, error) {
			if !dead[access.Address] {
				return session{}, nil
			}
			select {
			case <-time.After(silence):
				return nil, bmc.ErrSilent
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		poller := &poll.Poller{Pool: sessions, Clock: poll.NewClock(), Changed: func(string) {}, Intervals: poll.DefaultIntervals}
		poller.Set(chassis, wanted)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- poller.Start(ctx) }()
		for range 9 {
			<-time.After(limit)
			answered := 0
			for name, seen := range poller.Seen(chassis) {
				switch old := time.Since(seen.Power.At); {
				case seen.Power.At.IsZero():
				case old > limit:
					t.Errorf("%s was asked %s ago", name, old)
				default:
					answered++
				}
			}
			if answered != all-silent {
				t.Errorf("%d BMCs have answered", answered)
			}
		}
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		sessions.Close()
	})
}
