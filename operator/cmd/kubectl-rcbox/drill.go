package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

const drillInterval = time.Second

type drillOptions struct {
	member    string
	yes, wait bool
}

func (p *plugin) drillCommand() *cobra.Command {
	var options drillOptions
	command := &cobra.Command{
		Use:   "drill STORE",
		Short: "End a master's process, to see what its recovery takes",
		Long: `Orders a drill: the operator ends the process of a master while everything has its copies, and notes in
status.drills what the recovery took, beside what was expected and recovery.target. What that master holds cannot be
used meanwhile, for about as long as RecoveryOnTarget says. The operator refuses, and says why, while anything is short
of copies or something else is under way.

The order is an annotation of the Store (rcbox.dev/drill). --member takes a name, or a number; without it the masters
have their turns.`,
		Example: `  kubectl rcbox drill box --yes --wait
  kubectl rcbox drill box --member 2 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if !options.yes {
				return usage(command, errors.New("a drill ends the process of a master that is in use: say --yes"))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return drill(command.Context(), cluster, &screen{out: command.OutOrStdout()}, arguments[0], options)
		},
	}
	command.Flags().StringVar(&options.member, "member", "", "the master whose process is to end")
	command.Flags().BoolVar(&options.yes, "yes", false, "end the process of a master that is in use")
	command.Flags().BoolVar(&options.wait, "wait", false, "show how it goes on, and fail unless it ends on target")
	return command
}

func drill(ctx context.Context, cluster *access.Cluster, shown *screen, name string, options drillOptions) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	order := cluster.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	if options.member != "" {
		member := options.member
		if ordinal, err := strconv.Atoi(member); err == nil && ordinal >= 0 {
			member = v1alpha1.MasterMember(store.Name, ordinal)
		}
		if _, ok := v1alpha1.MasterOrdinal(store.Name, member); !ok {
			return fmt.Errorf("%s is no master of Store %s/%s", member, store.Namespace, store.Name)
		}
		order += " " + member
	}
	before := store.DeepCopy()
	if store.Annotations == nil {
		store.Annotations = map[string]string{}
	}
	store.Annotations[v1alpha1.AnnotationDrill] = order
	if err := cluster.Patch(ctx, store, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("order a drill of Store %s/%s (patch on stores): %w", store.Namespace, store.Name, err)
	}
	if !options.wait {
		return shown.line("ordered; status.drills, or --wait, show how it goes on\n")
	}
	return waitForDrill(ctx, cluster, shown, store, order)
}

// waitForDrill shows what becomes of the drill until it has ended; an error unless it has ended on target.
func waitForDrill(ctx context.Context, cluster *access.Cluster, shown *screen, store *v1alpha1.Store, order string) error {
	return watch(ctx, drillInterval, func() (bool, error) {
		current := &v1alpha1.Store{}
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(store), current); err != nil {
			return false, fmt.Errorf("read Store %s/%s: %w", store.Namespace, store.Name, err)
		}
		i := slices.IndexFunc(current.Status.Drills, func(drill v1alpha1.Drill) bool { return drill.Order == order })
		switch {
		case i >= 0:
		case current.Annotations[v1alpha1.AnnotationDrill] != order:
			return false, errors.New("somebody else has ordered another drill before the operator saw this one")
		default:
			return false, shown.line("ordered; the operator has not seen it yet\n")
		}
		drill := &current.Status.Drills[i]
		text := describeDrill(drill)
		if drill.HasEnded() && drill.State != v1alpha1.DrillSucceeded {
			return false, errors.New(text)
		}
		return drill.HasEnded(), shown.line(text + "\n")
	})
}

func describeDrill(drill *v1alpha1.Drill) string {
	parts := []string{fmt.Sprintf("drill %d", drill.Number)}
	if drill.Member != "" {
		parts = append(parts, "of "+drill.Member)
	}
	text := strings.Join(append(parts, string(drill.State)), " ")
	if drill.Message != "" {
		text += ": " + drill.Message
	}
	if drill.MeasuredMs > 0 {
		text += fmt.Sprintf(" (%d ms were expected, %d bytes of log)", drill.PromisedMs, drill.Bytes)
	}
	return text
}
