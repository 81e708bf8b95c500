package aggregation

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

const (
	// maxNewcomers bounds the connections that have not sent a request yet, and maxNewcomersPerSource those of them that come from one
	// source. A request shows that the handshake has ended, so that the other side has a certificate.
	maxNewcomers          = 1024
	maxNewcomersPerSource = maxNewcomers / 4
	// maxAdmitted bounds the connections that have sent a request.
	maxAdmitted = 512
	// sourceBits6 of an IPv6 address are a source: a machine has all addresses of such a network.
	sourceBits6 = 64
)

// door is a listener through which silent strangers cannot keep the Kubernetes API server out. A connection that is one too many closes the
// oldest newcomer of its source, not itself: a handshake takes milliseconds, so that those with a certificate are let in before it is their
// turn to be closed, also where strangers have the same address, as behind one NAT. It does not help against a flood from that address.
type door struct {
	net.Listener

	mutex sync.Mutex
	// newcomers are in the order in which they came, by source.
	newcomers map[netip.Prefix][]*visitor
	waiting   int
	arrivals  uint64
	admitted  int
}

// visitor is a connection.
type visitor struct {
	net.Conn

	door    *door
	source  netip.Prefix
	arrival uint64
	// Guarded by the door.
	isAdmitted, hasLeft bool
}

func newDoor(listener net.Listener) *door {
	return &door{Listener: listener, newcomers: map[netip.Prefix][]*visitor{}}
}

// Accept waits for a connection.
func (d *door) Accept() (net.Conn, error) {
	connection, err := d.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at its type
	}
	entering := &visitor{Conn: connection, door: d, source: sourceOf(connection.RemoteAddr())}
	if crowdedOut := d.enter(entering); crowdedOut != nil {
		_ = crowdedOut.Close()
	}
	return entering, nil
}

// sourceOf is whom a connection is counted for. All that have no address of IP are one source.
func sourceOf(address net.Addr) netip.Prefix {
	tcp, isTCP := address.(*net.TCPAddr)
	if !isTCP {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = sourceBits6
	}
	source, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return source
}

// enter takes a newcomer in, and returns the one that has to go for it, if any.
func (d *door) enter(entering *visitor) *visitor {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	entering.arrival = d.arrivals
	d.arrivals++
	d.newcomers[entering.source] = append(d.newcomers[entering.source], entering)
	d.waiting++
	switch {
	case len(d.newcomers[entering.source]) > maxNewcomersPerSource:
		return d.newcomers[entering.source][0]
	case d.waiting > maxNewcomers:
		return d.oldestOfMost()
	}
	return nil
}

// oldestOfMost is the oldest newcomer of the source that has most of them; of several such sources, the oldest of all.
func (d *door) oldestOfMost() *visitor {
	var found *visitor
	most := 0
	for _, of := range d.newcomers {
		if len(of) > most || len(of) == most && of[0].arrival < found.arrival {
			found, most = of[0], len(of)
		}
	}
	return found
}

// admit takes note that a visitor has sent a request. It says whether there is room.
func (d *door) admit(v *visitor) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch {
	case v.isAdmitted:
		return true
	case v.hasLeft:
		return false
	case d.admitted >= maxAdmitted:
		return false
	}
	d.dismiss(v)
	v.isAdmitted = true
	d.admitted++
	return true
}

// dismiss takes a visitor off the newcomers.
func (d *door) dismiss(v *visitor) {
	of := d.newcomers[v.source]
	at := slices.Index(of, v)
	if at < 0 {
		panic("a newcomer is not at the door")
	}
	d.waiting--
	if len(of) == 1 {
		delete(d.newcomers, v.source)
		return
	}
	d.newcomers[v.source] = slices.Delete(of, at, at+1)
}

func (d *door) leave(v *visitor) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch {
	case v.hasLeft:
		return
	case v.isAdmitted:
		d.admitted--
	default:
		d.dismiss(v)
	}
	v.hasLeft = true
}

// Close ends the connection, also where a WebSocket has taken it over.
func (v *visitor) Close() error {
	v.door.leave(v)
	return v.Conn.Close() //nolint:wrapcheck // whose errors these are
}

// watch is told by net/http what becomes of a connection: it is active once the handshake is done and a request begins.
func watch(connection net.Conn, state http.ConnState) {
	if state != http.StateActive {
		return
	}
	encrypted, isTLS := connection.(*tls.Conn)
	if !isTLS {
		panic("a request without TLS")
	}
	v, isVisitor := encrypted.NetConn().(*visitor)
	if !isVisitor {
		panic("a request that did not come through the door")
	}
	if !v.door.admit(v) {
		_ = v.Close()
	}
}
