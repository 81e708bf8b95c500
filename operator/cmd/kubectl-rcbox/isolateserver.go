package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// Reasons of the condition Isolated of what does not go on by itself.
const (
	reasonDataWouldBeLost = "DataWouldBeLost"
	reasonNotQualified    = "NotQualified"
)

type isolationOptions struct {
	reason            string
	undo, force, wait bool
	timeout           time.Duration
}

func (p *plugin) isolateServerCommand() *cobra.Command {
	var options isolationOptions
	command := &cobra.Command{
		Use:   "isolate-server SERVERS --reason TEXT | --undo",
		Short: "Take servers out of use that are broken but alive, and bring them back",
		Long: `Takes servers out of use that are broken but alive: their nodes are cordoned, the operator drains masters there,
coordinators are evicted, and then the servers are shut down, by force if that does not end in time. Nothing switches them on
again before --undo. A server keeps its power where a Store would lose data, and the text says what is waited for. The
order stays when this program ends; the same command goes on.

--undo brings servers back: those that were on are switched on, and nodes that were cordoned for this get pods again once
they are ready, and their systems have measured processor, memory and disk. A node gets none if these are far slower than those
of other servers of the Chassis; the text says so. --undo is refused for a server whose BMC does not answer, that is not the
blade that was accepted (AsRecorded), with a sensor beyond its limits or with memory errors (Healthy). --force says what it
ignores, and waives the measurement.

For a node that only one Store is to leave there is isolate.

` + listHelp,
		Example: `  kubectl rcbox isolate-server atom007 --reason "ECC errors in channel 2"
  kubectl rcbox isolate-server atom007 --undo`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			hasReason := strings.TrimSpace(options.reason) != ""
			switch {
			case options.undo == hasReason:
				return usage(command, errors.New("either --reason says why, or --undo takes it back"))
			case options.force && !options.undo:
				return usage(command, errors.New("--force is for --undo alone: kubectl rcbox power SERVERS off --force takes power away"))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			servers, err := selected(command.Context(), cluster, arguments[0])
			if err != nil {
				return err
			}
			if options.undo {
				return bringBack(command.Context(), cluster, command.OutOrStdout(), servers, options)
			}
			return isolateServers(command.Context(), cluster, command.OutOrStdout(), servers, options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.reason, "reason", "", "why, for conditions and the panel")
	flags.BoolVar(&options.undo, "undo", false, "bring the servers back")
	flags.BoolVar(&options.force, "force", false, "with --undo: say what speaks against that, and do it all the same")
	flags.BoolVar(&options.wait, "wait", true, "wait until the servers are isolated, or back")
	flags.DurationVar(&options.timeout, "timeout", time.Hour, "how long to wait")
	return command
}

// isolateServers orders it, and has coordinators leave while it waits: the operator drains masters only.
func isolateServers(
	ctx context.Context, cluster *access.Cluster, out io.Writer, servers []*v1alpha1.Server, options isolationOptions,
) error {
	wanted := &v1alpha1.ServerIsolationSpec{Reason: strings.TrimSpace(options.reason)}
	if err := writeIsolation(ctx, cluster, servers, wanted, v1alpha1.QualificationRequired); err != nil || !options.wait {
		return err
	}
	told := map[string]string{}
	wait := &waiting{
		cluster: cluster, out: out, timeout: options.timeout,
		what: func(server *v1alpha1.Server) (text string, isFinal, isGood bool) {
			isolation, condition := server.Status.Isolation, isolatedCondition(server)
			switch {
			case isolation == nil || server.Status.ObservedGeneration < server.Generation:
				return "", false, false
			case isolation.Stage == v1alpha1.StageIsolated:
				return "isolated: " + condition.Message, true, true
			}
			return condition.Message, condition.Reason == reasonDataWouldBeLost, false
		},
		meanwhile: func(ctx context.Context) error { return evictFromIsolated(ctx, cluster, out, servers, told) },
	}
	return wait.run(ctx, servers)
}

// isolatedCondition is empty where there is none.
func isolatedCondition(server *v1alpha1.Server) metav1.Condition {
	if found := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionIsolated); found != nil {
		return *found
	}
	return metav1.Condition{}
}

func writeIsolation(
	ctx context.Context, cluster *access.Cluster, servers []*v1alpha1.Server, isolated *v1alpha1.ServerIsolationSpec,
	qualification v1alpha1.QualificationPolicy,
) error {
	for _, server := range servers {
		before := server.DeepCopy()
		server.Spec.Isolated, server.Spec.Qualification = isolated, qualification
		if err := cluster.Patch(ctx, server, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("write spec.isolated of Server %s (patch on servers, and update on servers/power): %w", server.Name, err)
		}
	}
	return nil
}

// evictFromIsolated says what each isolation waits for whenever that has changed, and evicts coordinators from nodes that are cordoned.
func evictFromIsolated(
	ctx context.Context, cluster *access.Cluster, out io.Writer, servers []*v1alpha1.Server, told map[string]string,
) error {
	nodes := map[string]bool{}
	for _, of := range servers {
		server := &v1alpha1.Server{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(of), server); err != nil {
			return fmt.Errorf("read Server %s (get on servers): %w", of.Name, err)
		}
		isolation := server.Status.Isolation
		if isolation == nil || isolation.Stage != v1alpha1.StageMembersLeave {
			continue
		}
		if text := isolatedCondition(server).Message; text != "" && told[server.Name] != text {
			told[server.Name] = text
			if err := writeText(out, server.Name+": "+text+"\n"); err != nil {
				return err
			}
		}
		if server.Status.Node == "" {
			continue
		}
		node := &corev1.Node{}
		if err := cluster.Get(ctx, client.ObjectKey{Name: server.Status.Node}, node); err != nil {
			return fmt.Errorf("read node %s (get on nodes): %w", server.Status.Node, err)
		}
		if node.Spec.Unschedulable { // otherwise they come back
			nodes[node.Name] = true
		}
	}
	leaving, err := departures(ctx, cluster, nodes)
	if err != nil {
		return err
	}
	for _, of := range leaving {
		if of.losesTables() {
			continue
		}
		if err := of.evict(ctx, cluster); err != nil {
			return err
		}
	}
	return nil
}

// bringBack takes isolation back for servers that qualify.
func bringBack(
	ctx context.Context, cluster *access.Cluster, out io.Writer, servers []*v1alpha1.Server, options isolationOptions,
) error {
	var against []string
	var back []*v1alpha1.Server
	for _, server := range servers {
		switch {
		case server.Spec.Isolated != nil:
			against = append(against, whyNotQualified(server)...)
		case server.Status.Isolation == nil:
			if err := writeText(out, server.Name+" was not isolated\n"); err != nil {
				return err
			}
			continue
		}
		back = append(back, server)
	}
	switch {
	case len(against) > 0 && !options.force:
		return fmt.Errorf("nothing was brought back: %s; --force ignores that", strings.Join(against, "; "))
	case len(against) > 0:
		if err := writeText(out, "ignored: "+strings.Join(against, "; ")+"\n"); err != nil {
			return err
		}
	}
	qualification := v1alpha1.QualificationRequired
	if options.force {
		qualification = v1alpha1.QualificationWaived
	}
	if err := writeIsolation(ctx, cluster, back, nil, qualification); err != nil || !options.wait {
		return err
	}
	wait := &waiting{
		cluster: cluster, out: out, timeout: options.timeout,
		what: func(server *v1alpha1.Server) (text string, isFinal, isGood bool) {
			if server.Status.Isolation != nil {
				condition := isolatedCondition(server)
				isCurrent := server.Status.ObservedGeneration >= server.Generation
				return condition.Message, isCurrent && condition.Reason == reasonNotQualified, false
			}
			return "in use again", true, true
		},
	}
	return wait.run(ctx, back)
}

// whyNotQualified says what speaks against using a server: each condition that is not known to be met.
func whyNotQualified(server *v1alpha1.Server) []string {
	var against []string
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAsRecorded, v1alpha1.ConditionHealthy} {
		condition := meta.FindStatusCondition(server.Status.Conditions, kind)
		switch {
		case condition == nil:
			against = append(against, fmt.Sprintf("%s: %s is not known yet", server.Name, kind))
		case condition.Status != metav1.ConditionTrue:
			against = append(against, fmt.Sprintf("%s: %s is %s: %s", server.Name, kind, condition.Status, condition.Message))
		}
	}
	return against
}
