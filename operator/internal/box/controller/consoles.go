package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

const (
	// openTimeout bounds how long it takes to open a console: two logins, of which each may be repeated.
	openTimeout = 15 * time.Second
	// targetTimeout bounds how long a controller that was just started takes to look at its Chassis.
	targetTimeout = 10 * time.Second
	targetPause   = 100 * time.Millisecond
)

// Consoles opens the consoles of Servers.
type Consoles struct {
	Client client.Reader
	Poller *poll.Poller
	Pool   *pool.Pool
}

// Exists says whether there is a Server of that name.
func (c *Consoles) Exists(ctx context.Context, name string) (bool, error) {
	switch err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.Server{}); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read Server %s: %w", name, err)
	}
	return true, nil
}

// Open opens the console of a Server, by its BMC. With isForced, it ends another session that the BMC has for it.
func (c *Consoles) Open(ctx context.Context, name string, isForced bool) (io.ReadWriteCloser, error) {
	target, err := c.target(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if target.Access.Protocol != bmc.IPMI {
		return nil, NoConsole(target.Access)
	}
	opened, err := c.Pool.Console(ctx, target, isForced)
	if _, isBusy := errors.AsType[*bmc.BusyError](err); isBusy {
		return nil, fmt.Errorf("%w; --force takes the console over, and the BMC ends an abandoned session by itself after a while", err)
	}
	return opened, err
}

// target waits until it is known how to reach the BMC of a Server: a controller that was just started has not looked at its Chassis, and
// keys are kept meanwhile.
func (c *Consoles) target(ctx context.Context, name string) (pool.Target, error) {
	server := &v1alpha1.Server{}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, server); err != nil {
		return pool.Target{}, fmt.Errorf("read Server %s: %w", name, err)
	}
	chassis := chassisOf(server)
	late := time.After(targetTimeout)
	for {
		if target, isKnown := c.Poller.Target(chassis, name); isKnown {
			return target, nil
		}
		select {
		case <-ctx.Done():
			return pool.Target{}, fmt.Errorf("wait until the box controller knows how to reach the BMC of %s: %w", name, ctx.Err())
		case <-late:
			return pool.Target{}, fmt.Errorf("the box controller does not know yet how to reach the BMC of %s: see the conditions in "+
				"kubectl describe chassis %s", name, chassis)
		case <-time.After(targetPause):
		}
	}
}

// NoConsole says that a BMC has no console in its protocol.
func NoConsole(access bmc.Access) error {
	return &bmc.UnsupportedError{
		Address: access.Address, What: "consoles",
		Detail: fmt.Sprintf("rcbox opens them by IPMI's serial over LAN; spec.management.protocol of the Chassis is %s", access.Protocol),
	}
}
