package hosts

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

const (
	macBlade    = "52:54:00:03:00:01"
	macSwapped  = "52:54:00:03:00:77"
	macStranger = "52:54:00:03:00:99"
)

func desired(key string) *boxhost.Desired {
	at := netip.MustParseAddr
	return &boxhost.Desired{
		Version: boxhost.Version,
		Settings: boxhost.Settings{
			Domain: "box.rcbox",
			Hosts: []boxhost.Host{
				{Name: "boxhost1", Address: at("192.168.3.253")}, {Name: "boxhost2", Address: at("192.168.3.254")},
			},
			Exports:        []boxhost.Export{{Name: "/home"}, {Name: "/software", ReadOnly: true}},
			AuthorizedKeys: []string{key},
		},
		Networks: []boxhost.Network{{CIDR: prefix("192.168.3.0/24")}},
		Servers: []boxhost.Server{
			{
				Name: "atom001", Chassis: "mercury1", Slot: 1, Boot: boxhost.BootNetwork,
				Ports: []boxhost.Port{
					{NIC: 1, MAC: macBlade, Address: at("192.168.3.1")}, {NIC: 2, Suffix: "a", Address: at("192.168.3.101")},
				},
			},
			{
				Name: "atom002", Chassis: "mercury1", Slot: 2, Boot: boxhost.BootDisk,
				Ports: []boxhost.Port{{NIC: 1, MAC: "52:54:00:03:00:02", Address: at("192.168.3.2")}},
			},
		},
		Controllers: []boxhost.Name{{Name: "atom001m", Address: at("192.168.5.1")}, {Name: "mercury1cmm", Address: at("192.168.5.201")}},
	}
}

// TestBoxHosts goes from bare namespaces to two box hosts, and through what may happen to them.
func TestBoxHosts(t *testing.T) {
	l := newLab(t)
	l.beforeFirewall()
	l.serveDesired()
	for _, h := range l.hosts {
		h.start()
	}
	l.ownFileSystem()
	l.waitServed(l.hosts[:]...)
	for _, step := range []struct {
		name string
		do   func(*lab)
	}{
		{"either host gives the same address", (*lab).eitherHost},
		{"either host is killed at each point of a boot", (*lab).killedWhileBooting},
		{"a stranger gets no answer and is reported", (*lab).stranger},
		{"changed and removed MACs", (*lab).changedMACs},
		{"names", (*lab).dns},
		{"NFS", (*lab).nfs},
		{"SSH", (*lab).ssh},
		{"NIS", (*lab).nis},
		{"HTTP", (*lab).web},
		{"firewall", (*lab).firewall},
		{"maintenance", (*lab).maintenance},
		{"what is refused", (*lab).refused},
		{"started without what is to be served", (*lab).startedAlone},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			was := l.T
			l.setT(t)
			defer l.setT(was)
			step.do(l)
		}) {
			return // the others begin where it was to end
		}
	}
}

// setT has failures belong to a step.
func (l *lab) setT(t *testing.T) {
	t.Helper()
	l.T = t
	for _, s := range []*space{l.hosts[0].space, l.hosts[1].space, l.blade, l.bmc} {
		s.T = t
	}
}

// be gives the blade a hardware address, and takes its addresses away.
func (l *lab) be(mac string) {
	l.Helper()
	l.blade.sh("ip address flush dev eth1; ip link set eth1 down; ip link set eth1 address " + mac + "; ip link set eth1 up")
}

// lease is the address that the blade is given; empty if it is given none.
func (l *lab) lease(arguments ...string) string {
	l.Helper()
	output, err := l.blade.try(append([]string{
		"busybox", "udhcpc", "-i", "eth1", "-n", "-q", "-t", "2", "-T", "1", "-s", "/bin/true",
	}, arguments...)...)
	_, rest, isGiven := strings.Cut(output, "lease of ")
	if isGiven != (err == nil) {
		l.Fatalf("udhcpc: %v\n%s", err, output)
	}
	address, _, _ := strings.Cut(rest, " ")
	return address
}

func (l *lab) wantLease(want string, arguments ...string) {
	l.Helper()
	if got := l.lease(arguments...); got != want {
		l.Fatalf("it was given %q, not %q", got, want)
	}
}

