package standin

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
)

// wire is the socket of a stand-in. It loses, delays and forges datagrams.
type wire struct {
	*net.UDPConn
	bmc    *BMC
	once   sync.Once
	closed chan struct{}
}

// ReadFrom returns the next datagram that arrives.
func (w *wire) ReadFrom(buffer []byte) (int, net.Addr, error) {
	for {
		n, from, err := w.UDPConn.ReadFrom(buffer)
		select {
		case <-w.closed:
			return 0, nil, net.ErrClosed
		default:
		}
		if err != nil || w.bmc.arrives(buffer[:n]) {
			return n, from, err //nolint:wrapcheck // the server compares it
		}
	}
}

// WriteTo sends an answer.
func (w *wire) WriteTo(packet []byte, to net.Addr) (int, error) {
	answer, delay := w.bmc.leaves(append([]byte(nil), packet...))
	if answer == nil {
		return len(packet), nil
	}
	if delay == 0 {
		return w.UDPConn.WriteTo(answer, to) //nolint:wrapcheck // nobody looks at it
	}
	time.AfterFunc(delay, func() { _, _ = w.UDPConn.WriteTo(answer, to) })
	return len(packet), nil
}

// Close ends the reading, and keeps the socket for the time after a restart.
func (w *wire) Close() error {
	w.once.Do(func() {
		close(w.closed)
		_ = w.SetReadDeadline(time.Now())
	})
	return nil
}

// arrives says whether the controller takes a datagram.
func (b *BMC) arrives(packet []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.Datagrams++
	const kind, rmcpPlus, format = 5, 0x06, 4
	if len(packet) > kind && packet[format] == rmcpPlus && types.PayloadType(packet[kind]&0x3f) == types.PayloadTypeRAKPMessage1 {
		b.seen.Logins++
	}
	return !b.faults.Frozen && !b.lost() && !b.isReplay(packet)
}

// isReplay says whether the sequence number of a datagram was seen before in its session. Controllers drop such a datagram: IPMI 2.0,
// section 6.12.13.
func (b *BMC) isReplay(packet []byte) bool {
	const session, end = 6, 14
	if len(packet) < end || binary.LittleEndian.Uint32(packet[session:]) == 0 {
		return false
	}
	id := [end - session]byte(packet[session:end])
	if b.taken[id] {
		return true
	}
	b.taken[id] = true
	return false
}

// leaves returns what is sent instead of a datagram, and after which time; nil: nothing.
func (b *BMC) leaves(packet []byte) ([]byte, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.faults.Frozen || b.lost() {
		return nil, 0
	}
	if b.faults.Forge != nil {
		packet = b.faults.Forge(packet)
	}
	return packet, b.faults.Delay
}

// lost draws whether a datagram gets lost. The sequence is the same in each run.
func (b *BMC) lost() bool {
	if b.faults.Loss == 0 {
		return false
	}
	b.random = b.random*6364136223846793005 + 1442695040888963407
	return float64(b.random>>40)/float64(1<<24) < b.faults.Loss
}
