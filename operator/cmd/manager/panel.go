package main

import (
	"context"
	"fmt"
	"net"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"rcbox.dev/rcbox/operator/internal/panel"
	"rcbox.dev/rcbox/operator/internal/panel/source"
)

// setUpPanel has the front panel served, if there is an address for it. It shows what the box controller has in memory, and does nothing.
func setUpPanel(to ctrl.Manager, address string) error {
	if address == "" {
		return nil
	}
	err := to.Add(everywhere(func(ctx context.Context) error {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("serve the front panel: %w", err)
		}
		server := &panel.Server{Feed: &panel.Feed{Source: &source.Cached{Reader: to.GetClient()}, Now: time.Now}}
		go server.Feed.Run(ctx)
		ctrl.Log.Info("the front panel is served", "address", listener.Addr().String())
		return server.Serve(ctx, listener)
	}))
	if err != nil {
		return fmt.Errorf("set up the front panel: %w", err)
	}
	return nil
}

// everywhere runs in each replica, whether it leads or not.
type everywhere func(ctx context.Context) error

var _ manager.LeaderElectionRunnable = everywhere(nil)

// Start runs it.
func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection says that it does not wait to lead.
func (everywhere) NeedLeaderElection() bool { return false }
