// Package hosts tests box hosts with the real programs: two of them, a server and a BMC, each in a network namespace of its own, at one
// switch. The programs are Debian's: dnsmasq, nft, nfs-ganesha, OpenSSH, ypserv, and as clients busybox' udhcpc, nfs-ls, ssh and
// ypcat.
package hosts

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// patience is how long something may take that takes a second or two.
const patience = 60 * time.Second

// eventually waits until something is so.
func eventually(t *testing.T, what string, isSo func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := isSo()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		<-tick.C
	}
}

// space is a network namespace, and a mount namespace in which /run is its own.
type space struct {
	*testing.T
	pid int
}

func newSpace(t *testing.T) *space {
	t.Helper()
	holder := exec.CommandContext(t.Context(), "unshare", "--net", "--mount", "--propagation=private", "--", "/bin/sh", "-c",
		"ip link set lo up && mount -t tmpfs -o mode=755 tmpfs /run && echo ready && exec cat")
	input, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	holder.Stderr = os.Stderr
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the holder dies with the thread
		started <- holder.Start()
		select {}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = holder.Wait()
	})
	if answer := make([]byte, 6); true {
		if _, err := io.ReadFull(output, answer); err != nil || string(answer) != "ready\n" {
			t.Fatalf("the namespace is not there: %q %v", answer, err)
		}
	}
	return &space{T: t, pid: holder.Process.Pid}
}

// command is one in the namespace.
func (s *space) command(ctx context.Context, arguments ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(s.pid), "-n", "-m", "--"}, arguments...)...)
}

// try runs a command, which may fail.
func (s *space) try(arguments ...string) (string, error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	output, err := s.command(ctx, arguments...).CombinedOutput()
	return string(output), err
}

// run runs a command, which must not fail.
func (s *space) run(arguments ...string) string {
	s.Helper()
	output, err := s.try(arguments...)
	if err != nil {
		s.Fatalf("%v: %v\n%s", arguments, err, output)
	}
	return output
}

// sh runs lines of shell.
func (s *space) sh(lines string) {
	s.Helper()
	s.run("/bin/sh", "-euc", lines)
}

// within calls a function on a thread that is in the namespace: the sockets that it opens are there.
func (s *space) within(do func()) {
	s.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: nobody else may get this thread
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", s.pid))
		if err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
			_ = file.Close()
		}
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		s.Fatal(err)
	}
}

// dial connects from within the namespace.
func (s *space) dial(ctx context.Context, network, address string) (connection net.Conn, err error) {
	s.within(func() { connection, err = (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, address) })
	return connection, err
}

func (s *space) http(method, url string, body io.Reader) (int, string, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true}, Timeout: patience}
	request, err := http.NewRequestWithContext(s.Context(), method, url, body)
	if err != nil {
		return 0, "", err
	}
	request.URL.Opaque = "" // the path is sent as it is
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// resolver asks the DNS server at an address.
func (s *space) resolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return s.dial(ctx, network, server+":53")
	}}
}

// host is a box host.
type host struct {
	*space
	name, address string
	desired       string
	process       *exec.Cmd
	log           *lockedBuffer
}

// lab is two box hosts, a blade and a BMC.
type lab struct {
	*testing.T
	hosts   [2]*host
	blade   *space
	bmc     *space
	key     string
	desired *boxhost.Desired
}

// lockedBuffer is the log of a program that is running.
type lockedBuffer struct {
	mutex sync.Mutex
	text  strings.Builder
}

func (b *lockedBuffer) Write(data []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(data)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

// program is the supervisor, built once.
var program = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "boxhost")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "boxhost")
	output, err := exec.Command("go", "build", "-o", path, "rcbox.dev/rcbox/operator/cmd/boxhost").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make network namespaces")
	}
	for _, name := range []string{
		"dnsmasq", "nft", "ganesha.nfsd", "nfs-ls", "/usr/sbin/sshd", "ssh", "busybox", "nsenter", "rpcbind", "ypserv", "ypcat",
	} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not there (hack/setup.sh box installs it): %v", name, err)
		}
	}
	l := &lab{T: t}
	folder := t.TempDir()
	l.key = filepath.Join(folder, "key")
	generate := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", l.key)
	if output, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	public, err := os.ReadFile(l.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	l.desired = desired(strings.Join(strings.Fields(string(public))[:2], " "))
	l.connect()
	for i, name := range []string{"first", "second"} {
		h := l.hosts[i]
		h.name, h.desired = name, filepath.Join(folder, name+".json")
		h.prepare(folder)
		t.Cleanup(func() { // after all steps
			if h.process != nil {
				h.kill()
			}
			if t.Failed() {
				t.Logf("log of host %s:\n%s", h.name, h.log)
			}
		})
	}
	return l
}

