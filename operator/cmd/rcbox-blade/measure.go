package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/machine"
)

func measureCommand() *cobra.Command {
	isKept := false
	command := &cobra.Command{
		Use:   "measure",
		Short: "Measure how fast this machine is, for about three seconds, as JSON",
		Long: `Measures at which rates all threads of the processor compute CRC-32C and copy memory, and at which the disk of the
system is read. Nothing is written to the disk. Programs that run at the same time make the figures smaller: a blade does this
at each start, before its kubelet. With --keep, the figures become a part of the inventory that is reported, until the next start.`,
		Example: "  rcbox-blade measure",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			measured, err := machine.MeasureSpeed()
			if err != nil {
				return err
			}
			text, err := json.MarshalIndent(measured, "", "  ")
			if err != nil {
				return fmt.Errorf("print what was measured: %w", err)
			}
			if _, err := fmt.Fprintln(command.OutOrStdout(), string(text)); err != nil {
				return fmt.Errorf("print what was measured: %w", err)
			}
			if !isKept {
				return nil
			}
			return machine.WriteFiles("/", []blade.File{{Path: blade.MeasuredFile, Content: string(text), Mode: 0o644}})
		},
	}
	command.Flags().BoolVar(&isKept, "keep", false, "write the figures to "+blade.MeasuredFile+", too")
	return command
}