// beforeFirewall: what the firewall is to forbid is possible without it. Otherwise its test would prove nothing.
func (l *lab) beforeFirewall() {
	l.Helper()
	l.blade.sh("ip address add 192.168.3.1/24 dev eth1; ip route add default via 192.168.3.253")
	for _, of := range []struct {
		*space
		at string
	}{
		{l.hosts[0].space, "0.0.0.0:9999"},
		{l.hosts[0].space, "0.0.0.0:10250"},
		{l.hosts[0].space, "192.168.5.254:80"},
		{l.bmc, "0.0.0.0:443"},
	} {
		listener := l.listen(of.space, of.at)
		l.Cleanup(func() { _ = listener.Close() })
	}
	services := l.listen(l.hosts[0].space, "192.168.3.253:80") // until the box host serves it
	defer services.Close()
	for what, err := range l.forbidden() {
		if err != nil {
			l.Fatalf("%s cannot be reached before there is a firewall: %v", what, err)
		}
	}
}

// listen has a port answer. It is not a program, which would outlive the test.
func (l *lab) listen(on *space, at string) net.Listener {
	l.Helper()
	var listener net.Listener
	var err error
	on.within(func() { listener, err = new(net.ListenConfig).Listen(l.Context(), "tcp", at) })
	if err != nil {
		l.Fatal(err)
	}
	return listener
}

// forbidden tries what a blade must not reach, and what nothing behind another interface must, where a pod of the node would be; and says
// whether it did.
func (l *lab) forbidden() map[string]error {
	l.Helper()
	addresses := map[string]string{
		"a port of the host":                 "192.168.3.253:9999",
		"the port of a kubelet":              "192.168.3.253:10250",
		"a BMC":                              "192.168.5.1:443",
		"the host's address at a BMC":        "192.168.5.254:9999",
		"a served port at another address":   "192.168.5.254:80",
		"HTTP from behind another interface": "192.168.3.253:80",
	}
	found := map[string]error{}
	var mutex sync.Mutex
	var tries sync.WaitGroup
	for what, address := range addresses {
		tries.Go(func() {
			by := l.blade
			if strings.Contains(what, "another interface") {
				by = l.bmc
			}
			connection, err := by.dial(l.Context(), "tcp", address)
			if err == nil {
				_ = connection.Close()
			}
			mutex.Lock()
			defer mutex.Unlock()
			found[what] = err
		})
	}
	tries.Wait()
	_, found["a BMC by ping"] = l.blade.try("busybox", "ping", "-c", "1", "-W", "2", "192.168.5.1")
	return found
}

func (l *lab) firewall() {
	l.be(macBlade)
	l.blade.sh("ip address add 192.168.3.1/24 dev eth1; ip route add default via 192.168.3.253")
	for what, err := range l.forbidden() {
		if err == nil {
			l.Errorf("%s is reached from a blade", what)
		}
	}
	for _, port := range []string{"22", "53", "80", "2049"} {
		connection, err := l.blade.dial(l.Context(), "tcp", "192.168.3.253:"+port)
		if err != nil {
			l.Errorf("port %s: %v", port, err)
			continue
		}
		_ = connection.Close()
	}
	// The same host reaches the BMC: the box controller may run there.
	if _, err := l.hosts[0].dial(l.Context(), "tcp", "192.168.5.1:443"); err != nil {
		l.Error(err)
	}
	// Who logs in by SSH does not.
	if output, err := l.ssh1("box", "-i", l.key, "-n", "timeout 3 busybox wget -O - http://192.168.5.1:443/"); err == nil {
		l.Errorf("the user of SSH reaches a BMC: %s", output)
	}
	// Somebody flushes everything: the firewall comes back.
	l.hosts[0].run("nft", "flush", "ruleset")
	eventually(l.T, "the firewall comes back", func() error {
		_, err := l.hosts[0].try("nft", "list", "table", "inet", boxhost.Table)
		return err
	})
}

