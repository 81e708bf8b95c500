package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

type restartOptions struct {
	members   []string
	yes, wait bool
}

func (p *plugin) restartCommand() *cobra.Command {
	var options restartOptions
	command := &cobra.Command{
		Use:   "restart STORE",
		Short: "Restart masters, one at a time, while everything has its copies",
		Long: `Orders a rolling restart: the operator gives each master a new pod, one at a time, while everything has its copies and
all others are up. What a master holds cannot be used until others serve it, which takes about as long as
RecoveryOnTarget says.

The order is a StoreOperation. --member takes a name, or a number, and may be given several times; without it, all
masters are restarted. Deleting the StoreOperation leaves those alone that were not restarted yet.`,
		Example: `  kubectl rcbox restart box --yes --wait
  kubectl rcbox restart box --member 2 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if !options.yes {
				return usage(command, errors.New("a restart ends the processes of masters that are in use: say --yes"))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return restart(command.Context(), cluster, &screen{out: command.OutOrStdout()}, arguments[0], options)
		},
	}
	command.Flags().StringSliceVar(&options.members, "member", nil, "a master that is to be restarted")
	command.Flags().BoolVar(&options.yes, "yes", false, "end the processes of masters that are in use")
	command.Flags().BoolVar(&options.wait, "wait", false, "show how it goes on, and end when all are up again")
	return command
}

func restart(ctx context.Context, cluster *access.Cluster, shown *screen, name string, options restartOptions) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	spec := v1alpha1.StoreOperationSpec{Type: v1alpha1.OperationRestart}
	for _, wanted := range options.members {
		member, err := masterNamed(store, wanted)
		if err != nil {
			return err
		}
		if spec.Restart == nil {
			spec.Restart = &v1alpha1.RestartOperation{}
		}
		spec.Restart.Members = append(spec.Restart.Members, member)
	}
	operation, err := order(ctx, cluster, store, spec)
	if err != nil {
		return err
	}
	return follow(ctx, cluster, shown, operation, options.wait)
}
