package join_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/box/join"
)

// host is a box host: its handler, and the file that is mounted.
type host struct {
	*testing.T

	handler *join.Handler
	now     time.Time
}

func newHost(t *testing.T) *host {
	t.Helper()
	folder := t.TempDir()
	claims := filepath.Join(folder, "claims")
	if err := os.Mkdir(claims, 0o700); err != nil {
		t.Fatal(err)
	}
	h := &host{T: t, now: start}
	h.handler = &join.Handler{File: filepath.Join(folder, "join.json"), Claims: claims, Now: func() time.Time { return h.now }}
	h.mount(entryOf(0, "aaaaa1"), entryOf(1, "aaaaa2"))
	return h
}

func entryOf(i int, token string) join.Entry {
	return join.Entry{
		Node: nameOf(i), State: join.EntryOffered, TokenID: token, Secret: "0123456789abcdef", UUID: uuidOf(i),
		Ports: []join.Port{
			{MAC: macOf(i), Address: addressOf(i)},
			{MAC: secondMAC(i), Address: "192.168.4." + strconv.Itoa(i+1)},
			{MAC: "02:00:00:00:05:01"},
		},
		Labels: map[string]string{"rcbox.dev/slot": "1"}, ExpiresAt: start.Add(join.TokenLifetime),
	}
}

func secondMAC(i int) string { return fmt.Sprintf("02:00:00:00:04:%02x", i+1) }

