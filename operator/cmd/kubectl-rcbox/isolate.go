package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// patchAttempts is how often a Store is patched that others change at the same time.
const patchAttempts = 5

func (p *plugin) isolateCommand() *cobra.Command {
	var undo bool
	command := &cobra.Command{
		Use:   "isolate STORE MEMBER|NODE",
		Short: "Have a node get no more pods of a Store, and the master there leave it",
		Long: `Has a node that is broken but alive (a slow disk, a network that loses packets) get no more pods of this Store. With
copies, the operator drains the master there, so that nothing is lost and no key waits, and gives it a pod elsewhere.
MEMBER is a name, or its number, and stands for the node that its pod is on.

The order is noted on the Store (annotation rcbox.dev/isolated), and stays until --undo. Other Stores and pods are not
concerned; for those there is kubectl cordon.`,
		Example: `  kubectl rcbox isolate box box-master-2
  kubectl rcbox isolate box worker-7
  kubectl rcbox isolate box worker-7 --undo`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return isolate(command.Context(), cluster, command.OutOrStdout(), arguments[0], arguments[1], undo)
		},
	}
	command.Flags().BoolVar(&undo, "undo", false, "the node may have pods again")
	return command
}

func isolate(ctx context.Context, cluster *access.Cluster, out io.Writer, name, wanted string, undo bool) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	node, member, err := nodeFor(ctx, cluster, store, wanted)
	if err != nil {
		return err
	}
	if member == "" && !undo {
		if err := mustBeNode(ctx, cluster, node); err != nil {
			return err
		}
	}
	changed, err := noteIsolated(ctx, cluster, store, node, !undo)
	switch {
	case err != nil:
		return err
	case undo && !changed:
		return writeText(out, node+" was not isolated\n")
	case undo:
		return writeText(out, node+" may have pods of "+store.Name+" again\n")
	case !changed:
		return writeText(out, node+" is isolated already\n")
	}
	text := node + " gets no more pods of " + store.Name
	switch {
	case member == "":
	case store.Copies() == 0:
		text += fmt.Sprintf("; %s stays there, for masters without copies are not moved", member)
	default:
		text += fmt.Sprintf(", and %s leaves it; kubectl rcbox status shows how far it is", member)
	}
	return writeText(out, text+"\n")
}

// nodeFor gives the node that a member, its number or a node's name stands for, and the member whose pod is there, if there is one.
func nodeFor(ctx context.Context, cluster *access.Cluster, store *v1alpha1.Store, wanted string) (node, member string, err error) {
	if ordinal, err := strconv.Atoi(wanted); err == nil && ordinal >= 0 {
		wanted = v1alpha1.MasterMember(store.Name, ordinal)
	}
	pods := &corev1.PodList{}
	labels := client.MatchingLabels{v1alpha1.LabelStore: store.Name, v1alpha1.LabelComponent: v1alpha1.ComponentMaster}
	if err := cluster.List(ctx, pods, client.InNamespace(store.Namespace), labels); err != nil {
		return "", "", fmt.Errorf("list the pods of Store %s/%s: %w", store.Namespace, store.Name, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
			continue
		}
		if of := pod.Labels[v1alpha1.LabelMember]; of == wanted || pod.Spec.NodeName == wanted {
			return pod.Spec.NodeName, of, nil
		}
	}
	if _, isMember := v1alpha1.MasterOrdinal(store.Name, wanted); isMember {
		return "", "", fmt.Errorf("%s has no pod on any node: name the node", wanted)
	}
	if wrong := validation.IsDNS1123Subdomain(wanted); len(wrong) > 0 {
		return "", "", fmt.Errorf("%q is neither a member nor a node: %s", wanted, strings.Join(wrong, "; "))
	}
	return wanted, "", nil
}

// mustBeNode is an error for a node that is not there: a name that was mistyped isolates nothing. Without the right to read nodes nobody
// knows, and nothing is done.
func mustBeNode(ctx context.Context, cluster *access.Cluster, name string) error {
	switch err := cluster.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no node %s, and no member of that name: kubectl get nodes has their names", name)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("no master is on %s, and you have no right to read whether there is such a node (get on nodes): "+
			"name a member: %w",
			name, err)
	case err != nil:
		return fmt.Errorf("read node %s: %w", name, err)
	}
	return nil
}

// noteIsolated adds a node to those that the Store keeps away from, or takes it from there; says whether that changed anything.
func noteIsolated(ctx context.Context, cluster *access.Cluster, store *v1alpha1.Store, node string, isolated bool) (bool, error) {
	var err error
	for range patchAttempts {
		current := &v1alpha1.Store{}
		if err = cluster.Get(ctx, client.ObjectKeyFromObject(store), current); err != nil {
			return false, fmt.Errorf("read Store %s/%s: %w", store.Namespace, store.Name, err)
		}
		names := current.IsolatedNodes()
		switch {
		case slices.Contains(names, node) == isolated:
			return false, nil
		case isolated && len(names) == v1alpha1.MaxIsolated:
			return false, fmt.Errorf("%d nodes are isolated, and there can be no more: take one back with --undo, or use "+
				"placement.nodeSelector: %s", len(names), strings.Join(names, ", "))
		case isolated:
			names = append(names, node)
		default:
			names = slices.DeleteFunc(names, func(name string) bool { return name == node })
		}
		before := current.DeepCopy()
		if current.Annotations == nil {
			current.Annotations = map[string]string{}
		}
		current.Annotations[v1alpha1.AnnotationIsolated] = strings.Join(names, ",")
		if len(names) == 0 {
			delete(current.Annotations, v1alpha1.AnnotationIsolated)
		}
		// With the version that was read: somebody else may isolate another node at this moment.
		err = cluster.Patch(ctx, current, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("note on Store %s/%s that %s is isolated (patch on stores): %w", store.Namespace, store.Name, node, err)
	}
	return true, nil
}