func (l *lab) eitherHost() {
	l.be(macBlade)
	for _, arguments := range [][]string{nil, {"-C"}, {"-x", "0x3d:01aabbccddeeff"}, {"-r", "192.168.3.77"}} {
		l.wantLease("192.168.3.1", arguments...)
	}
	for _, at := range []int{0, 1} {
		l.hosts[at].kill()
		l.wantLease("192.168.3.1")
		l.wantLease("192.168.3.1", "-x", "0x3d:01aabbccddee00")
		l.hosts[at].start()
		l.waitServed(l.hosts[at])
	}
}

func (l *lab) stranger() {
	l.be(macStranger)
	heard := l.listenForDHCP()
	l.wantLease("")
	for _, message := range strangersMessages(macStranger) {
		l.send(message)
	}
	// Somebody who is known asks last: once this is answered, everything before was dealt with.
	l.be(macBlade)
	l.wantLease("192.168.3.1")
	if all := heard(macStranger); len(all) > 0 {
		l.Errorf("%d answers to a stranger: %q", len(all), all[0])
	}
	for _, packet := range heard(macBlade) {
		if packet[28+240+2] == nak {
			l.Error("a box host says no to a server that has chosen the other one's offer")
		}
	}
	if all := heard(macBlade); len(all) == 0 {
		l.Error("what is captured has no answer to anybody: it proves nothing")
	}
	for _, h := range l.hosts {
		eventually(l.T, h.name+" reports the stranger", func() error {
			report, err := h.report()
			if err != nil {
				return err
			}
			isStranger := func(s boxhost.Stranger) bool { return s.MAC == macStranger }
			if len(report.Strangers) != 1 || !slices.ContainsFunc(report.Strangers, isStranger) {
				return fmt.Errorf("%+v", report)
			}
			return nil
		})
	}
}

func (l *lab) changedMACs() {
	// Another blade in the slot: the address is that of another MAC at once, though the lease has not ended.
	l.desired.Servers[0].Ports[0].MAC = macSwapped
	l.serveDesired()
	l.waitServed(l.hosts[:]...)
	l.be(macSwapped)
	l.wantLease("192.168.3.1")
	l.be(macBlade)
	l.wantLease("")
	before := [2]string{l.hosts[0].dnsmasq(), l.hosts[1].dnsmasq()}
	// The stranger becomes a server, and is none any more.
	l.desired.Servers[1].Ports[0].MAC = macStranger
	l.serveDesired()
	l.waitServed(l.hosts[:]...)
	l.be(macStranger)
	l.wantLease("192.168.3.2")
	for _, h := range l.hosts {
		eventually(l.T, h.name+" reports the blade that was taken out", func() error {
			report, err := h.report()
			if err == nil && (len(report.Strangers) != 1 || report.Strangers[0].MAC != macBlade) {
				err = fmt.Errorf("%+v", report.Strangers)
			}
			return err
		})
	}
	l.desired.Servers[1].Ports[0].MAC = ""
	l.serveDesired()
	l.waitServed(l.hosts[:]...)
	l.wantLease("")
	if after := [2]string{l.hosts[0].dnsmasq(), l.hosts[1].dnsmasq()}; after != before {
		l.Errorf("dnsmasq was restarted: %v, before %v", after, before)
	}
	l.desired.Servers[0].Ports[0].MAC = macBlade
	l.serveDesired()
	l.waitServed(l.hosts[:]...)
	l.be(macBlade)
	l.wantLease("192.168.3.1")
}

func (l *lab) dns() {
	l.blade.sh("ip address add 192.168.3.1/24 dev eth1")
	for _, h := range l.hosts {
		resolver := l.blade.resolver(h.address)
		for name, address := range map[string]string{
			"atom001": "192.168.3.1", "atom001a": "192.168.3.101", "atom001m": "192.168.5.1", "atom002": "192.168.3.2",
			"mercury1cmm": "192.168.5.201", "boxhost1": "192.168.3.253", "boxhost2": "192.168.3.254",
		} {
			if got, err := resolver.LookupHost(l.Context(), name+".box.rcbox."); err != nil || !slices.Equal(got, []string{address}) {
				l.Errorf("%s: %s is %v, not %s: %v", h.name, name, got, address, err)
			}
			if got, err := resolver.LookupAddr(l.Context(), address); err != nil || !slices.Equal(got, []string{name + ".box.rcbox."}) {
				l.Errorf("%s: %s is %v, not %s: %v", h.name, address, got, name, err)
			}
		}
		for _, name := range []string{"atom003.box.rcbox.", "example.com.", "version-000000000000.box.rcbox."} {
			if got, err := resolver.LookupHost(l.Context(), name); err == nil {
				l.Errorf("%s: %s is %v", h.name, name, got)
			}
		}
	}
}

