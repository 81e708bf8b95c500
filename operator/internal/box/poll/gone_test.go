package poll_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// forgetful counts the controllers that were forgotten.
type forgetful struct {
	mutex     sync.Mutex
	forgotten []string
}

func (*forgetful) Read(context.Context, pool.Target, func(context.Context, bmc.BMC) error) error {
	return nil
}

func (*forgetful) Order(context.Context, pool.Target, func(context.Context, bmc.BMC) error) error {
	return nil
}

func (f *forgetful) Forget(_ context.Context, name string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.forgotten = append(f.forgotten, name)
	return nil
}

// A controller that was removed from its chassis is forgotten, and its session is closed. A controller that is only reached in another way
// now is not forgotten.
func TestControllersThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := &forgetful{}
		poller := &poll.Poller{Pool: sessions, Clock: poll.NewClock(), Changed: func(string) {}, Intervals: poll.DefaultIntervals}
		wanted := func(version string, numbers ...int) map[string]poll.Want {
			all := map[string]poll.Want{}
			for _, n := range numbers {
				name := fmt.Sprintf("atom%03d", n)
				all[name] = poll.Want{Target: pool.Target{Name: name + "m", SecretVersion: version}}
			}
			return all
		}
		poller.Set("mercury1", wanted("1", 1, 2, 3))
		poller.Set("mercury2", wanted("1", 45))
		poller.Set("mercury1", wanted("2", 1, 2, 3))
		synctest.Wait()
		if len(sessions.forgotten) > 0 {
			t.Errorf("forgotten for another Secret: %v", sessions.forgotten)
		}
		poller.Set("mercury1", wanted("2", 2, 3))
		poller.Set("mercury2", nil)
		synctest.Wait()
		if slices.Sort(sessions.forgotten); !slices.Equal(sessions.forgotten, []string{"atom001m", "atom045m"}) {
			t.Errorf("forgotten are %v", sessions.forgotten)
		}
	})
}

// TestControllersThatComeAndGo: a controller that is gone for a moment, also while it refuses a login, is not given the same password again
// when it is back.
func TestControllersThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mutex sync.Mutex
		logins := 0
		sessions := pool.New(pool.Config{Dial: func(_ context.Context, access bmc.Access) (bmc.BMC, error) {
			mutex.Lock()
			logins++
			mutex.Unlock()
			<-time.After(time.Second)
			return nil, &bmc.RefusedError{Address: access.Address, Reason: bmc.RefusedCredentials}
		}})
		defer sessions.Close()
		poller := &poll.Poller{Pool: sessions, Clock: poll.NewClock(), Changed: func(string) {}, Intervals: poll.DefaultIntervals}
		wanted := map[string]poll.Want{"atom001": {Role: poll.Server, Target: pool.Target{
			Name: "atom001m", SecretUID: "uid", SecretVersion: "1", Access: bmc.Access{Address: netip.MustParseAddrPort("192.168.5.1:623")},
		}}}
		for range 20 {
			poller.Set(chassis, wanted)
			poller.Round(t.Context())
			<-time.After(time.Second / 2) // the first login is under way
			poller.Set(chassis, nil)
			synctest.Wait()
			<-time.After(time.Minute)
		}
		poller.Set(chassis, wanted)
		poller.Round(t.Context())
		synctest.Wait()
		contact := poller.Seen(chassis)["atom001"].Contact
		if logins != 1 || !errors.As(contact.Err, new(*bmc.RefusedError)) || contact.Refused == nil {
			t.Errorf("%d logins: %+v", logins, contact)
		}
	})
}
