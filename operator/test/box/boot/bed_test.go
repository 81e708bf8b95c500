// Package boot_test starts blades from nothing: emulated machines with blank disks, which find their box host over the network, install a
// signed image, and become nodes of a cluster. The box host is a stand-in made of dnsmasq, with the configuration that package boxhost
// renders, and of an HTTP server of this package. Nothing of a blade is a stand-in but the hardware.
package boot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/boxhost"
	"rcbox.dev/rcbox/operator/test/testbed"
)

const (
	environmentImage = "RCBOX_BLADE_IMAGE"
	bridge           = "blades"
	hostAddress      = "192.168.3.254"
	// patience is ten times what a step takes on two busy processors.
	patience = 15 * time.Minute
	poll     = 100 * time.Millisecond
	diskSize = 12 << 30 // of which a file has only what is written
	// processors and memoryMiB are those of an emulated blade.
	processors = 2
	memoryMiB  = 1536
	mebi       = 1 << 20
)

// blades are those of the tests, by number.
func address(number int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 3, byte(number)}) }
func mac(number int) string         { return fmt.Sprintf("52:54:00:03:00:%02x", number) }
func uuid(number int) string        { return fmt.Sprintf("a1234567-89ab-cdef-a123-456789abcd%02x", number) }
func name(number int) string        { return fmt.Sprintf("atom%03d", number) }

// host is the box host.
type host struct {
	*testing.T
	image   string // the folder of the image
	dnsmasq *testbed.Process
	server  *http.Server
	join    http.Handler
	isGone  bool
}

// startHost makes the network of blades in the namespace of this test, and the services on it. Without an image, or without the rights for
// that, the test is skipped.
func startHost(t *testing.T, numbers ...int) *host {
	t.Helper()
	image := os.Getenv(environmentImage)
	if image == "" {
		t.Skipf("there is no image for blades: set %s=\"$(hack/blade-image.sh)\"", environmentImage)
	}
	network := os.Getenv("RCBOX_BOX_NETWORK")
	if network == "" {
		t.Skip("blades need a network namespace of their own: run hack/box.sh as root")
	}
	h := &host{T: t, image: image}
	makeNetwork(t, network, numbers)
	h.serve(render(t, numbers))
	return h
}

// makeNetwork replaces the route by which all addresses of the rack are this machine's with a bridge that blades are plugged into. The
// network ends with the namespace, which is that of this package's tests alone.
func makeNetwork(t *testing.T, network string, numbers []int) {
	t.Helper()
	commands := [][]string{
		{"route", "delete", "local", network, "dev", "lo"},
		{"link", "add", bridge, "type", "bridge", "forward_delay", "0"},
		{"address", "add", hostAddress + "/24", "dev", bridge},
		{"link", "set", bridge, "up"},
	}
	for _, number := range numbers {
		commands = append(commands, []string{"tuntap", "add", tap(number), "mode", "tap"},
			[]string{"link", "set", tap(number), "master", bridge, "up"})
	}
	for _, arguments := range commands {
		if output, err := exec.CommandContext(t.Context(), "ip", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", arguments, err, output)
		}
	}
}

func tap(number int) string { return fmt.Sprintf("blade%d", number) }

