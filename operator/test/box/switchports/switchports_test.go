// Package switchports tests SNMP with Debian's snmpd, which is a stand-in for a network switch: its ports are network devices of Linux.
package switchports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/switches"
)

const (
	inNamespace = "RCBOX_SWITCH_NAMESPACE"
	password    = "authentication-of-box"
	privacy     = "privacy-of-box"
	// patience is ten times what anything here takes on a busy machine.
	patience = time.Minute
)

// TestSwitchPorts runs again in a network namespace of its own.
func TestSwitchPorts(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		t.Run("Session", session)
		t.Run("Keeper", keeper)
		return
	}
	if _, err := exec.LookPath("snmpd"); err != nil || os.Geteuid() != 0 {
		t.Skip("SKIPPED: this needs root, to make network devices, and the program snmpd (Debian: snmpd)")
	}
	command := exec.CommandContext(t.Context(), "unshare", "--net", os.Args[0], "-test.run", "^TestSwitchPorts$", "-test.v")
	command.Env = append(os.Environ(), inNamespace+"=1")
	if output, err := command.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: TestSwitchPorts/Keeper") {
		t.Errorf("%v\n%s", err, output)
	}
}

// startSwitch has three ports, and gives the address of its agent.
func startSwitch(t *testing.T) netip.AddrPort {
	t.Helper()
	place := t.TempDir()
	sh(t, "ip", "link", "set", "lo", "up")
	for n := 1; n <= 3; n++ {
		port := fmt.Sprintf("slot%d", n)
		sh(t, "ip", "link", "add", port, "type", "veth", "peer", "name", "blade"+port)
		sh(t, "ip", "link", "set", port, "up")
		sh(t, "ip", "link", "set", "blade"+port, "up")
		t.Cleanup(func() { _ = exec.Command("ip", "link", "delete", port).Run() })
	}
	address := freeAddress(t)
	configuration := filepath.Join(place, "snmpd.conf")
	text := fmt.Sprintf("agentaddress udp:%s\nrwuser box priv\nrouser reader priv\n"+
		"createUser box SHA-256 %q AES %q\ncreateUser reader SHA-256 %q AES %q\n", address, password, privacy, password, privacy)
	if err := os.WriteFile(configuration, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	agent := exec.CommandContext(ctx, "snmpd", "-f", "-Le", "-C", "-c", configuration, "-p", filepath.Join(place, "pid"))
	agent.Env = append(os.Environ(), "SNMP_PERSISTENT_DIR="+place, "MIBS=")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = agent.Wait() }) // it was killed
	eventually(t, "the switch answers", func() error {
		_, err := read(t, target(address))
		return err
	})
	return address
}

func freeAddress(t *testing.T) netip.AddrPort {
	t.Helper()
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }() // only its port is of use
	return netip.MustParseAddrPort(socket.LocalAddr().String())
}

func target(address netip.AddrPort) *switches.Target {
	return &switches.Target{Address: address, Username: "box", Password: bmc.NewSecret(password), Privacy: bmc.NewSecret(privacy)}
}

func sh(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// isUp is what the kernel says of a port.
func isUp(t *testing.T, port string) bool {
	t.Helper()
	return strings.Contains(strings.SplitN(sh(t, "ip", "-o", "link", "show", port), "mtu", 2)[0], ",UP")
}

func eventually(t *testing.T, what string, isSo func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := isSo()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		<-time.After(100 * time.Millisecond)
	}
}

func read(t *testing.T, of *switches.Target) (map[string]switches.Port, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), switches.AskTime)
	defer cancel()
	open, err := switches.Dial(ctx, of)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	defer func() { _ = open.Close() }() // all was said
	ports, err := open.Ports(ctx)
	if err != nil {
		return nil, fmt.Errorf("ports: %w", err)
	}
	return ports, nil
}

