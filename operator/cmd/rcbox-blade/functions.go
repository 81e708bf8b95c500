package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/machine"
)

func functionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "virtual-functions",
		Short: "Divide network ports into virtual functions (SR-IOV), as the settings say",
		Long: `Divides the ports that "virtualFunctions" of ` + settingsPlace + ` names, gives each function a MAC address, and has
vfio-pci take it. A port that has as many functions already keeps them. A machine without such ports is left as it is.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			settings, err := readSettings("/")
			if err != nil {
				return err
			}
			ports, err := blade.MakeFunctions(command.Context(), os.DirFS("/"), machine.Kernel{}, settings)
			for _, port := range ports {
				_, _ = fmt.Fprintln(command.OutOrStdout(), "divided", port)
			}
			return err
		},
	}
}
