package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

const (
	orderIDLength = 8
	// orderPause is that between two looks at orders that are under way.
	orderPause = 500 * time.Millisecond
	// maxUnfinished are the servers that are named of those that are waited for.
	maxUnfinished = 4
)

// verbs of kubectl rcbox power, and the orders that they are.
var verbs = map[string]v1alpha1.PowerAction{
	"on": v1alpha1.ActionOn, "soft": v1alpha1.ActionSoft, "off": v1alpha1.ActionOff,
	"cycle": v1alpha1.ActionCycle, "reset": v1alpha1.ActionReset,
}

type powerOptions struct {
	force, wait bool
	timeout     time.Duration
}

func (o *powerOptions) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&o.force, "force", false,
		"say what Stores lose, and do it all the same; take the power away from servers that do not shut down")
	flags.BoolVar(&o.wait, "wait", true, "wait until it is done and seen, or refused")
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "how long to wait")
}

const listHelp = `SERVERS is a list without spaces: numbers (1,5-7,10+3), names (atom002, atom002-005), addresses of BMCs
(192.168.5.1+44, or .7), or the name of a Chassis for all of its servers.`

func (p *plugin) powerCommand() *cobra.Command {
	var options powerOptions
	command := &cobra.Command{
		Use:   "power SERVERS on|soft|off|cycle|reset|status",
		Short: "Switch servers on and off, or show whether they are",
		Long: `Orders servers to be switched on or off, and waits until that is seen. soft asks the operating system to shut down; off takes
the power away. A server on which a master or a coordinator of a Store runs is refused: drain its node first. status shows what is known.

` + listHelp,
		Example: `  kubectl rcbox power 1-44 status
  kubectl rcbox power atom007 cycle
  kubectl rcbox power mercury1 soft`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			if arguments[1] == "status" {
				return showPower(command.Context(), cluster, command.OutOrStdout(), arguments[0])
			}
			action, isVerb := verbs[arguments[1]]
			if !isVerb {
				return usage(command, fmt.Errorf("%q is none of on, soft, off, cycle, reset and status", arguments[1]))
			}
			return power(command.Context(), cluster, command.OutOrStdout(), arguments[0], action, options)
		},
	}
	options.bind(command)
	return command
}

func (p *plugin) upCommand() *cobra.Command {
	return p.shortcut("up", v1alpha1.ActionOn, "Switch servers on, such as all of a chassis")
}

func (p *plugin) downCommand() *cobra.Command {
	command := p.shortcut("down", v1alpha1.ActionSoft, "Shut servers down, such as all of a chassis")
	command.Long += `

Members of Stores leave first: their nodes are cordoned, the operator drains masters, and then coordinators are evicted; a
Store all of whose masters run there is hibernated. A Store that would lose data is named, and nothing is shut down. --force
says what each Store loses, and shuts down at once.`
	return command
}

func (p *plugin) shortcut(name string, action v1alpha1.PowerAction, short string) *cobra.Command {
	var options powerOptions
	command := &cobra.Command{
		Use:   name + " SERVERS",
		Short: short,
		Long: short + `, and never more at a time than startsAtOnce and the budget of their Chassis allow. An order of all servers of
a Chassis is one command to its chassis manager if all of them can be told, and the model says that the manager does this
to all; to switch them on, also that it starts them one after the other, or startsAtOnce allows all. Else each is told
by itself.

` + listHelp,
		Example: "  kubectl rcbox " + name + " mercury1\n  kubectl rcbox " + name + " 1,5-7,10+3",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			out := command.OutOrStdout()
			if action == v1alpha1.ActionSoft && !options.force {
				servers, err := selected(command.Context(), cluster, arguments[0])
				if err == nil {
					err = makeRoom(command.Context(), cluster, out, servers, options)
				}
				if err != nil {
					return err
				}
			}
			return power(command.Context(), cluster, out, arguments[0], action, options)
		},
	}
	options.bind(command)
	return command
}

