package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

func (p *plugin) locateCommand() *cobra.Command {
	var isHex bool
	var form output
	command := &cobra.Command{
		Use:   "locate STORE TABLE KEY",
		Short: "Show where a key is: tablet, server, pod, node",
		Long: `Shows where a key is: its hash, the tablet that has it, and the server, pod and node of that. Whether there is
an object with this key is not asked. TABLE is a name, or an id.`,
		Example: `  kubectl rcbox locate box fruit apple
  kubectl rcbox locate box fruit --hex 6170706c65
  kubectl rcbox locate box 0xd572424200000003 apple -o json`,
		Args: cobra.ExactArgs(3),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := form.check(command); err != nil {
				return err
			}
			key := []byte(arguments[2])
			if isHex {
				decoded, err := hex.DecodeString(arguments[2])
				if err != nil {
					return usage(command, fmt.Errorf("KEY: %w", err))
				}
				key = decoded
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return locate(command.Context(), cluster, command.OutOrStdout(), arguments[0], arguments[1], key, form)
		},
	}
	command.Flags().BoolVarP(&isHex, "hex", "x", false, "KEY is in hexadecimal digits")
	form.bind(command)
	return command
}

func locate(ctx context.Context, cluster *access.Cluster, out io.Writer, name, table string, key []byte, form output) error {
	snapshot, coordinator, err := ask(ctx, cluster, name)
	if err != nil {
		return err
	}
	defer coordinator.Close()
	if snapshot.Tables, err = coordinator.Tables(ctx); err != nil {
		return err
	}
	location, err := snapshot.Locate(table, key)
	switch {
	case err != nil:
		return err
	case form.isJSON():
		return writeJSON(out, location)
	default:
		return writeText(out, location.Text(styleOf(out)))
	}
}
