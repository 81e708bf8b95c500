// Package aggregation serves an aggregated API: it listens with certificates of its own making, lets nobody in but the Kubernetes API
// server, and tells the API server where it is and which certificate to trust. What is served is a handler's matter.
package aggregation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// announceEvery is how often it is looked whether what was announced still is.
	announceEvery = 30 * time.Second
	announceRetry = 2 * time.Second
	// patience of a connection: with its handshake, which takes milliseconds, and with the head of its first request.
	patience = 3 * time.Second
	// idleFor is how long the API server keeps a connection without a request.
	idleFor        = 2 * time.Minute
	maxHeaderBytes = 64 << 10

	// Where Kubernetes says how its API server shows who it is, and who asks.
	authenticationNamespace = metav1.NamespaceSystem
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAKey             = "requestheader-client-ca-file"
)

// The rights beside the Role extension-apiserver-authentication-reader in kube-system.
//
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,resourceNames=v1alpha1.subresources.rcbox.dev,verbs=get;patch
// +kubebuilder:rbac:groups="",namespace=rcbox-system,resources=services,resourceNames=rcbox-box,verbs=get
// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=rcbox-system,resources=endpointslices,verbs=create
// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=rcbox-system,resources=endpointslices,resourceNames=rcbox-box,verbs=get;update

// Server serves while this process leads.
type Server struct {
	// Bind is where it listens.
	Bind    string
	Service Service
	// Client writes what is announced, and reads it from the API server.
	Client     client.Client
	Kubernetes kubernetes.Interface
	Now        func() time.Time
	// Handler makes what is served of what says who asks, and what they may do.
	Handler func(authenticator.Request, authorizer.Authorizer) http.Handler
	// Stop ends what outlives requests. It is called when the server stops.
	Stop func()
}

// NeedLeaderElection implements controller-runtime's interface of that name.
func (s *Server) NeedLeaderElection() bool { return true }

// Start serves until the context ends.
func (s *Server) Start(ctx context.Context) error {
	certificates, err := NewCertificates(s.Service.host(), s.Now())
	if err != nil {
		return err
	}
	authority, authentication, err := s.authentication()
	if err != nil {
		return err
	}
	authorization, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: s.Kubernetes.AuthorizationV1(),
		// Nothing is remembered: a right that is taken away is gone.
		WebhookRetryBackoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 4},
	}.New()
	if err != nil {
		return fmt.Errorf("set up reviews of rights: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Bind)
	if err != nil {
		return fmt.Errorf("listen for the Kubernetes API server: %w", err)
	}
	server := newHTTPServer(ctx, s.Handler(authentication.authenticator(authority), authorization))
	// Nobody is told of this process before it knows the API server; without that, it is tried again below.
	_ = errors.Join(authority.RunOnce(ctx), authentication.controller.RunOnce(ctx))
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { authority.Run(ctx, 1) })
	running.Go(func() { authentication.controller.Run(ctx, 1) })
	running.Go(func() { s.announce(ctx, certificates, authority) })
	running.Go(func() {
		<-ctx.Done()
		s.Stop()
		_ = server.Close()
	})
	err = serve(server, listener, tlsConfig(certificates, authority))
	cancel()
	running.Wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the aggregated API: %w", err)
	}
	return nil
}

func newHTTPServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, BaseContext: func(net.Listener) context.Context { return ctx },
		// A handshake is part of it.
		ErrorLog: log.New(strangersLog{}, "", 0), ReadHeaderTimeout: patience, IdleTimeout: idleFor, MaxHeaderBytes: maxHeaderBytes,
		ConnState: watch,
	}
}

// serve serves those who pass the door.
func serve(server *http.Server, listener net.Listener, config *tls.Config) error {
	return server.Serve(tls.NewListener(newDoor(listener), config)) //nolint:wrapcheck // the caller does
}

// announce keeps what is announced right.
func (s *Server) announce(ctx context.Context, certificates *Certificates, authority dynamiccertificates.CAContentProvider) {
	logger := ctrl.Log.WithName("aggregation")
	said := ""
	for {
		pause := announceEvery
		err := certificates.Rotate(s.Now())
		if err == nil && len(authority.CurrentCABundleContent()) == 0 {
			err = errNoAuthority
		}
		if err == nil {
			err = announcer{s.Client, s.Service}.announce(ctx, certificates.Bundle())
		}
		if err != nil && ctx.Err() == nil {
			if pause = announceRetry; err.Error() != said {
				said = err.Error()
				logger.Error(err, "the Kubernetes API server cannot be told where consoles are served")
			}
		} else if err == nil {
			said = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// headers say who asks, as the Kubernetes API server writes it.
type headers struct {
	controller *headerrequest.RequestHeaderAuthRequestController
}

func (s *Server) authentication() (*dynamiccertificates.ConfigMapCAController, headers, error) {
	authority, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", authenticationNamespace, authenticationConfigMap,
		clientCAKey, s.Kubernetes)
	if err != nil {
		return nil, headers{}, fmt.Errorf("set up the authority of the Kubernetes API server: %w", err)
	}
	return authority, headers{headerrequest.NewRequestHeaderAuthRequestController(authenticationConfigMap, authenticationNamespace,
		s.Kubernetes, "requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")}, nil
}

func (h headers) authenticator(authority *dynamiccertificates.ConfigMapCAController) authenticator.Request {
	of := func(values func() []string) headerrequest.StringSliceProvider {
		return headerrequest.StringSliceProviderFunc(values)
	}
	return headerrequest.NewDynamicVerifyOptionsSecure(authority.VerifyOptions, of(h.controller.AllowedClientNames),
		of(h.controller.UsernameHeaders), of(h.controller.UIDHeaders), of(h.controller.GroupHeaders), of(h.controller.ExtraHeaderPrefixes))
}

var errNoAuthority = fmt.Errorf("ConfigMap %s/%s has no %s: aggregation is not set up at the Kubernetes API server, or it cannot be read",
	authenticationNamespace, authenticationConfigMap, clientCAKey)

// strangersLog is for what strangers cause, such as handshakes that fail: whoever wants to know asks for it.
type strangersLog struct{}

func (strangersLog) Write(text []byte) (int, error) {
	ctrl.Log.WithName("aggregation").V(1).Info(strings.TrimSpace(string(text)))
	return len(text), nil
}

// tlsConfig lets nobody in without a certificate of the authority: strangers do not get as far as a request.
func tlsConfig(certificates *Certificates, authority dynamiccertificates.CAContentProvider) *tls.Config {
	config := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authority.CurrentCABundleContent()) {
			return nil, errNoAuthority
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*certificates.Serving()},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
			// A WebSocket begins in HTTP/1.1.
			NextProtos: []string{"http/1.1"},
		}, nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: config}
}
