package faults

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rcbox.dev/rcbox/operator/proxy"
	"rcbox.dev/rcbox/operator/proxy/wire"
)

// direct leads the proxy to processes of this machine, in the place of pods. Members are known by the address at which their first
// process listened, and may be moved to that of another.
type direct struct {
	mutex sync.Mutex
	moved map[string]string
	dials map[string]int
}

func (d *direct) Find(_ context.Context, address wire.Address) (proxy.Target, error) {
	if address.Host != "127.0.0.1" {
		return proxy.Target{}, fmt.Errorf("%s is no process of this machine", address.Host)
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	port := int(address.Port)
	for from, to := range d.moved {
		if to == strconv.Itoa(port) {
			port, _ = strconv.Atoi(from)
		}
	}
	return proxy.Target{Member: "port " + strconv.Itoa(port), Port: port}, nil
}

func (d *direct) Dial(ctx context.Context, target proxy.Target) (net.Conn, error) {
	port := strconv.Itoa(target.Port)
	d.mutex.Lock()
	d.dials[port]++
	if moved := d.moved[port]; moved != "" {
		port = moved
	}
	d.mutex.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
}

func (d *direct) dialed(port string) int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.dials[port]
}

func portOf(t *testing.T, locator string) string {
	t.Helper()
	address, err := wire.ParseLocators(locator)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(int(address.Port))
}

// A client that knows the proxy alone uses a store of real processes, and goes on when one of them is replaced and when the
// coordinator is.
func TestClientsBehindTheProxy(t *testing.T) {
	s := withServers(t, 3, "-M", "-r", "0")
	directory := &direct{moved: map[string]string{}, dials: map[string]int{}}
	coordinator, _ := strconv.Atoi(portOf(t, s.locator))
	_, admin, _ := net.SplitHostPort(s.addresses[2])
	administrators, _ := strconv.Atoi(admin)
	p := &proxy.Proxy{
		Address: netip.MustParseAddr("127.0.0.1"), Directory: directory, Report: func(text string) { t.Log("the proxy: " + text) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		p.Wait()
	}()
	clients, admins := proxy.Target{Port: coordinator}, proxy.Target{Port: administrators}
	if err := p.Start(ctx, 0, clients, admins); err != nil {
		t.Fatal(err)
	}
	local := map[string]bool{}
	port := func(target proxy.Target) int {
		opened, err := p.Local(target)
		if err != nil {
			t.Fatal(err)
		}
		local[strconv.Itoa(opened)] = true
		return opened
	}
	outside := *s
	outside.locator = fmt.Sprintf("tcp:host=127.0.0.1,port=%d,adminPort=%d", port(clients), port(admins))
	for _, member := range []string{"m0", "m1", "m2"} {
		number, _ := strconv.Atoi(portOf(t, s.servers[member].locator))
		port(proxy.Target{Member: "port " + strconv.Itoa(number), Port: number})
	}
	run := func(words ...string) string {
		t.Helper()
		cmd := command(append([]string{program(t, "rcbox"), "-C", outside.locator}, words...))
		output, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("rcbox %q: %v: %s", words, err, output)
		}
		return strings.TrimSpace(string(output))
	}

	run("create-table", "fruit", "--span", "3")
	for number := range 30 {
		run("put", "fruit", fmt.Sprint("key", number), fmt.Sprint("value", number))
	}
	if got := len(strings.Split(run("scan", "fruit"), "\n")); got != 30 {
		t.Errorf("%d objects of 30", got)
	}
	// Each server was reached through the proxy, and no client is told where it really is.
	for member, server := range s.servers {
		if directory.dialed(portOf(t, server.locator)) == 0 {
			t.Errorf("nobody went to %s through the proxy", member)
		}
	}
	var servers []struct{ Locator string }
	if err := outside.ask(&servers, "servers"); err != nil || len(servers) != 3 {
		t.Fatal(servers, err)
	}
	for _, server := range servers {
		if !local[portOf(t, server.Locator)] {
			t.Errorf("a client is told %s", server.Locator)
		}
	}

	// Another process of a member, at another address, comes in the place of the one that is gone.
	before := portOf(t, s.servers["m1"].locator)
	s.servers["m1"].kill()
	s.restart("m1")
	directory.mutex.Lock()
	directory.moved[before] = portOf(t, s.servers["m1"].locator)
	directory.mutex.Unlock()
	s.waitReady("m1")
	run("create-table", "vegetables", "--span", "3")
	for number := range 30 {
		run("put", "vegetables", fmt.Sprint("key", number), "leek")
	}
	s.coordinator.kill()
	s.restartCoordinator()
	if got := run("get", "vegetables", "key7"); got != "leek" {
		t.Errorf("key7 is %q", got)
	}
}
