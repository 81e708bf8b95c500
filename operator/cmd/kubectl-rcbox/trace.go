package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

const (
	eventsShown = 200
	// eventsMost is what all shards together give at most.
	eventsMost = 20_000
	anyShard   = -1
)

type traceOptions struct {
	last  uint32
	shard int
	form  output
}

func (p *plugin) traceCommand() *cobra.Command {
	var options traceOptions
	command := &cobra.Command{
		Use:   "trace STORE [MEMBER]",
		Short: "Show what servers have done last, event by event",
		Long: `Shows what the shards of a member, or of all, have done last: for each event the time since the one before, its
name, and what happened. The coordinator asks them; each stands still for less than a millisecond meanwhile.
docs/trace.md has the events.`,
		Example: `  kubectl rcbox trace box box-master-2
  kubectl rcbox trace box box-master-2 --shard 1 --last 50
  kubectl rcbox trace box -o json | jq '.shards[].events[] | select(.name == "Slept")'`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := options.form.check(command); err != nil {
				return err
			}
			if options.last < 1 || options.last > eventsMost {
				return usage(command, fmt.Errorf("--last is %d: from 1 to %d", options.last, eventsMost))
			}
			if options.shard < anyShard {
				return usage(command, fmt.Errorf("--shard is %d: shards are counted from 0", options.shard))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return trace(command.Context(), cluster, command.OutOrStdout(), arguments[0], argument(arguments, 1), options)
		},
	}
	command.Flags().Uint32Var(&options.last, "last", eventsShown, "events of each shard, at most")
	command.Flags().IntVar(&options.shard, "shard", anyShard, "only this shard of each member, counted from 0")
	options.form.bind(command)
	return command
}

func trace(ctx context.Context, cluster *access.Cluster, out io.Writer, store, member string, options traceOptions) error {
	_, coordinator, err := ask(ctx, cluster, store)
	if err != nil {
		return err
	}
	defer coordinator.Close()
	var shard *uint32
	if options.shard != anyShard {
		index := uint32(options.shard) //nolint:gosec // it is not negative
		shard = &index
	}
	response, err := coordinator.TimeTrace(ctx, member, shard, options.last)
	if err != nil {
		return err
	}
	found := view.TraceOf(response)
	if options.form.isJSON() {
		return writeJSON(out, found)
	}
	return writeText(out, found.Text(styleOf(out)))
}
