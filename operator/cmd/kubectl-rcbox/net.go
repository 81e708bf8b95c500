package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

// maxReleased bounds how many pods the annotation names.
const maxReleased = 64

func (p *plugin) netCommand() *cobra.Command {
	var form output
	command := &cobra.Command{
		Use:   "net [STORE]",
		Short: "Show masters' ports: interface, PCI address, MAC, IP, driver, link, pings",
		Long: `Shows the ports of a Store's masters: what Multus has attached, which addresses they have, and what the masters tell
of driver, link and round trips to their peers; pools of addresses, and which are in quarantine and why. What only the
masters know and do not tell is "not told".`,
		Example: `  kubectl rcbox net box
  kubectl rcbox net box -o json
  kubectl rcbox net check box
  kubectl rcbox net release box box-master-2-qrstv`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return p.showNet(command, argument(arguments, 0), form, func(_ context.Context, _ *access.Cluster, s *view.Snapshot) shownNet {
				return s.PortsOf()
			})
		},
	}
	form.bind(command)
	command.AddCommand(p.netCheckCommand(), p.netReleaseCommand())
	return command
}

// shownNet is what is shown, as text or JSON.
type shownNet interface{ Text(style view.Style) string }

func (p *plugin) showNet(
	command *cobra.Command, name string, form output, of func(context.Context, *access.Cluster, *view.Snapshot) shownNet,
) error {
	if err := form.check(command); err != nil {
		return err
	}
	cluster, err := p.connect(&p.flags)
	if err != nil {
		return err
	}
	store, err := cluster.Store(command.Context(), name)
	if err != nil {
		return err
	}
	snapshot, coordinator, err := cluster.LookAndAsk(command.Context(), store)
	if err != nil {
		return err
	}
	coordinator.Close()
	shown := of(command.Context(), cluster, snapshot)
	if form.isJSON() {
		err = writeJSON(command.OutOrStdout(), shown)
	} else {
		err = writeText(command.OutOrStdout(), shown.Text(styleOf(command.OutOrStdout())))
	}
	if checks, isList := shown.(view.Checks); err == nil && isList && checks.Failed() {
		return &exitError{code: exitFailed}
	}
	return err
}

func (p *plugin) netCheckCommand() *cobra.Command {
	var form output
	command := &cobra.Command{
		Use:   "check [STORE]",
		Short: "Go through what must hold for ports on a real cluster",
		Long: `Goes through what must hold for masters to have ports of their own: definitions, devices and huge pages of nodes, class
of pods, what was attached, addresses, links, NUMA nodes, pings; and lists what only somebody on the node can find out,
with the command for it. Exit code 1: something is not as it must be.`,
		Example: "  kubectl rcbox net check box",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return p.showNet(command, argument(arguments, 0), form,
				func(ctx context.Context, cluster *access.Cluster, s *view.Snapshot) shownNet {
					return s.NetChecks(definitionsOf(ctx, cluster, s.Store))
				})
		},
	}
	form.bind(command)
	return command
}

// definitionsOf reads the NetworkAttachmentDefinitions that a Store names; nil where none may be read.
func definitionsOf(ctx context.Context, cluster *access.Cluster, store *v1alpha1.Store) map[string]view.Definition {
	found := map[string]view.Definition{}
	for i := range store.Spec.Network.Attachments {
		name := network.Qualified(store.Spec.Network.Attachments[i].NetworkAttachmentDefinition, store.Namespace)
		namespace, bare, _ := strings.Cut(name, "/")
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(schema.GroupVersionKind{
			Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition",
		})
		err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: bare}, object)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil
		}
		config, _, _ := unstructured.NestedString(object.Object, "spec", "config")
		found[name] = view.Definition{ResourceName: object.GetAnnotations()["k8s.v1.cni.cncf.io/resourceName"], Config: config}
	}
	return found
}

func (p *plugin) netReleaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release STORE POD",
		Short: "Say that a pod that was lost sends nothing any more, so that its addresses may be given to others",
		Long: `Notes on the Store (annotation rcbox.dev/released-addresses) that a pod sends nothing any more: its machine is off for good,
or its port at the switch is. Its addresses leave quarantine then. If it is not so, two machines may send under one address:
of a machine that you only cannot reach, do not say so.`,
		Example: "  kubectl rcbox net release box box-master-2-qrstv",
		Args:    cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return release(command.Context(), cluster, command.OutOrStdout(), arguments[0], arguments[1])
		},
	}
}

func release(ctx context.Context, cluster *access.Cluster, out io.Writer, name, pod string) error {
	store, err := cluster.Store(ctx, name)
	if err != nil {
		return err
	}
	var addresses []string
	if store.Status.Network != nil {
		for _, entry := range store.Status.Network.Quarantined {
			if entry.Pod == pod {
				addresses = append(addresses, entry.IP)
			}
		}
	}
	if len(addresses) == 0 {
		return fmt.Errorf("pod %s has no address in quarantine: kubectl rcbox net %s shows which have", pod, store.Name)
	}
	// Those of before stay: a pod on a dead node is there as long as the node is.
	released := slices.DeleteFunc(store.ReleasedPods(), func(other string) bool { return other == pod })
	released = released[max(len(released)-maxReleased+1, 0):]
	before := store.DeepCopy()
	if store.Annotations == nil {
		store.Annotations = map[string]string{}
	}
	store.Annotations[v1alpha1.AnnotationReleasedAddresses] = strings.Join(append(released, pod), ",")
	// With the version that was read: somebody else may release another one at this moment.
	if err := cluster.Patch(ctx, store, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("note on Store %s/%s that pod %s sends nothing any more (patch on stores): %w",
			store.Namespace, store.Name, pod, err)
	}
	return writeText(out, strings.Join(addresses, ", ")+" may be given to others\n")
}
