package probe_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"rcbox.dev/rcbox/operator/internal/bmc/probe"
)

var local = netip.MustParseAddr("127.0.0.1")

// Redfish is found by the root of its service. What answers something else, much, or leads elsewhere is not.
func TestRedfish(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"service": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/redfish/v1/" && r.Header.Get("Authorization") == "" {
				_, _ = w.Write([]byte(`{"RedfishVersion": "1.15.0"}`))
			}
		}, "Redfish 1.15.0"},
		"another": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, ""},
		"refused": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, ""},
		"moved": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, ""},
		"much": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 1<<20))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(test.handler)
			defer server.Close()
			address, _ := server.Listener.Addr().(*net.TCPAddr)
			found, err := probe.Redfish(t.Context(), []netip.Addr{local}, address.AddrPort().Port())
			if err != nil || found[local] != test.want {
				t.Errorf("%v %v", found, err)
			}
		})
	}
}

// A BMC that answers at a real socket is found.
func TestIPMI(t *testing.T) {
	socket, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	go func() {
		buffer := make([]byte, 512)
		answer := []byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0x81, 0x1c, 0x63, 0x20, 0, 0x38, 0, 1, 0x84, 4, 3, 0, 0, 0, 0, 0x1c}
		if _, from, err := socket.ReadFromUDPAddrPort(buffer); err == nil {
			_, _ = socket.WriteToUDPAddrPort(answer, from)
		}
	}()
	port := socket.LocalAddr().(*net.UDPAddr).AddrPort().Port() //nolint:forcetypeassert // of a UDP socket
	if found, err := probe.IPMI(t.Context(), []netip.Addr{local}, port); err != nil || found[local] != "IPMI 2.0" {
		t.Errorf("%v %v", found, err)
	}
}

func TestIPMIEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := probe.IPMI(ctx, []netip.Addr{local}, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
