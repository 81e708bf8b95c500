package proxy

import (
	"bufio"
	"fmt"
	"net"
	"sync"
)

// requests are on their way to a server that is perhaps not reached yet: then they wait here, as far as there is room.
type requests struct {
	mu      sync.Mutex
	changed *sync.Cond
	waiting []byte
	server  *bufio.Writer
	closed  bool
}

func (r *requests) init() { r.changed = sync.NewCond(&r.mu) }

// Write implements io.Writer. It waits while there is no room.
func (r *requests) Write(data []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.server == nil && !r.closed && len(r.waiting) > 0 && len(r.waiting)+len(data) > maxWaitingBytes {
		r.changed.Wait()
	}
	switch {
	case r.closed:
		return 0, net.ErrClosed
	case r.server == nil:
		r.waiting = append(r.waiting, data...)
		return len(data), nil
	}
	n, err := r.server.Write(data)
	if err != nil {
		return n, fmt.Errorf("pass a request on: %w", err)
	}
	return n, nil
}

// flush a whole message.
func (r *requests) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server == nil {
		return nil
	}
	if err := r.server.Flush(); err != nil {
		return fmt.Errorf("pass a request on: %w", err)
	}
	return nil
}

// connect sends what waits, and from then on all that comes. It returns before that is sent, for a server may answer the first requests
// before it takes the last.
func (r *requests) connect(server net.Conn) {
	r.mu.Lock()
	r.server = bufio.NewWriterSize(server, bufferBytes)
	waiting := r.waiting
	r.waiting = nil
	go func() {
		defer r.mu.Unlock()
		defer r.changed.Broadcast()
		_, err := r.server.Write(waiting)
		if err == nil {
			err = r.server.Flush()
		}
		if err != nil {
			_ = server.Close() // whoever reads from it finds out
		}
	}()
}

// close has whoever waits for room end.
func (r *requests) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.changed.Broadcast()
}

// whileWaiting does something, if the server is not reached yet, and before it is.
func (r *requests) whileWaiting(do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		return nil
	}
	return do()
}
