package hosts

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// nisPorts are those of rpcbind, and of ypserv, which takes the first that are free, for IPv4 and IPv6.
var nisPorts = []string{"111", "834", "835", "836", "837"}

// yp asks a box host as somebody on the blade does.
func (l *lab) yp(at, domain, name string) (string, error) {
	l.Helper()
	return l.blade.try("timeout", "15", "ypcat", "-d", domain, "-h", at, name)
}

// reached are the ports of NIS that are reached from a namespace at an address.
func (l *lab) reached(by *space, address string) []string {
	l.Helper()
	answers := make([]bool, len(nisPorts))
	var tries sync.WaitGroup
	for i, port := range nisPorts {
		tries.Go(func() {
			connection, err := by.dial(l.Context(), "tcp", net.JoinHostPort(address, port))
			if answers[i] = err == nil; err == nil {
				_ = connection.Close()
			}
		})
	}
	tries.Wait()
	var found []string
	for i, port := range nisPorts {
		if answers[i] {
			found = append(found, port)
		}
	}
	return found
}

// nis: off until there is a domain; then either host gives the same maps, to the network of servers alone.
func (l *lab) nis() {
	l.blade.sh("ip address flush dev eth1; ip address add 192.168.3.1/24 dev eth1")
	l.noNIS()
	l.desired.NIS = &boxhost.NIS{
		Domain: "box", Users: []boxhost.NISUser{{Name: "alice", UID: 2000}, {Name: "bob", UID: 2001, Home: "/home/lab/bob"}},
		Groups: []boxhost.NISGroup{{Name: "lab", GID: 3000, Members: []string{"alice", "bob"}}},
	}
	l.serveDesired()
	l.waitServed(l.hosts[:]...)
	const alice, bob = "alice:*:2000:2000::/home/alice:/bin/bash\n", "bob:*:2001:2001::/home/lab/bob:/bin/bash\n"
	l.wantUsers(alice, bob)
	for _, h := range l.hosts {
		if got, err := l.yp(h.address, "box", "group.byname"); err != nil || !strings.Contains(got, "lab:*:3000:alice,bob\n") {
			l.Errorf("%s: %v %q", h.name, err, got)
		}
		got, err := l.yp(h.address, "box", "hosts.byaddr")
		if err != nil || !strings.Contains(got, "192.168.3.1 atom001.box.rcbox atom001\n") || strings.Contains(got, "atom001m") {
			l.Errorf("%s: %v %q", h.name, err, got)
		}
	}
	l.strangeToNIS()
	root := l.bladeAsks("domain box server 192.168.3.253\ndomain box server 192.168.3.254\n",
		"passwd:         files systemd nis\ngroup:         files systemd nis\n")
	l.knowsUsers(root)
	// What has changed is served, also while somebody keeps a connection, and with it the port of ypserv.
	kept := l.keepConnection()
	l.desired.NIS.Users = l.desired.NIS.Users[:1]
	l.desired.NIS.Groups = nil
	l.serveDesired()
	l.waitServed(l.hosts[:]...)
	l.wantUsers(alice)
	l.otherPortOfNIS()
	_ = kept.Close() // ypserv has ended it
	l.rpcbindEnds()
	l.desired.NIS = nil
	l.serveDesired()
	l.waitServed(l.hosts[:]...)
	l.noNIS()
	l.bladeAsks("", "passwd: files\ngroup: files\n")
}

