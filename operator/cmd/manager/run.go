package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/controller"
	"rcbox.dev/rcbox/operator/internal/ownership"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

const (
	leaderElectionID = "rcbox-operator"
	recorderName     = "rcbox-operator"
	shutdownTimeout  = 15 * time.Second
)

type runOptions struct {
	storeImage      string
	namespace       string
	watchNamespaces []string
	allowed         facts.Allowed
	leaderElect     bool
	metricsAddress  string
	healthAddress   string
	pprofAddress    string
	humanLogs       bool
}

// What the leader election needs, in the operator's own namespace.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=rcbox-system,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=rcbox-system,resources=events,verbs=create;patch

func runCommand() *cobra.Command {
	var options runOptions
	command := &cobra.Command{
		Use:   "run",
		Short: "Run the operator until it is told to end",
		Example: `  # as the Helm chart runs it
  manager run --store-image rcbox/store:0.1.0 --leader-elect

  # against the cluster of the current kubectl context, for two namespaces only
  manager run --store-image rcbox/store:dev --namespace rcbox-system --watch-namespaces default,team-a`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return run(command, options) },
	}
	flags := command.Flags()
	flags.StringVar(&options.storeImage, "store-image", "",
		"image of the store for new Stores that name none; required. Another value changes no Store of which a process has run")
	flags.StringVar(&options.namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"namespace that the operator runs in; default: $POD_NAMESPACE")
	flags.StringSliceVar(&options.watchNamespaces, "watch-namespaces", nil,
		"namespaces whose Stores are managed; default: all")
	flags.StringSliceVar(&options.allowed.Capabilities, "allow-capabilities", nil,
		"capabilities that Stores may have, such as IPC_LOCK; default: none")
	flags.StringSliceVar(&options.allowed.EALArguments, "allow-eal-arguments", nil,
		"arguments of DPDK that Stores may give, whole or by the name before =, such as --vdev; default: none")
	flags.StringSliceVar(&options.allowed.NetworkProfiles, "allow-network-profiles", nil,
		"network profiles that Stores may have besides VF and Interface: WholePort; default: none")
	flags.BoolVar(&options.allowed.Overlays, "allow-overlays", false,
		"let Stores have overlays of pods (masters.pod.overlay, coordinator.pod.overlay), which can give pods the rights of their nodes")
	flags.BoolVar(&options.leaderElect, "leader-elect", false, "let only one of several replicas act, by a Lease in --namespace")
	flags.StringVar(&options.metricsAddress, "metrics-bind-address", ":8080", "where Prometheus metrics are served; 0 for nowhere")
	flags.StringVar(&options.healthAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served")
	flags.StringVar(&options.pprofAddress, "pprof-bind-address", "",
		"where Go's profiles are served, without authentication: a loopback address; default: nowhere")
	flags.BoolVar(&options.humanLogs, "human-logs", false, "write log lines for people instead of JSON")
	return command
}

func run(command *cobra.Command, options runOptions) error {
	if options.storeImage == "" {
		return errors.New("--store-image is required: it says which image a Store runs that names none")
	}
	if options.leaderElect && options.namespace == "" {
		return errors.New("--leader-elect needs --namespace (or $POD_NAMESPACE): the Lease is kept there")
	}
	setUpLogs(options.humanLogs)
	if err := limitMemory(os.Getenv("MEMORY_LIMIT_BYTES")); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find a cluster: %w", err)
	}
	manager, err := ctrl.NewManager(config, managerOptions(options))
	if err != nil {
		return fmt.Errorf("set up the operator: %w", err)
	}
	owned, err := setUpOwnership(manager, options)
	if err != nil {
		return err
	}
	reconciler := &controller.Reconciler{
		Client:       manager.GetClient(),
		Live:         manager.GetAPIReader(),
		Recorder:     manager.GetEventRecorder(recorderName),
		Dial:         admin.Dial,
		Listen:       admin.Watch,
		Now:          time.Now,
		DefaultImage: options.storeImage,
		Allowed:      options.allowed,
		Namespace:    options.namespace,
		NoteLooks:    v1alpha1.LookInterval,
		Holder:       holder(),
		Ownership:    owned,
	}
	if err := needsDefinitions(manager); err != nil {
		return err
	}
	if err := reconciler.SetupWithManager(command.Context(), manager); err != nil {
		return fmt.Errorf("set up the controller of Stores: %w", err)
	}
	if err := setUpRuns(manager, options.namespace, owned); err != nil {
		return err
	}
	if err := errors.Join(
		manager.AddHealthzCheck("ping", healthz.Ping),
		manager.AddReadyzCheck("no-other-operator-manages-the-stores", owned.Ready)); err != nil {
		return fmt.Errorf("set up the health checks: %w", err)
	}
	ctrl.Log.Info("rcbox operator", "version", version, "storeImage", options.storeImage)
	err = manager.Start(command.Context())
	if err != nil {
		err = fmt.Errorf("run the operator: %w", err)
	}
	return errors.Join(err, leaveNamespace(config, options.namespace))
}

