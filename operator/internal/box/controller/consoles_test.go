package controller

import (
	"errors"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// A console that is opened right after the controller was started waits until its Chassis was looked at, so that no key is lost.
func TestConsoleOfControllerThatWasJustStarted(t *testing.T) {
	l := newLost()
	poller := &poll.Poller{Pool: &told{}, Clock: poll.NewClock(), Intervals: poll.DefaultIntervals, Changed: func(string) {}}
	consoles := &Consoles{Client: l.client(t), Poller: poller}
	time.AfterFunc(3*targetPause, func() {
		poller.Set("mercury1", map[string]poll.Want{"atom003": {Target: pool.Target{Access: bmc.Access{Protocol: bmc.Redfish}}}})
	})
	_, err := consoles.Open(t.Context(), "atom003", false)
	if unsupported := (*bmc.UnsupportedError)(nil); !errors.As(err, &unsupported) { // Redfish has no consoles, which is known by then
		t.Error(err)
	}
}
