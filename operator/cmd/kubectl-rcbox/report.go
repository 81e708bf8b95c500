package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/bundle"
)

const (
	reportLines = 2000
	reportPods  = 64
	reportMode  = 0o600
)

type reportOptions struct {
	file         string
	state, names bool
	lines        int64
	pods         int
}

func (p *plugin) reportCommand() *cobra.Command {
	var options reportOptions
	command := &cobra.Command{
		Use:   "report STORE",
		Short: "Write a support bundle, without secrets",
		Long: `Writes a .tar.gz of what somebody needs who is to help: the Store, its pods, events, claims, volumes and nodes, what the
coordinator says, logs and metrics, the operator's logs. README.txt in it says what is in, what was left out, and
what could not be had.

No Secret is read, and no object of the Store. Values of environments and texts that look like secrets are redacted, and
names of tables are replaced by hashes. Have a look at it all the same before you give it away.`,
		Example: `  kubectl rcbox report box
  kubectl rcbox report box -f /tmp/box.tar.gz --lines 10000
  kubectl rcbox report box -f - | ssh host 'cat > box.tar.gz'`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if options.lines < 1 || options.pods < 0 {
				return usage(command, errors.New("--lines must be at least 1, and --pods at least 0"))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return report(command.Context(), cluster, command.OutOrStdout(), arguments[0], options)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&options.file, "file", "f", "", "where to write it, - for standard output; default: rcbox-report-STORE-TIME.tar.gz")
	flags.BoolVar(&options.state, "state", false, "with the coordinator's state: it has the names of all tables")
	flags.BoolVar(&options.names, "names", false, "with the names of tables as they are")
	flags.Int64Var(&options.lines, "lines", reportLines, "how many lines of each log")
	flags.IntVar(&options.pods, "pods", reportPods, "of how many pods logs and metrics are read; those that are not ready first")
	return command
}

func report(ctx context.Context, cluster *access.Cluster, out io.Writer, name string, options reportOptions) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	contents, err := cluster.Gather(ctx, store, access.Gathering{Lines: options.lines, Pods: options.pods, Version: version})
	if err != nil {
		return err
	}
	files, err := bundle.Files(contents, bundle.Options{State: options.state, Names: options.names, Salt: rand.Text()})
	if err != nil {
		return err
	}
	now := contents.Snapshot.Now
	folder := fmt.Sprintf("rcbox-report-%s-%s", store.Name, now.UTC().Format("20060102T150405Z"))
	if options.file == "-" {
		return bundle.Write(out, folder, files, now)
	}
	path := options.file
	if path == "" {
		path = folder + ".tar.gz"
	}
	if err := writeReport(path, func(file io.Writer) error { return bundle.Write(file, folder, files, now) }); err != nil {
		return err
	}
	lines := []string{fmt.Sprintf("%s: %d files", path, len(files))}
	for _, missing := range contents.LeftOut {
		lines = append(lines, "without "+bundle.Text(missing))
	}
	return writeText(out, strings.Join(lines, "\n")+"\n")
}

// writeReport leaves no half of a file behind.
func writeReport(path string, write func(io.Writer) error) (err error) {
	file, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, reportMode)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	defer func() {
		if closeErr := file.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("write the report: %w", closeErr)
		}
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	return write(file)
}
