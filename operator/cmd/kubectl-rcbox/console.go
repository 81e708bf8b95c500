package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/box/consoles"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/console"
	"rcbox.dev/rcbox/operator/internal/plugin/escape"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
	"rcbox.dev/rcbox/operator/internal/plugin/terminal"
)

const escapeHelp = "at the beginning of a line: ~. ends, ~^Z suspends, ~~ is one ~, ~? shows this"

type consoleOptions struct {
	watch, force bool
	duration     time.Duration
}

func (o *consoleOptions) mode() consoles.Mode {
	switch {
	case o.watch:
		return consoles.Watch
	case o.force:
		return consoles.TakeOver
	}
	return consoles.Use
}

func (p *plugin) consoleCommand() *cobra.Command {
	var options consoleOptions
	command := &cobra.Command{
		Use:   "console SERVER",
		Short: "Type and watch at the serial console of a server",
		Long: `Connects your terminal with the serial console of a server, through the Kubernetes API server and the box controller. One
user at a time has a console. The last 64 KiB of output are shown first. A connection that is lost is made again, and
what was printed meanwhile is shown.

Keys at the beginning of a line are those of ssh and ipmitool: ~. ends, ~^Z (Ctrl-Z) suspends, ~~ is one ~, ~? shows
them. Where ssh brought you to this machine, ssh takes the first ~: type ~~. there. Without a terminal, all input goes
to the server as it is, and its end ends nothing: use --for, or end the program by a signal.

It takes the right create on servers/console in the API group subresources.rcbox.dev, and get alone with --watch.

Exit codes: 0 you ended it, or --for is over; 1 failed; 2 wrong use; 4 somebody else has the console, or took it over.`,
		Example: `  kubectl rcbox console atom007
  kubectl rcbox console atom007 --watch                # only look on, beside the user who has it
  kubectl rcbox console atom007 --force                # take it over; whoever had it is told by whom

  kubectl rcbox console atom007 --watch >atom007.log   # until Ctrl-C
  printf 'uptime\r' | kubectl rcbox console atom007 --for 5s`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return openConsole(command, cluster, arguments[0], options)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.watch, "watch", false, "only look on; as many as like may do so")
	flags.BoolVar(&options.force, "force", false, "take the console over from whoever has it, ipmitool included")
	flags.DurationVar(&options.duration, "for", 0, "end this long after the console was opened; default: never")
	command.MarkFlagsMutuallyExclusive("watch", "force")
	return command
}

// openConsole has the user at a console until one of them ends.
func openConsole(command *cobra.Command, cluster *access.Cluster, list string, options consoleOptions) error {
	servers, err := selected(command.Context(), cluster, list)
	if err != nil {
		return err
	}
	if len(servers) != 1 {
		return usage(command, fmt.Errorf("%s is %d servers: a console is that of one", list, len(servers)))
	}
	name := servers[0].Name
	// A terminal is given back whatever ends this program.
	ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	input := &keyboard{in: command.InOrStdin(), errs: command.ErrOrStderr(), newline: "\n", quit: quit}
	client := &console.Client{
		Dial:    console.Dialer(cluster.Config, name),
		Request: consoles.Request{Mode: options.mode(), Client: rand.Text()},
		Out:     command.OutOrStdout(), Say: input.say, For: options.duration,
	}
	input.server, input.client = name, client
	if err := input.raw(ctx); err != nil {
		return err
	}
	defer input.restore()
	go input.read()
	err = client.Run(ctx)
	input.restore()
	if occupied := (*console.OccupiedError)(nil); errors.As(err, &occupied) {
		return &exitError{exitOccupied, err}
	}
	return err
}

// keyboard is what the user types, and the terminal that it is typed at, if it is one.
type keyboard struct {
	server   string
	client   *console.Client
	in       io.Reader
	errs     io.Writer
	terminal *terminal.Terminal
	// newline of lines of our own.
	newline string
	quit    context.CancelFunc
}

// raw has all keys come to us, where they come from a terminal.
func (k *keyboard) raw(ctx context.Context) error {
	file, isFile := k.in.(*os.File)
	if !isFile || !terminal.Is(file) {
		return nil
	}
	var err error
	if k.terminal, err = terminal.Raw(ctx, file); err != nil {
		return err
	}
	k.newline = "\r\n"
	k.say(escapeHelp)
	return nil
}

func (k *keyboard) restore() {
	if k.terminal != nil {
		k.terminal.Restore()
	}
}

// say shows a line of our own. The cursor may be anywhere.
func (k *keyboard) say(text string) {
	line := fmt.Sprintf("%s[console of %s: %s]%s", k.newline, k.server, plain.Text(text), k.newline)
	_ = writeText(k.errs, line) // nobody is left to tell
}

// read sends keys until there are no more.
func (k *keyboard) read() {
	const bufferBytes = 4096
	buffer := make([]byte, bufferBytes)
	var keys escape.Keys
	for {
		n, err := k.in.Read(buffer)
		typed := buffer[:n]
		if k.terminal == nil {
			k.client.Type(typed)
			typed = nil
		}
		for len(typed) > 0 {
			var send []byte
			var action escape.Action
			send, action, typed = keys.Feed(typed)
			k.client.Type(send)
			if action == escape.Quit {
				k.quit()
				return
			}
			k.do(action)
		}
		if err != nil {
			if k.terminal != nil {
				k.quit() // the terminal is gone
			}
			return
		}
	}
}

func (k *keyboard) do(action escape.Action) {
	switch action {
	case escape.Suspend:
		if err := k.terminal.Suspend(); err != nil {
			k.say(err.Error())
		}
	case escape.Help:
		k.say(escapeHelp)
	case escape.None, escape.Quit:
	}
}
