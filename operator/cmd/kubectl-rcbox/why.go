package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/why"
)

func (p *plugin) whyCommand() *cobra.Command {
	var form output
	command := &cobra.Command{
		Use:   "why POD",
		Short: "Say why a pod does not run, or is not ready",
		Long: `Says in a sentence why a pod of a Store does not run, or is not ready, with details below it: what the scheduler,
kubelet and the coordinator say, claims and volumes, and the last error of its log. POD is a pod's name, or a
member's, which may have no pod.

Exit code 1 is for "cannot tell", not for a pod that is not ready.`,
		Example: `  kubectl rcbox why box-master-2-qrstv
  kubectl rcbox why box-master-2
  kubectl rcbox why box-master-2 -o json | jq -r .sentence`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := form.check(command); err != nil {
				return err
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return explain(command.Context(), cluster, command.OutOrStdout(), strings.TrimPrefix(arguments[0], "pod/"), form)
		},
	}
	form.bind(command)
	return command
}

func explain(ctx context.Context, cluster *access.Cluster, out io.Writer, name string, form output) error {
	evidence, err := cluster.Evidence(ctx, name)
	if err != nil {
		return err
	}
	finding := why.Explain(evidence)
	if form.isJSON() {
		return writeJSON(out, finding)
	}
	return writeText(out, finding.Text(styleOf(out)))
}
