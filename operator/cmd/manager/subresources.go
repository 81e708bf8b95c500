package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"rcbox.dev/rcbox/operator/internal/box/aggregation"
	"rcbox.dev/rcbox/operator/internal/box/consoles"
	"rcbox.dev/rcbox/operator/internal/box/controller"
	"rcbox.dev/rcbox/operator/internal/box/subresources"
)

// nowhere is the address of what is not served, as for controller-runtime's metrics.
const nowhere = "0"

// subresourcesOptions say where the aggregated API is served.
type subresourcesOptions struct {
	bindAddress, advertiseAddress, service string
}

func (o *subresourcesOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.bindAddress, "subresources-bind-address", nowhere,
		"where the API subresources.rcbox.dev (consoles) is served to the Kubernetes API server; 0 for nowhere")
	flags.StringVar(&o.advertiseAddress, "advertise-address", os.Getenv("POD_IP"),
		"IP address at which the Kubernetes API server reaches this process; default: $POD_IP")
	flags.StringVar(&o.service, "service", boxName, "Service in --namespace, without a selector, by which the Kubernetes API server comes")
}

// setUp has the manager serve consoles while this process leads.
func (o *subresourcesOptions) setUp(to ctrl.Manager, namespace string, opener *controller.Consoles) error {
	if o.bindAddress == nowhere {
		return nil
	}
	address, err := o.address()
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(to.GetConfig())
	if err != nil {
		return fmt.Errorf("set up consoles: %w", err)
	}
	uncached, err := client.New(to.GetConfig(), client.Options{Scheme: to.GetScheme()})
	if err != nil {
		return fmt.Errorf("set up consoles: %w", err)
	}
	hub := consoles.New(opener.Open, time.Now)
	tidying := manager.RunnableFunc(func(ctx context.Context) error {
		hub.Run(ctx)
		return nil
	})
	serving := &aggregation.Server{
		Bind: o.bindAddress, Service: aggregation.Service{Namespace: namespace, Name: o.service, Address: address},
		Client: uncached, Kubernetes: clientset, Now: time.Now, Stop: hub.Stop,
		Handler: func(authentication authenticator.Request, authorization authorizer.Authorizer) http.Handler {
			api := &subresources.Server{
				Authenticator: authentication, Authorizer: authorization, Consoles: hub, Exists: opener.Exists,
			}
			return api.Handler()
		},
	}
	if err := errors.Join(to.Add(tidying), to.Add(serving)); err != nil {
		return fmt.Errorf("set up consoles: %w", err)
	}
	return nil
}

// address is where others find what is bound.
func (o *subresourcesOptions) address() (netip.AddrPort, error) {
	_, text, err := net.SplitHostPort(o.bindAddress)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--subresources-bind-address: %w", err)
	}
	const bits = 16
	port, err := strconv.ParseUint(text, 10, bits)
	if err != nil || port == 0 {
		return netip.AddrPort{}, fmt.Errorf("--subresources-bind-address %s: give the number of a port", o.bindAddress)
	}
	address, err := netip.ParseAddr(o.advertiseAddress)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--advertise-address (or $POD_IP) is needed for --subresources-bind-address: %w", err)
	}
	return netip.AddrPortFrom(address, uint16(port)), nil
}
