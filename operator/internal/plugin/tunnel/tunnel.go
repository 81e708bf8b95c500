// Package tunnel connects to a port of a pod through the API server, as `kubectl port-forward` does, but without a port on this
// machine: the connection is a net.Conn. The protocol is client-go's; this package does not know what travels over it.
package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// dialTimeout bounds one connection, from the API server's address to the pod's port.
	dialTimeout = 15 * time.Second
	// maxErrorBytes bounds what is shown of kubelet's words.
	maxErrorBytes = 512
	// requestID tells the ports of one connection apart; there is one.
	requestID = "0"
)

// Dial connects to a port of a pod: over a WebSocket, or over SPDY where the API server (before Kubernetes 1.31) or a proxy on the
// way takes no WebSocket. Where the API server refuses, the error is its *apierrors.StatusError.
func Dial(ctx context.Context, config *rest.Config, namespace, pod string, port int) (net.Conn, error) {
	dialer, err := newDialer(config, namespace, pod)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// client-go's dialer takes no context.
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := connect(dialer, pod, port)
		done <- result{conn, err}
	}()
	select {
	case dialed := <-done:
		return dialed.conn, dialed.err
	case <-ctx.Done():
		go func() {
			if late := <-done; late.conn != nil {
				_ = late.conn.Close() // nobody waits for it any more
			}
		}()
		return nil, fmt.Errorf("reach pod %s through the API server: %w", pod, ctx.Err())
	}
}

func newDialer(config *rest.Config, namespace, pod string) (httpstream.Dialer, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	address := base.JoinPath("api", "v1", "namespaces", namespace, "pods", pod, "portforward")
	// Each dialer changes the scheme of the address that it is given.
	addressOf := func() *url.URL { own := *address; return &own }
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(addressOf(), config)
	if err != nil {
		return nil, fmt.Errorf("prepare a WebSocket to the API server: %w", err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare SPDY to the API server: %w", err)
	}
	overSPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, addressOf())
	return portforward.NewFallbackDialerForStreaming(overWebSocket, overSPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) && !isRefusal(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// isRefusal: the API server has understood the request, and says no.
func isRefusal(err error) bool {
	var status *apierrors.StatusError
	if !errors.As(cause(err), &status) {
		return false
	}
	return apierrors.IsForbidden(status) || apierrors.IsUnauthorized(status) || apierrors.IsNotFound(status)
}

// cause of a failed upgrade; any other error as it is.
func cause(err error) error {
	if failure, ok := errors.AsType[*httpstream.UpgradeFailureError](err); ok {
		return failure.Cause
	}
	return err
}

func connect(dialer httpstream.Dialer, pod string, port int) (net.Conn, error) {
	connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("reach pod %s through the API server: %w", pod, cause(err))
	}
	c := &conn{
		connection: connection, to: address(net.JoinHostPort(pod, strconv.Itoa(port))),
		failed: make(chan struct{}),
	}
	if err := c.open(port); err != nil {
		_ = connection.Close() // the first error tells more
		return nil, fmt.Errorf("forward port %d of pod %s: %w", port, pod, err)
	}
	return c, nil
}

// conn is one forwarded port.
type conn struct {
	connection httpstream.Connection
	data       httpstream.Stream
	to         address
	// failed is closed once kubelet will say no more about the port; failure is what it has said.
	failed  chan struct{}
	failure string
}

// open the two streams of a port: first the one on which kubelet tells of failures, for it reads them in this order.
func (c *conn) open(port int) error {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, requestID)
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := c.connection.CreateStream(headers)
	if err != nil {
		return fmt.Errorf("open the stream of failures: %w", err)
	}
	_ = failures.Close() // nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	if c.data, err = c.connection.CreateStream(headers); err != nil {
		return fmt.Errorf("open the stream of data: %w", err)
	}
	go func() {
		defer close(c.failed)
		text, err := io.ReadAll(io.LimitReader(failures, maxErrorBytes))
		c.failure = string(text)
		if err != nil {
			c.failure = cmp.Or(c.failure, err.Error())
		}
		if c.failure != "" {
			_ = c.data.Reset() // has a Read end, which then tells of the failure
		}
	}()
	return nil
}

// Read implements net.Conn.
func (c *conn) Read(into []byte) (int, error) {
	n, err := c.data.Read(into)
	if err == nil || n > 0 {
		return n, nil
	}
	select {
	case <-c.failed:
		if c.failure != "" {
			return 0, fmt.Errorf("kubelet cannot forward to %s: %s", c.to, c.failure)
		}
	case <-c.connection.CloseChan():
	}
	if errors.Is(err, io.EOF) {
		return 0, io.EOF
	}
	return 0, fmt.Errorf("read from %s: %w", c.to, err)
}

// Write implements net.Conn.
func (c *conn) Write(data []byte) (int, error) {
	n, err := c.data.Write(data)
	if err != nil {
		return n, fmt.Errorf("write to %s: %w", c.to, err)
	}
	return n, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if err := c.connection.Close(); err != nil {
		return fmt.Errorf("close the connection to %s: %w", c.to, err)
	}
	return nil
}

// address is a pod's port, for errors.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address("this machine") }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.to }

// SetDeadline implements net.Conn. Streams have no deadlines: whoever does not want to wait closes the connection.
func (c *conn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
