package subresources_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"rcbox.dev/rcbox/operator/internal/box/consoles"
	"rcbox.dev/rcbox/operator/internal/box/subresources"
	"rcbox.dev/rcbox/operator/internal/box/subresources/protocol"
)

// patience is far beyond what anything here takes.
const patience = 30 * time.Second

// bed is the API with one server, atom007, whose serial line a test has the other end of. The header User stands for the Kubernetes API
// server's authentication; alice, bob and carol may use consoles, and a viewer may watch.
type bed struct {
	*testing.T

	url   string
	lines chan net.Conn

	mutex   sync.Mutex
	reviews []authorizer.Attributes
}

func start(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, lines: make(chan net.Conn, 8)}
	hub := consoles.New(func(context.Context, string, bool) (io.ReadWriteCloser, error) {
		near, far := net.Pipe()
		b.lines <- far
		return near, nil
	}, time.Now)
	t.Cleanup(hub.Stop)
	server := &subresources.Server{
		Authenticator: authenticator.RequestFunc(func(request *http.Request) (*authenticator.Response, bool, error) {
			name := request.Header.Get("User")
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
		}),
		Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			b.mutex.Lock()
			defer b.mutex.Unlock()
			b.reviews = append(b.reviews, a)
			switch name := a.GetUser().GetName(); {
			case name == "alice", name == "bob", name == "carol", name == "viewer" && a.GetVerb() == "get":
				return authorizer.DecisionAllow, "", nil
			case name == "unlucky":
				return authorizer.DecisionNoOpinion, "", errors.New("no answer")
			}
			return authorizer.DecisionNoOpinion, "", nil
		}),
		Consoles: hub,
		Exists:   func(_ context.Context, name string) (bool, error) { return name == "atom007", nil },
	}
	served := httptest.NewServer(server.Handler())
	t.Cleanup(served.Close)
	b.url = served.URL
	return b
}

func (b *bed) reviewed() []authorizer.Attributes {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.reviews
}

func (b *bed) get(who, path string) (int, string) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.url+path, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("User", who)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (b *bed) dial(who, server, query string) (connection *websocket.Conn, refused string) {
	b.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{protocol.ConsoleProtocol}}
	url := "ws" + strings.TrimPrefix(b.url, "http") + protocol.Path(server) + query
	connection, response, err := dialer.DialContext(b.Context(), url, http.Header{"User": {who}})
	if err == nil {
		b.Cleanup(func() { _ = connection.Close() })
		return connection, ""
	}
	if response == nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	status := &metav1.Status{}
	if err := json.NewDecoder(response.Body).Decode(status); err != nil {
		b.Fatal(err)
	}
	return nil, status.Message
}

func (b *bed) next(connection *websocket.Conn, kind int) []byte {
	b.Helper()
	if err := connection.SetReadDeadline(time.Now().Add(patience)); err != nil {
		b.Fatal(err)
	}
	got, text, err := connection.ReadMessage()
	if err != nil || got != kind {
		b.Fatalf("%d %q, %v; not of kind %d", got, text, err, kind)
	}
	return text
}

func (b *bed) reads(connection *websocket.Conn, want string) {
	b.Helper()
	if text := b.next(connection, websocket.BinaryMessage); !strings.Contains(string(text), want) {
		b.Fatalf("%q, not %q", text, want)
	}
}

func (b *bed) message(connection *websocket.Conn) (message protocol.Message) {
	b.Helper()
	if err := json.Unmarshal(b.next(connection, websocket.TextMessage), &message); err != nil {
		b.Fatal(err)
	}
	return message
}

// The Kubernetes API server finds out what there is.
func TestDiscovery(t *testing.T) {
	b := start(t)
	for path, says := range map[string]string{
		"/apis":                                 `"name":"subresources.rcbox.dev"`,
		"/apis/subresources.rcbox.dev":          `"v1alpha1"`,
		"/apis/subresources.rcbox.dev/v1alpha1": `"servers/console"`,
	} {
		if code, text := b.get("alice", path); code != http.StatusOK || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s", path, code, text)
		}
		if code, _ := b.get("", path); code != http.StatusUnauthorized {
			t.Errorf("%s: anybody is answered: %d", path, code)
		}
	}
	if code, _ := b.get("alice", "/openapi/v2"); code != http.StatusNotFound {
		t.Errorf("something that is not there: %d", code)
	}
}

