package tunnel_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"rcbox.dev/rcbox/operator/internal/plugin/tunnel"
)

// kubelet answers as kubelet does: the port on both channels, and then what serve does.
func kubelet(t *testing.T, serve func(socket *websocket.Conn)) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/base/api/v1/namespaces/team/pods/box-0/portforward" || r.URL.Query().Get("ports") != "11300" {
			t.Errorf("asked for %s", r.URL)
		}
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","reason":"Forbidden","message":"you may not","code":403}`)
			return
		}
		upgrader := websocket.Upgrader{Subprotocols: []string{"v4.channel.k8s.io"}}
		socket, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer socket.Close()
		for channel := range byte(2) {
			_ = socket.WriteMessage(websocket.BinaryMessage, []byte{channel, 0x24, 0x2c})
		}
		serve(socket)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL + "/base", BearerToken: "secret"}
}

func dial(t *testing.T, config *rest.Config) net.Conn {
	t.Helper()
	conn, err := tunnel.Dial(t.Context(), config, "team", "box-0", 11300)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestBytesGoBothWays(t *testing.T) {
	conn := dial(t, kubelet(t, func(socket *websocket.Conn) {
		for {
			_, message, err := socket.ReadMessage()
			if err != nil {
				return
			}
			// The answer comes in two messages, an empty one between them.
			text := strings.ToUpper(string(message[1:]))
			for _, part := range []string{text[:1], "", text[1:]} {
				_ = socket.WriteMessage(websocket.BinaryMessage, append([]byte{message[0]}, part...))
			}
		}
	}))
	for _, text := range []string{"hello", strings.Repeat("x", 100_000)} {
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, len(text))
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != strings.ToUpper(text) {
			t.Fatalf("%d bytes came back as %.20q, %v", len(text), answer, err)
		}
	}
}

func TestErrors(t *testing.T) {
	config := kubelet(t, func(socket *websocket.Conn) {
		_ = socket.WriteMessage(websocket.BinaryMessage, []byte("\x01connection refused"))
	})
	if _, err := io.ReadAll(dial(t, config)); err == nil || !strings.Contains(err.Error(), "kubelet: connection refused") {
		t.Errorf("nobody listens: %v", err)
	}
	config = kubelet(t, func(socket *websocket.Conn) { _ = socket.WriteMessage(websocket.BinaryMessage, []byte{7, 7}) })
	if _, err := io.ReadAll(dial(t, config)); err == nil || !strings.Contains(err.Error(), "channel 7") {
		t.Errorf("another protocol: %v", err)
	}
	config = kubelet(t, func(socket *websocket.Conn) {
		_ = socket.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	})
	if text, err := io.ReadAll(dial(t, config)); err != nil || len(text) != 0 {
		t.Errorf("closed: %q, %v", text, err)
	}
	config.BearerToken = "another"
	_, err := tunnel.Dial(t.Context(), config, "team", "box-0", 11300)
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "you may not") {
		t.Errorf("no right: %v", err)
	}
}
