package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

type recoverOptions struct {
	follow   bool
	interval time.Duration
	form     output
}

func (p *plugin) recoverCommand() *cobra.Command {
	var options recoverOptions
	command := &cobra.Command{
		Use:   "recover [STORE]",
		Short: "Show recoveries of lost masters: how far they are, what they wait for, what is missing",
		Long: `Shows recoveries of lost masters, those under way and the last that have ended: how many tablets are back, how
much there is to read, how long it has taken and was expected to take, and what it waits for. Where something
is missing that no disk has, it says what, and which command accepts that it is lost.

With --watch it goes on until no recovery is under way. With -o json a watch writes a line whenever something has
changed.`,
		Example: `  kubectl rcbox recover box
  kubectl rcbox recover box --watch
  kubectl rcbox recover box -o json | jq '.[] | select(.tabletsLeft > 0)'`,
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
			return showRecoveries(command.Context(), cluster, command.OutOrStdout(), argument(arguments, 0), options)
		},
	}
	command.Flags().BoolVarP(&options.follow, "watch", "w", false, "go on until no recovery is under way")
	command.Flags().DurationVar(&options.interval, "interval", time.Second, "how often to look, with --watch")
	options.form.bind(command)
	return command
}

func showRecoveries(ctx context.Context, cluster *access.Cluster, out io.Writer, name string, options recoverOptions) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	follower := cluster.Follow(store)
	defer follower.Close()
	shown := &screen{out: out}
	answered := false
	return watch(ctx, options.interval, func() (bool, error) {
		snapshot, err := follower.Look(ctx)
		if err == nil {
			err = mustAnswer(snapshot)
		}
		switch {
		case err != nil && options.follow && answered:
			// Another one is about to lead: that is when somebody watches.
			return false, shown.show("no answer at the moment: " + err.Error() + "\n")
		case err != nil:
			return false, err
		}
		answered = true
		done := !options.follow || snapshot.RecoveriesUnderWay() == 0
		switch {
		case options.form.isJSON() && options.follow:
			text, err := jsonLine(snapshot.RecoveryList())
			if err != nil {
				return false, err
			}
			return done, shown.line(text)
		case options.form.isJSON():
			return done, writeJSON(out, snapshot.RecoveryList())
		default:
			return done, shown.show(snapshot.Recoveries(styleOf(out)))
		}
	})
}
