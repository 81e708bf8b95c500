// Package vlan_test merges the management VLAN of a chassis over real frames. Open vSwitch in user space stands for the switch board, and a
// small bridge of its own for each BMC's tagging; a BMC answers pings and nothing else.
package vlan_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/vlan"
)

const (
	separate = 4092
	blades   = 3
	board    = "ons1"
	patience = 30 * time.Second
)

// chassis is a rack of network namespaces.
type chassis struct {
	*testing.T

	folder string
	spec   *v1alpha1.Chassis
	host   namespace
	vlans  [blades]int
}

// namespace is a process in a network namespace of its own.
type namespace struct{ pid string }

func start(t *testing.T) *chassis {
	t.Helper()
	if os.Getenv("RCBOX_BOX_NETWORK") == "" {
		t.Skip("SKIPPED: it needs a network namespace of its own: hack/box.sh")
	}
	c := &chassis{T: t, folder: t.TempDir(), spec: &v1alpha1.Chassis{Spec: v1alpha1.ChassisSpec{
		NamePrefix: "atom", FirstServer: 1, Slots: fmt.Sprintf("1-%d", blades),
		Management: v1alpha1.ChassisManagement{MMC: fmt.Sprintf("192.168.5.1+%d", blades)},
	}}}
	c.spec.Name = "mercury1"
	c.run("ovsdb-tool", "create", c.file("conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	c.background("ovsdb-server", c.file("conf.db"), "--remote=punix:"+c.file("db.sock"), "--unixctl="+c.file("db.ctl"))
	c.eventually("the database of Open vSwitch listens", func() bool {
		socket := "--db=unix:" + c.file("db.sock")
		return exec.CommandContext(t.Context(), "ovs-vsctl", socket, "--timeout=60", "--no-wait", "init").Run() == nil
	})
	c.background("ovs-vswitchd", "unix:"+c.file("db.sock"), "--unixctl="+c.file("vs.ctl"))
	c.vsctl("add-br", board, "--", "set", "bridge", board, "datapath_type=netdev")
	c.host = c.connect(vlan.ManagementPort, "192.168.5.254")
	c.vsctl("add-port", board, vlan.ManagementPort)
	for i := range blades {
		number := strconv.Itoa(i + 1)
		bridge, port, inside, outside := "mmc"+number, "e"+number, "p"+number, "atom00"+number+"m"
		c.vsctl("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev")
		c.connect(port, "192.168.5."+number)
		c.vsctl("add-port", bridge, port)
		c.vsctl("add-port", bridge, inside, "--", "set", "interface", inside, "type=patch", "options:peer="+outside,
			"--", "add-port", board, outside, "--", "set", "interface", outside, "type=patch", "options:peer="+inside)
		c.move(i, separate)
	}
	return c
}

func (c *chassis) file(name string) string { return filepath.Join(c.folder, name) }

func (c *chassis) run(program string, arguments ...string) {
	c.Helper()
	if output, err := exec.CommandContext(c.Context(), program, arguments...).CombinedOutput(); err != nil {
		c.Fatalf("%s %v: %v\n%s", program, arguments, err, output)
	}
}

func (c *chassis) vsctl(arguments ...string) {
	c.Helper()
	c.run("ovs-vsctl", append([]string{"--db=unix:" + c.file("db.sock"), "--timeout=60"}, arguments...)...)
}

// background runs a program until the test ends.
func (c *chassis) background(program string, arguments ...string) {
	c.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(c.Context()))
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), "OVS_RUNDIR="+c.folder, "OVS_LOGDIR="+c.folder, "OVS_DBDIR="+c.folder)
	log, err := os.Create(c.file(program + ".log"))
	if err != nil {
		c.Fatal(err)
	}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		stop()
		c.Fatal(err)
	}
	c.Cleanup(func() {
		stop()
		_ = command.Wait() // it was killed
		_ = log.Close()
	})
}

// connect gives a port of this namespace a machine at its other end, with an address.
func (c *chassis) connect(port, address string) namespace {
	c.Helper()
	// It says that its namespace is there, and ends when its input does.
	command := exec.CommandContext(context.WithoutCancel(c.Context()), "unshare", "--net", "--", "sh", "-c", "echo ready; exec cat")
	input, err := command.StdinPipe()
	if err != nil {
		c.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	if err := command.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		_ = input.Close()
		_, _ = io.Copy(io.Discard, output)
		_ = command.Wait()
	})
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil || line != "ready\n" {
		c.Fatalf("a network namespace says %q: %v", line, err)
	}
	n := namespace{pid: strconv.Itoa(command.Process.Pid)}
	c.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", n.pid)
	c.run("ip", "link", "set", port, "up")
	c.run("nsenter", "-t", n.pid, "-n", "ip", "address", "add", address+"/24", "dev", "eth0")
	c.run("nsenter", "-t", n.pid, "-n", "ip", "link", "set", "eth0", "up")
	return n
}

func (c *chassis) eventually(what string, holds func() bool) {
	c.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	c.Fatalf("after %s still not: %s", patience, what)
}

