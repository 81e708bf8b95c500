package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

// clearScreen has a terminal begin at its top.
const clearScreen = "\x1b[H\x1b[2J"

// errInterrupted ends a command that somebody has ended.
var errInterrupted = &exitError{code: exitFailed}

// watch calls look, first at once, until it is done.
func watch(ctx context.Context, interval time.Duration, look func() (done bool, err error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		done, err := look()
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case err != nil || done:
			return err
		}
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-ticker.C:
		}
	}
}

// screen shows texts: on a terminal each in place of the last, elsewhere one after the other, if it has changed.
type screen struct {
	out  io.Writer
	last string
}

func (s *screen) show(text string) error {
	if text == s.last {
		return nil
	}
	s.last = text
	if isTerminal(s.out) {
		text = clearScreen + text
	}
	return writeText(s.out, text)
}

// mustAnswer is an error where the coordinator has not answered: the command is nothing without it.
func mustAnswer(snapshot *view.Snapshot) error {
	if snapshot.Cluster == nil {
		return fmt.Errorf("the coordinator of Store %s/%s gives no answer: %s",
			snapshot.Store.Namespace, snapshot.Store.Name, snapshot.ClusterError)
	}
	return nil
}

// ask looks at the named Store and its coordinator, which is to be closed.
func ask(ctx context.Context, cluster *access.Cluster, name string) (*view.Snapshot, *access.Coordinator, error) {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	snapshot, coordinator, err := cluster.LookAndAsk(ctx, store)
	if err != nil {
		return nil, nil, err
	}
	if err := mustAnswer(snapshot); err != nil {
		return nil, nil, err
	}
	return snapshot, coordinator, nil
}

// checkInterval is an error for one that would ask without pause.
func checkInterval(interval time.Duration) error {
	const least = 100 * time.Millisecond
	if interval < least {
		return errors.New("--interval must be at least 100ms")
	}
	return nil
}

// line shows a text below the last one, if it has changed.
func (s *screen) line(text string) error {
	if text == s.last {
		return nil
	}
	s.last = text
	return writeText(s.out, text)
}