// connect makes the switch, and connects everything: hosts and blade with the network of servers, BMC with the first host alone, which
// forwards as a careless administrator would have it.
func (l *lab) connect() {
	l.Helper()
	fabric := newSpace(l.T)
	fabric.sh("ip link add br0 type bridge; ip link set br0 up")
	attach := func(to *space, port string) {
		l.Helper()
		to.sh(fmt.Sprintf("ip link add eth1 type veth peer name %s; ip link set %s netns %d; ip link set eth1 up", port, port, fabric.pid))
		fabric.sh(fmt.Sprintf("ip link set %s master br0 up", port))
	}
	for i, address := range []string{"192.168.3.253", "192.168.3.254"} {
		l.hosts[i] = &host{space: newSpace(l.T), address: address}
		attach(l.hosts[i].space, "host"+strconv.Itoa(i))
		l.hosts[i].sh("ip address add " + address + "/24 dev eth1")
	}
	l.blade, l.bmc = newSpace(l.T), newSpace(l.T)
	attach(l.blade, "blade")
	l.hosts[0].sh(fmt.Sprintf(`sysctl -qw net.ipv4.ip_forward=1
		ip link add eth9 type veth peer name eth0 netns %d
		ip address add 192.168.5.254/24 dev eth9; ip link set eth9 up`, l.bmc.pid))
	l.bmc.sh("ip address add 192.168.5.1/24 dev eth0; ip link set eth0 up; ip route add default via 192.168.5.254")
}

// prepare makes a user for SSH, in the namespace alone, and a boot image.
func (h *host) prepare(folder string) {
	h.Helper()
	h.sh(fmt.Sprintf(`mkdir -p %[1]s/image /run/home /run/rcbox-boxhost/yp
		mount --bind /run/rcbox-boxhost/yp /var/yp # where a box host's image has a link
		echo the kernel >%[1]s/image/kernel; echo secret >%[1]s/image/other
		cp /etc/passwd /run/passwd; echo 'box:x:64000:64000::/run/home:/bin/sh' >>/run/passwd; mount --bind /run/passwd /etc/passwd
		cp /etc/shadow /run/shadow; echo 'box:*:19000:0:99999:7:::' >>/run/shadow; mount --bind /run/shadow /etc/shadow`,
		folder))
}

// serve writes what is to be served, for both hosts.
func (l *lab) serve(data []byte) {
	l.Helper()
	for _, h := range l.hosts {
		if err := os.WriteFile(h.desired+".new", data, 0o644); err != nil {
			l.Fatal(err)
		}
		if err := os.Rename(h.desired+".new", h.desired); err != nil {
			l.Fatal(err)
		}
	}
}

func (l *lab) serveDesired() {
	l.Helper()
	data, err := l.desired.Encode()
	if err != nil {
		l.Fatal(err)
	}
	l.serve(data)
}

// start starts a supervisor.
func (h *host) start() {
	h.Helper()
	path, err := program()
	if err != nil {
		h.Fatal(err)
	}
	h.log = &lockedBuffer{}
	// In a namespace of processes of its own, as in a container: all of them end with the supervisor.
	h.process = h.command(context.WithoutCancel(h.Context()), "unshare", "--pid", "--fork", "--kill-child", path,
		"--interface=eth1", "--run=/run/rcbox-boxhost", "--state=/run/state",
		"--images="+filepath.Dir(h.desired)+"/image", "--desired="+h.desired, "--report="+h.desired+".report")
	h.process.Stdout, h.process.Stderr = h.log, h.log
	h.process.WaitDelay = time.Second
	if err := h.process.Start(); err != nil {
		h.Fatal(err)
	}
}

// kill ends a supervisor as a failing machine does: its programs end with it.
func (h *host) kill() {
	_ = h.process.Process.Kill()
	_ = h.process.Wait()
}

// ready says how a host says it is.
func (h *host) ready() (string, error) {
	h.Helper()
	status, text, err := h.http(http.MethodGet, "http://127.0.0.1:9467/readyz", nil)
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return text, fmt.Errorf("%d: %s", status, text)
	}
	return text, nil
}

// waitServed waits until a host serves what follows from desired, and nothing newer is refused.
func (l *lab) waitServed(hosts ...*host) {
	l.Helper()
	for _, h := range hosts {
		place := &boxhost.Place{
			Interface: "eth1", Run: "/run/rcbox-boxhost", State: "/run/state", TFTP: "/usr/lib/ipxe", User: "box", UserID: 64000,
		}
		place.Address = prefix(h.address + "/24")
		rendering, err := boxhost.Render(l.desired, place)
		if err != nil {
			l.Fatal(err)
		}
		want := "configuration " + rendering.Version + " is served\n"
		eventually(l.T, h.name+" serves "+rendering.Version, func() error {
			if text, err := h.ready(); err != nil || text != want {
				return fmt.Errorf("%w: %s", err, text)
			}
			return nil
		})
	}
}

// report is what a host has reported last.
func (h *host) report() (*boxhost.Report, error) {
	data, err := os.ReadFile(h.desired + ".report")
	if err != nil {
		return nil, err
	}
	return boxhost.DecodeReport(data)
}

// dnsmasq is the process of that program in a host.
func (h *host) dnsmasq() string {
	h.Helper()
	return h.program("dnsmasq")
}

// program is the process of a program in a host.
func (h *host) program(name string) string {
	h.Helper()
	found := h.programs(name)
	if len(found) == 0 {
		h.Fatalf("%s does not run in host %s", name, h.name)
	}
	return found[0]
}

// programs are the processes of a program in a host.
func (h *host) programs(name string) []string {
	h.Helper()
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", h.pid))
	if err != nil {
		h.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		h.Fatal(err)
	}
	var found []string
	for _, process := range all {
		comm, _ := os.ReadFile(process + "/comm") // it may have ended
		if network, _ := os.Readlink(process + "/ns/net"); network == own && strings.TrimSpace(string(comm)) == name {
			found = append(found, filepath.Base(process))
		}
	}
	return found
}
