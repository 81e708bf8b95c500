package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/finalizers"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

func (p *plugin) unmanageCommand() *cobra.Command {
	var all bool
	command := &cobra.Command{
		Use:   "unmanage",
		Short: "Let Stores be deleted without an operator, once it is uninstalled",
		Long: `Takes the operator's finalizers from all Stores of the namespace, from their pods, and from the state of their
coordinators. Without an operator these finalizers would keep Stores, and their namespace, from being deleted.

Nothing is deleted: Stores, pods and data stay, and go on. What goes when a Store is deleted afterwards is up to Kubernetes:
its pods and Services go, its volume claims stay, whatever reclaimPolicy says, until they or their namespace are deleted.
An operator that still runs, or is installed again, puts the finalizers back.`,
		Example: `  helm uninstall rcbox -n rcbox-system
  kubectl rcbox unmanage --all-namespaces`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			namespace := cluster.Namespace
			if all {
				namespace = ""
			}
			return unmanage(command.Context(), cluster, command.OutOrStdout(), namespace)
		},
	}
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "in all namespaces")
	return command
}

func unmanage(ctx context.Context, cluster *access.Cluster, out io.Writer, namespace string) error {
	released, err := finalizers.Release(ctx, cluster, namespace)
	for _, object := range released {
		if err := writeText(out, object+": released\n"); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("release what the operator keeps (get, list and patch on stores, pods and configmaps): %w", err)
	}
	if len(released) == 0 {
		return writeText(out, "nothing is kept by a finalizer of the operator\n")
	}
	return nil
}
