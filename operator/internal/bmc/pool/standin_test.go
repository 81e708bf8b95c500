package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
)

const canary = "canary-2hVb"

// TestPoolOfStandIns reads 44 controllers that speak IPMI: some frozen, one with another password, one that restarts.
func TestPoolOfStandIns(t *testing.T) {
	t.Parallel()
	p := pool.New(pool.Config{Dial: func(ctx context.Context, access bmc.Access) (bmc.BMC, error) { return ipmi.Dial(ctx, access) }})
	t.Cleanup(p.Close)
	const slots, frozen, locked, restarted = 44, 5, 7, 9
	controllers, targets := make([]*standin.BMC, slots), make([]pool.Target, slots)
	for i := range slots {
		started, err := standin.Start(standin.Config{Username: "admin", Password: canary, On: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(started.Close)
		controllers[i] = started
		started.Fault(func(f *standin.Faults) { f.Frozen = i < frozen })
		targets[i] = pool.Target{Name: fmt.Sprintf("atom%03dm", i+1), SecretVersion: "1", Access: bmc.Access{
			Address: started.Address(), Protocol: bmc.IPMI, Username: "admin", Password: bmc.NewSecret(canary),
		}}
	}
	targets[locked].Access.Password = bmc.NewSecret(canary + "x")
	printed := new(bytes.Buffer)
	for n := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var reading sync.WaitGroup
		errs := make([]error, slots)
		for i, target := range targets {
			reading.Go(func() { errs[i] = p.Read(ctx, target, power) })
		}
		reading.Wait()
		cancel()
		for i, err := range errs {
			var refused *bmc.RefusedError
			switch {
			case i < frozen && errors.Is(err, bmc.ErrSilent):
			case i == locked && errors.As(err, &refused):
			case i >= frozen && i != locked && err == nil:
			default:
				t.Errorf("round %d, %s: %v", n, targets[i].Name, err)
			}
			fmt.Fprintf(printed, "%v %+v %#v\n", err, targets[i], targets[i])
			health := p.Health(targets[i].Name)
			slog.New(slog.NewJSONHandler(printed, nil)).Info("read", "target", targets[i], "health", health, "error", err)
		}
		if err := controllers[restarted].Restart(); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(printed.String(), canary) {
		t.Error("a password is printed")
	}
	for i, controller := range controllers {
		logins := controller.Seen().Logins
		if want := map[bool]int{true: 0, false: 1}[i < frozen]; logins != want && i != restarted {
			t.Errorf("%s: %d logins", targets[i].Name, logins)
		}
	}
	if logins := controllers[restarted].Seen().Logins; logins != 3 {
		t.Errorf("the one that restarted twice: %d logins", logins)
	}
}
