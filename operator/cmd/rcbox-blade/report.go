package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// reportPatience is for one attempt. The blade's unit repeats the attempt.
const reportPatience = 30 * time.Second

func reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report",
		Short: "Write the inventory of this machine to its node",
		Long: `Takes inventory and writes it to the annotation ` + hardware.Annotation + ` of the node
that this machine is, with the certificate of its kubelet. Fails while the kubelet has none: the unit
rcbox-report.service tries again every 10 seconds.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), reportPatience)
			defer cancel()
			return report(ctx, command.OutOrStdout(), "/")
		},
	}
}

// report takes inventory of this machine; the credentials are below root.
func report(ctx context.Context, out io.Writer, root string) error {
	to, err := blade.KubeletCredentials(os.DirFS(root))
	if err != nil {
		return err
	}
	inventory := blade.TakeInventory(os.DirFS("/"))
	if settings, err := readSettings("/"); err != nil {
		inventory.Unapplied = []string{err.Error()}
	} else {
		inventory.Unapplied = settings.Unapplied(os.DirFS("/"))
	}
	text, err := inventory.Encode()
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: to.TLS}}
	if err := blade.Report(ctx, client, to, text); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "node %s has the inventory of this blade\n", to.Node)
	return nil
}
