// Package panel serves the front panel: a page that shows each chassis as one sees it from the front, and changes as the hardware does.
// It is read-only unless an Actor is given, who acts with the rights of one user.
package panel

import (
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"rcbox.dev/rcbox/operator/internal/panel/front"
)

//go:embed assets
var assets embed.FS

const (
	// maxOrderBytes is the longest order that a page sends.
	maxOrderBytes = 4096
	// maxHeaderBytes bounds what comes before a token was seen.
	maxHeaderBytes = 8192
	headerTimeout  = 5 * time.Second
	// sendTimeout is how long a page may take for what it is sent, and aliveInterval how often it is sent something.
	sendTimeout   = 10 * time.Second
	aliveInterval = 15 * time.Second
	orderTimeout  = 30 * time.Second
	idleTimeout   = 60 * time.Second
)

// Order is what a button asks for.
type Order struct {
	// Action is one of Actions.
	Action string `json:"action"`
	// Server is the name of the Server.
	Server string `json:"server"`
}

// Actions that a page may ask for.
var Actions = []string{"locate", "unlocate", "on", "soft", "isolate"}

// Actor does what a button says. An error that Kubernetes gives for want of a right is passed on as it is.
type Actor interface {
	Act(ctx context.Context, order Order) (text string, err error)
}

// Server answers the requests of pages.
type Server struct {
	Feed *Feed
	// Token is asked of every request for data, if it is not empty.
	Token string
	// Hosts are the values of the header Host that are taken. None: any address, and localhost, but no other name, since anybody can let
	// a name point here and have a browser ask.
	Hosts []string
	// Actor acts; nil: nothing can be ordered.
	Actor Actor
}

// policy: everything comes from here, nothing is inline, nobody frames it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

// Handler gives the routes.
func (s *Server) Handler() http.Handler {
	files, err := fs.Sub(assets, "assets")
	if err != nil { // it is embedded
		panic(err)
	}
	static := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-store")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		if !s.isHost(r.Host) {
			refuse(w, http.StatusMisdirectedRequest,
				fmt.Sprintf("the panel does not answer to the name %q: use http://127.0.0.1 and its port", r.Host))
			return
		}
		switch r.URL.Path {
		case "/order":
			s.order(w, r)
		case "/events":
			s.events(w, r)
		default:
			if allow(w, r, http.MethodGet, http.MethodHead) {
				static.ServeHTTP(w, r)
			}
		}
	})
}

func (s *Server) isHost(host string) bool {
	if len(s.Hosts) > 0 {
		return slices.Contains(s.Hosts, host)
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host // without a port
	}
	return name == "localhost" || net.ParseIP(name) != nil
}

// allow refuses other methods than these.
func allow(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	refuse(w, http.StatusMethodNotAllowed, "this panel shows, and does nothing: for orders use kubectl rcbox panel")
	return false
}

func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"error": text})
}

func answer(w http.ResponseWriter, status int, value map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		return // the page is gone: nobody is left to tell
	}
}

// knowsToken says whether the request has the token.
func (s *Server) knowsToken(r *http.Request) bool {
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return subtle.ConstantTimeCompare([]byte(given), []byte(s.Token)) == 1 || s.Token == ""
}

const textNoToken = "the address of this page lacks its end, from # on: open the one that kubectl rcbox panel has printed"

// events sends the picture, and then its changes: a line of JSON each. It is no event source of HTML, since that cannot send a token.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !allow(w, r, http.MethodGet) {
		return
	}
	if !s.knowsToken(r) {
		refuse(w, http.StatusUnauthorized, textNoToken)
		return
	}
	one, err := s.Feed.join()
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer s.Feed.leave(one)
	w.Header().Set("Content-Type", "application/x-ndjson")
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	var shown front.Picture
	for {
		var change front.Change
		select {
		case <-r.Context().Done():
			return
		case <-alive.C:
		case <-one.changed:
			picture := s.Feed.now()
			change = picture.Since(shown)
			shown = picture
		}
		if send(w, change) != nil {
			return
		}
	}
}

func send(w http.ResponseWriter, change front.Change) error {
	line, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("write a change: %w", err)
	}
	control := http.NewResponseController(w)
	if err := control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("bound the time to send: %w", err)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("send a change: %w", err)
	}
	if err := control.Flush(); err != nil {
		return fmt.Errorf("send a change: %w", err)
	}
	return nil
}

func (s *Server) order(w http.ResponseWriter, r *http.Request) {
	if s.Actor == nil {
		allow(w, r) // no method is
		return
	}
	if !allow(w, r, http.MethodPost) {
		return
	}
	if !s.knowsToken(r) {
		refuse(w, http.StatusUnauthorized, textNoToken)
		return
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if origin := r.Header.Get("Origin"); origin != "http://"+r.Host || kind != "application/json" {
		refuse(w, http.StatusForbidden, "orders come from this page only")
		return
	}
	deadline := time.Now().Add(headerTimeout)
	if err := http.NewResponseController(w).SetReadDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		refuse(w, http.StatusInternalServerError, "the time for an order cannot be bounded: "+err.Error())
		return
	}
	var order Order
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrderBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&order); err != nil {
		refuse(w, http.StatusBadRequest, "not an order: "+err.Error())
		return
	}
	if !slices.Contains(Actions, order.Action) || order.Server == "" {
		refuse(w, http.StatusBadRequest, "an order has an action and a server; actions: "+strings.Join(Actions, ", "))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), orderTimeout)
	defer cancel()
	text, err := s.Actor.Act(ctx, order)
	if err != nil {
		status := http.StatusUnprocessableEntity
		if apierrors.IsForbidden(err) {
			status = http.StatusForbidden
		}
		refuse(w, status, err.Error())
		return
	}
	answer(w, http.StatusOK, map[string]string{"text": text})
}

// Serve answers at a listener until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the front panel: %w", err)
	}
	return nil
}
