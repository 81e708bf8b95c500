package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"rcbox.dev/rcbox/faults/contain"
)

// Servers with ports of their own, which DPDK drives: each has two, in networks of their own. They are ends of veth pairs by net_af_packet,
// which stands in for a NIC: what is tested is the store over ports, not a driver of any hardware.

// fastPort is the UDP port of all servers there for clients, and peerPort the one for other servers.
const (
	fastPort = 12247
	peerPort = fastPort + 100
)

// rail is a switch of ports.
type rail struct {
	*network
	number int
}

// withPorts is a store of members on hosts of their own, with a cable to the control network and a port on each of two rails. Between
// servers copies go by the ports; clients use the kernel's datagrams on the control network.
func withPorts(t *testing.T, count int) (*store, *network, [2]rail) {
	t.Helper()
	n := newNetwork(t)
	s, rails := portsOn(n, count, nil)
	return s, n, rails
}

// portsOn is the same on a network without hosts so far, with these containers.
func portsOn(n *network, count int, containers map[string]*contain.Group, more ...string) (*store, [2]rail) {
	n.t.Helper()
	rails := [2]rail{{n, 0}, {n, 1}}
	for _, r := range rails {
		n.ip("-n", n.hub(), "link", "add", r.name(), "type", "bridge", "stp_state", "0", "forward_delay", "0")
		n.ip("-n", n.hub(), "link", "set", r.name(), "up")
	}
	s := (&store{t: n.t, hosts: n.host, containers: containers}).start()
	for number := range count {
		member := fmt.Sprintf("m%d", number)
		s.add(member, slices.Concat(onPorts(rails, member), replicated, more)...)
	}
	for number := range count {
		s.waitReady(fmt.Sprintf("m%d", number))
	}
	return s, rails
}

func (r rail) name() string { return fmt.Sprintf("rail%d", r.number) }

// end is the switch's end of a host's cable.
func (r rail) end(host string) string { return fmt.Sprintf("%s-%s", r.name(), host) }

// cut pulls a host's cable out; mend puts it in again. The host's end says that it has no link then.
func (r rail) cut(host string)  { r.ip("-n", r.hub(), "link", "set", r.end(host), "down") }
func (r rail) mend(host string) { r.ip("-n", r.hub(), "link", "set", r.end(host), "up") }

// attach lays a host's cable; the kernel has no address there.
func (r rail) attach(name string) (address string) {
	at := r.host(name)
	port := fmt.Sprintf("port%d", r.number)
	r.ip("link", "add", port, "netns", at.namespace, "type", "veth", "peer", "name", r.end(name), "netns", r.hub())
	r.ip("-n", at.namespace, "link", "set", port, "up")
	r.ip("-n", r.hub(), "link", "set", r.end(name), "master", r.name(), "up")
	_, last, _ := strings.Cut(at.address, "10.77.0.")
	return fmt.Sprintf("10.78.%d.%s", r.number, last)
}

// onPorts is what a process on a host is started with, that has a port on each of these rails.
func onPorts(rails [2]rail, name string) []string {
	words := []string{"-L", "fast+udp:host=" + rails[0].host(name).address + ",port=0"}
	return append(words, ports(rails, name, fastPort)...)
}

func ports(rails [2]rail, name string, udpPort int) []string {
	var words, devices []string
	for i, r := range rails {
		words = append(words, "-L", fmt.Sprintf("fast+dpdk:host=%s,port=%d", r.attach(name), udpPort))
		devices = append(devices, fmt.Sprintf("--vdev net_af_packet%d,iface=port%d,qdisc_bypass=1", i, i))
	}
	return append(words, "--dpdk", strings.Join(devices, " "), "--dpdkHugepages", "never", "--dpdkMemoryMB", "64")
}

// waitByPorts waits until a member's log goes to its backups by ports, and to none by TCP.
func (s *store) waitByPorts(member string) {
	s.t.Helper()
	waitFor(s.t, member+" to reach its backups by ports", func() error {
		byPort, err := s.metric(member, "rcbox_fast_backups")
		if err != nil {
			return err
		}
		byTCP, err := s.metric(member, "rcbox_fast_backups_over_tcp")
		if err == nil && (byPort < 2 || byTCP > 0) {
			err = fmt.Errorf("it reaches %v by ports and %v by TCP", byPort, byTCP)
		}
		return err
	})
}

