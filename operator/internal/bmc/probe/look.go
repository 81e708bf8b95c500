package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// rounds is how often an address that does not answer is asked.
	rounds = 3
	// leastPatience is how long answers are waited for after the first round of questions. It is doubled after each round.
	leastPatience = 500 * time.Millisecond
	// proportion is how many times the slowest answer so far others are waited for. On a busy machine or network all answers are slow, and
	// a fixed time would report busy controllers as silent.
	proportion = 4
	// mostPatience bounds the wait after each round.
	mostPatience = 5 * time.Second
)

// patience is how long answers are waited for after a round of questions, if the slowest answer so far took that long.
func patience(round int, slowest time.Duration) time.Duration {
	return min(max(leastPatience<<round, proportion*slowest), mostPatience)
}

// socket is the part of net.UDPConn that is needed.
type socket interface {
	ReadFromUDPAddrPort(into []byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort(message []byte, to netip.AddrPort) (int, error)
	SetReadDeadline(at time.Time) error
}

// look has what was asked and what was answered so far.
type look struct {
	socket socket
	port   uint16

	mutex sync.Mutex
	// askedAt is when each address was asked first; zero: not yet.
	askedAt map[netip.Addr]time.Time
	found   map[netip.Addr]string
	// slowest is the time from the first question to an answer, of the slowest address that has answered.
	slowest time.Duration
	// arrived holds a value when there is a new answer.
	arrived chan struct{}
}

// lookFor asks addresses in rounds, until all have answered or the patience of the last round is over.
func lookFor(ctx context.Context, via socket, addresses []netip.Addr, port uint16) (map[netip.Addr]string, error) {
	l := &look{
		socket: via, port: port, askedAt: make(map[netip.Addr]time.Time, len(addresses)), found: map[netip.Addr]string{},
		arrived: make(chan struct{}, 1),
	}
	for _, address := range addresses {
		l.askedAt[address] = time.Time{}
	}
	defer context.AfterFunc(ctx, func() { _ = via.SetReadDeadline(time.Now()) })()
	var hearing sync.WaitGroup
	hearing.Go(l.hear)
	for round := range rounds {
		l.ask(ctx, addresses)
		l.wait(ctx, round)
	}
	_ = via.SetReadDeadline(time.Now())
	hearing.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("look for BMCs: %w", ctx.Err())
	}
	return l.found, nil
}

// ask sends a question to each address that has not answered yet.
func (l *look) ask(ctx context.Context, addresses []netip.Addr) {
	for _, address := range addresses {
		if ctx.Err() != nil || !l.isToBeAsked(address, time.Now()) {
			continue
		}
		// A network that is not there is one in which nobody answers.
		_, _ = l.socket.WriteToUDPAddrPort(request, netip.AddrPortFrom(address, l.port))
		<-time.After(between)
	}
}

// isToBeAsked records when an address without an answer is asked first.
func (l *look) isToBeAsked(address netip.Addr, now time.Time) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if _, hasAnswered := l.found[address]; hasAnswered {
		return false
	}
	if l.askedAt[address].IsZero() {
		l.askedAt[address] = now
	}
	return true
}

// wait waits for answers after a round of questions. A slow answer makes the wait longer.
func (l *look) wait(ctx context.Context, round int) {
	for begun := time.Now(); ; {
		left, isComplete := l.left(round, time.Since(begun))
		if isComplete || left <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-l.arrived:
		case <-time.After(left):
		}
	}
}

// left is how long answers are still waited for, and whether all have answered.
func (l *look) left(round int, waited time.Duration) (left time.Duration, isComplete bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return patience(round, l.slowest) - waited, len(l.found) == len(l.askedAt)
}

// hear takes answers until the socket's deadline. Whoever was not asked is not heard.
func (l *look) hear() {
	const longest = 512
	buffer := make([]byte, longest)
	for {
		n, from, err := l.socket.ReadFromUDPAddrPort(buffer)
		if gone, is := errors.AsType[net.Error](err); is && gone.Timeout() || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || from.Port() != l.port {
			continue // such as that nothing listens there
		}
		if speaks := version(buffer[:n]); speaks != "" {
			l.answered(from.Addr().Unmap(), speaks, time.Now())
		}
	}
}

// answered records an answer of an address that was asked.
func (l *look) answered(address netip.Addr, speaks string, now time.Time) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	askedAt := l.askedAt[address]
	if _, hasAnswered := l.found[address]; hasAnswered || askedAt.IsZero() {
		return
	}
	l.found[address], l.slowest = speaks, max(l.slowest, now.Sub(askedAt))
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}
