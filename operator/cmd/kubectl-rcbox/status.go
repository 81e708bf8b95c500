package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

func (p *plugin) statusCommand() *cobra.Command {
	var compact bool
	var form output
	command := &cobra.Command{
		Use:   "status [STORE]",
		Short: "Show a Store: conditions, failure domains with their members, recoveries, losses, what to do",
		Long: `Shows a Store, or all of the namespace: its conditions, its failure domains with the member in each slot,
recoveries, what moves and what waits, losses, and what a person should do next.

Where there are many slots, each is one character, and a legend says which is which. Without the right to
forward ports it shows what the operator has seen last, and says so.

Exit code 3: a Store that was shown is not Available.`,
		Example: `  kubectl rcbox status
  kubectl rcbox status box -n team-a
  kubectl rcbox status box -o json | jq '.members[] | select(.state != "up")'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := form.check(command); err != nil {
				return err
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return status(command.Context(), cluster, command.OutOrStdout(), argument(arguments, 0), form, compact)
		},
	}
	command.Flags().BoolVar(&compact, "compact", false, "a character for each slot, also where there are few")
	form.bind(command)
	return command
}

func status(ctx context.Context, cluster *access.Cluster, out io.Writer, name string, form output, compact bool) error {
	stores, err := storesToShow(ctx, cluster, name)
	if err != nil {
		return err
	}
	available := true
	documents := []any{}
	for i := range stores {
		snapshot, coordinator, err := cluster.LookAndAsk(ctx, &stores[i])
		if err != nil {
			return err
		}
		coordinator.Close()
		available = available && snapshot.Available()
		if form.isJSON() {
			documents = append(documents, snapshot.Document())
			continue
		}
		text := snapshot.Picture(styleOf(out), compact)
		if i > 0 {
			text = "\n" + text
		}
		if err := writeText(out, text); err != nil {
			return err
		}
	}
	if form.isJSON() {
		var document any = documents
		if name != "" {
			document = documents[0]
		}
		if err := writeJSON(out, document); err != nil {
			return err
		}
	}
	if !available {
		return &exitError{code: exitNotAvailable}
	}
	return nil
}

func storesToShow(ctx context.Context, cluster *access.Cluster, name string) ([]v1alpha1.Store, error) {
	if name != "" {
		store, err := cluster.Store(ctx, name)
		if err != nil {
			return nil, err
		}
		return []v1alpha1.Store{*store}, nil
	}
	stores, err := cluster.Stores(ctx)
	if err == nil && len(stores) == 0 {
		return nil, fmt.Errorf("there is no Store in namespace %s; kubectl get stores -A shows where there are some", cluster.Namespace)
	}
	return stores, err
}
