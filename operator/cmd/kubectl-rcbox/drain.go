package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

type drainOptions struct {
	wait, undo bool
}

func (p *plugin) drainCommand() *cobra.Command {
	var options drainOptions
	command := &cobra.Command{
		Use:   "drain STORE MEMBER",
		Short: "Have everything that a member has go to others",
		Long: `Has everything that a member has go to others, while it is used: its tablets, and the copies that it keeps. When
it is drained, nobody needs anything that it has, and its pod, node or volume can go without anything being lost.
MEMBER is a name, or its number.

The order is a StoreOperation, and stays in force until --undo deletes that, also for the member's next pod. To have a
store with fewer masters, set masters.replicas instead: then the operator drains those with the highest numbers, and
removes them. For a node that is to go it takes kubectl drain alone: the operator drains the member there, and moves it.`,
		Example: `  kubectl rcbox drain box box-master-2 --wait
  kubectl rcbox drain box 2 --undo`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			if options.undo && options.wait {
				return usage(command, errors.New("--undo has nothing to wait for"))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return drain(command.Context(), cluster, &screen{out: command.OutOrStdout()}, arguments[0], arguments[1], options)
		},
	}
	command.Flags().BoolVar(&options.wait, "wait", false, "show what is left whenever that has changed, and end when nothing is")
	command.Flags().BoolVar(&options.undo, "undo", false, "the member stays after all")
	return command
}

func drain(ctx context.Context, cluster *access.Cluster, shown *screen, name, wanted string, options drainOptions) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	member, err := masterNamed(store, wanted)
	if err != nil {
		return err
	}
	ordered, err := openOperations(ctx, cluster, store, func(spec *v1alpha1.StoreOperationSpec) bool {
		return spec.Type == v1alpha1.OperationDrain && spec.Drain.Member == member
	})
	if err != nil {
		return err
	}
	if options.undo {
		return undrain(ctx, cluster, shown, store, member, ordered)
	}
	if len(ordered) == 0 {
		operation, err := order(ctx, cluster, store, v1alpha1.StoreOperationSpec{
			Type: v1alpha1.OperationDrain, Drain: &v1alpha1.DrainOperation{Member: member},
		})
		if err != nil {
			return err
		}
		ordered = []v1alpha1.StoreOperation{*operation}
	}
	return follow(ctx, cluster, shown, &ordered[0], options.wait)
}

// masterNamed finds a master by its name or its number. Whether there is one of that name, the operator says.
func masterNamed(store *v1alpha1.Store, wanted string) (string, error) {
	if ordinal, err := strconv.Atoi(wanted); err == nil && ordinal >= 0 {
		wanted = v1alpha1.MasterMember(store.Name, ordinal)
	}
	if _, isMaster := v1alpha1.MasterOrdinal(store.Name, wanted); !isMaster {
		return "", fmt.Errorf("%s is no master of Store %s/%s", wanted, store.Namespace, store.Name)
	}
	return wanted, nil
}

func undrain(
	ctx context.Context, cluster *access.Cluster, shown *screen, store *v1alpha1.Store, member string, ordered []v1alpha1.StoreOperation,
) error {
	if len(ordered) == 0 {
		return shown.line("no StoreOperation orders that " + member + " is drained\n")
	}
	if err := withdraw(ctx, cluster, ordered); err != nil {
		return err
	}
	text := member + " stays; what has gone elsewhere comes back only as tablets are balanced\n"
	if ordinal, _ := v1alpha1.MasterOrdinal(store.Name, member); ordinal >= int(store.Spec.Masters.Replicas) {
		text = fmt.Sprintf("%s has no place in the spec (masters.replicas is %d), so that the operator drains it all the same\n",
			member, store.Spec.Masters.Replicas)
	}
	return shown.line(text)
}