// render has package boxhost write what a box host needs for these blades.
func render(t *testing.T, numbers []int) (*boxhost.Rendering, string) {
	t.Helper()
	run, state, tftp := t.TempDir(), t.TempDir(), t.TempDir()
	// Dnsmasq gives up root's rights.
	for folder, mode := range map[string]fs.FileMode{filepath.Dir(run): 0o755, state: 0o777} {
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
	}
	desired := &boxhost.Desired{
		Version: boxhost.Version,
		Settings: boxhost.Settings{
			Domain: "box.rcbox", Hosts: []boxhost.Name{{Name: "boxhost1", Address: netip.MustParseAddr(hostAddress)}},
			BootArguments: []string{"console=ttyS0", "net.ifnames=0", "no_timer_check", "mitigations=off", "edd=off", "rcbox.system=4096"},
		},
		Networks: []boxhost.Network{{CIDR: netip.MustParsePrefix("192.168.3.0/24")}},
	}
	for _, number := range numbers {
		desired.Servers = append(desired.Servers, boxhost.Server{
			Name: name(number), Chassis: "mercury1", Slot: int32(number), UUID: uuid(number), Boot: boxhost.BootNetwork,
			Ports: []boxhost.Port{{NIC: 1, MAC: mac(number), Address: address(number)}},
		})
	}
	rendering, err := boxhost.Render(desired, &boxhost.Place{
		Interface: bridge, Address: netip.MustParsePrefix(hostAddress + "/24"), Run: run, State: state, TFTP: tftp,
		User: "box", UserID: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range rendering.Files {
		if err := os.WriteFile(filepath.Join(run, file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return rendering, run
}

// serve starts dnsmasq, and the HTTP server.
func (h *host) serve(rendering *boxhost.Rendering, run string) {
	h.Helper()
	h.dnsmasq = testbed.StartProcess(h.T, "dnsmasq", "--keep-in-foreground", "--log-facility=-", "--log-dhcp",
		"--conf-file="+filepath.Join(run, boxhost.DnsmasqConf))
	mux := http.NewServeMux()
	mux.Handle("GET "+boxhost.PathImage, http.StripPrefix(boxhost.PathImage, http.FileServer(http.Dir(h.image))))
	mux.HandleFunc("GET "+boxhost.PathBoot+"{file}", func(w http.ResponseWriter, r *http.Request) {
		mac := strings.ReplaceAll(strings.TrimSuffix(r.PathValue("file"), ".ipxe"), "-", ":")
		script, isKnown := rendering.Scripts[mac]
		if !isKnown {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(script))
	})
	mux.HandleFunc("POST "+boxhost.PathJoin, func(w http.ResponseWriter, r *http.Request) {
		if h.join == nil {
			http.Error(w, "this host lets nobody join", http.StatusForbidden)
			return
		}
		h.join.ServeHTTP(w, r)
	})
	listener, err := (&net.ListenConfig{}).Listen(h.Context(), "tcp", net.JoinHostPort(hostAddress, "80"))
	if err != nil {
		h.Fatal(err)
	}
	h.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- h.server.Serve(listener) }()
	h.Cleanup(func() {
		_ = h.server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			h.Errorf("the box host's HTTP server: %v", err)
		}
	})
}

// goAway ends all services of the box host.
func (h *host) goAway() {
	h.Helper()
	h.isGone = true
	h.dnsmasq.Kill()
	if err := h.server.Close(); err != nil {
		h.Fatal(err)
	}
}

// machine is an emulated blade.
type machine struct {
	*testing.T
	host    *host
	number  int
	folder  string
	process *exec.Cmd
	ended   chan struct{}
	starts  int
}

// newMachine has a blank disk.
func newMachine(t *testing.T, h *host, number int) *machine {
	t.Helper()
	m := &machine{T: t, host: h, number: number, folder: t.TempDir()}
	if err := os.WriteFile(m.disk(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(m.disk(), diskSize); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.cut()
		if t.Failed() {
			t.Logf("the last words of %s:\n%s", name(number), tail(m.console()))
		}
	})
	return m
}

func (m *machine) disk() string { return filepath.Join(m.folder, "disk") }

// from says what a machine starts from. Like a BIOS, the machine tries the disk first, then the network.
type from string

const (
	fromDisk        from = "order=cn"
	fromNetworkOnce from = "order=cn,once=n"
)

// start gives it power, with further options of the emulator.
func (m *machine) start(boot from, options ...string) {
	m.Helper()
	m.starts++
	// An emulated processor takes all that it gets of a real one, and tests beside this one watch clocks.
	m.process = exec.CommandContext(context.WithoutCancel(m.Context()), "nice", slices.Concat([]string{
		"-n", "10", "qemu-system-x86_64", "-name", name(m.number),
		// No KVM, also where there is one: this is about function, and shall be the same everywhere.
		"-accel", "tcg,thread=multi", "-machine", "pc,graphics=off", "-cpu", "max",
		"-smp", strconv.Itoa(processors), "-m", strconv.Itoa(memoryMiB),
		"-display", "none", "-nodefaults", "-uuid", uuid(m.number),
		"-netdev", "tap,id=port,script=no,downscript=no,ifname=" + tap(m.number),
		"-device", "virtio-net-pci,netdev=port,mac=" + mac(m.number),
		"-drive", "file=" + m.disk() + ",if=none,id=disk,format=raw,cache=unsafe", "-device", "virtio-blk-pci,drive=disk",
		"-chardev", "file,id=console,path=" + m.consolePath(), "-serial", "chardev:console", "-boot", string(boot),
	}, options)...)
	var output bytes.Buffer
	m.process.Stdout, m.process.Stderr = &output, &output
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.process.Start(); err != nil {
		m.Fatal(err)
	}
	m.ended = make(chan struct{})
	go func() {
		_ = m.process.Wait() // it is killed
		if output.Len() > 0 {
			_ = os.WriteFile(m.consolePath()+".qemu", output.Bytes(), 0o600) // for people
		}
		close(m.ended)
	}()
}

// cut takes the power.
func (m *machine) cut() {
	if m.process == nil {
		return
	}
	_ = m.process.Process.Kill() // it may have ended
	<-m.ended
	m.process = nil
}

func (m *machine) consolePath() string {
	return filepath.Join(m.folder, fmt.Sprintf("console-%d", m.starts))
}

func (m *machine) console() string {
	text, err := os.ReadFile(m.consolePath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Fatal(err)
	}
	return string(text)
}

// says waits until the machine's console has a text.
func (m *machine) says(text string) {
	m.Helper()
	started := time.Now()
	for deadline := started.Add(patience); time.Now().Before(deadline); <-time.After(poll) {
		console := m.console()
		if strings.Contains(console, text) {
			m.Logf("%s, start %d: %q after %d s", name(m.number), m.starts, text, int(time.Since(started).Seconds()))
			return
		}
		m.isAlive()
	}
	m.Fatalf("after %s, the console of %s does not say %q:\n%s", time.Since(started).Round(time.Second), name(m.number), text,
		tail(m.console()))
}

// ends waits until the machine has ended by itself, after its console had a text.
func (m *machine) ends(text string) {
	m.Helper()
	started := time.Now()
	select {
	case <-m.ended:
	case <-time.After(patience):
	}
	if !strings.Contains(m.console(), text) {
		m.Fatalf("after %s, the console of %s does not say %q:\n%s", time.Since(started).Round(time.Second), name(m.number), text,
			tail(m.console()))
	}
	m.Logf("%s, start %d: %q, and ended after %d s", name(m.number), m.starts, text, int(time.Since(started).Seconds()))
	m.cut()
}

// isAlive ends the test if the machine or its box host has ended, or if the blade says itself that it has failed.
func (m *machine) isAlive() {
	m.Helper()
	select {
	case <-m.ended:
		m.Fatalf("the emulator has ended; it said: %s", tail(readFile(m.consolePath()+".qemu")))
	default:
	}
	if !m.host.isGone && m.host.dnsmasq.Ended() {
		m.Fatal("dnsmasq has ended")
	}
	if console := m.console(); strings.Contains(console, "FAILED: ") {
		m.Fatalf("%s says that it has failed:\n%s", name(m.number), tail(console))
	}
}

func readFile(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func tail(text string) string {
	const lines = 40
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