// selected finds the Servers that a list stands for.
func selected(ctx context.Context, cluster *access.Cluster, list string) ([]*v1alpha1.Server, error) {
	chassis := &v1alpha1.ChassisList{}
	if err := cluster.List(ctx, chassis); err != nil {
		return nil, fmt.Errorf("list Chassis (list on chassis; is the box controller installed?): %w", err)
	}
	found, err := names.NewFleet(chassis.Items).Find(list)
	if err != nil {
		return nil, fmt.Errorf("find the servers: %w", err)
	}
	if len(found.Controllers) > 0 {
		return nil, fmt.Errorf("%s is a controller of Chassis %s: write %s for all of its servers", found.Controllers[0].Name,
			found.Controllers[0].Chassis, found.Controllers[0].Chassis)
	}
	servers := &v1alpha1.ServerList{}
	if err := cluster.List(ctx, servers); err != nil {
		return nil, fmt.Errorf("list Servers: %w", err)
	}
	there := map[string]*v1alpha1.Server{}
	for i := range servers.Items {
		there[servers.Items[i].Name] = &servers.Items[i]
	}
	all := make([]*v1alpha1.Server, 0, len(found.Places))
	for _, place := range found.Places {
		if there[place.Name] == nil {
			return nil, fmt.Errorf("the Server %s was not made yet: kubectl describe chassis %s says why", place.Name, place.Chassis)
		}
		all = append(all, there[place.Name])
	}
	return all, nil
}

// power orders an action of servers, and waits for it.
func power(
	ctx context.Context, cluster *access.Cluster, out io.Writer, list string, action v1alpha1.PowerAction, options powerOptions,
) error {
	servers, err := selected(ctx, cluster, list)
	if err != nil {
		return err
	}
	if options.force && action != v1alpha1.ActionOn {
		if err := sayLosses(ctx, cluster, out, servers); err != nil {
			return err
		}
	}
	id, count := rand.String(orderIDLength), int32(len(servers)) //nolint:gosec // at most ranges.MaxItems
	for _, server := range servers {
		before := server.DeepCopy()
		server.Spec.Order = &v1alpha1.PowerOrder{ID: id, Action: action, Force: options.force, Servers: count}
		if err := cluster.Patch(ctx, server, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("order %s of Server %s (patch on servers): %w", action, server.Name, err)
		}
	}
	if !options.wait {
		return writeText(out, fmt.Sprintf("%s is ordered of %d servers: kubectl rcbox power %s status\n", action, len(servers), list))
	}
	wait := &waiting{
		cluster: cluster, out: out, timeout: options.timeout,
		what: func(server *v1alpha1.Server) (text string, isFinal, isGood bool) {
			order := server.Status.Order
			switch {
			case order == nil || order.ID != id:
				return "", false, false
			case isUnderWay(order):
				return order.Message, false, false
			}
			return strings.ToLower(string(order.State)) + ": " + order.Message, true, order.State == v1alpha1.OrderDone
		},
	}
	return wait.run(ctx, servers)
}

func isUnderWay(order *v1alpha1.OrderStatus) bool {
	return order.State == v1alpha1.OrderWaiting || order.State == v1alpha1.OrderRunning
}

// waitsFor says what an order of a server waits for: its BMC, or what the order's status says.
func waitsFor(server *v1alpha1.Server, says string) string {
	reachable := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionReachable)
	if reachable != nil && reachable.Status != metav1.ConditionTrue {
		return reachable.Message
	}
	return says
}

// unfinished says which servers were still waited for, and why. Their orders stay.
func unfinished(open map[string]string, err error) error {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(open)) {
		if why := open[name]; why != "" {
			name += " (" + why + ")"
		}
		all = append(all, name)
	}
	text := fmt.Errorf("the orders of %s are still under way, and go on", someOf(all))
	if errors.Is(err, context.DeadlineExceeded) {
		return text
	}
	return fmt.Errorf("%w: %w", text, err)
}

// someOf names the first of many.
func someOf(names []string) string {
	if more := len(names) - maxUnfinished; more > 0 {
		names = append(slices.Clone(names[:maxUnfinished]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func showPower(ctx context.Context, cluster *access.Cluster, out io.Writer, list string) error {
	servers, err := selected(ctx, cluster, list)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, server := range servers {
		power := &server.Status.Power
		state := power.State
		if state == "" {
			state = v1alpha1.PowerUnknown
		}
		fmt.Fprintf(&text, "%s: %s", server.Name, strings.ToLower(string(state)))
		if power.Source != "" {
			fmt.Fprintf(&text, ", says its %s", power.Source)
		}
		if power.Since != nil {
			fmt.Fprintf(&text, ", for %s", cluster.Now().Sub(power.Since.Time).Round(time.Second))
		}
		text.WriteString("\n")
	}
	return writeText(out, text.String())
}
