package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

const bootTimeout = 2 * time.Minute

// devices that a server can boot from, by their words.
var devices = map[string]v1alpha1.BootDevice{"network": v1alpha1.BootNetwork, "disk": v1alpha1.BootDisk}

func (p *plugin) pxebootCommand() *cobra.Command {
	var timeout time.Duration
	order := v1alpha1.BootOrder{Device: v1alpha1.BootNetwork}
	command := &cobra.Command{
		Use:   "pxeboot SERVERS",
		Short: "Have servers boot from the network at their next start, and only then",
		Long: `Tells the BMC of each server of a list that the next start is from the network, by PXE, and waits until it says yes,
and has that on record. Nothing is started: kubectl rcbox up, or power cycle, does that. Box hosts then give the server
the boot image, which installs itself on the disk; a partition of backups stays. With --wipe, the installation gives up
everything that is on the disk, backups included.

` + listHelp,
		Example: "  kubectl rcbox pxeboot 1-44 && kubectl rcbox up 1-44",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return bootFrom(command.Context(), cluster, command.OutOrStdout(), arguments[0], order, timeout)
		},
	}
	command.Flags().BoolVar(&order.Wipe, "wipe", false, "lay the disks out anew: all that is on them is lost, backups included")
	command.Flags().DurationVar(&timeout, "timeout", bootTimeout, "how long to wait for the BMCs")
	return command
}

func (p *plugin) bootCommand() *cobra.Command {
	var options powerOptions
	var from string
	command := &cobra.Command{
		Use:   "boot SERVERS",
		Short: "Start the operating systems of servers, from the network if that is asked for",
		Long: `Switches servers on, and waits until that is seen. With --from, their BMCs are told before what this one start is
from; a server that is on already is not started again: kubectl rcbox power SERVERS cycle does that.

` + listHelp,
		Example: `  kubectl rcbox boot 1-44
  kubectl rcbox boot atom007 --from network`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			device, isDevice := devices[from]
			if from != "" && !isDevice {
				return usage(command, fmt.Errorf("--from is %q: write network or disk", from))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			out := command.OutOrStdout()
			if isDevice {
				order := v1alpha1.BootOrder{Device: device}
				if err := bootFrom(command.Context(), cluster, out, arguments[0], order, bootTimeout); err != nil {
					return err
				}
			}
			return power(command.Context(), cluster, out, arguments[0], v1alpha1.ActionOn, options)
		},
	}
	options.bind(command)
	command.Flags().StringVar(&from, "from", "", "what this start is from: network or disk; default: as the BMC has it")
	return command
}

// bootFrom says what servers boot from next, and waits until their BMCs say yes.
func bootFrom(
	ctx context.Context, cluster *access.Cluster, out io.Writer, list string, order v1alpha1.BootOrder, timeout time.Duration,
) error {
	servers, err := selected(ctx, cluster, list)
	if err != nil {
		return err
	}
	order.ID = rand.String(orderIDLength)
	for _, server := range servers {
		before := server.DeepCopy()
		server.Spec.Boot = order.DeepCopy()
		if err := cluster.Patch(ctx, server, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("say what Server %s boots from (patch on servers): %w", server.Name, err)
		}
	}
	wait := &waiting{
		cluster: cluster, out: out, timeout: timeout,
		what: func(server *v1alpha1.Server) (text string, isFinal, isGood bool) {
			boot := server.Status.Boot
			switch {
			case boot == nil || boot.ID != order.ID:
				return "", false, false
			case boot.State == v1alpha1.OrderWaiting || boot.State == v1alpha1.OrderRunning:
				return boot.Message, false, false
			}
			return strings.ToLower(string(boot.State)) + ": " + boot.Message, true, boot.State == v1alpha1.OrderDone
		},
	}
	return wait.run(ctx, servers)
}