// ownFileSystem: a host whose exports are in a file system with other files does not serve them, says so, and serves everything else. Once
// a file system is mounted there, they are served.
func (l *lab) ownFileSystem() {
	l.Helper()
	l.hosts[0].sh(mountExports)
	h := l.hosts[1]
	eventually(l.T, h.name+" says why it serves no NFS", func() error {
		text, err := h.ready()
		if err == nil || !strings.Contains(text, "but: no folder is served by NFS: /run/state/exports/home is in the same file system") {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	if connection, err := l.blade.dial(l.Context(), "tcp", h.address+":2049"); err == nil {
		_ = connection.Close()
		l.Error("it serves NFS all the same")
	}
	if got, err := l.blade.resolver(h.address).LookupHost(l.Context(), "atom001.box.rcbox."); err != nil {
		l.Errorf("it serves no DNS: %v %v", got, err)
	}
	h.sh(mountExports)
}

// mountExports gives exports a file system of their own.
const mountExports = "mkdir -p /run/state/exports; mount -t tmpfs exports /run/state/exports"

func (l *lab) nfs() {
	for _, h := range l.hosts {
		h.sh("echo hello >/run/state/exports/home/greeting")
		if listed := l.blade.run("nfs-ls", "nfs://"+h.address+"/home?version=4"); !strings.Contains(listed, "greeting") {
			l.Errorf("%s: %s", h.name, listed)
		}
		if read := l.blade.run("nfs-cat", "nfs://"+h.address+"/home/greeting?version=4"); read != "hello\n" {
			l.Errorf("%s: %q", h.name, read)
		}
		old := "nfs://" + h.address + "/home?version=3&nfsport=2049&mountport=2049"
		if listed, err := l.blade.try("timeout", "5", "nfs-ls", old); err == nil {
			l.Errorf("%s serves NFSv3: %s", h.name, listed)
		}
	}
}

func (l *lab) ssh1(user string, arguments ...string) (string, error) {
	l.Helper()
	all := []string{
		"ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR", "-l", user,
	}
	last := len(arguments) - 1
	return l.blade.try(append(append(all, arguments[:last]...), l.hosts[0].address, arguments[last])...)
}

func (l *lab) ssh() {
	if output, err := l.ssh1("box", "-i", l.key, "id -un"); err != nil || output != "box\n" {
		l.Errorf("%v: %q", err, output)
	}
	for what, arguments := range map[string][]string{
		"root":     {"root", "-i", l.key, "id -un"},
		"password": {"box", "-o", "PubkeyAuthentication=no", "-o", "PreferredAuthentications=password,keyboard-interactive", "id -un"},
	} {
		output, err := l.ssh1(arguments[0], arguments[1:]...)
		if err == nil || !strings.Contains(output, "Permission denied (publickey)") {
			l.Errorf("%s: %v: %q", what, err, output)
		}
	}
	forward := []string{"-i", l.key, "-o", "ExitOnForwardFailure=yes", "-R", "192.168.3.253:8080:127.0.0.1:80", "id -un"}
	if output, err := l.ssh1("box", forward...); err == nil {
		l.Errorf("a port is forwarded: %q", output)
	}
}

func (l *lab) web() {
	for _, h := range l.hosts {
		at := "http://" + h.address
		for path, want := range map[string]string{
			"/boot/52-54-00-03-00-01.ipxe": "kernel " + at + "/image/kernel",
			"/boot/52:54:00:03:00:01.ipxe": "rcbox.mac=" + macBlade,
			"/image/kernel":                "the kernel\n",
		} {
			if status, text, err := l.blade.http(http.MethodGet, at+path, nil); status != http.StatusOK || !strings.Contains(text, want) {
				l.Errorf("%s: %d %v: %s", path, status, err, text)
			}
		}
		for _, path := range []string{
			"/boot/52-54-00-03-00-99.ipxe", "/boot/", "/image/", "/image/other", "/image/..%2f" + h.name + ".json", "/image/%2e%2e/key",
			"/",
		} {
			if status, text, err := l.blade.http(http.MethodGet, at+path, nil); status != http.StatusNotFound {
				l.Errorf("%s: %d %v: %s", path, status, err, text)
			}
		}
		status, text, err := l.blade.http(http.MethodPost, at+boxhost.PathJoin, strings.NewReader("{}"))
		if status != http.StatusForbidden {
			l.Errorf("%d %v: %s", status, err, text)
		}
	}
}

// refused: whatever is written, and whatever a program refuses, what was served goes on.
func (l *lab) refused() {
	good, err := l.desired.Encode()
	if err != nil {
		l.Fatal(err)
	}
	hostile := strings.Replace(string(good), "atom002", "atom002\\ndhcp-range=10.0.0.0,10.0.0.9", 1)
	for what, data := range map[string]string{"nonsense": "{", "a hostile name": hostile, "a later format": `{"version":7}`} {
		l.serve([]byte(data))
		for _, h := range l.hosts {
			l.waitRefused(h, "; a newer one is refused: ")
		}
		l.wantLease("192.168.3.1")
		l.serve(good)
		l.waitServed(l.hosts[:]...)
		_ = what
	}
	// Something that this package finds right, and that a program refuses.
	h := l.hosts[0]
	h.sh(`printf '#!/bin/sh\necho "a bug" >&2; exit 1\n' >/run/sshd-refuses; chmod +x /run/sshd-refuses
		mount --bind /run/sshd-refuses /usr/sbin/sshd`)
	l.desired.Servers[1].Ports[0].MAC = macStranger
	l.serveDesired()
	l.waitRefused(h, "sshd -t: exit status 1: a bug")
	l.waitServed(l.hosts[1])
	h.sh("umount /usr/sbin/sshd")
	l.waitServed(h)
	l.refusedLate(h)
}

// refusedLate: the firewall passes its check, and cannot be loaded. No file has changed.
func (l *lab) refusedLate(h *host) {
	l.Helper()
	files := func() string {
		return h.run("/bin/sh", "-euc", "cd /run/rcbox-boxhost; sha256sum dhcp-hosts firewall.nft hosts")
	}
	before := files()
	h.sh(`nft=$(readlink -f "$(command -v nft)"); cp "$nft" /run/nft
		printf '#!/bin/sh\n[ "$1" != -f ] || { echo "no room" >&2; exit 1; }\nexec /run/nft "$@"\n' >/run/nft-refuses
		chmod +x /run/nft-refuses; mount --bind /run/nft-refuses "$nft"`)
	l.desired.Servers[1].Ports[0].MAC = ""
	l.serveDesired()
	l.waitRefused(h, "nft -f: exit status 1: no room")
	if after := files(); after != before {
		l.Errorf("files have changed, though the newer configuration is refused:\n%s\n%s", before, after)
	}
	h.sh(`umount "$(readlink -f "$(command -v nft)")"`)
	l.waitServed(l.hosts[:]...)
}

// waitRefused waits until a host says that something newer is refused; it is ready all the same.
func (l *lab) waitRefused(h *host, why string) {
	l.Helper()
	eventually(l.T, h.name+" refuses it", func() error {
		text, err := h.ready()
		if err == nil && !strings.Contains(text, why) {
			err = errors.New(text)
		}
		return err
	})
	_, metrics, err := h.http(http.MethodGet, "http://127.0.0.1:9467/metrics", nil)
	if err != nil || !strings.Contains(metrics, "\nrcbox_boxhost_configuration_refused 1\n") {
		l.Errorf("%v: %s", err, metrics)
	}
	if !strings.Contains(h.log.String(), "a configuration is refused, and the one before goes on") {
		l.Error("the log does not say so")
	}
}

// startedAlone: without anything to be served, or with nonsense, a host that is started serves what it has served last.
func (l *lab) startedAlone() {
	h := l.hosts[0]
	h.kill()
	if err := os.WriteFile(h.desired, []byte("{"), 0o644); err != nil {
		l.Fatal(err)
	}
	l.hosts[1].kill()
	h.start()
	l.waitRefused(h, "; a newer one is refused: ")
	l.wantLease("192.168.3.1")
}
