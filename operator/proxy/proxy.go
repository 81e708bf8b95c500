// Package proxy lets clients of this machine use a store in a cluster: it listens at one port for each process of the store, and
// has each answer that says where servers are name those ports. How processes are reached is up to a Directory.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"rcbox.dev/rcbox/operator/proxy/wire"
)

const (
	// maxDoors is how many ports there can be, maxSessions how many connections at a time.
	maxDoors    = 4096
	maxSessions = 512
	// portsTried are those after the last one, before the kernel is asked for any.
	portsTried = 64
	// pace is how long nobody tries again to reach a process that was not reached: clients do at once.
	pace = 250 * time.Millisecond
	// quiet is how long a text is not repeated.
	quiet = 10 * time.Second
)

// Target is a port of a process, whichever pod that is in at the moment.
type Target struct {
	// Member is its name; empty for the coordinator that leads.
	Member string
	Port   int
}

// Directory knows the processes of a store.
type Directory interface {
	// Find says whose address a locator gives.
	Find(ctx context.Context, address wire.Address) (Target, error)
	// Dial connects to a process.
	Dial(ctx context.Context, target Target) (net.Conn, error)
}

// Proxy listens for clients.
type Proxy struct {
	// Address to listen at.
	Address netip.Addr
	// Directory of the store's processes.
	Directory Directory
	// Report what a user should know, a line each.
	Report func(text string)

	ctx      context.Context //nolint:containedctx // that of all its connections
	sessions chan struct{}
	running  sync.WaitGroup

	mu    sync.Mutex
	doors map[Target]*door
	// nowhere is where locators lead that nobody is found behind.
	nowhere *door
	// last is the port that was opened last.
	last int
}

// door is a port of this machine.
type door struct {
	target Target
	port   int
	// isRaw: not the clients' protocol.
	isRaw    bool
	listener net.Listener

	mu sync.Mutex
	// failedAt is when its process was last not reached, reported what of it was last said, and when.
	failedAt   time.Time
	reported   string
	reportedAt time.Time
}

