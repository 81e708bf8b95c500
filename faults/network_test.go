package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespace does something in a network namespace; "" is that of the tests.
func inNamespace(namespace string, do func() error) error {
	if namespace == "" {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	other, err := os.Open(filepath.Join("/run/netns", namespace))
	if err != nil {
		return err
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter the network namespace %s: %w", namespace, err)
	}
	defer func() {
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("cannot leave the network namespace %s: %v", namespace, err))
		}
	}()
	return do()
}

// network is a switch, and hosts on it: network namespaces, each with a cable of its own.
type network struct {
	t *testing.T
	// prefix of the namespaces' names, which tells this process's from those of others.
	prefix string
	count  int
	all    map[string]host
}

// newNetwork makes a switch in a namespace of its own. Tests need root for it.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: cutting networks needs network namespaces, and making them needs root; run as root")
	}
	n := &network{t: t, prefix: fmt.Sprintf("rcbox-%d-", os.Getpid()), all: map[string]host{}}
	removeStale(n)
	t.Cleanup(func() {
		for _, namespace := range namespaces(t) {
			if strings.HasPrefix(namespace, n.prefix) {
				n.ip("netns", "delete", namespace)
			}
		}
	})
	n.ip("netns", "add", n.hub())
	n.ip("-n", n.hub(), "link", "add", "switch", "type", "bridge", "stp_state", "0", "forward_delay", "0")
	n.ip("-n", n.hub(), "link", "set", "switch", "up")
	return n
}

func (n *network) hub() string { return n.prefix + "switch" }

// host is that of a name; made when first asked for.
func (n *network) host(name string) host {
	if known, isThere := n.all[name]; isThere {
		return known
	}
	n.count++
	made := host{address: fmt.Sprintf("10.77.0.%d", n.count), namespace: n.prefix + name}
	n.all[name] = made
	n.ip("netns", "add", made.namespace)
	n.ip("-n", made.namespace, "link", "set", "lo", "up")
	n.ip("link", "add", "eth0", "netns", made.namespace, "type", "veth", "peer", "name", n.port(name), "netns", n.hub())
	n.ip("-n", made.namespace, "address", "add", made.address+"/24", "dev", "eth0")
	n.ip("-n", made.namespace, "link", "set", "eth0", "up")
	n.ip("-n", n.hub(), "link", "set", n.port(name), "master", "switch", "up")
	return made
}

// port is that of the switch where a host's cable ends. Such names have at most 15 letters.
func (n *network) port(name string) string { return "to-" + name[:min(len(name), 12)] }

// cut pulls a host's cable out; mend puts it in again. Nobody is told: packets get lost.
func (n *network) cut(name string)  { n.ip("-n", n.hub(), "link", "set", n.port(name), "down") }
func (n *network) mend(name string) { n.ip("-n", n.hub(), "link", "set", n.port(name), "up") }

// part has everything that one host sends to another one go to a network card that nobody has, and back; the others hear both.
func (n *network) part(one, other string) {
	for _, pair := range [][2]string{{one, other}, {other, one}} {
		n.ip("-n", n.all[pair[0]].namespace, "neighbour", "replace", n.all[pair[1]].address,
			"lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0")
	}
}

func (n *network) join(one, other string) {
	for _, pair := range [][2]string{{one, other}, {other, one}} {
		n.ip("-n", n.all[pair[0]].namespace, "neighbour", "delete", n.all[pair[1]].address, "dev", "eth0")
	}
}

func (n *network) ip(words ...string) {
	n.t.Helper()
	if output, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
		n.t.Errorf("ip %s: %v: %s", strings.Join(words, " "), err, output)
	}
}

func namespaces(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/run/netns")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// withNetwork is a store of members on hosts of their own.
func withNetwork(t *testing.T, count int, more ...string) (*store, *network) {
	t.Helper()
	n := newNetwork(t)
	s := startStore(t, n.host)
	s.addServers("m", count, more...)
	return s, n
}

// at is the workload on a host.
func (n *network) at(name string, load workload) workload {
	load.namespace = n.host(name).namespace
	return load
}

// TestCutMaster: the cable of a master's host is pulled out, with clients on both sides. The others recover what it held; its own clients
// get nothing that has been changed since; and when the cable is back, it ends.
func TestCutMaster(t *testing.T) {
	s, n := withNetwork(t, 4, replicated...)
	clients := record(t, s.locator, n.at("clients", usual))
	inside := usual
	inside.firstClient, inside.ballast = 100, 0
	// They go on asking the master that they reach, whoever else is out of reach, and never look for another one.
	inside.more = []string{"--only-reads", "--timeout-ms", "100", "--session-timeout-ms", "60000"}
	insiders := record(t, s.locator, n.at("m1", inside))
	insiders.waitProgress(usual.keys, 20)
	s.waitOwner("m1")
	// Reads that would have to wait for the copies of a write would show nothing about the lease, so there are none under way.
	clients.end()

	n.cut("m1")
	s.waitMoved("m1")
	outside := usual
	outside.firstClient = 200
	outsiders := record(t, s.locator, n.at("clients", outside))
	outsiders.waitProgress(usual.keys, 50)
	n.mend("m1")
	s.waitDeposed("m1")
	insiders.waitProgress(usual.keys, 20)
	s.restart("m1")
	s.waitReady("m1")
	outsiders.waitProgress(usual.keys, 20)
	judge(t, usual.keys, outsiders, clients, insiders)
}

// TestCutFromCoordinator: a master that the coordinator does not reach and others do is not dead. It goes on.
func TestCutFromCoordinator(t *testing.T) {
	s, n := withNetwork(t, 4, replicated...)
	clients := record(t, s.locator, n.at("clients", usual))
	s.waitOwner("m1")
	n.part("m1", "coordinator")
	s.waitState("m1", "UNREACHABLE")
	clients.waitProgress(usual.keys, 50)
	s.waitOwner("m1")
	n.join("m1", "coordinator")
	s.waitState("m1", "UP")
	if s.coordinator.logged("is dead") != "" {
		t.Error("the master was declared dead, though others reached it")
	}
	judge(t, usual.keys, clients)
}

// TestCutFromBackups: a master that reaches only one of three backups goes on with that, and makes the copies that are missing when the
// others are there again.
func TestCutFromBackups(t *testing.T) {
	n := newNetwork(t)
	s := startStore(t, n.host)
	s.add("m0", append([]string{"-M"}, replicated...)...)
	s.addServers("b", 3, "-B")
	clients := record(t, s.locator, n.at("clients", usual))
	s.waitCopies("m0")
	n.part("m0", "b0")
	n.part("m0", "b1")
	s.waitShort("m0")
	clients.waitProgress(usual.keys, 50)
	n.join("m0", "b0")
	n.join("m0", "b1")
	s.waitCopies("m0")
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// removeStale removes namespaces of test processes that were killed before they could.
func removeStale(n *network) {
	for _, namespace := range namespaces(n.t) {
		rest, isOurs := strings.CutPrefix(namespace, "rcbox-")
		pid, _, _ := strings.Cut(rest, "-")
		number, err := strconv.Atoi(pid)
		if !isOurs || err != nil {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", number)); os.IsNotExist(err) {
			n.ip("netns", "delete", namespace)
		}
	}
}
