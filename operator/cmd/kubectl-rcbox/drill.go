package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

type drillOptions struct {
	member    string
	yes, wait bool
}

func (p *plugin) drillCommand() *cobra.Command {
	var options drillOptions
	command := &cobra.Command{
		Use:   "drill STORE",
		Short: "End a master's process, to see what its recovery takes",
		Long: `Orders a drill: the operator ends the process of a master while everything has its copies, and notes what the
recovery took, beside what was expected and recovery.target. What that master holds cannot be used meanwhile, for about
as long as RecoveryOnTarget says. The operator refuses, and says why, while anything is short of copies or something
else is under way.

The order is a StoreOperation. --member takes a name, or a number; without it the masters have their turns. Deleting the
StoreOperation before the process was ended withdraws the drill.`,
		Example: `  kubectl rcbox drill box --yes --wait
  kubectl rcbox drill box --member 2 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if !options.yes {
				return usage(command, errors.New("a drill ends the process of a master that is in use: say --yes"))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return drill(command.Context(), cluster, &screen{out: command.OutOrStdout()}, arguments[0], options)
		},
	}
	command.Flags().StringVar(&options.member, "member", "", "the master whose process is to end")
	command.Flags().BoolVar(&options.yes, "yes", false, "end the process of a master that is in use")
	command.Flags().BoolVar(&options.wait, "wait", false, "show how it goes on, and fail unless it ends on target")
	return command
}

func drill(ctx context.Context, cluster *access.Cluster, shown *screen, name string, options drillOptions) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	spec := v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationDrill}
	if options.member != "" {
		member, err := masterNamed(store, options.member)
		if err != nil {
			return err
		}
		spec.Drill = &v1alpha1.DrillOperation{Member: member}
	}
	operation, err := order(ctx, cluster, store, spec)
	if err != nil {
		return err
	}
	return follow(ctx, cluster, shown, operation, options.wait)
}
