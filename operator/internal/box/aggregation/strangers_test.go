package aggregation

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// availability is how long the Kubernetes API server waits for an answer before it says that an aggregated API is not available.
const availability = 5 * time.Second

// nextAttempt is when a stranger that was thrown out comes again.
const nextAttempt = time.Second

// service serves what passes the door, and knows one authority.
type service struct {
	*testing.T

	address string
	client  tls.Certificate
}

func newService(t *testing.T) *service {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front-proxy"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(err)
	authority, err := dynamiccertificates.NewStaticCAContent("test", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	must(err)
	certificates, err := NewCertificates(host, time.Now())
	must(err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(err)
	server := newHTTPServer(t.Context(), http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		_, _ = response.Write([]byte("let in"))
	}))
	var serving sync.WaitGroup
	serving.Go(func() { _ = serve(server, listener, tlsConfig(certificates, authority)) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return &service{T: t, address: listener.Addr().String(), client: tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}}
}

// dial connects from an address.
func (s *service) dial(from string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: availability, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return dialer.DialContext(s.Context(), "tcp", s.address)
}

// asks makes a request as the Kubernetes API server would, in a connection of its own, which it returns.
func (s *service) asks(from string) (net.Conn, string) {
	s.Helper()
	raw, err := s.dial(from)
	if err != nil {
		return nil, err.Error()
	}
	s.Cleanup(func() { _ = raw.Close() })
	connection := tls.Client(raw, &tls.Config{
		Certificates: []tls.Certificate{s.client}, InsecureSkipVerify: true, // the other side is what is tested
	})
	if err := raw.SetDeadline(time.Now().Add(availability)); err != nil {
		s.Fatal(err)
	}
	return connection, s.again(connection)
}

// again makes a request in a connection; without a text, it was answered.
func (s *service) again(connection net.Conn) string {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "https://"+host+"/", http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	if err := request.Write(connection); err != nil {
		return err.Error()
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.ReadAll(response.Body); err != nil {
		return err.Error()
	}
	return ""
}

// besiege holds connections that say nothing from each of some addresses, and makes each anew that is closed.
func (s *service) besiege(connections int, from ...string) {
	s.Helper()
	var up, ended sync.WaitGroup
	for i := range connections {
		up.Add(1)
		ended.Go(func() {
			isUp := sync.OnceFunc(up.Done)
			defer isUp()
			for s.Context().Err() == nil {
				connection, err := s.dial(from[i%len(from)])
				isUp()
				if err != nil {
					if s.Context().Err() == nil {
						s.Error(err)
					}
					return
				}
				stop := make(chan struct{})
				ended.Go(func() {
					select {
					case <-s.Context().Done():
					case <-stop:
					}
					_ = connection.Close()
				})
				_, _ = io.Copy(io.Discard, connection)
				close(stop)
				<-time.After(nextAttempt)
			}
		})
	}
	up.Wait()
	s.Cleanup(ended.Wait)
}

// Connections that say nothing keep out nobody who has the certificate, whether they come from one address, from the same as the API
// server's (as pods behind one NAT), or from many.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 200 {
		many = append(many, (&net.IPAddr{IP: net.IPv4(127, 9, 0, byte(i+1))}).String())
	}
	for name, test := range map[string]struct {
		connections int
		from        []string
	}{
		"one address": {600, []string{"127.0.0.2"}}, "the API server's": {600, []string{"127.0.0.3"}},
		"many addresses": {maxNewcomers + 200, many},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			before, trouble := s.asks("127.0.0.3")
			if trouble != "" {
				t.Fatal(trouble)
			}
			s.besiege(test.connections, test.from...)
			for i := range 20 {
				if _, trouble := s.asks("127.0.0.3"); trouble != "" {
					t.Fatalf("request %d: %s", i, trouble)
				}
			}
			if trouble := s.again(before); trouble != "" {
				t.Errorf("the connection from before the strangers: %s", trouble)
			}
		})
	}
}

// Connections with a request are bounded, too, and a place is free again once its connection ends. Nothing of it is left then.
func TestAdmitted(t *testing.T) {
	d := newDoor(nil)
	enter := func(i int) *visitor {
		address := &net.TCPAddr{IP: net.IPv4(127, 0, byte(i>>8), byte(i))}
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = theirs.Close() })
		v := &visitor{Conn: ours, door: d, source: sourceOf(address)}
		if d.enter(v) != nil {
			t.Fatalf("newcomer %d has no room", i)
		}
		return v
	}
	var all []*visitor
	for i := range maxAdmitted {
		v := enter(i)
		for range 2 { // its first request, and the next one
			if !d.admit(v) {
				t.Fatalf("visitor %d is not let in", i)
			}
		}
		all = append(all, v)
	}
	late := enter(maxAdmitted)
	if d.admit(late) {
		t.Error("there is no bound")
	}
	_ = all[0].Close()
	_ = all[0].Close()
	if !d.admit(late) {
		t.Error("a place is not free")
	}
	for _, v := range append(all, late) {
		_ = v.Close()
	}
	if d.admitted != 0 || d.waiting != 0 || len(d.newcomers) != 0 {
		t.Errorf("%d are let in, %d wait, of %d sources", d.admitted, d.waiting, len(d.newcomers))
	}
}

// A machine has all addresses of an IPv6 network: they are one source.
func TestSources(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7": "192.0.2.7/32", "::ffff:192.0.2.7": "192.0.2.7/32", "2001:db8::1:2:3:4": "2001:db8::/64", "fe80::1%eth0": "fe80::/64",
	} {
		source := sourceOf(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1)))
		if source.String() != want {
			t.Errorf("%s is of %s, not %s", address, source, want)
		}
	}
}
