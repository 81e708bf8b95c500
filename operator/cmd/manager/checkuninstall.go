package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// maxNamedStores is how many Stores the refusal names.
const maxNamedStores = 10

func checkUninstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check-uninstall",
		Short: "Fail while there are Stores",
		Long: `Fails while there are Stores. The Helm chart calls this before it is uninstalled: with the
CustomResourceDefinition go all Stores and what they hold, and without the operator their
finalizers would keep them from going.`,
		Example: "  manager check-uninstall",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("find a cluster: %w", err)
			}
			reader, err := client.New(config, client.Options{Scheme: newScheme()})
			if err != nil {
				return fmt.Errorf("connect to the cluster: %w", err)
			}
			return checkUninstall(command.Context(), reader, command.OutOrStdout())
		},
	}
}

// checkUninstall looks everywhere, whatever namespaces the operator looks after: the definition is the whole cluster's.
func checkUninstall(ctx context.Context, reader client.Reader, out io.Writer) error {
	stores := &v1alpha1.StoreList{}
	// Where the definition is gone, the Stores are, too.
	if err := reader.List(ctx, stores); err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("list the Stores: %w", err)
	}
	commands := make([]string, 0, len(stores.Items))
	for i := range stores.Items {
		commands = append(commands, fmt.Sprintf("kubectl delete store -n %s %s", stores.Items[i].Namespace, stores.Items[i].Name))
	}
	if len(commands) == 0 {
		if _, err := fmt.Fprintln(out, "there are no Stores: the operator can go"); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		return nil
	}
	more := ""
	if len(commands) > maxNamedStores {
		more = fmt.Sprintf("\n  and %d more", len(commands)-maxNamedStores)
		commands = commands[:maxNamedStores]
	}
	return errors.New("there are still Stores, and uninstalling would destroy what they hold. Delete them first, if you mean it:\n  " +
		strings.Join(commands, "\n  ") + more)
}
