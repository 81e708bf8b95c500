package supervisor

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// TestJoinIsAskedFromTheServersAddress: whoever knows the MAC of a server, and asks from another address, does not reach the handler.
func TestJoinIsAskedFromTheServersAddress(t *testing.T) {
	t.Parallel()
	const mac, second, other = "52:54:00:03:00:01", "52:54:00:03:00:11", "52:54:00:03:00:02"
	w := &web{limits: usualLimits(), join: http.HandlerFunc(func(to http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(to, request.Body)
	})}
	at := webAt(t, w)
	ask := func(source, body string) (int, string) {
		t.Helper()
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		response, err := client.Post("http://"+at+boxhost.PathJoin, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	question := func(mac string) string { return `{"mac":"` + mac + `"}` }
	if status, text := ask("127.0.0.6", question(mac)); status != http.StatusForbidden || !strings.Contains(text, "serves no servers yet") {
		t.Errorf("before anything is served: %d %s", status, text)
	}
	w.rendering.Store(&boxhost.Rendering{MACsAt: map[netip.Addr][]string{
		netip.MustParseAddr("127.0.0.6"): {mac, second}, netip.MustParseAddr("127.0.0.7"): {other},
	}})
	for _, of := range []struct {
		source, body string
		status       int
		says         string
	}{
		{"127.0.0.6", question(mac), http.StatusOK, mac},
		{"127.0.0.6", question(strings.ToUpper(second)), http.StatusOK, "3:00:11"},
		{"127.0.0.7", question(mac), http.StatusForbidden, "127.0.0.7 is not that of the server"},
		{"127.0.0.8", question(mac), http.StatusForbidden, "127.0.0.8 is that of no server"},
		{"127.0.0.8", "nonsense", http.StatusForbidden, "is that of no server"},
		{"127.0.0.6", "nonsense", http.StatusOK, "nonsense"}, // the handler refuses it
		{"127.0.0.6", strings.Repeat(" ", 1<<20), http.StatusBadRequest, "too long"},
	} {
		status, text := ask(of.source, of.body)
		if status != of.status || !strings.Contains(text, of.says) {
			t.Errorf("%s asks %.40s: %d %s", of.source, of.body, status, text)
		}
	}
}
