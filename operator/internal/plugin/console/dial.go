package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	streaming "k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"

	"rcbox.dev/rcbox/operator/internal/box/consoles"
	"rcbox.dev/rcbox/operator/internal/box/subresources/protocol"
)

// dialTimeout bounds one attempt.
const dialTimeout = 15 * time.Second

// Dialer connects to the console of a server through the Kubernetes API server.
func Dialer(config *rest.Config, server string) func(context.Context, consoles.Request) (*websocket.Conn, error) {
	return func(ctx context.Context, request consoles.Request) (*websocket.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		address, _, err := rest.DefaultServerUrlFor(config)
		if err != nil {
			return nil, fmt.Errorf("address of the API server: %w", err)
		}
		address = address.JoinPath(protocol.Path(server))
		address.RawQuery = protocol.Query(request).Encode()
		asked, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
		if err != nil {
			return nil, fmt.Errorf("ask for the console of %s: %w", server, err)
		}
		transport, holder, err := streaming.RoundTripperFor(config)
		if err != nil {
			return nil, fmt.Errorf("prepare a WebSocket to the API server: %w", err)
		}
		connection, err := streaming.Negotiate(transport, holder, asked, protocol.ConsoleProtocol)
		if err != nil {
			return nil, refusal(server, err)
		}
		return connection, nil
	}
}

// refusal says what the API server said.
func refusal(server string, err error) error {
	if failure, isFailure := errors.AsType[*httpstream.UpgradeFailureError](err); isFailure {
		err = failure.Cause
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return fmt.Errorf("the console of %s: %w", server, err)
	}
	return fmt.Errorf("the console of %s: %w (does the box controller run? kubectl get apiservice %s.%s)", server, err,
		protocol.GroupVersion.Version, protocol.GroupVersion.Group)
}
