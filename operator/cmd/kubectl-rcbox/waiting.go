package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// waiting says what becomes of what was asked of each of some servers, as it ends.
type waiting struct {
	cluster *access.Cluster
	out     io.Writer
	timeout time.Duration
	// what says what became of a server, or what it waits for, whether that is final, and whether it is as was asked.
	what func(*v1alpha1.Server) (text string, isFinal, isGood bool)
	// meanwhile is done before each look; nil: nothing is.
	meanwhile func(context.Context) error
}

func (w *waiting) run(ctx context.Context, servers []*v1alpha1.Server) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	open := map[string]string{} // what each waits for
	for _, server := range servers {
		open[server.Name] = ""
	}
	failed := 0
	for {
		if w.meanwhile != nil {
			if err := w.meanwhile(ctx); err != nil {
				return unfinished(open, err)
			}
		}
		now := &v1alpha1.ServerList{}
		if err := w.cluster.List(ctx, now); err != nil {
			return unfinished(open, fmt.Errorf("list Servers: %w", err))
		}
		for i := range now.Items {
			server := &now.Items[i]
			if _, isOpen := open[server.Name]; !isOpen {
				continue
			}
			text, isFinal, isGood := w.what(server)
			if !isFinal {
				open[server.Name] = waitsFor(server, text)
				continue
			}
			delete(open, server.Name)
			if !isGood {
				failed++
			}
			if err := writeText(w.out, server.Name+": "+text+"\n"); err != nil {
				return err
			}
		}
		switch {
		case len(open) == 0 && failed > 0:
			return fmt.Errorf("%d of %d servers are not as ordered", failed, len(servers))
		case len(open) == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return unfinished(open, ctx.Err())
		case <-time.After(orderPause):
		}
	}
}
