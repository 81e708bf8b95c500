// Package standin stands in for the API server and a kubelet that forward ports, in tests.
package standin

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Forwarder answers requests for `pods/portforward`.
type Forwarder struct {
	// NoWebSockets: only SPDY is spoken, as by API servers before Kubernetes 1.31.
	NoWebSockets bool
	// Dial reaches a port of a pod. Its error is what kubelet tells.
	Dial func(pod, port string) (net.Conn, error)
}

// Forbid answers as an API server does to somebody without the right.
func Forbid(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Message: message, Code: http.StatusForbidden,
	})
	if err == nil {
		_, _ = w.Write(text)
	}
}

// ServeHTTP implements http.Handler; it returns when the connection has ended.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	words := strings.Split(strings.TrimSuffix(r.URL.Path, "/portforward"), "/")
	pod := words[len(words)-1]
	streams := make(chan httpstream.Stream, 2)
	accept := func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	}
	connection := f.upgrade(w, r, accept)
	if connection == nil {
		return
	}
	defer func() { _ = connection.Close() }()
	var failures, data httpstream.Stream
	for failures == nil || data == nil {
		select {
		case stream := <-streams:
			if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				failures = stream
			} else {
				data = stream
			}
		case <-connection.CloseChan():
			return
		}
	}
	f.forward(pod, data, failures)
	<-connection.CloseChan()
}

func (f *Forwarder) upgrade(w http.ResponseWriter, r *http.Request, accept httpstream.NewStreamHandler) httpstream.Connection {
	if !websocket.IsWebSocketUpgrade(r) {
		w.Header().Set(httpstream.HeaderProtocolVersion, portforward.PortForwardProtocolV1Name)
		return spdy.NewResponseUpgrader().UpgradeResponse(w, r, accept)
	}
	if f.NoWebSockets {
		http.Error(w, "you must specify at least 1 'port' query parameter", http.StatusBadRequest)
		return nil
	}
	upgrader := websocket.Upgrader{Subprotocols: websocket.Subprotocols(r)}
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil
	}
	connection, err := spdy.NewServerConnection(portforward.NewTunnelingConnection("stand-in", socket), accept)
	if err != nil {
		return nil
	}
	return connection
}

// forward is what kubelet does with the two streams of a port.
func (f *Forwarder) forward(pod string, data, failures httpstream.Stream) {
	defer func() { _, _ = data.Close(), failures.Close() }()
	upstream, err := f.Dial(pod, data.Headers().Get(corev1.PortHeader))
	if err != nil {
		_, _ = io.WriteString(failures, err.Error())
		return
	}
	defer func() { _ = upstream.Close() }()
	ended := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(upstream, data); ended <- struct{}{} }()
	go func() { _, _ = io.Copy(data, upstream); ended <- struct{}{} }()
	<-ended
	_ = upstream.SetDeadline(time.Now()) // has the other direction end as well
}