// mount has the file changed as kubelets do it: another one takes its place.
func (h *host) mount(entries ...join.Entry) {
	h.Helper()
	file := join.File{APIServer: "https://192.168.3.254:6443", CA: "a CA", Entries: entries}
	text, err := file.Text()
	if err == nil {
		err = os.WriteFile(h.handler.File+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(h.handler.File+".new", h.handler.File)
	}
	if err != nil {
		h.Fatal(err)
	}
}

// ask asks from the address that the port with this hardware address has.
func (h *host) ask(mac, uuid string) (code int, text string) {
	h.Helper()
	from := "192.168.3.99"
	for i := range 2 {
		for _, port := range entryOf(i, "").Ports {
			if strings.EqualFold(port.MAC, strings.ReplaceAll(mac, "-", ":")) {
				from = port.Address
			}
		}
	}
	return h.askFrom(from+":40000", mac, uuid)
}

func (h *host) askFrom(from, mac, uuid string) (code int, text string) {
	h.Helper()
	body, err := json.Marshal(join.Question{MAC: mac, UUID: uuid})
	if err != nil {
		h.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(h.Context(), http.MethodPost, "/join", strings.NewReader(string(body)))
	request.RemoteAddr = from
	h.handler.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

func (h *host) mustSay(mac, uuid string, code int, text string) {
	h.Helper()
	if gotCode, got := h.ask(mac, uuid); gotCode != code || !strings.Contains(got, text) {
		h.Errorf("%s with UUID %s: %d %s, not %d %s", mac, uuid, gotCode, got, code, text)
	}
}

func TestHandler(t *testing.T) {
	h := newHost(t)
	h.mustSay(macOf(7), uuidOf(0), http.StatusForbidden, "no server with hardware address")
	h.mustSay(macOf(0), uuidOf(1), http.StatusForbidden, "reports another one")
	h.mustSay(macOf(0), "", http.StatusForbidden, "reports another one")
	h.mustSay("hello\x1b", uuidOf(0), http.StatusForbidden, "is no hardware address")
	h.mustSay("02-00-00-00-03-01", strings.ToUpper(uuidOf(0)), http.StatusOK, `"token":"aaaaa1.0123456789abcdef"`)
	h.mustSay(secondMAC(0), uuidOf(0), http.StatusForbidden, `has given the token to the port "02:00:00:00:03:01" already`)

	_, text := h.ask(macOf(1), uuidOf(1))
	var answer join.Answer
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Node != "atom002" ||
		answer.APIServer != "https://192.168.3.254:6443" || answer.CA != "a CA" || answer.Address != "192.168.3.2" ||
		answer.Labels["rcbox.dev/slot"] != "1" {
		t.Errorf("it says %s (%v)", text, err)
	}

	next := entryOf(0, "aaaaa3")
	for state, want := range map[join.EntryState]string{
		join.EntryPreparing: "is being made", join.EntryUsed: "has served already", "x": "is being made",
	} {
		next.State = state
		h.mount(next)
		h.mustSay(macOf(0), uuidOf(0), http.StatusForbidden, want)
	}
	next.State = join.EntryOffered
	h.mount(next)
	h.now = next.ExpiresAt
	h.mustSay(macOf(0), uuidOf(0), http.StatusForbidden, "has expired")
	h.now = next.ExpiresAt.Add(-time.Second)
	h.mustSay(macOf(0), uuidOf(0), http.StatusOK, "aaaaa3.")
}

// TestHandlerSecondPort: a machine that has started from its second port is told the address of that port. The machine refuses another one.
func TestHandlerSecondPort(t *testing.T) {
	h := newHost(t)
	h.mustSay(secondMAC(0), uuidOf(0), http.StatusOK, `"address":"192.168.4.1"`)
}

// TestHandlerGivesAgain: a token that has not served is given again to the machine that has it already: its answer may be lost, or its
// request denied while another machine was ready under this name. The token is given to no other port.
func TestHandlerGivesAgain(t *testing.T) {
	h := newHost(t)
	h.mustSay(macOf(0), uuidOf(0), http.StatusOK, "aaaaa1.")
	written := changedAt(t, h.handler.Claims)
	for range 3 {
		h.mustSay(macOf(0), uuidOf(0), http.StatusOK, "aaaaa1.")
		h.mustSay(secondMAC(0), uuidOf(0), http.StatusForbidden, "has given the token to the port")
		// The next process knows, too.
		h.handler = &join.Handler{File: h.handler.File, Claims: h.handler.Claims, Now: h.handler.Now}
	}
	if got := changedAt(t, h.handler.Claims); !got.Equal(written) {
		t.Error("requests that are repeated cost writes to the disk")
	}
	used, expired := entryOf(0, "aaaaa1"), entryOf(1, "aaaaa2")
	h.mustSay(macOf(1), uuidOf(1), http.StatusOK, "aaaaa2.")
	used.State = join.EntryUsed
	h.mount(used, expired)
	h.now = expired.ExpiresAt
	h.mustSay(macOf(0), uuidOf(0), http.StatusForbidden, "has served already: kubectl rcbox power atom001 cycle")
	h.mustSay(macOf(1), uuidOf(1), http.StatusForbidden, "has expired: kubectl rcbox power atom002 cycle")
}

func changedAt(t *testing.T, path string) time.Time {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// TestHandlerSource: only from the address of its port is a machine given anything, and asking from elsewhere does not use up the token.
func TestHandlerSource(t *testing.T) {
	h := newHost(t)
	for _, from := range []string{"192.168.3.2:1", "192.168.4.1:1", "10.244.0.7:1", "[::1]:1", "192.168.3.1", ""} {
		if code, text := h.askFrom(from, macOf(0), uuidOf(0)); code != http.StatusForbidden || !strings.Contains(text, "is 192.168.3.1") {
			t.Errorf("from %s: %d %s", from, code, text)
		}
	}
	h.mustSay("02:00:00:00:05:01", uuidOf(0), http.StatusForbidden, "has no address")
	if code, text := h.askFrom("[::ffff:192.168.3.1]:7", macOf(0), uuidOf(0)); code != http.StatusOK {
		t.Errorf("from an IPv4 address in IPv6: %d %s", code, text)
	}
}

// TestHandlerRestarts: that a token was given is known to the next process.
func TestHandlerRestarts(t *testing.T) {
	h := newHost(t)
	h.mustSay(macOf(0), uuidOf(0), http.StatusOK, "aaaaa1.")
	h.handler = &join.Handler{File: h.handler.File, Claims: h.handler.Claims, Now: h.handler.Now}
	h.mustSay(secondMAC(0), uuidOf(0), http.StatusForbidden, "has given the token to the port")
	if err := os.RemoveAll(h.handler.Claims); err != nil {
		t.Fatal(err)
	}
	h.mustSay(macOf(1), uuidOf(1), http.StatusServiceUnavailable, "cannot read or note")
	if err := os.WriteFile(h.handler.File, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.mustSay(macOf(1), uuidOf(1), http.StatusServiceUnavailable, "cannot read or note")
}

// TestHandlerAtOnce: of two ports that ask many times at once, one gets the token.
func TestHandlerAtOnce(t *testing.T) {
	h := newHost(t)
	var given, asked sync.WaitGroup
	codes := make(chan [2]int, 64)
	given.Add(1)
	for i := range cap(codes) {
		asked.Go(func() {
			given.Wait()
			// Processes of one box host that overlap, such as at an upgrade: they share the folder alone.
			other := &host{T: h.T, handler: &join.Handler{File: h.handler.File, Claims: h.handler.Claims, Now: h.handler.Now}}
			code, _ := other.ask([]string{macOf(0), secondMAC(0)}[i%2], uuidOf(0))
			codes <- [2]int{i % 2, code}
		})
	}
	given.Done()
	asked.Wait()
	close(codes)
	count := map[[2]int]int{}
	for code := range codes {
		count[code]++
	}
	first, second := count[[2]int{0, http.StatusOK}], count[[2]int{1, http.StatusOK}]
	if len(count) != 2 || max(first, second) != cap(codes)/2 {
		t.Errorf("answers by port and code: %v", count)
	}
	if left, err := os.ReadDir(h.handler.Claims); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v (%v)", left, err)
	}
}

func TestHandlerBounds(t *testing.T) {
	h := newHost(t)
	for body, want := range map[string]int{
		"":                          http.StatusBadRequest,
		"{":                         http.StatusBadRequest,
		strings.Repeat("x", 100000): http.StatusBadRequest,
		`{"mac": 1}`:                http.StatusBadRequest,
		`{}`:                        http.StatusForbidden,
	} {
		recorder := httptest.NewRecorder()
		h.handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/join", strings.NewReader(body)))
		if recorder.Code != want {
			t.Errorf("%.20q: %d", body, recorder.Code)
		}
	}
	recorder := httptest.NewRecorder()
	h.handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/join", http.NoBody))
	if recorder.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", recorder.Code)
	}
	bad := entryOf(0, "../../x")
	h.mount(bad)
	h.mustSay(macOf(0), uuidOf(0), http.StatusServiceUnavailable, "")
}