// knowsUsers starts what a blade starts then, with the files that were written there: its programs know the users and groups of the domain.
func (l *lab) knowsUsers(root string) {
	l.Helper()
	got := l.blade.run("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "/bin/sh", "-euc", `
		for file in yp.conf nsswitch.conf; do mount --bind "$0/etc/$file" "/etc/$file"; done
		for folder in /run /var/yp/binding; do mount -t tmpfs none "$folder"; done
		domainname -F "$0/etc/defaultdomain"
		rpcbind
		ypbind
		tries=0
		until getent passwd alice; do
			tries=$((tries + 1))
			[ $tries -lt 500 ]
			sleep 0.1
		done
		id -nG alice
		ypmatch bob passwd.byname
		ypwhich`, root)
	server := got[strings.LastIndex(strings.TrimSpace(got), "\n")+1:]
	want := "alice:*:2000:2000::/home/alice:/bin/bash\nalice lab\nbob:*:2001:2001::/home/lab/bob:/bin/bash\n" + server
	if got != want || !strings.HasPrefix(server, "192.168.3.25") {
		l.Errorf("on a blade, programs know %q", got)
	}
}

// bladeAsks runs what a blade does at each start: it writes what box hosts tell by DHCP, and touches no address. It returns the root of the
// files.
func (l *lab) bladeAsks(servers, users string) string {
	l.Helper()
	l.be(macBlade)
	l.blade.sh("ip address add 192.168.3.1/24 dev eth1")
	root := l.TempDir()
	etc := filepath.Join(root, "etc")
	nsswitch := filepath.Join(etc, "nsswitch.conf")
	const shipped = "passwd: files\ngroup: files\nhosts: files dns\n"
	if err := errors.Join(os.Mkdir(etc, 0o755), os.WriteFile(nsswitch, []byte(shipped), 0o600)); err != nil {
		l.Fatal(err)
	}
	script, err := filepath.Abs("../../../../images/blade/files/usr/lib/rcbox/nis")
	if err != nil {
		l.Fatal(err)
	}
	before := l.blade.run("ip", "-o", "address", "show", "dev", "eth1")
	output := l.blade.run("env", "RCBOX_NIS_PORT=eth1", "sh", script, root)
	if after := l.blade.run("ip", "-o", "address", "show", "dev", "eth1"); after != before {
		l.Errorf("the address was %s, and is %s", before, after)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(etc, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			l.Fatal(err)
		}
		return string(text)
	}
	got := slices.Sorted(strings.Lines(read("yp.conf"))) // each host names itself first
	if text := read("nsswitch.conf"); strings.Join(got, "") != servers || text != users+"hosts: files dns\n" {
		l.Errorf("%s: %q, %q", output, got, text)
	}
	if domain := read("defaultdomain"); (domain == "box\n") != (servers != "") {
		l.Errorf("%s: domain %q", output, domain)
	}
	return root
}

// wantUsers: both hosts give these lines.
func (l *lab) wantUsers(want ...string) {
	l.Helper()
	slices.Sort(want)
	for _, h := range l.hosts {
		got, err := l.yp(h.address, "box", "passwd.byname")
		lines := slices.Sorted(strings.Lines(got))
		if err != nil || !slices.Equal(lines, want) {
			l.Errorf("%s: %v %q, not %q", h.name, err, lines, want)
		}
	}
}

// noNIS: no port of NIS is listened to, even without the firewall.
func (l *lab) noNIS() {
	l.Helper()
	for _, h := range l.hosts {
		if found := l.reached(h.space, h.address); len(found) > 0 {
			l.Errorf("%s: ports %v of NIS are open though it is off", h.name, found)
		}
	}
}

// strangeToNIS: from another interface no port is reached, by whatever address, and from a network that is not served neither; ypserv says
// nothing to an address of another network, even at the host itself; and another domain has no maps. The same ports answer at the host
// itself: that nothing is reached is the firewall's doing.
func (l *lab) strangeToNIS() {
	l.Helper()
	first := l.hosts[0]
	if found := l.reached(first.space, "192.168.5.254"); len(found) < 3 {
		l.Errorf("at the host itself, ports %v are reached", found)
	}
	for _, address := range []string{first.address, "192.168.5.254"} {
		if found := l.reached(l.bmc, address); len(found) > 0 {
			l.Errorf("ports %v of NIS are reached from another interface at %s", found, address)
		}
	}
	if got, err := l.yp(first.address, "other", "passwd.byname"); err == nil {
		l.Errorf("another domain has users: %q", got)
	}
	// A stranger in the same wire, with an address of another network.
	first.sh("ip route add 192.168.77.0/24 dev eth1")
	l.blade.sh("ip address flush dev eth1; ip address add 192.168.77.1/24 dev eth1; ip route add 192.168.3.253/32 dev eth1")
	if found := l.reached(l.blade, first.address); len(found) > 0 {
		l.Errorf("ports %v are reached from another network", found)
	}
	// The host itself asks, first from its address there, then from another one: the firewall lets both pass.
	const source = "ip route replace local 192.168.3.253 dev eth1 table local proto kernel scope host src "
	for address, isTold := range map[string]bool{first.address: true, "192.168.5.254": false} {
		first.sh(source + address)
		got, err := first.try("timeout", "15", "ypcat", "-d", "box", "-h", first.address, "passwd.byname")
		if (err == nil) != isTold {
			l.Errorf("ypserv tells %s %q: %v", address, got, err)
		}
	}
	first.sh(source + first.address)
	first.sh("ip route del 192.168.77.0/24 dev eth1")
	l.blade.sh("ip address flush dev eth1; ip address add 192.168.3.1/24 dev eth1")
}

// keepConnection connects a blade with ypserv of the first host.
func (l *lab) keepConnection() net.Conn {
	l.Helper()
	connection, err := l.blade.dial(l.Context(), "tcp", net.JoinHostPort(l.hosts[0].address, nisPorts[1]))
	if err != nil {
		l.Fatal(err)
	}
	return connection
}

// otherPortOfNIS: ypserv of the first host has taken other ports, and nobody reaches them from another interface.
func (l *lab) otherPortOfNIS() {
	l.Helper()
	first := l.hosts[0]
	if found := l.reached(first.space, first.address); slices.Contains(found, nisPorts[1]) || len(found) < 2 {
		l.Errorf("ports %v are open: the connection that was kept proves nothing", found)
	}
	if found := l.reached(l.bmc, first.address); len(found) > 0 {
		l.Errorf("ports %v of NIS are reached from another interface", found)
	}
}

// rpcbindEnds: another rpcbind does not know of ypserv until that has been started anew.
func (l *lab) rpcbindEnds() {
	l.Helper()
	before := l.hosts[0].program("rpcbind")
	l.hosts[0].run("kill", before)
	eventually(l.T, "NIS comes back", func() error {
		if now := l.hosts[0].programs("rpcbind"); len(now) != 1 || now[0] == before {
			return fmt.Errorf("rpcbind: %v, before %s", now, before)
		}
		got, err := l.yp(l.hosts[0].address, "box", "passwd.byname")
		if err != nil {
			return fmt.Errorf("%w: %s", err, got)
		}
		return nil
	})
}