// Start opens ports for the coordinator's clients, the first of all, and for its administrators, which is 200 above where that is
// free. They are open until ctx ends; Wait waits for that.
func (p *Proxy) Start(ctx context.Context, first int, clients, administrators Target) error {
	p.ctx, p.sessions, p.doors, p.last = ctx, make(chan struct{}, maxSessions), map[Target]*door{}, first
	const adminOffset = 200
	listener, err := p.listen(first)
	if err != nil {
		return fmt.Errorf("listen at port %d of %s: %w (--port chooses another one, 0 any that is free)", first, p.Address, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open(&door{target: clients, listener: listener})
	p.last = p.doors[clients].port
	if listener, err = p.listenNear(p.last + adminOffset); err != nil {
		return err
	}
	p.open(&door{target: administrators, listener: listener, isRaw: true})
	if listener, err = p.listenNear(0); err != nil {
		return err
	}
	p.nowhere = &door{listener: listener}
	p.open(p.nowhere)
	return nil
}

// Wait until all ports are closed and all connections have ended.
func (p *Proxy) Wait() {
	<-p.ctx.Done()
	p.running.Wait()
}

// Local is this machine's port for a process, which is opened if there is none.
func (p *Proxy) Local(target Target) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.doors[target]; known != nil {
		return known.port, nil
	}
	if len(p.doors) >= maxDoors {
		return 0, fmt.Errorf("there are %d ports open already", len(p.doors))
	}
	listener, err := p.listenNear(p.last + 1)
	if err != nil {
		return 0, err
	}
	opened := &door{target: target, listener: listener}
	p.open(opened)
	p.last = opened.port
	return opened.port, nil
}

// Targets that have ports, in the order of these.
func (p *Proxy) Targets() []Target {
	p.mu.Lock()
	defer p.mu.Unlock()
	doors := make([]*door, 0, len(p.doors))
	for _, d := range p.doors {
		doors = append(doors, d)
	}
	slices.SortFunc(doors, func(a, b *door) int { return a.port - b.port })
	targets := make([]Target, 0, len(doors))
	for _, d := range doors {
		targets = append(targets, d.target)
	}
	return targets
}

func (p *Proxy) listen(port int) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(p.ctx, "tcp4", net.JoinHostPort(p.Address.String(), strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen at port %d of %s: %w", port, p.Address, err)
	}
	return listener, nil
}

// listenNear listens at a port or one soon after it; else, or of 0, at any.
func (p *Proxy) listenNear(port int) (net.Listener, error) {
	const maxPort = 1<<16 - 1
	for at := port; port > 0 && at < port+portsTried && at <= maxPort; at++ {
		if listener, err := p.listen(at); err == nil {
			return listener, nil
		}
	}
	return p.listen(0)
}

// open a door for connections. The caller has locked p.
func (p *Proxy) open(d *door) {
	d.port = d.listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it listens over TCP
	if d != p.nowhere {
		p.doors[d.target] = d
	}
	p.running.Go(func() {
		defer context.AfterFunc(p.ctx, func() { _ = d.listener.Close() })()
		for {
			connection, err := d.listener.Accept()
			switch {
			case p.ctx.Err() != nil:
				return
			case err != nil:
				p.report(d, "accept connections: "+err.Error())
				_ = rest(p.ctx, pace) // a lack of file descriptors passes
			default:
				p.admit(d, connection)
			}
		}
	})
}

func (p *Proxy) admit(d *door, client net.Conn) {
	if d == p.nowhere {
		_ = client.Close() // whoever asks for its server has to ask the coordinator again
		return
	}
	select {
	case p.sessions <- struct{}{}:
	default:
		p.report(d, fmt.Sprintf("a connection is refused: there are %d already", maxSessions))
		_ = client.Close()
		return
	}
	p.running.Go(func() {
		defer func() { <-p.sessions }()
		defer func() { _ = client.Close() }()
		if err := p.serve(d, client); err != nil && p.ctx.Err() == nil {
			p.report(d, err.Error())
		}
	})
}

func (p *Proxy) serve(d *door, client net.Conn) error {
	dial := func(ctx context.Context) (net.Conn, error) {
		if err := rest(ctx, d.pause()); err != nil {
			return nil, err
		}
		server, err := p.Directory.Dial(ctx, d.target)
		if err != nil {
			d.fail()
			return nil, err
		}
		return server, nil
	}
	if d.isRaw {
		return relay(p.ctx, client, dial)
	}
	host := client.LocalAddr().(*net.TCPAddr).IP.String() //nolint:forcetypeassert // it came over TCP
	s := &session{client: client, translate: func(locators string) string { return p.translate(d, host, locators) }}
	return s.run(p.ctx, dial)
}

// translate the locators of a process into the one by which a client reaches it from here.
func (p *Proxy) translate(d *door, host, locators string) string {
	port := p.nowhere.port
	address, err := wire.ParseLocators(locators)
	if err == nil && address == (wire.Address{}) {
		err = fmt.Errorf("%s: no address over TCP", locators)
	}
	if err == nil {
		var target Target
		if target, err = p.Directory.Find(p.ctx, address); err == nil {
			port, err = p.Local(target)
		}
	}
	if err != nil {
		p.report(d, err.Error())
		port = p.nowhere.port
	}
	return wire.Address{Host: host, Port: uint16(port)}.Locator() //nolint:gosec // a port
}

// pause before the process may be tried again.
func (d *door) pause() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(time.Until(d.failedAt.Add(pace)), 0)
}

// fail notes that the process was not reached.
func (d *door) fail() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failedAt = time.Now()
}

func rest(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait: %w", ctx.Err())
	}
}

// report a problem of a process, but not the same all the time.
func (p *Proxy) report(d *door, text string) {
	now := time.Now()
	d.mu.Lock()
	repeats := d.reported == text && now.Sub(d.reportedAt) < quiet
	if !repeats {
		d.reported, d.reportedAt = text, now
	}
	d.mu.Unlock()
	if !repeats {
		p.Report(text)
	}
}

// relay bytes, whatever they are.
func relay(ctx context.Context, client net.Conn, dial func(context.Context) (net.Conn, error)) error {
	server, err := dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	ended := make(chan error, 2) //nolint:mnd // directions
	forward := func(to io.WriteCloser, from io.ReadCloser) {
		_, err := io.Copy(to, from)
		_, _ = to.Close(), from.Close() // has the other direction end
		ended <- ignoreEnd(err)
	}
	go forward(server, client)
	go forward(client, server)
	return errors.Join(<-ended, <-ended)
}
