package poll_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// logKeeper is a BMC that answers everything at once except its event log.
type logKeeper struct {
	session

	mutex         sync.Mutex
	logins, asked int
	// log answers the n-th question for the log; n starts at 1.
	log func(n int) ([]bmc.LogEntry, error)
}

func (k *logKeeper) Log(context.Context) ([]bmc.LogEntry, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.asked++
	return k.log(k.asked)
}

func (k *logKeeper) counts() (logins, asked int) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.logins, k.asked
}

// watch has a poller ask a BMC for a while, and calls look each second.
func watch(t *testing.T, keeper *logKeeper, during time.Duration, look func(seen *poll.Seen)) {
	t.Helper()
	sessions := pool.New(pool.Config{Dial: func(context.Context, bmc.Access) (bmc.BMC, error) {
		keeper.mutex.Lock()
		defer keeper.mutex.Unlock()
		keeper.logins++
		return keeper, nil
	}})
	defer sessions.Close()
	poller := &poll.Poller{Pool: sessions, Clock: poll.NewClock(), Changed: func(string) {}, Intervals: poll.DefaultIntervals}
	poller.Set(chassis, map[string]poll.Want{manager: {Role: poll.Server, Target: pool.Target{
		Name: manager, Access: bmc.Access{Address: netip.MustParseAddrPort("192.168.5.1:623")},
	}}})
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- poller.Start(ctx) }()
	for begin := time.Now(); time.Since(begin) < during; {
		<-time.After(time.Second)
		seen := poller.Seen(chassis)[manager]
		look(&seen)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestLogSaysNothingAboutItsBMC: whatever becomes of the event log, its BMC answers. The session is kept, and the log is asked for once a
// minute.
func TestLogSaysNothingAboutItsBMC(t *testing.T) {
	for name, err := range map[string]error{
		"silent": fmt.Errorf("event log: %w", bmc.ErrSilent), "busy": &bmc.BusyError{What: "event log"},
		"refused":      &bmc.RefusedError{Reason: bmc.RefusedPrivilege},
		"slow for all": &bmc.SlowError{What: bmc.SlowLog, All: 60}, "slow again": &bmc.SlowError{What: bmc.SlowLog, Done: 7, All: 60},
		"slow records": &bmc.SlowError{What: bmc.SlowRecords, All: 60}, "ended": context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keeper := &logKeeper{log: func(int) ([]bmc.LogEntry, error) { return nil, err }}
				const minutes = 10
				watch(t, keeper, minutes*time.Minute, func(seen *poll.Seen) {
					if seen.Contact.Err != nil || !seen.Contact.AskedAt.IsZero() && time.Since(seen.Contact.AnsweredAt) > 10*time.Second {
						t.Fatalf("%+v", seen.Contact)
					}
				})
				// A log that was read a little further than before is asked for once more at once.
				if logins, asked := keeper.counts(); logins != 1 || asked < minutes || asked > 2*minutes+2 {
					t.Errorf("%d logins, asked for the log %d times", logins, asked)
				}
			})
		})
	}
}

// TestSlowLogIsRead: a log that each question reads further is asked for again at each poll, until it was read.
func TestSlowLogIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, questions = 4, 10
		keeper := &logKeeper{log: func(n int) ([]bmc.LogEntry, error) {
			switch {
			case n <= records:
				return nil, &bmc.SlowError{What: bmc.SlowRecords, Done: 10 * n, All: 40}
			case n < questions:
				return nil, &bmc.SlowError{What: bmc.SlowLog, Done: n - records, All: questions - records}
			}
			return []bmc.LogEntry{{ID: 1}}, nil
		}}
		watch(t, keeper, time.Minute, func(*poll.Seen) {})
		if _, asked := keeper.counts(); asked != questions {
			t.Errorf("asked for the log %d times", asked)
		}
	})
}
