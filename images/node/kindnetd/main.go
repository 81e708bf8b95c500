// Command kindnetd stands in for kind's own kindnetd, which cannot be built as
// a Go module dependency. It does what a single-stack IPv4 kind cluster needs
// and nothing more:
//
//   - it writes this node's CNI configuration (ptp + host-local + portmap);
//   - it keeps one route per other node: its pod subnet via its internal address;
//   - it masquerades what pods send to anywhere outside the pod subnet.
//
// It enforces no NetworkPolicy. Policies are accepted by the API server and
// have no effect; a test of a policy's effect must not run on it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// resync bounds how long a route or rule that someone else deleted stays away.
const resync = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("kindnetd (stand-in) stopped", "error", err)
		os.Exit(1)
	}
}

// settings are what kind's manifest passes in the environment.
type settings struct {
	hostIP       string // this node's address, by which it finds itself among the nodes
	podSubnet    string // the cluster's pod subnet, CIDR
	controlPlane string // host:port of the API server; empty: the in-cluster Service
}

func settingsFromEnv() (settings, error) {
	s := settings{
		hostIP:       os.Getenv("HOST_IP"),
		podSubnet:    os.Getenv("POD_SUBNET"),
		controlPlane: os.Getenv("CONTROL_PLANE_ENDPOINT"),
	}
	if net.ParseIP(s.hostIP).To4() == nil {
		return s, fmt.Errorf("HOST_IP=%q is not an IPv4 address; this stand-in serves IPv4 clusters only", s.hostIP)
	}
	if _, _, err := net.ParseCIDR(s.podSubnet); err != nil {
		return s, fmt.Errorf("POD_SUBNET=%q is not one CIDR: %w", s.podSubnet, err)
	}
	return s, nil
}

func run(ctx context.Context) error {
	s, err := settingsFromEnv()
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	if s.controlPlane != "" {
		// The Service address works only once kube-proxy runs; it may start after us.
		config.Host = "https://" + s.controlPlane
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}

	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // one pending pass covers every change so far
		}
	}
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.Informer().HasSynced) {
		return errors.New("stopped before the list of nodes arrived")
	}

	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for {
		var list []*corev1.Node
		for _, o := range nodes.Informer().GetStore().List() {
			list = append(list, o.(*corev1.Node))
		}
		apply(plan(s.hostIP, list), s.podSubnet)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}

// apply makes the node match the network that was planned. Each failure is
// logged and met again by the next pass.
func apply(want network, podSubnet string) {
	if want.ownSubnet != "" {
		if err := writeCNIConfig(want.ownSubnet); err != nil {
			slog.Error("CNI configuration", "error", err)
		}
	}
	if err := applyRoutes(want.routes); err != nil {
		slog.Error("routes", "error", err)
	}
	if err := applyMasquerade(podSubnet); err != nil {
		slog.Error("masquerading", "error", err)
	}
}
