package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

const (
	tabletsShown = 10
	topInterval  = 2 * time.Second
)

type topOptions struct {
	follow   bool
	interval time.Duration
	tablets  int
	form     output
}

func (p *plugin) topCommand() *cobra.Command {
	var options topOptions
	command := &cobra.Command{
		Use:   "top [STORE]",
		Short: "Show members and tablets by what they do",
		Long: `Shows members by how many operations their tablets do in a second, with what they hold, and the tablets that do
the most. The figures are what servers have estimated last, some seconds old. CPU is shown where a metrics
server measures it.`,
		Example: `  kubectl rcbox top box
  kubectl rcbox top box --watch
  kubectl rcbox top box --tablets 50 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := options.form.check(command); err != nil {
				return err
			}
			if err := checkInterval(options.interval); err != nil {
				return usage(command, err)
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return top(command.Context(), cluster, command.OutOrStdout(), argument(arguments, 0), options)
		},
	}
	command.Flags().BoolVarP(&options.follow, "watch", "w", false, "show it again and again, until Ctrl-C")
	command.Flags().DurationVar(&options.interval, "interval", topInterval, "how often, with --watch")
	command.Flags().IntVar(&options.tablets, "tablets", tabletsShown, "how many tablets to show")
	options.form.bind(command)
	return command
}

func top(ctx context.Context, cluster *access.Cluster, out io.Writer, name string, options topOptions) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	follower := cluster.Follow(store)
	defer follower.Close()
	shown := &screen{out: out}
	err = watch(ctx, options.interval, func() (bool, error) {
		snapshot, err := follower.Look(ctx)
		if err != nil {
			return false, err
		}
		load, err := loadOf(ctx, cluster, follower, snapshot, options.tablets)
		if err != nil {
			return false, err
		}
		switch {
		case options.form.isJSON() && options.follow:
			text, err := jsonLine(load)
			if err != nil {
				return false, err
			}
			return false, shown.line(text)
		case options.form.isJSON():
			return true, writeJSON(out, load)
		default:
			return !options.follow, shown.show(load.Text(styleOf(out)))
		}
	})
	if options.follow && ctx.Err() != nil {
		return nil // Ctrl-C is how it ends
	}
	return err
}

func loadOf(
	ctx context.Context, cluster *access.Cluster, follower *access.Follower, snapshot *view.Snapshot, tablets int,
) (view.Load, error) {
	if err := mustAnswer(snapshot); err != nil {
		return view.Load{}, err
	}
	var err error
	if snapshot.Tables, err = follower.Coordinator().Tables(ctx); err != nil {
		return view.Load{}, err
	}
	snapshot.PodCPU = cluster.PodCPU(ctx, snapshot.Store)
	return snapshot.Load(tablets), nil
}
