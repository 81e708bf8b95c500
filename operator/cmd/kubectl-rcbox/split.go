package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// A table has so many parts by order, as the schema of StoreOperations has it.
const fewestParts, mostParts = 2, 4096

type splitOptions struct {
	parts int32
	wait  bool
}

func (p *plugin) splitCommand() *cobra.Command {
	var options splitOptions
	command := &cobra.Command{
		Use:   "split STORE TABLE --parts N",
		Short: "Split a table into tablets of equal width, for good",
		Long: `Sees to it that a table lies in at least N tablets of equal width of its key hashes, so that as many masters can have a
part of it. The boundaries stay until the table is dropped. Which masters have the tablets is for balancing to decide,
which moves them as data and load grow: a split by itself moves nothing.

The order is a StoreOperation. It waits while a tablet that is to be split is recovered, or is in a migration that
somebody has ordered, and has nothing to do if the table has all these boundaries.`,
		Example: `  kubectl rcbox split box fruit --parts 16
  kubectl rcbox split box fruit --parts 16 --wait`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			if options.parts < fewestParts || options.parts > mostParts {
				return usage(command, fmt.Errorf("--parts is %d: say %d to %d", options.parts, fewestParts, mostParts))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return split(command.Context(), cluster, &screen{out: command.OutOrStdout()}, arguments[0], arguments[1], options)
		},
	}
	command.Flags().Int32Var(&options.parts, "parts", 0, "in how many tablets the table is to lie, at least")
	command.Flags().BoolVar(&options.wait, "wait", false, "show how it goes on, and end when the boundaries are on record")
	return command
}

func split(ctx context.Context, cluster *access.Cluster, shown *screen, name, table string, options splitOptions) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	operation, err := order(ctx, cluster, store, v1alpha1.StoreOperationSpec{
		Type: v1alpha1.OperationSplit, Split: &v1alpha1.SplitOperation{Table: table, Parts: options.parts},
	})
	if err != nil {
		return err
	}
	return follow(ctx, cluster, shown, operation, options.wait)
}
