// Package access is the plugin's way to a cluster: with its user's rights, and nothing else.
package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/members"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
)

const (
	// The rate at which a command asks the API server; client-go's own would have a report take minutes.
	queriesPerSecond = 50
	queriesAtOnce    = 100
)

// Flags say which cluster, as kubectl's do.
type Flags struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// Bind adds them to a command and those below it.
func (f *Flags) Bind(command *cobra.Command) {
	flags := command.PersistentFlags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "path of the kubeconfig; default: $KUBECONFIG, ~/.kube/config")
	all := clientcmd.RecommendedConfigOverrideFlags("")
	named := clientcmd.ConfigOverrideFlags{CurrentContext: all.CurrentContext, Timeout: all.Timeout}
	named.ContextOverrideFlags = clientcmd.ContextOverrideFlags{
		ClusterName: all.ContextOverrideFlags.ClusterName, AuthInfoName: all.ContextOverrideFlags.AuthInfoName,
		Namespace: all.ContextOverrideFlags.Namespace,
	}
	named.ContextOverrideFlags.Namespace.ShortName = "n"
	named.AuthOverrideFlags.Impersonate = all.AuthOverrideFlags.Impersonate
	named.AuthOverrideFlags.ImpersonateGroups = all.AuthOverrideFlags.ImpersonateGroups
	clientcmd.BindOverrideFlags(&f.overrides, flags, named)
}

// Cluster is a Kubernetes cluster as its user sees it.
type Cluster struct {
	client.Client

	Config    *rest.Config
	Namespace string
	Now       func() time.Time
}

// Connect finds the cluster that the flags mean.
func (f *Flags) Connect() (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find a cluster: %w", err)
	}
	config.QPS, config.Burst = queriesPerSecond, queriesAtOnce
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("find a namespace: %w", err)
	}
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	kubernetes, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &Cluster{Client: kubernetes, Config: config, Namespace: namespace, Now: time.Now}, nil
}

// Scheme has the kinds that the plugin reads.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("set up the kinds: %w", err)
	}
	return scheme, nil
}

// Get is the client's. Texts that it reads are made plain: many may write into objects, and the plugin shows it.
func (c *Cluster) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	defer plain.Clean(object, plain.Lines)
	return c.Client.Get(ctx, key, object, options...) //nolint:wrapcheck // whoever asks says what for
}

// List is the client's; see Get.
func (c *Cluster) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	defer plain.Clean(list, plain.Lines)
	return c.Client.List(ctx, list, options...) //nolint:wrapcheck // likewise
}

// Patch is the client's; see Get. A merge patch has only what its maker has changed.
func (c *Cluster) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	defer plain.Clean(object, plain.Lines)
	return c.Client.Patch(ctx, object, patch, options...) //nolint:wrapcheck // likewise
}

// Create is the client's; see Get.
func (c *Cluster) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	defer plain.Clean(object, plain.Lines)
	return c.Client.Create(ctx, object, options...) //nolint:wrapcheck // likewise
}

// Store finds the named Store of the namespace; without a name the only one that there is.
func (c *Cluster) Store(ctx context.Context, name string) (*v1alpha1.Store, error) {
	if name != "" {
		store := &v1alpha1.Store{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, store); err != nil {
			return nil, explain(err, "read Store %s/%s", c.Namespace, name)
		}
		return store, nil
	}
	stores := &v1alpha1.StoreList{}
	if err := c.List(ctx, stores, client.InNamespace(c.Namespace)); err != nil {
		return nil, explain(err, "list the Stores of namespace %s", c.Namespace)
	}
	switch len(stores.Items) {
	case 0:
		return nil, fmt.Errorf("there is no Store in namespace %s; kubectl get stores -A shows where there are some", c.Namespace)
	case 1:
		return &stores.Items[0], nil
	}
	names := make([]string, 0, len(stores.Items))
	for i := range stores.Items {
		names = append(names, stores.Items[i].Name)
	}
	return nil, fmt.Errorf("there are %d Stores in namespace %s: name one of %s", len(names), c.Namespace, strings.Join(names, ", "))
}

