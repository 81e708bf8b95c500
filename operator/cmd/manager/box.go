package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/bmc/redfish"
	"rcbox.dev/rcbox/operator/internal/box/controller"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
	"rcbox.dev/rcbox/operator/internal/box/switches"
	"rcbox.dev/rcbox/operator/internal/boxhost"
)

const boxName = "rcbox-box"

type boxOptions struct {
	namespace      string
	leaderElect    bool
	metricsAddress string
	healthAddress  string
	panelAddress   string
	hostSettings   string
	humanLogs      bool
	joinAPIServer  string
	joinClusterDNS []string
	subresources   subresourcesOptions
}

func boxCommand() *cobra.Command {
	var options boxOptions
	command := &cobra.Command{
		Use:   "box",
		Short: "Run the box controller, which looks after Chassis and Servers, until it is told to end",
		Long: `Runs the box controller: it makes the Servers of each Chassis, asks their management controllers whether they are on,
and switches them as their specs say. There is one in a cluster. It reads only the Secrets that a Chassis names, in its own
namespace. With --subresources-bind-address it also serves the consoles of Servers, to the Kubernetes API server alone.`,
		Example: `  # as the Helm chart runs it, with box.enabled
  manager box --leader-elect --subresources-bind-address=:8443 --service=rcbox-box

  # against the cluster of the current kubectl context
  manager box --namespace rcbox-system --human-logs`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return runBox(command, options) },
	}
	flags := command.Flags()
	flags.StringVar(&options.namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"namespace of the Secrets that Chassis name; default: $POD_NAMESPACE")
	flags.BoolVar(&options.leaderElect, "leader-elect", false, "let only one of several box controllers act, by a Lease in --namespace")
	flags.StringVar(&options.metricsAddress, "metrics-bind-address", ":8080", "where Prometheus metrics are served; 0 for nowhere")
	flags.StringVar(&options.healthAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served")
	flags.StringVar(&options.panelAddress, "panel-bind-address", "", "where the front panel is served, read-only and without "+
		"authentication: a loopback address, which kubectl port-forward reaches; default: nowhere")
	flags.StringVar(&options.hostSettings, "host-settings", "", "file with what box hosts serve besides what follows from Chassis and "+
		"Servers, as the chart writes it; default: there are no box hosts")
	flags.StringVar(&options.joinAPIServer, "join-api-server", "", "URL at which machines that boot from the network reach the Kubernetes "+
		"API server, such as https://192.168.3.254:6443; default: no such machine becomes a node")
	flags.StringSliceVar(&options.joinClusterDNS, "join-cluster-dns", nil, "resolvers of pods on such nodes, such as 10.96.0.10; default: "+
		"the Service kube-dns of kube-system")
	flags.BoolVar(&options.humanLogs, "human-logs", false, "write log lines for people instead of JSON")
	options.subresources.bind(flags)
	return command
}

