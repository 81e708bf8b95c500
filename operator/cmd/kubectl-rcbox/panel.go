package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/panel"
	"rcbox.dev/rcbox/operator/internal/panel/front"
	"rcbox.dev/rcbox/operator/internal/panel/source"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
)

const (
	panelPort = 8090
	// panelBlinks is how long a light blinks that the panel has let blink.
	panelBlinks = ledFor
)

func (p *plugin) panelCommand() *cobra.Command {
	var port uint16
	var readOnly bool
	command := &cobra.Command{
		Use:   "panel",
		Short: "Show all chassis in a browser, as one sees them from the front",
		Long: `Serves a page on this machine that shows each chassis as one sees it from the front: whether the server in each slot is on,
which members of Stores are there, how recoveries go on. It follows what happens. Its buttons let lights blink, switch servers on,
shut them down, and isolate nodes, with your rights.

Only this machine reaches the page, and only who knows the address that is printed gets anything from it. It runs until Ctrl-C.`,
		Example: `  kubectl rcbox panel
  kubectl rcbox panel --port 0 --read-only`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return servePanel(command.Context(), cluster, command.OutOrStdout(), port, readOnly)
		},
	}
	command.Flags().Uint16Var(&port, "port", panelPort, "port of this machine; 0: any that is free")
	command.Flags().BoolVar(&readOnly, "read-only", false, "without buttons")
	return command
}

func servePanel(ctx context.Context, cluster *access.Cluster, out io.Writer, port uint16, readOnly bool) error {
	scheme, err := access.Scheme()
	if err != nil {
		return err
	}
	from, err := source.Follow(ctx, cluster.Config, scheme, cluster, cluster.Namespace)
	if err != nil {
		return fmt.Errorf("read what the panel shows: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("port %d is not free; --port 0 takes any that is: %w", port, err)
	}
	address := listener.Addr().String()
	_, chosen, _ := net.SplitHostPort(address)
	server := &panel.Server{
		Feed:  &panel.Feed{Source: from, Now: cluster.Now, CanAct: !readOnly},
		Token: rand.Text(),
		Hosts: []string{address, net.JoinHostPort("localhost", chosen)},
	}
	if !readOnly {
		server.Actor = &panelActor{cluster: cluster, source: from}
	}
	go server.Feed.Run(ctx)
	if err := writeText(out, fmt.Sprintf("http://%s/#%s\n", address, server.Token)); err != nil {
		return err
	}
	return server.Serve(ctx, listener)
}

// panelActor does what the page's buttons say, with the rights of its user.
type panelActor struct {
	cluster *access.Cluster
	source  panel.Source
}

// Act orders one thing, and waits for nothing: the page shows what becomes of it.
func (a *panelActor) Act(ctx context.Context, order panel.Order) (string, error) {
	switch order.Action {
	case "locate":
		return order.Server + ": its light is to blink for " + panelBlinks.String(), a.blink(ctx, order.Server, panelBlinks)
	case "unlocate":
		return order.Server + ": its light is to stop", a.blink(ctx, order.Server, 0)
	case "on":
		return a.power(ctx, order.Server, v1alpha1.ActionOn)
	case "soft":
		return a.power(ctx, order.Server, v1alpha1.ActionSoft)
	case "isolate":
		return a.isolate(ctx, order.Server)
	}
	return "", fmt.Errorf("%q is no action", order.Action)
}

func (a *panelActor) blink(ctx context.Context, name string, blinks time.Duration) error {
	servers, err := selected(ctx, a.cluster, name)
	if err != nil {
		return err
	}
	_, err = orderLight(ctx, a.cluster, servers, blinks)
	return err
}

func (a *panelActor) power(ctx context.Context, name string, action v1alpha1.PowerAction) (string, error) {
	if err := power(ctx, a.cluster, io.Discard, name, action, powerOptions{}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %s is ordered; the line \"last order\" shows how far it is", name, action), nil
}

// isolate keeps each Store with a member on the server away from its node.
func (a *panelActor) isolate(ctx context.Context, name string) (string, error) {
	objects, _, err := a.source.Objects(ctx)
	if err != nil {
		return "", fmt.Errorf("find the members on %s: %w", name, err)
	}
	var texts []string
	for _, part := range front.Look(objects, a.cluster.Now()) {
		slot, isSlot := part.(front.Slot)
		if !isSlot || slot.Server != name {
			continue
		}
		for _, member := range slot.Members {
			of := *a.cluster
			of.Namespace = member.Namespace
			var said strings.Builder
			if err := isolate(ctx, &of, &said, member.Store, slot.Node, false); err != nil {
				return "", fmt.Errorf("isolate %s for Store %s/%s: %w", slot.Node, member.Namespace, member.Store, err)
			}
			texts = append(texts, strings.TrimSpace(said.String()))
		}
	}
	if len(texts) == 0 {
		return "", errors.New("no member of a Store that you may read runs on " + plain.Lines(name) + ": there is nothing to isolate")
	}
	return strings.Join(texts, "; "), nil
}