// Stores are all of the namespace.
func (c *Cluster) Stores(ctx context.Context) ([]v1alpha1.Store, error) {
	stores := &v1alpha1.StoreList{}
	if err := c.List(ctx, stores, client.InNamespace(c.Namespace)); err != nil {
		return nil, explain(err, "list the Stores of namespace %s", c.Namespace)
	}
	return stores.Items, nil
}

// Look reads what Kubernetes knows of a Store.
func (c *Cluster) Look(ctx context.Context, store *v1alpha1.Store) (*view.Snapshot, error) {
	snapshot := &view.Snapshot{Now: c.Now(), Store: store}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(store.Namespace), client.MatchingLabels{v1alpha1.LabelStore: store.Name}); err != nil {
		return nil, explain(err, "list the pods of Store %s/%s", store.Namespace, store.Name)
	}
	snapshot.Pods = pods.Items
	// Where StoreMembers may not be read, masters are shown as the coordinator and their pods have them.
	if err := members.Join(ctx, c, store); err != nil && !apierrors.IsForbidden(err) {
		return nil, explain(err, "list the members of Store %s/%s", store.Namespace, store.Name)
	}
	snapshot.LookedAt = c.lookedAt(ctx, store)
	nodes := &corev1.NodeList{}
	switch err := c.List(ctx, nodes); {
	case apierrors.IsForbidden(err):
		// Then failure domains are what the processes say, and slots without a member are not shown.
	case err != nil:
		return nil, explain(err, "list the nodes")
	default:
		snapshot.Nodes = map[string]*corev1.Node{}
		for i := range nodes.Items {
			snapshot.Nodes[nodes.Items[i].Name] = &nodes.Items[i]
		}
	}
	return snapshot, nil
}

// lookedAt is when the operator looked at the Store last, by its Lease; zero where that may not be read, or is not there. That
// the status was written long ago says nothing: it is written where something has changed.
func (c *Cluster) lookedAt(ctx context.Context, store *v1alpha1.Store) time.Time {
	lease := &coordinationv1.Lease{}
	err := c.Get(ctx, client.ObjectKey{Namespace: store.Namespace, Name: v1alpha1.LookLease(store.Name)}, lease)
	if err == nil && lease.Spec.RenewTime != nil {
		return lease.Spec.RenewTime.Time
	}
	return time.Time{}
}

// LookAndAsk is Look with the coordinator's answer, or why there was none. The coordinator is to be closed; it is nil where none
// answered.
func (c *Cluster) LookAndAsk(ctx context.Context, store *v1alpha1.Store) (*view.Snapshot, *Coordinator, error) {
	snapshot, err := c.Look(ctx, store)
	if err != nil {
		return nil, nil, err
	}
	coordinator, refused := c.Coordinator(ctx, snapshot.Pods)
	if coordinator == nil {
		snapshot.ClusterError = plain.Lines(refused.Error())
		return snapshot, nil, nil
	}
	snapshot.Cluster, snapshot.LeaderPod = coordinator.Last, coordinator.Pod
	return snapshot, coordinator, nil
}

// explain adds the missing right to a refusal for want of it.
func explain(err error, format string, arguments ...any) error {
	what := fmt.Sprintf(format, arguments...)
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: you lack a right (docs/kubectl-rcbox.md lists which are needed): %w", what, err)
}

// coordinators are the pods to ask, ready ones first: standbys that could lead are ready, too.
func coordinators(pods []corev1.Pod) []*corev1.Pod {
	var ready, others []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[v1alpha1.LabelComponent] != v1alpha1.ComponentCoordinator || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		isReady := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
		if isReady && pod.DeletionTimestamp == nil {
			ready = append(ready, pod)
		} else {
			others = append(others, pod)
		}
	}
	return append(ready, others...)
}