// session: a port is switched off and on, and no other; who may not is refused, and who has another password hears nothing.
func session(t *testing.T) {
	address := startSwitch(t)
	ports, err := read(t, target(address))
	if err != nil || !ports["slot2"].Enabled || !ports["slot2"].Up || ports["slot2"].Index == 0 || len(ports) < 7 {
		t.Fatal(err, ports)
	}
	open, err := switches.Dial(t.Context(), target(address))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	for _, enabled := range []bool{false, true, true} {
		if err := open.Enable(t.Context(), ports["slot2"].Index, enabled); err != nil {
			t.Fatal(err)
		}
		if isUp(t, "slot2") != enabled || !isUp(t, "slot1") || !isUp(t, "slot3") {
			t.Errorf("slot2 was to be switched: %v", enabled)
		}
	}
	if err := open.Enable(t.Context(), 9999, false); err == nil {
		t.Error("a port that there is not was switched")
	}
	reader := target(address)
	reader.Username = "reader"
	may, err := switches.Dial(t.Context(), reader)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = may.Close() }()
	if err := may.Enable(t.Context(), ports["slot2"].Index, false); err == nil || !isUp(t, "slot2") {
		t.Errorf("somebody who may only read has switched a port: %v", err)
	}
	for what, change := range map[string]func(*switches.Target){
		"another user":          func(of *switches.Target) { of.Username = "stranger" },
		"another password":      func(of *switches.Target) { of.Password = bmc.NewSecret("not-the-password") },
		"another key":           func(of *switches.Target) { of.Privacy = bmc.NewSecret("not-the-password") },
		"nobody at the address": func(of *switches.Target) { of.Address = freeAddress(t) },
	} {
		of := target(address)
		change(of)
		if ports, err := read(t, of); err == nil || strings.Contains(err.Error(), password) || strings.Contains(err.Error(), privacy) {
			t.Errorf("%s: %v, %v", what, ports, err)
		}
	}
}

// keeper: what is to be switched is switched, and seen, also after the switch was away for a while, and after the numbers of its ports have
// changed.
func keeper(t *testing.T) {
	address := startSwitch(t)
	changed := make(chan string, 1024)
	k := &switches.Keeper{Dial: switches.Dial, Now: time.Now, Changed: func(chassis string) {
		select {
		case changed <- chassis:
		default:
		}
	}}
	k.Set("mercury1", map[int32]switches.Target{1: *target(address)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = k.Start(ctx) })
	defer running.Wait()
	defer cancel()
	seenAs := func(port string, enabled bool) func() error {
		return func() error {
			seen := k.Seen("mercury1", 1)
			if of, isThere := seen.Ports[port]; !isThere || of.Enabled != enabled || seen.Err != nil {
				return fmt.Errorf("%+v", seen)
			}
			return nil
		}
	}
	eventually(t, "it is read", seenAs("slot1", true))
	<-changed
	k.Enable("mercury1", 1, "slot1", false)
	eventually(t, "it is switched off", seenAs("slot1", false))
	if isUp(t, "slot1") || !isUp(t, "slot2") {
		t.Error("another port was switched")
	}
	// The same port has another number now.
	sh(t, "ip", "link", "delete", "slot3")
	sh(t, "ip", "link", "add", "slot3", "type", "veth", "peer", "name", "bladeslot3")
	sh(t, "ip", "link", "set", "slot3", "up")
	k.Enable("mercury1", 1, "slot3", false)
	eventually(t, "a port with a new number is switched off", func() error {
		if isUp(t, "slot3") || !isUp(t, "slot2") {
			return errors.New("it is on")
		}
		return nil
	})
	k.Enable("mercury1", 1, "slot9", false)
	eventually(t, "a port that there is not is named", func() error {
		if err := k.Seen("mercury1", 1).Err; err == nil || !strings.Contains(err.Error(), "port slot9: the switch has no such port") {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
	k.Set("mercury1", nil)
	if seen := k.Seen("mercury1", 1); !seen.At.IsZero() {
		t.Errorf("a switch that is not wanted any more: %+v", seen)
	}
}
