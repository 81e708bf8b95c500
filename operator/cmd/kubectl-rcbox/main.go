// kubectl-rcbox is the kubectl plugin: `kubectl rcbox` looks into Stores with the rights of its user.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

// version is set by the linker.
var version = "development"

// Exit codes; docs/kubectl-rcbox.md has them.
const (
	exitFailed       = 1
	exitUsage        = 2
	exitNotAvailable = 3
	exitOccupied     = 4
)

// exitError ends the program with a code of its own. Without an error, everything was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func main() {
	os.Exit(run(rootCommand((*access.Flags).Connect), os.Args[1:], os.Stdout, os.Stderr))
}

func run(root *cobra.Command, arguments []string, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SetArgs(arguments)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	exit := &exitError{code: exitFailed, err: err}
	_ = errors.As(err, &exit)
	if exit.err != nil {
		_, _ = fmt.Fprintln(errs, "error:", plain.Lines(exit.err.Error()))
	}
	return exit.code
}

// plugin is what all commands have.
type plugin struct {
	flags   access.Flags
	connect func(*access.Flags) (*access.Cluster, error)
}

func rootCommand(connect func(*access.Flags) (*access.Cluster, error)) *cobra.Command {
	p := &plugin{connect: connect}
	root := &cobra.Command{
		Use:   "kubectl-rcbox",
		Short: "Look into rcbox Stores",
		Long: `Looks into rcbox Stores with the rights that you have: what Kubernetes knows of them, and, through a
forwarded port, what their coordinators know.

Exit codes: 0 done, 1 failed, 2 wrong use; status also 3: the Store is not Available; console also 4: somebody else has it.`,
		Version:       version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl rcbox"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 0 {
				return usage(command, fmt.Errorf("unknown command %q", arguments[0]))
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	p.flags.Bind(root)
	root.SetFlagErrorFunc(usage)
	root.AddCommand(p.statusCommand(), p.recoverCommand(), p.locateCommand(), p.drainCommand(), p.isolateCommand(),
		p.isolateServerCommand(), p.drillCommand(), p.finalizeCommand(), p.restartCommand(), p.splitCommand(),
		p.topCommand(), p.proxyCommand(), p.netCommand(), p.traceCommand(), p.whyCommand(), p.reportCommand(),
		p.unmanageCommand(), p.powerCommand(), p.upCommand(), p.downCommand(), p.ipmiCommand(), p.ledCommand(),
		p.bootCommand(), p.pxebootCommand(), p.vlanCommand(), p.inventoryCommand(), p.scanCommand(), p.consoleCommand(),
		p.panelCommand())
	refuseWrongUse(root)
	return root
}

// refuseWrongUse has all commands below say how they are used.
func refuseWrongUse(root *cobra.Command) {
	for _, command := range root.Commands() {
		refuseWrongUse(command)
		if check := command.Args; check != nil {
			command.Args = func(command *cobra.Command, arguments []string) error {
				if err := check(command, arguments); err != nil {
					return usage(command, err)
				}
				return nil
			}
		}
	}
}

func usage(command *cobra.Command, err error) error {
	return &exitError{exitUsage, fmt.Errorf("%w; see %s --help", err, command.CommandPath())}
}

// styleOf a writer: colours are for terminals whose users have nothing against them.
func styleOf(out io.Writer) view.Style {
	return view.Style{Colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(out)}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func argument(arguments []string, i int) string {
	if i < len(arguments) {
		return arguments[i]
	}
	return ""
}