func runBox(command *cobra.Command, options boxOptions) error {
	if options.namespace == "" {
		return errors.New("--namespace (or $POD_NAMESPACE) is required: the Secrets that Chassis name are read there")
	}
	setUpLogs(options.humanLogs)
	if err := limitMemory(os.Getenv("MEMORY_LIMIT_BYTES")); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find a cluster: %w", err)
	}
	timeout := shutdownTimeout
	stripped := cache.ByObject{Transform: cache.TransformStripManagedFields()}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: newScheme(),
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.Chassis{}: stripped, &v1alpha1.Server{}: stripped, &v1alpha1.Store{}: stripped,
			&v1alpha1.NodeFence{}: stripped, &v1alpha1.StoreMember{}: stripped,
			&certificatesv1.CertificateSigningRequest{}: {
				Field:     fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeAPIServerClientKubeletSignerName),
				Transform: cache.TransformStripManagedFields(),
			},
			&coordinationv1.Lease{}: {
				Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}}, Transform: cache.TransformStripManagedFields(),
			},
		}},
		Metrics:                       metricsserver.Options{BindAddress: options.metricsAddress},
		HealthProbeBindAddress:        options.healthAddress,
		LeaderElection:                options.leaderElect,
		LeaderElectionID:              boxName,
		LeaderElectionNamespace:       options.namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &timeout,
	})
	if err != nil {
		return fmt.Errorf("set up the box controller: %w", err)
	}
	sessions := pool.New(pool.Config{Dial: dial, DialConsole: dialConsole})
	defer sessions.Close()
	clock := poll.NewClock()
	reconciler := &controller.Reconciler{
		Client:    manager.GetClient(),
		Live:      manager.GetAPIReader(),
		Recorder:  manager.GetEventRecorder(boxName),
		Poller:    &poll.Poller{Pool: sessions, Intervals: poll.DefaultIntervals, Clock: clock},
		Clock:     clock,
		Namespace: options.namespace,
		Times:     plan.DefaultTimes,
		Switches:  &switches.Keeper{Dial: switches.Dial, Now: clock.Now},
		APIServer: addressOf(config.Host),
	}
	if options.hostSettings != "" {
		settings, err := readHostSettings(options.hostSettings)
		if err != nil {
			return err
		}
		reconciler.Hosts = &controller.Hosts{
			Client: manager.GetClient(), Live: manager.GetAPIReader(), Namespace: options.namespace, Settings: settings,
		}
	}
	if err := errors.Join(reconciler.SetupWithManager(manager), manager.AddHealthzCheck("ping", healthz.Ping),
		manager.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return fmt.Errorf("set up the box controller: %w", err)
	}
	consoles := &controller.Consoles{Client: manager.GetClient(), Poller: reconciler.Poller, Pool: sessions}
	if err := options.subresources.setUp(manager, options.namespace, consoles); err != nil {
		return err
	}
	vlans := &controller.VLANs{
		Client: manager.GetClient(), Recorder: manager.GetEventRecorder(boxName), Poller: reconciler.Poller, Dial: dialVLAN, Now: time.Now,
	}
	if err := vlans.SetupWithManager(manager); err != nil {
		return err
	}
	if err := setUpJoins(manager, &options); err != nil {
		return err
	}
	if err := setUpPanel(manager, options.panelAddress); err != nil {
		return err
	}
	ctrl.Log.Info("rcbox box controller", "version", version)
	if err := manager.Start(command.Context()); err != nil {
		return fmt.Errorf("run the box controller: %w", err)
	}
	return nil
}

// readHostSettings reads what somebody has written about box hosts.
func readHostSettings(path string) (*boxhost.Settings, error) {
	data, err := os.ReadFile(path) //nolint:gosec // a path that whoever starts the program chooses
	if err != nil {
		return nil, fmt.Errorf("read --host-settings: %w", err)
	}
	settings, err := boxhost.DecodeSettings(data)
	if err != nil {
		return nil, fmt.Errorf("read --host-settings %s: %w", path, err)
	}
	return settings, nil
}

// addressOf is the address in the URL of an API server; not valid if the URL has a name.
func addressOf(host string) netip.Addr {
	if at, err := url.Parse(host); err == nil && at.Hostname() != "" {
		host = at.Hostname()
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap()
}

// dial opens a session with a controller in its own language.
func dial(ctx context.Context, access bmc.Access) (bmc.BMC, error) {
	told := func() {
		ctrl.Log.Info("a BMC that knew the previous password has the new one now", "address", access.Address.String())
	}
	switch access.Protocol {
	case bmc.IPMI:
		return ipmi.DialRotating(ctx, access, told)
	case bmc.Redfish:
		return redfish.Dialer{}.DialRotating(ctx, access, told)
	}
	return nil, fmt.Errorf("%q is no protocol of management controllers", access.Protocol)
}

// dialVLAN opens a session in which the VLAN of a BMC can be set.
func dialVLAN(ctx context.Context, access bmc.Access) (controller.VLANSession, error) {
	if access.Protocol != bmc.IPMI {
		return nil, &bmc.UnsupportedError{
			Address: access.Address, What: "VLANs", Detail: "rcbox sets them by IPMI; leave out spec.management.vlan of the Chassis",
		}
	}
	return ipmi.DialAdministrator(ctx, access)
}

// dialConsole opens a session for a server's console alone.
func dialConsole(ctx context.Context, access bmc.Access, isForced bool) (io.ReadWriteCloser, error) {
	if access.Protocol != bmc.IPMI {
		return nil, controller.NoConsole(access)
	}
	return ipmi.DialConsole(ctx, access, isForced)
}
