package faults

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"slices"
	"testing"
	"time"
)

// Kinds of packets of the fast protocol; see docs/fast.md.
const (
	packetOpen      = 1
	packetChallenge = 2
	packetOpened    = 3
	packetRefused   = 4
	packetRequest   = 5
	packetResponse  = 6
	packetGrant     = 7
	packetResend    = 8
	packetClose     = 13
	packetReset     = 14
)

const (
	packetHeaderBytes = 28
	packetVersion     = 1
	// pieceBytes is how much of a message is in each of its packets but the last, and unaskedBytes how much goes out before a grant.
	pieceBytes   = 1444
	unaskedBytes = 11 * pieceBytes
	// repeatAfter is when a packet is sent again that was not answered.
	repeatAfter = 50 * time.Millisecond
)

// datagram is a packet of the fast protocol. Session is as its receiver numbers it.
type datagram struct {
	kind, slot             byte
	session                uint64
	number, length, offset uint32
	payload                []byte
}

func (d datagram) bytes() []byte {
	bytes := append(make([]byte, 4), packetVersion, d.kind, d.slot, 0)
	bytes = binary.LittleEndian.AppendUint64(bytes, d.session)
	for _, word := range []uint32{d.number, d.length, d.offset} {
		bytes = binary.LittleEndian.AppendUint32(bytes, word)
	}
	bytes = append(bytes, d.payload...)
	binary.LittleEndian.PutUint32(bytes, crc32.Checksum(bytes[4:], crc32.MakeTable(crc32.Castagnoli)))
	return bytes
}

// socket is a UDP socket of one address, connected to a port of this machine.
type socket struct {
	*net.UDPConn
	buffer []byte
}

func newSocket(from string, port int) (*socket, error) {
	connection, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	return &socket{UDPConn: connection, buffer: make([]byte, 1<<16)}, err
}

func (s *socket) send(d datagram) error {
	_, err := s.Write(d.bytes())
	return err
}

// receive waits for a packet, for a while.
func (s *socket) receive(wait time.Duration) (datagram, error) {
	if err := s.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return datagram{}, err
	}
	length, err := s.Read(s.buffer)
	if err != nil {
		return datagram{}, err
	}
	if length < packetHeaderBytes {
		return datagram{}, fmt.Errorf("a packet of %d bytes", length)
	}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(s.buffer[at:]) }
	return datagram{
		kind: s.buffer[5], slot: s.buffer[6], session: binary.LittleEndian.Uint64(s.buffer[8:]),
		number: word(16), length: word(20), offset: word(24), payload: s.buffer[packetHeaderBytes:length],
	}, nil
}

// opening asks for a session: who asks calls it own.
type opening struct {
	own, incarnation, cookie uint64
	inOrder                  bool
}

func (o opening) packet() datagram {
	payload := binary.LittleEndian.AppendUint64(nil, o.own)
	payload = binary.LittleEndian.AppendUint64(payload, o.incarnation)
	payload = binary.LittleEndian.AppendUint64(payload, o.cookie)
	payload = binary.LittleEndian.AppendUint16(payload, packetHeaderBytes+pieceBytes)
	payload = binary.LittleEndian.AppendUint16(payload, 64)
	payload = append(payload, make([]byte, 12)...)
	if o.inOrder {
		payload[28] = 1
	}
	return datagram{kind: packetOpen, payload: payload}
}

// open asks for a session, as a client or, in order, as a server does: gives its number there if it was opened, and the kind of the answer.
func (s *socket) open(o opening) (session uint64, kind byte, err error) {
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		if err := s.send(o.packet()); err != nil {
			return 0, 0, err
		}
		for {
			answer, err := s.receive(repeatAfter)
			if err != nil {
				break
			}
			switch {
			case answer.session != o.own:
				continue
			case answer.kind == packetChallenge && len(answer.payload) >= 8:
				o.cookie = binary.LittleEndian.Uint64(answer.payload)
				if err := s.send(o.packet()); err != nil {
					return 0, 0, err
				}
			case answer.kind == packetOpened && len(answer.payload) >= 8:
				return binary.LittleEndian.Uint64(answer.payload), packetOpened, nil
			case answer.kind == packetRefused:
				return 0, packetRefused, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("no answer from %v in %v", s.RemoteAddr(), deadline)
}

// ask sends a request of one packet in a session, and gives the answer, which has one as well.
func (s *socket) ask(session uint64, number uint32, payload []byte) ([]byte, error) {
	request := datagram{kind: packetRequest, session: session, number: number, length: uint32(len(payload)), payload: payload}
	for end := time.Now().Add(deadline); time.Now().Before(end); {
		if err := s.send(request); err != nil {
			return nil, err
		}
		for {
			answer, err := s.receive(repeatAfter)
			if err != nil {
				break
			}
			switch {
			case answer.kind == packetResponse && answer.number == number:
				return slices.Clone(answer.payload), nil
			case answer.kind == packetClose || answer.kind == packetReset:
				return nil, errors.New("the session has ended")
			}
		}
	}
	return nil, fmt.Errorf("no answer from %v in %v", s.RemoteAddr(), deadline)
}

// openSession asks for a session at a UDP port of this machine, and gives the kind of the answer.
func openSession(t *testing.T, port int, inOrder bool) byte {
	t.Helper()
	s, err := newSocket("127.0.0.1", port)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, kind, err := s.open(opening{own: 7, incarnation: 8, inOrder: inOrder})
	if err != nil {
		t.Fatal(err)
	}
	return kind
}

// freeUDPPorts are ports that nobody has at the moment.
func freeUDPPorts(t *testing.T, count int) []int {
	t.Helper()
	var ports []int
	for range count {
		socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		ports = append(ports, socket.LocalAddr().(*net.UDPAddr).Port)
	}
	return ports
}

// TestDatagramPortOfPeers: whoever opens a session at the UDP port for clients cannot speak the protocol between servers, whatever it
// asks for; servers reach each other at their own port.
func TestDatagramPortOfPeers(t *testing.T) {
	s := startStore(t, onLoopback)
	ports := freeUDPPorts(t, 2)
	locator := fmt.Sprintf("fast+udp:host=127.0.0.1,port=%d,peerPort=%d", ports[0], ports[1])
	s.add("m0", "-r", "1", "-L", locator)
	s.add("m1", "-r", "1", "-L", "fast+udp:host=127.0.0.1,port=0")
	s.waitReady("m0")
	s.waitReady("m1")
	for _, member := range []string{"m0", "m1"} {
		waitFor(t, member+" to reach its backup by datagrams", func() error {
			count, err := s.metric(member, "rcbox_fast_backups")
			if err == nil && count != 1 {
				err = fmt.Errorf("%v backups are reached so", count)
			}
			return err
		})
	}
	for _, test := range []struct {
		port    int
		inOrder bool
		want    byte
	}{
		{ports[0], true, packetRefused},
		{ports[0], false, packetOpened},
		{ports[1], true, packetOpened},
		{ports[1], false, packetRefused},
	} {
		if got := openSession(t, test.port, test.inOrder); got != test.want {
			t.Errorf("UDP port %d (clients %d, servers %d), in order %v: packet of kind %d instead of %d",
				test.port, ports[0], ports[1], test.inOrder, got, test.want)
		}
	}
}
