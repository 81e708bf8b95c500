package main

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"rcbox.dev/rcbox/operator/internal/box/controller"
)

// setUpJoins has machines that boot from the network become nodes, if it is known where these reach the API server.
func setUpJoins(manager ctrl.Manager, options *boxOptions) error {
	if options.joinAPIServer == "" {
		return nil
	}
	at, err := url.Parse(options.joinAPIServer)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		return fmt.Errorf("--join-api-server is %q: write a URL such as https://192.168.3.254:6443", options.joinAPIServer)
	}
	config := rest.CopyConfig(manager.GetConfig())
	if err := rest.LoadTLSFiles(config); err != nil {
		return fmt.Errorf("--join-api-server: read the certificate authority of the API server: %w", err)
	}
	if len(config.CAData) == 0 {
		return errors.New("--join-api-server: the way to the API server names no certificate authority: machines could not check who it is")
	}
	for _, resolver := range options.joinClusterDNS {
		if _, err := netip.ParseAddr(resolver); err != nil {
			return fmt.Errorf("--join-cluster-dns: write addresses such as 10.96.0.10: %w", err)
		}
	}
	joins := &controller.Joins{
		Client: manager.GetClient(), Live: manager.GetAPIReader(), Recorder: manager.GetEventRecorder(boxName),
		Namespace: options.namespace, APIServer: options.joinAPIServer, CA: string(config.CAData),
		ClusterDNS: options.joinClusterDNS, Now: time.Now,
	}
	return joins.SetupWithManager(manager)
}