// move does to a BMC what SetVLAN does: its frames have another tag, or none.
func (c *chassis) move(i, id int) {
	c.Helper()
	port := "e" + strconv.Itoa(i+1)
	if id == vlan.Native {
		c.vsctl("clear", "port", port, "tag")
	} else {
		c.vsctl("set", "port", port, "tag="+strconv.Itoa(id))
	}
	c.vlans[i] = id
}

// reaches says whether a BMC answers the management host.
func (c *chassis) reaches(i int) bool {
	c.Helper()
	command := exec.CommandContext(c.Context(), "nsenter", "-t", c.host.pid, "-n", "timeout", "0.5", "busybox", "ping", "-c", "1",
		"192.168.5."+strconv.Itoa(i+1))
	return command.Run() == nil
}

// mustReach waits for that: a new configuration takes a moment.
func (c *chassis) mustReach(i int) {
	c.Helper()
	c.eventually(fmt.Sprintf("BMC %d, in VLAN %d, answers", i+1, c.vlans[i]), func() bool { return c.reaches(i) })
}

func (c *chassis) configure(name string) {
	c.Helper()
	config, err := vlan.Render(c.spec, 0, name, separate)
	if err != nil {
		c.Fatal(err)
	}
	there := []string{vlan.ManagementPort}
	for i := range blades {
		there = append(there, fmt.Sprintf("atom%03dm", i+1))
	}
	c.vsctl(config.OpenVSwitch(board, func(port string) bool { return slices.Contains(there, port) })...)
}

// TestMerge: the planner is killed after a command, and forgets all but what is on record. (That it may be killed anywhere, the tests of
// package vlan show.)
func TestMerge(t *testing.T) {
	c := start(t)
	for _, killedAfter := range []int{1, blades} { // the last: it is not killed
		c.configure(vlan.InitONS)
		for i := range blades {
			c.move(i, separate)
		}
		for i := range blades {
			c.mustReach(i)
		}
		c.merge(killedAfter)
		for i := range blades {
			c.mustReach(i)
			if c.vlans[i] != vlan.Native {
				t.Errorf("killed after %d commands: BMC %d is in VLAN %d", killedAfter, i+1, c.vlans[i])
			}
		}
	}
	// The wrong order: what the planner refuses would cut off all.
	c.configure(vlan.InitONS)
	for i := range blades {
		c.move(i, separate)
	}
	for i := range blades {
		c.mustReach(i)
	}
	made := vlan.Make(time.Now(), &vlan.Observed{Wanted: vlan.Native, MMCs: c.look(make([]vlan.Record, blades), nil, nil, time.Now())})
	if made.MaySwitch() {
		t.Errorf("the switch board may be configured first: %s", made.Message)
	}
	c.configure(vlan.NoVLAN)
	for i, m := range c.look(make([]vlan.Record, blades), nil, nil, time.Now()) {
		if m.Answers {
			t.Errorf("BMC %d answers from VLAN %d of a switch board that knows VLAN 1 alone", i+1, separate)
		}
	}
}

// look asks all BMCs.
func (c *chassis) look(records []vlan.Record, answers []*vlan.Answer, silent []time.Time, now time.Time) []vlan.MMC {
	c.Helper()
	var asked sync.WaitGroup
	var reached [blades]bool
	for i := range blades {
		asked.Go(func() { reached[i] = c.reaches(i) })
	}
	asked.Wait()
	var seen []vlan.MMC
	for i := range blades {
		m := vlan.MMC{Name: fmt.Sprintf("atom%03dm", i+1), Record: records[i]}
		if answers != nil {
			m.Answer = answers[i]
		}
		if m.Answers = reached[i]; m.Answers {
			m.VLAN = c.vlans[i]
		} else {
			m.SilentSince = now
			if silent != nil {
				silent[i] = now
			}
		}
		seen = append(seen, m)
	}
	return seen
}

func (c *chassis) merge(killedAfter int) {
	c.Helper()
	now, commands := time.Now(), 0
	records, answers, silent := make([]vlan.Record, blades), make([]*vlan.Answer, blades), make([]time.Time, blades)
	isMerged := false
	var phases []string
	for range 20 {
		now = now.Add(20 * time.Second) // the planner's clock
		made := vlan.Make(now, &vlan.Observed{Wanted: vlan.Native, MMCs: c.look(records, answers, silent, now)})
		copy(records, made.Records)
		phases = append(phases, string(made.Phase))
		for _, i := range made.Tell {
			if commands == killedAfter && killedAfter < blades {
				killedAfter = blades // this command and those after it are on record, and were not given
				break
			}
			commands++
			c.move(i, vlan.Native)
			answers[i] = &vlan.Answer{TriedAt: records[i].TriedAt}
		}
		if made.MaySwitch() && !isMerged {
			c.configure(vlan.NoVLAN)
			isMerged = true
			c.mustReach(0)
		}
		if made.Phase == vlan.PhaseDone {
			if !isMerged {
				c.Error("all have arrived before the switch board was configured")
			}
			return
		}
	}
	c.Fatalf("it does not end: %s", strings.Join(phases, ", "))
}
