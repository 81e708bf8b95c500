// The supervisor of a box host: the program of images/boxhost.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"rcbox.dev/rcbox/operator/internal/box/join"
	"rcbox.dev/rcbox/operator/internal/boxhost/supervisor"
)

type options struct {
	supervisor.Config

	namespace, node, desired, report, tokens string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // the signals end with the process
	}
}

func command() *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   "boxhost --interface NAME",
		Short: "Serve DHCP, DNS, network boot, NFS and SSH to the servers of a box, at one interface",
		Long: `Renders what the box controller has written into ConfigMap rcbox-boxhost as the configuration of dnsmasq, nftables,
nfs-ganesha and sshd, has these programs check it, and runs them. It answers at the IPv4 address of one interface only.
A configuration that is refused is reported (/readyz, the log, metric rcbox_boxhost_configuration_refused), and the one before
is served on.`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Context(), o) },
	}
	flags := command.Flags()
	flags.StringVar(&o.Interface, "interface", "", "the interface in the network of servers; no other one is served")
	flags.StringVar(&o.Run, "run", "/run/rcbox-boxhost", "folder of rendered files")
	flags.StringVar(&o.State, "state", "/var/lib/rcbox-boxhost", "folder of leases, exports and host keys, which outlives a restart")
	flags.StringVar(&o.TFTP, "tftp", "/usr/lib/ipxe", "folder of first programs for PXE")
	flags.StringVar(&o.Images, "images", "/srv/rcbox-image", "folder of the boot image: kernel, initrd, disk, manifest.json, manifest.sig")
	flags.StringVar(&o.User, "user", "box", "who may log in by SSH")
	flags.StringVar(&o.Health, "health-bind-address", "127.0.0.1:9467", "where /livez, /readyz and /metrics are served")
	flags.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the ConfigMaps; default: $POD_NAMESPACE")
	flags.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "name under which this host reports; default: $NODE_NAME")
	flags.StringVar(&o.desired, "desired", "", "file with what is to be served, in place of the ConfigMap")
	flags.StringVar(&o.tokens, "join-file", "", "file with the tokens by which servers join the cluster; default: none may join")
	flags.StringVar(&o.report, "report", "", "with --desired: file for the report of this host")
	return command
}

func run(ctx context.Context, o *options) error {
	if o.Interface == "" {
		return errors.New("--interface is required: only that interface is served")
	}
	o.Log = logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, nil))
	klog.SetLogger(o.Log)
	found, err := user.Lookup(o.User)
	if err != nil {
		return fmt.Errorf("find the user who logs in by SSH (--user): %w", err)
	}
	number, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return fmt.Errorf("user %s has the number %q: %w", o.User, found.Uid, err)
	}
	o.UserID = uint32(number)
	if err := errors.Join(o.connect(o.Log), o.setUpJoin()); err != nil {
		return err
	}
	if err := supervisor.New(o.Config).Serve(ctx); err != nil {
		return fmt.Errorf("serve at interface %s: %w", o.Interface, err)
	}
	return nil
}

// setUpJoin has servers that boot from the network get their tokens.
func (o *options) setUpJoin() error {
	if o.tokens == "" {
		return nil
	}
	claims := filepath.Join(o.State, "join-claims")
	if err := os.MkdirAll(claims, 0o700); err != nil {
		return fmt.Errorf("make the folder of tokens that were given: %w", err)
	}
	o.Join = &join.Handler{File: o.tokens, Claims: claims, Now: time.Now, Log: func(question join.Question, node string, refusal error) {
		why := ""
		if refusal != nil {
			why = refusal.Error()
		}
		o.Log.Info("a machine asks to join", "mac", fmt.Sprintf("%.64s", question.MAC), "uuid", fmt.Sprintf("%.64s", question.UUID),
			"node", node, "refused", why)
	}}
	return nil
}

// connect finds out where it is said what is to be served.
func (o *options) connect(log logr.Logger) error {
	if o.desired != "" {
		o.Desired = supervisor.FromFile(o.desired, log)
		if o.report != "" {
			o.Report = supervisor.ToFile(o.report)
		}
		return nil
	}
	if o.namespace == "" || o.node == "" {
		return errors.New("--namespace and --node (or $POD_NAMESPACE and $NODE_NAME) are required, or --desired")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	o.Desired = supervisor.FromConfigMap(client, o.namespace)
	o.Report = supervisor.ToConfigMap(client, o.namespace, o.node)
	return nil
}