// setUpOwnership has one operator at a time manage the Stores of a namespace.
func setUpOwnership(manager ctrl.Manager, options runOptions) (*ownership.Leases, error) {
	identity := "namespace " + options.namespace
	if options.namespace == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("find a name for an operator without --namespace: %w", err)
		}
		identity = "no namespace, on host " + host
	}
	leases := &ownership.Leases{
		Client: manager.GetClient(), Live: manager.GetAPIReader(), Now: time.Now, Identity: identity, Elected: manager.Elected(),
	}
	if err := manager.Add(leases); err != nil {
		return nil, fmt.Errorf("set up the Leases of Stores' namespaces: %w", err)
	}
	return leases, nil
}

// needsDefinitions refuses to start without the definitions of StoreOperations and StoreMembers: without them, the operator would not know
// of orders that are in force, and of what is on record of each master.
func needsDefinitions(manager ctrl.Manager) error {
	for kind, plural := range map[string]string{"StoreOperation": "storeoperations", "StoreMember": "storemembers"} {
		kind := v1alpha1.GroupVersion.WithKind(kind)
		_, err := manager.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case meta.IsNoMatchError(err):
			return fmt.Errorf("there is no CustomResourceDefinition %s.rcbox.dev: install it, which comes with the operator's "+
				"chart and manifests, before this version of the operator", plural)
		case err != nil:
			return fmt.Errorf("look for the definition of %s: %w", plural, err)
		}
	}
	return nil
}

// setUpRuns looks after ClusterPerfs, if their definition is there: who upgrades the operator without the definitions still has his Stores
// looked after.
func setUpRuns(manager ctrl.Manager, namespace string, owned *ownership.Leases) error {
	kind := v1alpha1.GroupVersion.WithKind("ClusterPerf")
	switch _, err := manager.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); {
	case meta.IsNoMatchError(err):
		ctrl.Log.Info("ClusterPerfs are not looked after: install their CustomResourceDefinition and restart the operator")
		return nil
	case err != nil:
		return fmt.Errorf("look for the definition of ClusterPerfs: %w", err)
	}
	reconciler := &controller.PerfReconciler{
		Client:    manager.GetClient(),
		Live:      manager.GetAPIReader(),
		Recorder:  manager.GetEventRecorder(recorderName),
		Clients:   controller.NewHTTPPerfReader(),
		Now:       time.Now,
		Namespace: namespace,
		Ownership: owned,
	}
	if err := reconciler.SetupWithManager(manager); err != nil {
		return fmt.Errorf("set up the controller of ClusterPerfs: %w", err)
	}
	return nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two types of one name in this program
		}
	}
	return scheme
}

func managerOptions(options runOptions) ctrl.Options {
	// Of what is not the operator's own, nothing is kept in memory.
	own := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue})}
	// Of pods, claims and Stores, which there are many of, who owns which field is never asked.
	pods := own
	pods.Transform = cache.TransformStripManagedFields()
	var namespaces map[string]cache.Config
	if len(options.watchNamespaces) > 0 {
		namespaces = map[string]cache.Config{}
		for _, namespace := range options.watchNamespaces {
			namespaces[namespace] = cache.Config{}
		}
	}
	timeout := shutdownTimeout
	return ctrl.Options{
		Scheme: newScheme(),
		Cache: cache.Options{
			DefaultNamespaces: namespaces,
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.Store{}:               {Transform: cache.TransformStripManagedFields()},
				&v1alpha1.ClusterPerf{}:         {Transform: cache.TransformStripManagedFields()},
				&v1alpha1.StoreOperation{}:      {Transform: cache.TransformStripManagedFields()},
				&v1alpha1.StoreMember{}:         {Transform: cache.TransformStripManagedFields()},
				&corev1.Pod{}:                   pods,
				&corev1.PersistentVolumeClaim{}: pods,
				&corev1.Service{}:               own,
				&networkingv1.NetworkPolicy{}:   own,
				&policyv1.PodDisruptionBudget{}: own,
				&corev1.ServiceAccount{}:        own,
				&rbacv1.Role{}:                  own,
				&rbacv1.RoleBinding{}:           own,
				&coordinationv1.Lease{}:         own,
				&discoveryv1.EndpointSlice{}:    own,
			},
		},
		Metrics:                 metricsserver.Options{BindAddress: options.metricsAddress},
		HealthProbeBindAddress:  options.healthAddress,
		PprofBindAddress:        options.pprofAddress,
		LeaderElection:          options.leaderElect,
		LeaderElectionID:        leaderElectionID,
		LeaderElectionNamespace: options.namespace,
		// The manager ends right after it has let go of the Lease, so that a successor need not wait for it to run out.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &timeout,
	}
}

func setUpLogs(human bool) {
	var handler slog.Handler = slog.NewJSONHandler(os.Stderr, nil)
	if human {
		handler = slog.NewTextHandler(os.Stderr, nil)
	}
	logger := logr.FromSlogHandler(handler)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}

// limitMemory has garbage collected before the container's limit is met: the heap is not all that counts against it.
func limitMemory(containerLimitBytes string) error {
	if containerLimitBytes == "" {
		return nil
	}
	limit, err := strconv.ParseInt(containerLimitBytes, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("MEMORY_LIMIT_BYTES is %q: set it to a number of bytes, or leave it out", containerLimitBytes)
	}
	debug.SetMemoryLimit(limit / 10 * 9)
	return nil
}

// holder names this process, as its pod is called.
func holder() string {
	name, err := os.Hostname()
	if err != nil {
		return "rcbox-operator"
	}
	return name
}