// Each request is reviewed for a right of its own: get for those who watch, create for those who type.
func TestRights(t *testing.T) {
	b := start(t)
	path := protocol.Path("atom007")
	for who, want := range map[string][2]int{
		"":        {http.StatusUnauthorized, http.StatusUnauthorized},
		"mallory": {http.StatusForbidden, http.StatusForbidden},
		"unlucky": {http.StatusInternalServerError, http.StatusInternalServerError},
		// Both lack a WebSocket.
		"viewer": {http.StatusForbidden, http.StatusBadRequest},
		"alice":  {http.StatusBadRequest, http.StatusBadRequest},
	} {
		for i, query := range []string{"", "?mode=watch"} {
			if code, text := b.get(who, path+query); code != want[i] {
				t.Errorf("%s%s: %d %s", who, query, code, text)
			}
		}
	}
	for query, says := range map[string]string{
		"?mode=steal": "watch, takeOver", "?stream=x&position=y": "a number of bytes", "?client=" + strings.Repeat("x", 65): "at most 64",
	} {
		if code, text := b.get("alice", path+query); code != http.StatusBadRequest || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s", query, code, text)
		}
	}
	_, refused := b.dial("mallory", "atom007", "")
	if !strings.Contains(refused, "takes create on servers/console in the API group subresources.rcbox.dev; --watch takes get alone") {
		t.Errorf("mallory is told %q", refused)
	}
	if _, refused := b.dial("viewer", "atom007", "?mode=takeOver"); !strings.Contains(refused, "takes create") {
		t.Errorf("a viewer is told %q", refused)
	}
	if _, refused := b.dial("alice", "atom999", ""); !strings.Contains(refused, `no Server "atom999"`) {
		t.Errorf("alice is told %q", refused)
	}
	long := strings.Repeat("m", 4000)
	// A refusal must fit in the part that a client of WebSockets reads of it.
	if _, refused := b.dial(long, "atom007", ""); len(refused) == 0 || len(refused) > 600 {
		t.Errorf("a user of a long name is told %q", refused)
	}
	for _, a := range b.reviewed() {
		if a.GetResource() != "servers" || a.GetSubresource() != "console" || a.GetVerb() != "create" && a.GetVerb() != "get" ||
			!a.IsResourceRequest() || a.GetAPIGroup() != "subresources.rcbox.dev" || a.GetName() == "" {
			t.Errorf("reviewed: %+v", a)
		}
	}
}

// A page in a browser opens nothing: the browser may have shown its user's certificate for that page.
func TestPagesOfBrowsers(t *testing.T) {
	b := start(t)
	url := "ws" + strings.TrimPrefix(b.url, "http") + protocol.Path("atom007")
	dialer := websocket.Dialer{Subprotocols: []string{protocol.ConsoleProtocol}}
	connection, response, err := dialer.DialContext(t.Context(), url, http.Header{"User": {"alice"}, "Origin": {"https://example.com"}})
	if err == nil {
		_ = connection.Close()
		t.Fatal("a page of example.com has the console")
	}
	if response == nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("%v, %+v", err, response)
	}
	if response != nil {
		_ = response.Body.Close()
	}
}

func TestConsole(t *testing.T) {
	b := start(t)
	alice, refused := b.dial("alice", "atom007", "")
	if alice == nil {
		t.Fatal(refused)
	}
	line := <-b.lines
	if _, err := line.Write([]byte("login: ")); err != nil {
		t.Fatal(err)
	}
	first := b.message(alice)
	if first.Stream == "" || first.Position != 0 || first.Holder != "alice" || first.Since == nil {
		t.Errorf("alice is told %+v", first)
	}
	b.reads(alice, "login: ")
	if err := alice.WriteMessage(websocket.BinaryMessage, []byte("root\r")); err != nil {
		t.Fatal(err)
	}
	typed := make([]byte, 5)
	if _, err := io.ReadFull(line, typed); err != nil || string(typed) != "root\r" {
		t.Fatalf("%q %v", typed, err)
	}
	if _, refused := b.dial("bob", "atom007", ""); !strings.Contains(refused, "alice has the console of atom007 since") {
		t.Errorf("bob is told %q", refused)
	}
	viewer, refused := b.dial("viewer", "atom007", "?mode=watch")
	if viewer == nil {
		t.Fatal(refused)
	}
	if first := b.message(viewer); first.Holder != "alice" || first.Since == nil {
		t.Errorf("the viewer is told %+v", first)
	}
	b.reads(viewer, "login: ")
	// The connection to the server breaks, and comes back.
	_ = line.Close()
	b.reads(alice, "the connection broke")
	line = <-b.lines
	b.reads(alice, "connected again")
	go func() { _, _ = line.Write([]byte("again")) }()
	b.reads(alice, "again")
	// The user who takes it over has it; the one before is told.
	bob, refused := b.dial("bob", "atom007", "?mode=takeOver&stream="+first.Stream+"&position=7")
	if bob == nil {
		t.Fatal(refused)
	}
	if place := b.message(bob); place.Stream != first.Stream || place.Position != 7 {
		t.Errorf("bob's output begins at %+v", place)
	}
	b.reads(alice, "bob took the console over from alice")
	if end := b.message(alice); end.End != protocol.EndDisplaced || !strings.Contains(end.EndText, "bob") {
		t.Errorf("alice is told %+v", end)
	}
	// A user who leaves makes room.
	_ = bob.Close()
	for deadline := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		carol, refused := b.dial("carol", "atom007", "")
		if carol != nil {
			b.message(carol)
			b.reads(carol, "login: ")
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(refused)
		}
	}
}

// A message that is too long ends the connection.
func TestKeysAreBounded(t *testing.T) {
	b := start(t)
	alice, refused := b.dial("alice", "atom007", "")
	if alice == nil {
		t.Fatal(refused)
	}
	go func() { _, _ = io.Copy(io.Discard, <-b.lines) }()
	if err := alice.WriteMessage(websocket.BinaryMessage, make([]byte, protocol.MaxKeys)); err != nil {
		t.Fatal(err)
	}
	b.message(alice)
	if err := alice.WriteMessage(websocket.BinaryMessage, make([]byte, protocol.MaxKeys+1)); err != nil {
		t.Fatal(err)
	}
	if err := alice.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := alice.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseMessageTooBig, websocket.CloseAbnormalClosure) {
		t.Errorf("the connection goes on: %v", err)
	}
}
