package proxy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/proxy"
	"rcbox.dev/rcbox/operator/proxy/wire"
)

// deadline is far above what anything here takes.
const deadline = 30 * time.Second

var (
	clients        = proxy.Target{Port: 11100}
	administrators = proxy.Target{Port: 11300}
	read           = wire.Operation{Opcode: 13}
)

// store is a Directory of servers that tests make.
type store struct {
	t *testing.T

	mu sync.Mutex
	// members by the host of their address; serve is what is behind a target.
	members map[string]string
	serve   map[proxy.Target]func(net.Conn)
	dials   map[proxy.Target]int
	// gate, if there is one, holds up every Dial.
	gate     chan struct{}
	reported []string
	// changed is closed, and made anew, with each report.
	changed chan struct{}
}

func newStore(t *testing.T) *store {
	t.Helper()
	return &store{
		t: t, members: map[string]string{}, serve: map[proxy.Target]func(net.Conn){}, dials: map[proxy.Target]int{},
		changed: make(chan struct{}),
	}
}

func (s *store) Find(_ context.Context, address wire.Address) (proxy.Target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	member := s.members[address.Host]
	if member == "" {
		return proxy.Target{}, fmt.Errorf("nobody has the address %s", address.Host)
	}
	return proxy.Target{Member: member, Port: int(address.Port)}, nil
}

func (s *store) Dial(ctx context.Context, target proxy.Target) (net.Conn, error) {
	s.mu.Lock()
	serve, gate := s.serve[target], s.gate
	s.dials[target]++
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if serve == nil {
		return nil, errors.New("it has no pod that runs")
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		serve(theirs)
	}()
	return ours, nil
}

func (s *store) put(target proxy.Target, serve func(net.Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve[target] = serve
}

func (s *store) report(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = append(s.reported, text)
	close(s.changed)
	s.changed = make(chan struct{})
}

// awaitReport of something that contains text, and give all that was reported. The proxy closes a connection before it says why.
func (s *store) awaitReport(text string) string {
	s.t.Helper()
	tooLate := time.After(deadline)
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if reports := s.reports(); strings.Contains(reports, text) {
			return reports
		}
		select {
		case <-changed:
		case <-tooLate:
			s.t.Fatalf("%q is not reported, but: %s", text, s.reports())
		}
	}
}

func (s *store) reports() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.reported, "\n")
}

// start a proxy for it, at any port.
func (s *store) start() *proxy.Proxy {
	s.t.Helper()
	p := &proxy.Proxy{Address: netip.MustParseAddr("127.0.0.1"), Directory: s, Report: s.report}
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(func() {
		cancel()
		p.Wait() // hangs where a connection outlives the proxy
	})
	if err := p.Start(ctx, 0, clients, administrators); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// answer requests one by one.
func answer(respond func(asked wire.Operation, payload []byte) []byte) func(net.Conn) {
	return func(conn net.Conn) {
		for {
			header, payload, err := receive(conn)
			if err != nil {
				return
			}
			response := respond(wire.OperationOf(payload), payload)
			_, _ = conn.Write(append(wire.Header{Nonce: header.Nonce, Length: uint32(len(response))}.Append(nil), response...))
		}
	}
}

func receive(conn net.Conn) (wire.Header, []byte, error) {
	header, err := wire.ReadHeader(conn)
	if err != nil {
		return header, nil, err
	}
	payload := make([]byte, header.Length)
	_, err = io.ReadFull(conn, payload)
	return header, payload, err
}

// client is a connection to a port of this machine.
type client struct {
	t *testing.T
	net.Conn
	nonce uint64
}

func connect(t *testing.T, port int) *client {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(deadline))
	return &client{t: t, Conn: conn}
}

func connectTo(t *testing.T, p *proxy.Proxy, target proxy.Target) *client {
	t.Helper()
	port, err := p.Local(target)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, port)
}

func request(asked wire.Operation, more string) []byte {
	payload := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, asked.Opcode), asked.Service)
	return append(payload, more...)
}

func (c *client) send(payload []byte) uint64 {
	c.t.Helper()
	c.nonce++
	if _, err := c.Write(append(wire.Header{Nonce: c.nonce, Length: uint32(len(payload))}.Append(nil), payload...)); err != nil {
		c.t.Fatal(err)
	}
	return c.nonce
}

