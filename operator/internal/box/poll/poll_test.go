package poll_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

const (
	chassis, manager = "mercury1", "192.168.5.201"
	canary           = "canary-7pQs"
	// patience is ten times as long as it takes on a machine with two processors.
	patience = time.Minute
)

// rack is a chassis manager with a slow stand-in behind it, and who asks it. The time of a question is short instead of the records many.
func rack(t *testing.T, sensors int) (*standin.BMC, *poll.Poller) {
	t.Helper()
	config := standin.Config{Username: "admin", Password: canary}
	for n := range sensors {
		config.Sensors = append(config.Sensors, standin.Sensor{
			Name: fmt.Sprintf("Slot %02d Power", n+1), Type: types.SensorTypePowerSupply, Unit: types.SensorUnitType_Watts, Count: 10,
		})
	}
	controller, err := standin.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(controller.Close)
	controller.Fault(func(f *standin.Faults) { f.Delay = 5 * time.Millisecond })
	sessions := pool.New(pool.Config{Dial: func(ctx context.Context, access bmc.Access) (bmc.BMC, error) { return ipmi.Dial(ctx, access) }})
	t.Cleanup(sessions.Close)
	poller := &poll.Poller{
		Pool: sessions, Clock: poll.NewClock(), Changed: func(string) {},
		Intervals: poll.Intervals{
			Power: 50 * time.Millisecond, Hurry: 20 * time.Millisecond, Sensors: 300 * time.Millisecond, Timeout: 900 * time.Millisecond,
		},
	}
	poller.Set(chassis, map[string]poll.Want{manager: {
		Role: poll.Manager, Named: []string{"Slot 02 Power", "Slot 40 Power", "Slot 99 Power"},
		Target: pool.Target{Name: "mercury1cmm", SecretVersion: "1", Access: bmc.Access{
			Address: controller.Address(), Protocol: bmc.IPMI, Username: "admin", Password: bmc.NewSecret(canary),
		}},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- poller.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-stopped })
	return controller, poller
}

func until(t *testing.T, poller *poll.Poller, what string, is func(seen *poll.Seen) bool) poll.Seen {
	t.Helper()
	var seen poll.Seen
	for begin := time.Now(); time.Since(begin) < patience; {
		if seen = poller.Seen(chassis)[manager]; is(&seen) {
			return seen
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("after %s still not: %s: it answered last at %s, %v", patience, what, seen.Contact.AnsweredAt, seen.Contact.Err)
	return seen
}

func values(sensors []bmc.Sensor) map[string]float64 {
	read := map[string]float64{}
	for i := range sensors {
		read[sensors[i].Name] = sensors[i].Value
	}
	return read
}

// TestSlowManager: a chassis manager whose records take longer than a question becomes a witness by and by. Until then it is known to
// answer, and afterwards the sensors that are named are read again and again, and the others with them.
func TestSlowManager(t *testing.T) {
	t.Parallel()
	const sensors = 60
	controller, poller := rack(t, sensors)
	until(t, poller, "slow, and known to answer", func(seen *poll.Seen) bool {
		slow, is := errors.AsType[*bmc.SlowError](seen.Contact.Err)
		return is && slow.What == bmc.SlowRecords && slow.All == sensors && !seen.Contact.AnsweredAt.IsZero()
	})
	seen := until(t, poller, "the named sensors are read", func(seen *poll.Seen) bool { return len(seen.Sensors) >= 2 })
	if seen.Contact.Err != nil || values(seen.Sensors)["Slot 40 Power"] != 10 {
		t.Errorf("got %+v", seen)
	}
	until(t, poller, "the others are read", func(seen *poll.Seen) bool { return len(seen.Sensors) == sensors })
	controller.SetSensor("Slot 40 Power", func(s *standin.Sensor) { s.Count = 0 })
	controller.SetSensor("Slot 07 Power", func(s *standin.Sensor) { s.Count = 0 })
	seen = until(t, poller, "both kinds show what is now", func(seen *poll.Seen) bool {
		read := values(seen.Sensors)
		named, isNamedThere := read["Slot 40 Power"]
		other, isOtherThere := read["Slot 07 Power"]
		return isNamedThere && isOtherThere && named == 0 && other == 0
	})
	if names := len(values(seen.Sensors)); names != sensors || len(seen.Sensors) != sensors {
		t.Errorf("%d sensors of %d names", len(seen.Sensors), names)
	}
}
