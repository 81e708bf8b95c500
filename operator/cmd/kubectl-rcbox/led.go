package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

const (
	ledFor     = 15 * time.Minute
	ledTimeout = 2 * time.Minute
)

func (p *plugin) ledCommand() *cobra.Command {
	var blinks, timeout time.Duration
	command := &cobra.Command{
		Use:   "led SERVERS on|off",
		Short: "Let the lights of servers blink, so that somebody in front of the rack finds them",
		Long: `Lets the light of each server of a list blink for some time, or stops that, and waits until its BMC says that it does.
kubectl rcbox locate finds the member that has a key; this finds the blade.

` + listHelp,
		Example: `  kubectl rcbox led atom007 on
  kubectl rcbox led 1,5-7 on --for 1h
  kubectl rcbox led mercury1 off`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			isOn := arguments[1] == "on"
			if !isOn && arguments[1] != "off" {
				return usage(command, fmt.Errorf("%q is neither on nor off", arguments[1]))
			}
			if isOn && blinks <= 0 {
				return usage(command, fmt.Errorf("--for is %s: it must be more than 0", blinks))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			if !isOn {
				blinks = 0
			}
			return led(command.Context(), cluster, command.OutOrStdout(), arguments[0], blinks, timeout)
		},
	}
	flags := command.Flags()
	flags.DurationVar(&blinks, "for", ledFor, "how long they blink")
	flags.DurationVar(&timeout, "timeout", ledTimeout, "how long to wait for the BMCs")
	return command
}

// led has lights blink for some time; 0: not any more.
func led(ctx context.Context, cluster *access.Cluster, out io.Writer, list string, blinks, timeout time.Duration) error {
	servers, err := selected(ctx, cluster, list)
	if err != nil {
		return err
	}
	asked := cluster.Now().Truncate(time.Second)
	until, err := orderLight(ctx, cluster, servers, blinks)
	if err != nil {
		return err
	}
	wait := &waiting{
		cluster: cluster, out: out, timeout: timeout,
		what: func(server *v1alpha1.Server) (string, bool, bool) { return lightOf(server, until, asked) },
	}
	return wait.run(ctx, servers)
}

// orderLight has lights blink for some time, and says until when; 0, and nil: not any more.
func orderLight(ctx context.Context, cluster *access.Cluster, servers []*v1alpha1.Server, blinks time.Duration) (*metav1.Time, error) {
	var until *metav1.Time
	if blinks > 0 {
		until = new(metav1.NewTime(cluster.Now().Add(blinks).Truncate(time.Second)))
	}
	for _, server := range servers {
		before := server.DeepCopy()
		server.Spec.LocateUntil = until
		if err := cluster.Patch(ctx, server, client.MergeFrom(before)); err != nil {
			return nil, fmt.Errorf("let the light of Server %s blink (patch on servers): %w", server.Name, err)
		}
	}
	return until, nil
}

// lightOf says what became of a light, and whether that is final and as wanted.
func lightOf(server *v1alpha1.Server, until *metav1.Time, asked time.Time) (text string, isFinal, isGood bool) {
	light := server.Status.Light
	switch {
	case light == nil && until == nil:
		return "its light does not blink", true, true
	case light == nil, (light.Until == nil) != (until == nil):
		return "", false, false
	case light.State == v1alpha1.OrderRunning:
		return light.Message, false, false
	case light.State == v1alpha1.OrderFailed && light.TriedAt.Time.Before(asked): // an earlier attempt
		return "", false, false
	case light.State == v1alpha1.OrderFailed:
		return light.Message, true, false
	case until == nil:
		return "its light does not blink", true, true
	}
	return "its light blinks until " + until.UTC().Format(time.RFC3339), true, true
}
