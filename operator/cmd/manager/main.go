// The rcbox operator.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // of the schedules of drills: the image has none

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is set by the linker.
var version = "development"

func main() {
	root := &cobra.Command{
		Use:           "manager",
		Short:         "The rcbox operator: runs RAMCloud stores on Kubernetes",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(), boxCommand())
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
