package tunnel_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"rcbox.dev/rcbox/operator/internal/plugin/tunnel"
	"rcbox.dev/rcbox/operator/internal/plugin/tunnel/standin"
)

// cluster forwards ports of pods to what serve does with their connections.
func cluster(t *testing.T, noWebSockets bool, serve func(conn net.Conn)) *rest.Config {
	t.Helper()
	forwarder := &standin.Forwarder{NoWebSockets: noWebSockets, Dial: func(pod, port string) (net.Conn, error) {
		if pod != "box-0" || port != "11300" {
			return nil, fmt.Errorf("connection refused by port %s of %s", port, pod)
		}
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			serve(theirs)
		}()
		return ours, nil
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, "/base/api/v1/namespaces/team/pods/"):
			t.Errorf("asked for %s", r.URL)
		case r.Header.Get("Authorization") != "Bearer secret":
			standin.Forbid(w, "you may not")
		default:
			forwarder.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL + "/base", BearerToken: "secret"}
}

func dial(t *testing.T, config *rest.Config, pod string) net.Conn {
	t.Helper()
	conn, err := tunnel.Dial(t.Context(), config, "team", pod, 11300)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Whether the API server speaks WebSockets or not.
func TestBytesGoBothWays(t *testing.T) {
	for name, noWebSockets := range map[string]bool{"over a WebSocket": false, "over SPDY": true} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, cluster(t, noWebSockets, func(conn net.Conn) { _, _ = io.Copy(conn, conn) }), "box-0")
			for _, text := range []string{"hello", strings.Repeat("x", 1_000_000)} {
				go func() { _, _ = io.WriteString(conn, text) }() // what does not arrive is missed below
				answer := make([]byte, len(text))
				if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != text {
					t.Fatalf("%d bytes came back as %.20q, %v", len(text), answer, err)
				}
			}
		})
	}
}

func TestErrors(t *testing.T) {
	config := cluster(t, false, func(conn net.Conn) { _, _ = io.WriteString(conn, "bye") })
	if _, err := io.ReadAll(dial(t, config, "box-1")); err == nil || !strings.Contains(err.Error(), "connection refused by port 11300") {
		t.Errorf("nobody listens: %v", err)
	}
	if text, err := io.ReadAll(dial(t, config, "box-0")); err != nil || string(text) != "bye" {
		t.Errorf("closed: %q, %v", text, err)
	}
	config.BearerToken = "another"
	_, err := tunnel.Dial(t.Context(), config, "team", "box-0", 11300)
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "you may not") {
		t.Errorf("no right: %v", err)
	}
}
