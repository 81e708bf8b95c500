package console_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"rcbox.dev/rcbox/operator/internal/box/consoles"
	"rcbox.dev/rcbox/operator/internal/plugin/console"
)

// patience is much longer than any step of these tests takes.
const patience = 20 * time.Second

// TestTimeBeginsWithTheConnection: the input of a script that stays only for a moment arrives, however long it takes to connect.
func TestTimeBeginsWithTheConnection(t *testing.T) {
	t.Parallel()
	const stays, takes = 10 * time.Millisecond, 500 * time.Millisecond
	typed := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		connection, err := new(websocket.Upgrader).Upgrade(response, request, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = connection.Close() }()
		var keys bytes.Buffer
		for {
			_, text, err := connection.ReadMessage()
			if err != nil {
				typed <- keys.String()
				return
			}
			keys.Write(text)
		}
	}))
	defer server.Close()
	client := &console.Client{
		Dial: func(ctx context.Context, _ consoles.Request) (*websocket.Conn, error) {
			<-time.After(takes)
			connection, response, err := websocket.DefaultDialer.DialContext(ctx, strings.Replace(server.URL, "http", "ws", 1), nil)
			if err == nil {
				_ = response.Body.Close()
			}
			return connection, err
		},
		Out: new(bytes.Buffer), Say: func(text string) { t.Errorf("it says %q", text) }, For: stays,
	}
	client.Type([]byte("uptime\r"))
	if err := client.Run(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case keys := <-typed:
		if keys != "uptime\r" {
			t.Errorf("the server has got %q", keys)
		}
	case <-time.After(patience):
		t.Error("it never was connected")
	}
}
