// Package tunnel connects to a port of a pod through the API server, as `kubectl port-forward` does, but without a port on this
// machine: the connection is a net.Conn over one WebSocket.
package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// The protocol of kubelet: each message begins with the number of its channel. What comes on either begins with the port, in two bytes.
const (
	protocol     = "v4.channel.k8s.io"
	dataChannel  = 0
	errorChannel = 1
	channels     = 2
	portBytes    = 2
)

const (
	handshakeTimeout = 10 * time.Second
	// maxMessageBytes bounds what is taken at once; kubelet sends some kilobytes.
	maxMessageBytes = 4 << 20
	// maxErrorBytes bounds what is shown of an answer that is no Status.
	maxErrorBytes = 512
)

// Dial connects to a port of a pod. Where the API server refuses, the error is its *apierrors.StatusError.
func Dial(ctx context.Context, config *rest.Config, namespace, pod string, port int) (net.Conn, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	address := base.JoinPath("api", "v1", "namespaces", namespace, "pods", pod, "portforward")
	address.RawQuery = url.Values{"ports": {strconv.Itoa(port)}}.Encode()
	upgrade, err := newUpgrade(config)
	if err != nil {
		return nil, err
	}
	// The wrappers add who asks: tokens, impersonation, what a credentials' program says.
	wrapped, err := rest.HTTPWrappersForConfig(config, upgrade)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("request a port of pod %s: %w", pod, err)
	}
	response, err := wrapped.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("reach pod %s: %w", pod, err)
	}
	_ = response.Body.Close() // what was upgraded has no body
	return &conn{socket: upgrade.socket}, nil
}

// upgrade is a RoundTripper whose answer is a WebSocket.
type upgrade struct {
	dialer websocket.Dialer
	socket *websocket.Conn
}

func newUpgrade(config *rest.Config) (*upgrade, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("TLS of the API server: %w", err)
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	return &upgrade{dialer: websocket.Dialer{
		Proxy: proxy, TLSClientConfig: tlsConfig, NetDialContext: config.Dial,
		HandshakeTimeout: handshakeTimeout, Subprotocols: []string{protocol},
	}}, nil
}

// RoundTrip implements http.RoundTripper.
func (u *upgrade) RoundTrip(request *http.Request) (*http.Response, error) {
	address := *request.URL
	address.Scheme = map[string]string{"http": "ws", "https": "wss"}[address.Scheme]
	socket, response, err := u.dialer.DialContext(request.Context(), address.String(), request.Header)
	switch {
	case err != nil && response != nil:
		return nil, refusal(response, err)
	case err != nil:
		return nil, fmt.Errorf("connect: %w", err)
	}
	socket.SetReadLimit(maxMessageBytes)
	u.socket = socket
	return response, nil
}

// refusal reads why the API server did not upgrade.
func refusal(response *http.Response, err error) error {
	defer func() { _ = response.Body.Close() }()
	text, readErr := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
	if readErr != nil {
		return fmt.Errorf("%s: %w", response.Status, err)
	}
	status := metav1.Status{}
	if json.Unmarshal(text, &status) == nil && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return fmt.Errorf("%s %s: %w", response.Status, text, err)
}

// conn is one forwarded port.
type conn struct {
	socket *websocket.Conn
	// unread is what has come and was not asked for yet.
	unread []byte
	// skipped counts the bytes of the port that have come on each channel.
	skipped [channels]int
	// writing: the socket takes one writer.
	writing sync.Mutex
}

// Read implements net.Conn.
func (c *conn) Read(into []byte) (int, error) {
	for len(c.unread) == 0 {
		_, message, err := c.socket.ReadMessage()
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed):
			return 0, io.EOF
		case err != nil:
			return 0, fmt.Errorf("read from the pod: %w", err)
		}
		if err := c.take(message); err != nil {
			return 0, err
		}
	}
	n := copy(into, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

func (c *conn) take(message []byte) error {
	if len(message) == 0 {
		return nil
	}
	channel, data := message[0], message[1:]
	if channel >= channels {
		return fmt.Errorf("a message for channel %d, of %d", channel, channels)
	}
	skip := min(portBytes-c.skipped[channel], len(data))
	c.skipped[channel] += skip
	data = data[skip:]
	if channel == errorChannel && len(data) > 0 {
		return fmt.Errorf("kubelet: %s", data)
	}
	c.unread = data
	return nil
}

// Write implements net.Conn.
func (c *conn) Write(data []byte) (int, error) {
	message := append(make([]byte, 0, len(data)+1), dataChannel)
	message = append(message, data...)
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.socket.WriteMessage(websocket.BinaryMessage, message); err != nil {
		return 0, fmt.Errorf("write to the pod: %w", err)
	}
	return len(data), nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if err := c.socket.Close(); err != nil {
		return fmt.Errorf("close the connection to the pod: %w", err)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.socket.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.socket.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	if err := c.socket.SetReadDeadline(t); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.socket.SetWriteDeadline(t); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	return nil
}
