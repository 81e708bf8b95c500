package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rcbox.dev/rcbox/operator/internal/box/join"
	"rcbox.dev/rcbox/operator/internal/boxhost"
)

const (
	pathHealth = "/healthz"
	// maxBody bounds what is read of a request to join.
	maxBody = 4 << 10
)

// imageFiles are those of the boot image; nothing else of that folder is served.
var imageFiles = []string{"kernel", "initrd", "disk", "manifest.json", "manifest.sig"}

// web is what a box host serves by HTTP at its own address: scripts for iPXE, the boot image, and requests to join the cluster.
type web struct {
	images string
	join   http.Handler
	limits limits
	// rendering is what is served; nil at first.
	rendering atomic.Pointer[boxhost.Rendering]

	mutex  sync.Mutex
	server *http.Server
	at     netip.AddrPort
}

// opening is a listener that does not serve yet.
type opening struct {
	listener net.Listener
	at       netip.AddrPort
}

// open listens at an address, unless it serves there already: then it gives nil. What is served at another address goes on.
func (w *web) open(ctx context.Context, at netip.AddrPort) (*opening, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.server != nil && w.at == at {
		return nil, nil //nolint:nilnil // nothing is to be opened
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", at, err)
	}
	return &opening{listener: listener, at: at}, nil
}

// drop closes a listener that is not to be used.
func (o *opening) drop() {
	if o != nil {
		_ = o.listener.Close()
	}
}

// serve serves a rendering: at a new address, and no longer at the one before, or, without an opening, where it serves already.
func (w *web) serve(o *opening, rendering *boxhost.Rendering) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.rendering.Store(rendering)
	if o == nil {
		return
	}
	w.closeLocked()
	server := &http.Server{
		Handler: w.handler(), ReadHeaderTimeout: w.limits.read, ReadTimeout: w.limits.read, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10,
	}
	w.server, w.at = server, o.at
	go func() { _ = server.Serve(newLimited(o.listener, o.at.Addr(), w.limits)) }()
}

func (w *web) close() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.closeLocked()
}

func (w *web) closeLocked() {
	if w.server != nil {
		_ = w.server.Close()
		w.server = nil
	}
}

func (w *web) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathHealth, func(to http.ResponseWriter, _ *http.Request) { _, _ = to.Write([]byte("ok\n")) })
	mux.HandleFunc("GET "+boxhost.PathBoot+"{file}", w.script)
	mux.HandleFunc("GET "+boxhost.PathImage+"{file}", w.image)
	mux.HandleFunc("POST "+boxhost.PathJoin, func(to http.ResponseWriter, request *http.Request) {
		if w.join == nil {
			http.Error(to, "this box host lets nobody join the cluster", http.StatusForbidden)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(to, request.Body, maxBody))
		if err != nil {
			http.Error(to, "the request cannot be read, or is too long", http.StatusBadRequest)
			return
		}
		if why := w.whyNotFrom(request.RemoteAddr, body); why != "" {
			http.Error(to, why, http.StatusForbidden)
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		w.join.ServeHTTP(to, request)
	})
	return mux
}

// whyNotFrom says why a machine at an address may not ask for what it asks. A MAC is sent by everybody who knows it; an address of this
// network is that of one server.
func (w *web) whyNotFrom(remote string, body []byte) string {
	from, err := netip.ParseAddrPort(remote)
	rendering := w.rendering.Load()
	if err != nil || rendering == nil {
		return "this box host serves no servers yet: ask again"
	}
	macs, isServer := rendering.MACsAt[from.Addr().Unmap()]
	if !isServer {
		return fmt.Sprintf("the address %s is that of no server: ask from the address that DHCP has given", from.Addr().Unmap())
	}
	var question join.Question
	if err := json.Unmarshal(body, &question); err != nil {
		return "" // the handler says so
	}
	hardware, err := net.ParseMAC(question.MAC)
	if err == nil && !slices.Contains(macs, hardware.String()) {
		return fmt.Sprintf("the address %s is not that of the server with hardware address %s", from.Addr().Unmap(), hardware)
	}
	return ""
}

func (w *web) script(to http.ResponseWriter, request *http.Request) {
	name, isScript := strings.CutSuffix(request.PathValue("file"), ".ipxe")
	rendering := w.rendering.Load()
	if !isScript || rendering == nil {
		http.NotFound(to, request)
		return
	}
	script := rendering.Scripts[strings.ToLower(strings.ReplaceAll(name, "-", ":"))]
	if script == "" {
		http.NotFound(to, request)
		return
	}
	to.Header().Set("Content-Type", "text/plain; charset=utf-8")
	to.Header().Set("Cache-Control", "no-store")
	_, _ = to.Write([]byte(script))
}

func (w *web) image(to http.ResponseWriter, request *http.Request) {
	name := request.PathValue("file")
	if !slices.Contains(imageFiles, name) {
		http.NotFound(to, request)
		return
	}
	http.ServeFile(to, request, filepath.Join(w.images, name)) //nolint:gosec // one of five names
}

// isClosed says whether an error is that of a server that was closed in order.
func isClosed(err error) bool { return errors.Is(err, http.ErrServerClosed) }
