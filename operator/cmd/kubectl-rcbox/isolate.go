package main

import (
	"context"
	"fmt"
	"io"
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

func (p *plugin) isolateCommand() *cobra.Command {
	var undo bool
	command := &cobra.Command{
		Use:   "isolate STORE MEMBER|NODE",
		Short: "Have a node get no more pods of a Store, and the master there leave it",
		Long: `Has a node that is broken but alive (a slow disk, a network that loses packets) get no more pods of this Store. With
copies, the operator drains the master there, so that nothing is lost and no key waits, and gives it a pod elsewhere.
MEMBER is a name, or its number, and stands for the node that its pod is on.

The order is a StoreOperation, and stays in force until --undo deletes that. Other Stores and pods are not concerned; for
those there is kubectl cordon.`,
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
	ordered, err := openOperations(ctx, cluster, store, func(spec *v1alpha1.StoreOperationSpec) bool {
		return spec.Type == v1alpha1.OperationIsolate && spec.Isolate.Node == node
	})
	switch {
	case err != nil:
		return err
	case undo && len(ordered) == 0:
		return writeText(out, node+" was not isolated\n")
	case undo:
		if err := withdraw(ctx, cluster, ordered); err != nil {
			return err
		}
		return writeText(out, node+" may have pods of "+store.Name+" again\n")
	case len(ordered) > 0:
		return writeText(out, node+" is isolated already: StoreOperation "+ordered[0].Name+"\n")
	}
	operation, err := order(ctx, cluster, store, v1alpha1.StoreOperationSpec{
		Type: v1alpha1.OperationIsolate, Isolate: &v1alpha1.IsolateOperation{Node: node},
	})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("StoreOperation %s is created: %s gets no more pods of %s", operation.Name, node, store.Name)
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
