package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

type finalizeOptions struct {
	format    int32
	yes, wait bool
}

func (p *plugin) finalizeCommand() *cobra.Command {
	var options finalizeOptions
	command := &cobra.Command{
		Use:   "finalize STORE",
		Short: "Put a newer format in force after an upgrade, for ever",
		Long: `Puts the newest format in force that all processes of the Store read, once an upgrade has proved itself. Afterwards
there is no way back to versions that do not read this format.

The order is a StoreOperation: it waits while some process does not read the format. --format takes the format; without
it, the order is for the newest one that status.format of the Store has.`,
		Example: `  kubectl rcbox finalize box --yes --wait
  kubectl rcbox finalize box --format 2 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if !options.yes {
				return usage(command, errors.New("there is no way back to versions that do not read the format: say --yes"))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return finalize(command.Context(), cluster, &screen{out: command.OutOrStdout()}, arguments[0], options)
		},
	}
	command.Flags().Int32Var(&options.format, "format", 0, "the format that is to be in force; 0: the newest")
	command.Flags().BoolVar(&options.yes, "yes", false, "put it in force for ever")
	command.Flags().BoolVar(&options.wait, "wait", false, "show how it goes on, and end when it is in force")
	return command
}

func finalize(ctx context.Context, cluster *access.Cluster, shown *screen, name string, options finalizeOptions) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	format := options.format
	if format == 0 {
		known := store.Status.Format
		if known.Newest <= known.Active {
			return fmt.Errorf("format %d is in force, and the coordinator of Store %s/%s reads no newer one",
				known.Active, store.Namespace, store.Name)
		}
		format = int32(known.Newest) //nolint:gosec // formats are counted from 1
	}
	operation, err := order(ctx, cluster, store, v1alpha1.StoreOperationSpec{
		Type: v1alpha1.OperationFinalize, Finalize: &v1alpha1.FinalizeOperation{Format: format},
	})
	if err != nil {
		return err
	}
	return follow(ctx, cluster, shown, operation, options.wait)
}
