package supervisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// webAt serves at loopback, and gives the address.
func webAt(t *testing.T, w *web) string {
	t.Helper()
	opened, err := w.open(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	w.serve(opened, nil)
	t.Cleanup(w.close)
	return opened.listener.Addr().String()
}

// from connects from an address of loopback.
func from(t *testing.T, source, to string) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	connection, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	// A deadline of the test, far above what anything here takes.
	_ = connection.SetDeadline(time.Now().Add(time.Minute))
	return connection
}

// isAlive says whether a box host answers an address.
func isAlive(t *testing.T, source, at string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+pathHealth, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// TestOneMachineLeavesRoom: one machine that takes all connections that it gets leaves the others theirs, and many take nothing from the
// box host itself.
func TestOneMachineLeavesRoom(t *testing.T) {
	t.Parallel()
	few := limits{connections: 12, perAddress: 4, read: time.Minute, write: time.Minute}
	at := webAt(t, &web{limits: few})
	for range 2 * few.connections {
		_, _ = io.WriteString(from(t, "127.0.0.2", at), "POST /join HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
	}
	if err := isAlive(t, "127.0.0.3", at); err != nil {
		t.Errorf("another machine gets no answer: %v", err)
	}
	for n := range few.connections {
		_, _ = io.WriteString(from(t, fmt.Sprintf("127.0.0.%d", 10+n), at), "POST /join HTTP/1.1\r\n")
	}
	if err := isAlive(t, "127.0.0.1", at); err != nil {
		t.Errorf("the box host does not answer itself: %v", err)
	}
}

// TestSlowMachinesAreLeft: a request whose end does not come, and an answer that nobody reads, end; and make room.
func TestSlowMachinesAreLeft(t *testing.T) {
	t.Parallel()
	images := t.TempDir()
	// More than what the kernel takes of an answer that nobody reads.
	const size = 64 << 20
	if err := os.WriteFile(filepath.Join(images, "disk"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(images, "disk"), size); err != nil {
		t.Fatal(err)
	}
	hasty := &web{images: images, limits: limits{connections: 8, perAddress: 1, read: 50 * time.Millisecond, write: 50 * time.Millisecond}}
	at := webAt(t, hasty)
	for what, request := range map[string]string{
		"a body that does not come":   "POST /join HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
		"a header that does not come": "GET /image/disk HTTP/1.1\r\n",
		"an image that is not read":   "GET /image/disk HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		slow := from(t, "127.0.0.4", at)
		_, _ = io.WriteString(slow, request)
		deadline, tick := time.Now().Add(20*time.Second), time.NewTicker(10*time.Millisecond)
		for ; ; <-tick.C {
			err := isAlive(t, "127.0.0.4", at)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s keeps its connection: %v", what, err)
			}
		}
		tick.Stop()
		if read, _ := io.Copy(io.Discard, slow); read >= size {
			t.Errorf("%s: all of it came", what)
		}
	}
	// One that reads gets all of it.
	whole := from(t, "127.0.0.5", webAt(t, &web{images: images, limits: usualLimits()}))
	_, _ = io.WriteString(whole, "GET /image/disk HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if read, err := io.Copy(io.Discard, whole); err != nil || read <= size {
		t.Errorf("%d bytes came: %v", read, err)
	}
}
