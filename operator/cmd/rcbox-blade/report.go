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

const (
	// reportPatience is for one attempt, and reportPause the pause after one that has failed.
	reportPatience = 30 * time.Second
	reportPause    = 10 * time.Second
	// reportAgain is after how long a report is written though nothing has changed: somebody may have removed it.
	reportAgain = time.Hour
)

func reportCommand() *cobra.Command {
	isWatch := false
	command := &cobra.Command{
		Use:   "report",
		Short: "Write the inventory of this machine to its node",
		Long: `Takes inventory and writes it to the annotation ` + hardware.Annotation + ` of the node
that this machine is, with the certificate of its kubelet. Fails while the kubelet has none. With --watch, it does so until
it is ended, again whenever something has changed, and the inventory has how often links were lost, for how long disks are busy
with a read or a write, and for how long processors were too hot.`,
		Example: "  rcbox-blade report --watch",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			r := &reporter{root: "/", out: command.OutOrStdout()}
			if isWatch {
				return r.watch(command.Context())
			}
			_, err := r.report(command.Context(), &blade.Watch{})
			return err
		},
	}
	command.Flags().BoolVar(&isWatch, "watch", false, "report again whenever something has changed")
	return command
}

// reporter writes inventories of this machine; the credentials are below root.
type reporter struct {
	root string
	out  io.Writer
	// last is what was written at lastAt.
	last   string
	lastAt time.Time
}

// watch reports until the context ends. An attempt that fails is repeated; why is printed once.
func (r *reporter) watch(ctx context.Context) error {
	watch, said := &blade.Watch{}, ""
	for {
		isWritten, err := r.report(ctx, watch)
		pause := blade.WatchInterval
		switch {
		case err != nil && ctx.Err() == nil:
			pause = reportPause
			if said != err.Error() {
				said = err.Error()
				_, _ = fmt.Fprintln(r.out, "not reported yet:", said)
			}
		case isWritten:
			said = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// report takes inventory of this machine, and writes it if it is not what was written last.
func (r *reporter) report(ctx context.Context, watch *blade.Watch) (isWritten bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	to, err := blade.KubeletCredentials(os.DirFS(r.root))
	if err != nil {
		return false, err
	}
	system := os.DirFS("/")
	inventory := blade.TakeInventory(system)
	watch.Take(time.Now(), system, &inventory)
	blade.AddMeasured(system, &inventory)
	if settings, err := readSettings("/"); err != nil {
		inventory.Unapplied = []string{err.Error()}
	} else {
		inventory.Unapplied = settings.Unapplied(system)
	}
	text, err := inventory.Encode()
	if err != nil {
		return false, err
	}
	if text == r.last && time.Since(r.lastAt) < reportAgain {
		return false, nil
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: to.TLS, DisableKeepAlives: true}}
	if err := blade.Report(ctx, client, to, text); err != nil {
		return false, err
	}
	r.last, r.lastAt = text, time.Now()
	_, _ = fmt.Fprintf(r.out, "node %s has the inventory of this blade\n", to.Node)
	return true, nil
}