func (c *client) expect(nonce uint64, want []byte) {
	c.t.Helper()
	header, payload, err := receive(c.Conn)
	if err != nil || header.Nonce != nonce || !bytes.Equal(payload, want) {
		c.t.Fatalf("the answer to %d is %d with %d bytes, %.60x, %v; not %.60x", nonce, header.Nonce, len(payload), payload, err, want)
	}
}

func (c *client) expectClosed() {
	c.t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) {
		c.t.Fatalf("%d bytes, %v: the connection should be closed", n, err)
	}
}

// tableConfig is a captured answer to GET_TABLE_CONFIG, with a locator of the same length.
func tableConfig(t *testing.T, locator string) []byte {
	t.Helper()
	decoded, err := hex.DecodeString("000000003f0000000a3d0801100018ffffffffffffffffff012000290100000000000000" +
		"321d" + hex.EncodeToString([]byte(locator)) + "40004800")
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

// locatorIn an answer to GET_TABLE_CONFIG, and its port.
func locatorIn(t *testing.T, answer []byte) wire.Address {
	t.Helper()
	var found wire.Address
	if _, err := wire.Rewrite(wire.GetTableConfig, answer, func(locators string) string {
		address, err := wire.ParseLocators(locators)
		if err != nil {
			t.Fatal(err)
		}
		found = address
		return locators
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// A client is told addresses of this machine, and reaches there the servers that the store meant; another process of a server is reached
// at the same port.
func TestClientsAreLedThroughTheProxy(t *testing.T) {
	s := newStore(t)
	s.members["10.0.0.20"], s.members["10.0.0.30"] = "box-master-0", "box-master-1"
	asks := 0
	s.put(clients, answer(func(asked wire.Operation, _ []byte) []byte {
		if asked != wire.GetTableConfig {
			return []byte("not asked for a table")
		}
		asks++
		return tableConfig(t, []string{"tcp:host=10.0.0.20,port=12100", "tcp:host=10.0.0.30,port=12101"}[asks%2])
	}))
	echo := func(who string) func(net.Conn) {
		return answer(func(_ wire.Operation, payload []byte) []byte { return append([]byte(who), payload...) })
	}
	s.put(proxy.Target{Member: "box-master-0", Port: 12100}, echo("zero"))
	s.put(proxy.Target{Member: "box-master-1", Port: 12101}, echo("one"))
	p := s.start()

	coordinator := connectTo(t, p, clients)
	ports := map[string]int{}
	for _, who := range []string{"one", "zero", "one"} {
		nonce := coordinator.send(request(wire.GetTableConfig, "\x01\x00\x00\x00\x00\x00\x00\x00"))
		header, payload, err := receive(coordinator.Conn)
		if err != nil || header.Nonce != nonce {
			t.Fatal(header, err)
		}
		at := locatorIn(t, payload)
		if at.Host != "127.0.0.1" || ports[who] != 0 && ports[who] != int(at.Port) {
			t.Fatalf("%s is said to be at %+v, before at %d", who, at, ports[who])
		}
		ports[who] = int(at.Port)
		server := connect(t, int(at.Port))
		// As large as messages get, so that none is kept as a whole.
		for _, size := range []int{5, wire.MaxPayloadBytes - 8} {
			asked := request(read, strings.Repeat("x", size))
			go func() {
				_, _ = server.Write(append(wire.Header{Nonce: 7, Length: uint32(len(asked))}.Append(nil), asked...))
			}()
			server.expect(7, append([]byte(who), asked...))
		}
	}
	if ports["one"] == ports["zero"] {
		t.Errorf("two servers have port %d", ports["one"])
	}

	s.put(proxy.Target{Member: "box-master-0", Port: 12100}, echo("its next process"))
	again := connect(t, ports["zero"])
	again.expect(again.send(request(read, "")), append([]byte("its next process"), request(read, "")...))
	if reports := s.reports(); reports != "" {
		t.Error(reports)
	}
}

// A client waits for its server as long as pings are answered; what it has asked meanwhile is asked in the same order.
func TestPingsAreAnsweredWhileTheServerIsNotReached(t *testing.T) {
	s := newStore(t)
	s.gate = make(chan struct{})
	s.put(clients, answer(func(_ wire.Operation, payload []byte) []byte { return payload }))
	p := s.start()
	c := connectTo(t, p, clients)
	first, second := request(read, "first"), request(read, "second")
	one := c.send(first)
	ping := request(wire.Ping, strings.Repeat("\xff", 8))
	c.expect(c.send(ping), wire.Pong())
	two := c.send(second)
	c.expect(c.send(ping), wire.Pong())
	close(s.gate)
	c.expect(one, first)
	c.expect(two, second)
	// Now it is the server that says whether it is there.
	c.expect(c.send(ping), ping)
}

func TestServersThatAreNotThere(t *testing.T) {
	s := newStore(t)
	s.put(clients, answer(func(wire.Operation, []byte) []byte { return tableConfig(t, "tcp:host=10.0.0.99,port=12100") }))
	p := s.start()
	coordinator := connectTo(t, p, clients)
	coordinator.send(request(wire.GetTableConfig, "\x01\x00\x00\x00\x00\x00\x00\x00"))
	_, payload, err := receive(coordinator.Conn)
	if err != nil {
		t.Fatal(err)
	}
	// A client that is led nowhere finds out at once, and asks again.
	at := locatorIn(t, payload)
	connect(t, int(at.Port)).expectClosed()
	if reports := s.awaitReport("nobody has the address 10.0.0.99"); at.Host != "127.0.0.1" {
		t.Errorf("led to %+v; %s", at, reports)
	}

	gone := proxy.Target{Member: "box-master-3", Port: 12100}
	for range 2 {
		connectTo(t, p, gone).expectClosed()
	}
	if reports := s.awaitReport("it has no pod that runs"); strings.Count(reports, "it has no pod that runs") != 1 {
		t.Errorf("not said once:\n%s", reports)
	}
}

// A server's answer that makes no sense ends the connection: a client must not go on with half of it.
func TestBrokenAnswersEndTheConnection(t *testing.T) {
	for name, broken := range map[string]func(conn net.Conn){
		"no protobuf": answer(func(wire.Operation, []byte) []byte { return []byte("\x00\x00\x00\x00\x02\x00\x00\x00\x0a\x7f") }),
		"too long": func(conn net.Conn) {
			header, _, err := receive(conn)
			if err != nil {
				return
			}
			_, _ = conn.Write(wire.Header{Nonce: header.Nonce, Length: 1<<32 - 1}.Append(nil))
			_, _, _ = receive(conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.put(clients, broken)
			c := connectTo(t, s.start(), clients)
			c.send(request(wire.GetServerList, "\x03\x00\x00\x00"))
			c.expectClosed()
			s.awaitReport("the server's answer")
		})
	}
}

// A client cannot have the proxy remember without bound.
func TestRequestsWithoutAnswersAreBounded(t *testing.T) {
	s := newStore(t)
	s.put(clients, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	c := connectTo(t, s.start(), clients)
	message := append(wire.Header{Length: 8}.Append(nil), request(wire.GetServerList, "\x03\x00\x00\x00")...)
	go func() {
		for nonce := uint64(1); ; nonce++ {
			binary.LittleEndian.PutUint64(message, nonce)
			if _, err := c.Write(message); err != nil {
				return
			}
		}
	}()
	c.expectClosed()
	s.awaitReport("too many requests")
}

func TestAdministratorsAreRelayedAsTheyAre(t *testing.T) {
	s := newStore(t)
	s.put(administrators, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	c := connectTo(t, s.start(), administrators)
	text := strings.Repeat("HTTP/2 or whatever", 100_000)
	go func() { _, _ = io.WriteString(c, text) }()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("%.40q, %v", got, err)
	}
}

func TestTakenPorts(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	s := newStore(t)
	p := &proxy.Proxy{Address: netip.MustParseAddr("127.0.0.1"), Directory: s, Report: s.report}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := p.Start(ctx, port, clients, administrators); err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("the coordinator's port is taken: %v", err)
	}
	// Those of servers may be anywhere.
	if err := p.Start(ctx, 0, clients, administrators); err != nil {
		t.Fatal(err)
	}
	first, _ := p.Local(clients)
	inTheWay, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", first+1))
	if err == nil {
		defer inTheWay.Close()
	}
	if port, err := p.Local(proxy.Target{Member: "box-master-0", Port: 12100}); err != nil || port == first+1 {
		t.Errorf("a server has port %d, %v", port, err)
	}
}