// waitLinks waits until the store shows the links of m1's ports like this: first of the control network, then of the rails.
func (s *store) waitLinks(links ...bool) {
	s.t.Helper()
	const member = "m1"
	waitFor(s.t, fmt.Sprintf("links of %s: %v", member, links), func() error {
		var status struct {
			Members []struct {
				Name    string
				Network []struct{ LinkUp *bool }
			}
		}
		if err := s.ask(&status, "status"); err != nil {
			return err
		}
		var seen []bool
		for _, known := range status.Members {
			for _, port := range known.Network {
				if known.Name == member {
					seen = append(seen, port.LinkUp != nil && *port.LinkUp)
				}
			}
		}
		if fmt.Sprint(seen) != fmt.Sprint(links) {
			return fmt.Errorf("they are %v", seen)
		}
		return nil
	})
}

// capture writes down what passes a host's cable until done is called, which looks through it: whoever else speaks UDP has to find no
// fault with it. How many there were of the store is what it returns.
func (r rail) capture(host string) (done func() int) {
	r.t.Helper()
	tool, err := exec.LookPath("dumpcap")
	if err != nil {
		r.t.Fatalf("%v: apt-get install tshark, or run `make faults`", err)
	}
	file := filepath.Join(r.t.TempDir(), "frames.pcapng")
	p := start(r.t, "dumpcap", r.hub(), nil, command([]string{tool, "-q", "-i", r.end(host), "-w", file, "-a", "filesize:20000"}))
	r.t.Cleanup(p.kill)
	p.waitLogged("File: ")
	return func() int {
		r.t.Helper()
		_ = p.cmd.Process.Signal(syscall.SIGINT) // It ends by itself when the file is long enough.
		p.waitEnd()
		frames := dissect(r.t, file, fmt.Sprintf("udp.port in {%d, %d}", fastPort, peerPort))
		wrong := dissect(r.t, file, `_ws.malformed || ip.checksum.status == "Bad" || udp.checksum.status == "Bad"`)
		if len(wrong) > 0 {
			r.t.Errorf("of %d frames %d are wrong: %.2000s", len(frames), len(wrong), strings.Join(wrong, "\n"))
		}
		return len(frames)
	}
}

