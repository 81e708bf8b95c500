package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

const (
	drainInterval = 2 * time.Second
	patchAttempts = 5
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

The order is noted on the Store (annotation rcbox.dev/drained), so that the operator does not take it back, and stays
until --undo, also for the member's next pod. To have a store with fewer masters, set masters.replicas instead:
then the operator drains those with the highest numbers, and removes them. For a node that is to go it takes
kubectl drain alone: the operator drains the member there, and moves it.`,
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
			return drain(command.Context(), cluster, command.OutOrStdout(), arguments[0], arguments[1], options)
		},
	}
	command.Flags().BoolVar(&options.wait, "wait", false, "show what is left whenever that has changed, and end when nothing is")
	command.Flags().BoolVar(&options.undo, "undo", false, "the member stays after all")
	return command
}

func drain(ctx context.Context, cluster *access.Cluster, out io.Writer, name, wanted string, options drainOptions) error {
	snapshot, coordinator, err := ask(ctx, cluster, name)
	if err != nil {
		return err
	}
	defer coordinator.Close()
	member, err := memberNamed(snapshot, wanted)
	if err != nil {
		return err
	}
	store := snapshot.Store
	if options.undo {
		return undrain(ctx, cluster, coordinator, out, store, member)
	}
	// The note first: the operator takes back what it finds without.
	added, err := noteDrain(ctx, cluster, store, member, true)
	if err != nil {
		return err
	}
	if err := coordinator.Drain(ctx, member); err != nil {
		if added {
			_, undoErr := noteDrain(ctx, cluster, store, member, false)
			err = errors.Join(err, undoErr)
		}
		return err
	}
	if options.wait {
		return waitForDrain(ctx, cluster, out, store, member)
	}
	return writeText(out, member+" is draining; kubectl rcbox drain --wait shows what is left, --undo takes it back\n")
}

// memberNamed finds a member by its name or its number.
func memberNamed(snapshot *view.Snapshot, wanted string) (string, error) {
	if ordinal, err := strconv.Atoi(wanted); err == nil && ordinal >= 0 {
		wanted = v1alpha1.MasterMember(snapshot.Store.Name, ordinal)
	}
	var names []string
	for _, member := range snapshot.Cluster.GetMembers() {
		if member.GetName() == wanted {
			return wanted, nil
		}
		names = append(names, member.GetName())
	}
	const most = 8
	if len(names) > most {
		names = append(names[:most], "...")
	}
	return "", fmt.Errorf("%s is no member of Store %s/%s: there are %s",
		wanted, snapshot.Store.Namespace, snapshot.Store.Name, strings.Join(names, ", "))
}

func undrain(
	ctx context.Context, cluster *access.Cluster, coordinator *access.Coordinator, out io.Writer, store *v1alpha1.Store, member string,
) error {
	if _, err := noteDrain(ctx, cluster, store, member, false); err != nil {
		return err
	}
	if err := coordinator.Undrain(ctx, member); err != nil {
		return err
	}
	text := member + " stays; what has gone elsewhere comes back only as tablets are balanced\n"
	if ordinal, _ := v1alpha1.MasterOrdinal(store.Name, member); ordinal >= int(store.Spec.Masters.Replicas) {
		text = fmt.Sprintf("%s has no place in the spec (masters.replicas is %d), so that the operator drains it again\n",
			member, store.Spec.Masters.Replicas)
	}
	return writeText(out, text)
}

// noteDrain adds a member to those whose drain the operator leaves alone, or takes it from there; says whether that changed anything.
func noteDrain(ctx context.Context, cluster *access.Cluster, store *v1alpha1.Store, member string, drained bool) (bool, error) {
	var err error
	for range patchAttempts {
		current := &v1alpha1.Store{}
		if err = cluster.Get(ctx, client.ObjectKeyFromObject(store), current); err != nil {
			return false, fmt.Errorf("read Store %s/%s: %w", store.Namespace, store.Name, err)
		}
		names := current.DrainedMembers()
		if slices.Contains(names, member) == drained {
			return false, nil
		}
		before := current.DeepCopy()
		if drained {
			names = append(names, member)
		} else {
			names = slices.DeleteFunc(names, func(name string) bool { return name == member })
		}
		setDrained(current, names)
		// With the version that was read: somebody else may drain another member at this moment.
		err = cluster.Patch(ctx, current, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("note on Store %s/%s that %s is drained (patch on stores): %w", store.Namespace, store.Name, member, err)
	}
	return true, nil
}

func setDrained(store *v1alpha1.Store, names []string) {
	if len(names) == 0 {
		delete(store.Annotations, v1alpha1.AnnotationDrained)
		return
	}
	if store.Annotations == nil {
		store.Annotations = map[string]string{}
	}
	store.Annotations[v1alpha1.AnnotationDrained] = strings.Join(names, ",")
}

// waitForDrain shows what is left until nothing is; an error if the member is not drained any more.
func waitForDrain(ctx context.Context, cluster *access.Cluster, out io.Writer, store *v1alpha1.Store, member string) error {
	follower := cluster.Follow(store)
	defer follower.Close()
	shown := &screen{out: out}
	return watch(ctx, drainInterval, func() (bool, error) {
		snapshot, err := follower.Look(ctx)
		if err != nil {
			return false, err
		}
		if snapshot.Cluster == nil {
			return false, shown.line("no answer at the moment: " + snapshot.ClusterError + "\n")
		}
		text, drained, err := snapshot.DrainProgress(member)
		if err != nil {
			return false, err
		}
		return drained, shown.line(text + "\n")
	})
}
