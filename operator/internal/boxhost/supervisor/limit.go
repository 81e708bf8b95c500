package supervisor

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

const (
	// maxConnections is above what a rack needs that starts at once.
	maxConnections = 2048
	// maxPerAddress is above what one server needs. Somebody who has one address takes no more than these connections.
	maxPerAddress = 8
	// readPatience is how long a client may take to send a request.
	readPatience = 10 * time.Second
	// writePatience is how long a client may take for each writeSize of an answer; one that has stopped reading loses its connection.
	writePatience = 30 * time.Second
	writeSize     = 1 << 20
)

// limits are what clients of HTTP may use.
type limits struct {
	connections, perAddress int
	read, write             time.Duration
}

func usualLimits() limits {
	return limits{connections: maxConnections, perAddress: maxPerAddress, read: readPatience, write: writePatience}
}

// limited is a listener that closes connections beyond a number per address, and beyond a number in all. Connections of the box host itself
// do not count: its probes are answered whatever others do.
type limited struct {
	net.Listener
	limits

	own netip.Addr

	mutex sync.Mutex
	all   int
	open  map[netip.Addr]int
}

func newLimited(listener net.Listener, own netip.Addr, to limits) *limited {
	return &limited{Listener: listener, limits: to, own: own, open: map[netip.Addr]int{}}
}

// Accept gives the next connection that is within the limits.
func (l *limited) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // it stands for the listener
		}
		of, isTCP := connection.RemoteAddr().(*net.TCPAddr)
		if !isTCP {
			_ = connection.Close()
			continue
		}
		from := of.AddrPort().Addr().Unmap()
		if from == l.own {
			return &patient{Conn: connection, write: l.write, closed: func() {}}, nil
		}
		if !l.take(from) {
			_ = connection.Close()
			continue
		}
		return &patient{Conn: connection, write: l.write, closed: sync.OnceFunc(func() { l.give(from) })}, nil
	}
}

func (l *limited) take(from netip.Addr) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.all >= l.connections || l.open[from] >= l.perAddress {
		return false
	}
	l.all++
	l.open[from]++
	return true
}

func (l *limited) give(from netip.Addr) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.all--
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// patient is a connection whose client must take each part of an answer in time.
type patient struct {
	net.Conn

	write  time.Duration
	closed func()
}

// Close closes the connection, and makes room for another one.
func (p *patient) Close() error {
	defer p.closed()
	return p.Conn.Close() //nolint:wrapcheck // it stands for the connection
}

// Write is the connection's, in parts that each have a deadline.
func (p *patient) Write(data []byte) (int, error) {
	total := 0
	for {
		part := data[total:min(len(data), total+writeSize)]
		if err := p.SetWriteDeadline(time.Now().Add(p.write)); err != nil {
			return total, err //nolint:wrapcheck // as above
		}
		size, err := p.Conn.Write(part)
		total += size
		if err != nil || total == len(data) {
			return total, err //nolint:wrapcheck // as above
		}
	}
}

// ReadFrom is that of a TCP connection, which has the kernel send a file without a copy, in parts as above.
func (p *patient) ReadFrom(source io.Reader) (int64, error) {
	to, canSend := p.Conn.(io.ReaderFrom)
	limit, isLimited := source.(*io.LimitedReader)
	if !canSend || !isLimited {
		return io.Copy(struct{ io.Writer }{p}, source) //nolint:wrapcheck // as above
	}
	file, isFile := limit.R.(*os.File)
	if !isFile {
		return io.Copy(struct{ io.Writer }{p}, source) //nolint:wrapcheck // as above
	}
	total := int64(0)
	for limit.N > 0 {
		if err := p.SetWriteDeadline(time.Now().Add(p.write)); err != nil {
			return total, err //nolint:wrapcheck // as above
		}
		part := min(limit.N, writeSize)
		size, err := to.ReadFrom(&io.LimitedReader{R: file, N: part})
		total, limit.N = total+size, limit.N-size
		if err != nil || size < part {
			return total, err //nolint:wrapcheck // as above
		}
	}
	return total, nil
}