// dissect is a line for each frame that passes a filter.
func dissect(t *testing.T, file, filter string) []string {
	t.Helper()
	// It would take some packets for those of another protocol, by what their first bytes happen to be.
	data := func(port int) string { return fmt.Sprintf("udp.port==%d,data", port) }
	output, err := exec.Command("tshark", "-r", file, "-d", data(fastPort), "-d", data(peerPort), "-Y", filter,
		"-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE").Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	var lines []string
	for line := range strings.Lines(string(output)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// measure runs ClusterPerf on a host of its own, whose ports DPDK drives as well.
func measure(s *store, n *network, rails [2]rail, host string) {
	s.t.Helper()
	words := append([]string{program(s.t, "clusterperf"), "-C", s.locator}, ports(rails, host, 0)...)
	words = append(words, "--json", "--size", "20000", "--count", "300", "readDist")
	var output []byte
	cmd := command(words)
	err := inNamespace(n.host(host).namespace, func() (err error) {
		output, err = cmd.Output()
		return err
	})
	if err != nil {
		s.t.Fatalf("clusterperf: %v: %s", err, output)
	}
	var report struct {
		Tests []struct{ Results []struct{ Name string } }
	}
	if err := json.Unmarshal(output, &report); err != nil || len(report.Tests) != 1 || len(report.Tests[0].Results) == 0 {
		s.t.Fatalf("clusterperf has measured nothing: %v: %s", err, output)
	}
}

// packets is how many of those of the fast protocol all servers have received.
func packets(s *store) float64 {
	s.t.Helper()
	total := 0.0
	for member := range s.servers {
		waitFor(s.t, "packets of "+member, func() error {
			received, err := s.metric(member, "rcbox_fast_packets_received_total")
			total += received
			return err
		})
	}
	return total
}

// TestKilledMasterOverPorts: copies and a recovery go by ports, and so do other clients meanwhile.
func TestKilledMasterOverPorts(t *testing.T) {
	s, n, rails := withPorts(t, 4)
	captured := []func() int{rails[0].capture("m0"), rails[1].capture("m0")}
	clients := record(t, s.locator, n.at("clients", usual))
	clients.waitProgress(usual.keys, 20)
	for member := range s.servers {
		s.waitByPorts(member)
	}
	before := packets(s)
	measure(s, n, rails, "perf")
	if after := packets(s); after < before+1000 {
		t.Errorf("ClusterPerf has not used ports: %v packets before, %v after", before, after)
	}
	s.waitOwner("m1")
	s.servers["m1"].kill()
	s.waitMoved("m1")
	clients.waitProgress(usual.keys, 20)
	s.restart("m1")
	s.waitReady("m1")
	for member := range s.servers {
		s.waitCopies(member)
		s.waitByPorts(member)
	}
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
	frames := 0
	for _, done := range captured {
		frames += done()
	}
	if frames < 1000 {
		t.Errorf("only %d frames passed the cables of m0", frames)
	}
}

// TestCutPorts: one cable of a server is pulled, then the other one, and both come back. The other port, and then TCP, carry everything.
func TestCutPorts(t *testing.T) {
	s, n, rails := withPorts(t, 3)
	clients := record(t, s.locator, n.at("clients", usual))
	s.waitByPorts("m1")
	s.waitLinks(true, true, true)

	rails[0].cut("m1")
	s.waitLinks(true, false, true)
	clients.waitProgress(usual.keys, 50)
	s.waitByPorts("m1")

	rails[1].cut("m1")
	s.waitLinks(true, false, false)
	clients.waitProgress(usual.keys, 50)
	s.waitCopies("m1")

	rails[1].mend("m1")
	rails[0].mend("m1")
	s.waitLinks(true, true, true)
	s.waitByPorts("m1")
	clients.waitProgress(usual.keys, 50)
	if s.coordinator.logged("is dead") != "" {
		t.Error("somebody was declared dead, though there was a way to all")
	}
	judge(t, usual.keys, clients)
}

// folderOfAll is a folder for everybody; those that the testing package makes are not.
func folderOfAll(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "rcbox-port") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	return folder
}

// asNobody is a command line of a user without any rights.
func asNobody(t *testing.T, words []string) []string {
	t.Helper()
	bytes, err := os.ReadFile(words[0])
	if err != nil {
		t.Fatal(err)
	}
	// The one that was built may be where others do not come.
	program := filepath.Join(folderOfAll(t), filepath.Base(words[0]))
	if err := os.WriteFile(program, bytes, 0o755); err != nil {
		t.Fatal(err)
	}
	words = append([]string{program}, words[1:]...)
	if os.Geteuid() != 0 {
		return words
	}
	return append([]string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"}, words...)
}

// TestPortWithoutRights: a server and its client are processes of a user without any rights. Their ports are the two ends of shared memory
// (net_memif), in which there are no huge pages.
func TestPortWithoutRights(t *testing.T) {
	socket := filepath.Join(folderOfAll(t), "memif")
	port := func(role, address string) []string {
		device := fmt.Sprintf("--vdev net_memif0,role=%s,socket=%s,socket-abstract=no", role, socket)
		return []string{
			"-L", "fast+dpdk:host=" + address, "--dpdk", device, "--dpdkHugepages", "never", "--dpdkMemoryMB", "64",
		}
	}
	s := startStore(t, onLoopback)
	s.run("m0", asNobody(t, s.words("m0", append(port("server", "10.79.0.1,port=12247"), "-M")...)))
	s.waitReady("m0")
	words := append([]string{program(t, "clusterperf"), "-C", s.locator}, port("client", "10.79.0.2,port=0")...)
	var lines []string
	client := start(t, "clusterperf", "", func(line string) { lines = append(lines, line) },
		command(asNobody(t, append(words, "--json", "--size", "20000", "--count", "1000", "readDist"))))
	t.Cleanup(client.kill)
	// While it runs: when a peer goes, net_memif may crash (docs/dpdk.md, Holes).
	waitFor(t, "packets", func() error {
		received, err := s.metric("m0", "rcbox_fast_packets_received_total")
		if err == nil && received < 1000 {
			err = fmt.Errorf("%v came", received)
		}
		return err
	})
	client.waitEnd()
	if !client.cmd.ProcessState.Success() {
		t.Fatalf("clusterperf: %v: %s", client.cmd.ProcessState, client.log())
	}
	if output := strings.Join(lines, ""); !strings.Contains(output, "readDist") {
		t.Errorf("clusterperf has measured nothing: %s", output)
	}
}
