package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rcbox.dev/rcbox/faults/contain"
)

// What strangers send costs no more memory than their process has for them; each process is in a cgroup of its container's default size.

const (
	// coordinatorMiB is the default of spec.coordinator.resources.
	coordinatorMiB = 256
	// masterMiB is the least that spec.masters.memory takes for one core.
	masterMiB = 256
	// messageBytes is the longest message that a client may send.
	messageBytes = 8 << 20
	// servedWithin is how long other clients wait at most while somebody attacks.
	servedWithin = 5 * time.Second
)

// storeMiB is how much of a container of such a master the operator lets logs and hash tables have.
func storeMiB(t *testing.T, memoryMiB, copies, packetsMiB int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "images", "store", "testdata", "masters-memory.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if found, isIt := strings.CutPrefix(line, fmt.Sprintf("%d 1 %d %d ", memoryMiB, copies, packetsMiB)); isIt {
			return strings.TrimSpace(found)
		}
	}
	t.Fatalf("the file has no line for %d MiB and %d copies", memoryMiB, copies)
	return ""
}

// containedStore is a store of one master, both processes in containers of the default size.
func containedStore(t *testing.T, more ...string) *store {
	t.Helper()
	s := &store{t: t, hosts: onLoopback, containers: map[string]*contain.Group{
		"coordinator": contain.New(t, "coordinator", coordinatorMiB<<20),
		"m0":          contain.New(t, "m0", masterMiB<<20),
	}}
	s.start()
	s.addServers("m", 1, append([]string{"-M", "-t", storeMiB(t, masterMiB, 0, 0)}, more...)...)
	return s
}

// survive fails if a process has reached the limit of its container, so that the kernel may have killed it, or has ended.
func (s *store) survive() {
	s.t.Helper()
	processes := map[string]*process{"coordinator": s.coordinator}
	for name, server := range s.servers {
		processes[name] = server.process
	}
	for name, p := range processes {
		group := s.containers[name]
		if group == nil {
			continue
		}
		s.t.Logf("%s: at most %d MiB", name, group.PeakMiB())
		if kills := group.Kills(); kills > 0 || group.IsFull() {
			s.t.Errorf("%s has had all memory of its container, and the kernel killed %d", name, kills)
		}
		select {
		case <-p.ended:
			s.t.Errorf("%s has ended:\n%s", name, p.log())
		default:
		}
	}
}

// attack is connections on which somebody sends all but the last byte of the longest message, again and again.
type attack struct {
	stop context.CancelFunc
	all  sync.WaitGroup
	sent atomic.Int64
}

// fill begins such an attack from each of these addresses.
func fill(t *testing.T, target string, from []string, connections int) *attack {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	a := &attack{stop: stop}
	t.Cleanup(a.end)
	for _, address := range from {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		for range connections {
			a.all.Go(func() {
				for ctx.Err() == nil {
					a.sendAllButOne(ctx, dialer, target)
				}
			})
		}
	}
	return a
}

// sendAllButOne goes on until the connection is closed, by either side.
func (a *attack) sendAllButOne(ctx context.Context, dialer net.Dialer, target string) {
	connection, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	header := binary.LittleEndian.AppendUint32(make([]byte, 8), messageBytes)
	if _, err := connection.Write(header); err != nil {
		return
	}
	chunk := make([]byte, 64<<10)
	for left := messageBytes - 1; left > 0; {
		sent, err := connection.Write(chunk[:min(left, len(chunk))])
		a.sent.Add(int64(sent))
		left -= sent
		if err != nil {
			return
		}
	}
	// Nothing is ever answered: this is the end of the connection.
	_, _ = connection.Read(make([]byte, 1))
}

// waitSent waits until so much has been sent in all.
func (a *attack) waitSent(t *testing.T, bytes int64) {
	t.Helper()
	waitFor(t, "an attack to get going", func() error {
		if sent := a.sent.Load(); sent < bytes {
			return fmt.Errorf("%d MiB sent", sent>>20)
		}
		return nil
	})
}

func (a *attack) end() {
	a.stop()
	a.all.Wait()
}

// serves has another client than the attackers make a table and write an object of 1 MiB, again and again.
func (s *store) serves(value, name string) {
	s.t.Helper()
	for round := range 3 {
		table := fmt.Sprintf("%s-%d", name, round)
		for _, words := range [][]string{{"create-table", table}, {"put", table, "key", "--file", value}} {
			var answer any
			start := time.Now()
			err := s.ask(&answer, words...)
			if took := time.Since(start); err != nil || took > servedWithin {
				s.t.Errorf("%s took %v: %v", words[0], took, err)
			}
		}
	}
}

// TestUnfinishedMessages: strangers send all but the last byte of the longest message on many connections, to a coordinator and to a
// master. Both live on, and other clients are served meanwhile.
func TestUnfinishedMessages(t *testing.T) {
	s := containedStore(t)
	value := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(value, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	one := []string{"127.0.0.66"}
	many := []string{"127.0.0.66", "127.0.0.67", "127.0.0.68", "127.0.0.69", "127.0.0.70", "127.0.0.71"}
	locator := s.servers["m0"].locator
	_, port, _ := strings.Cut(locator, "port=")
	for name, target := range map[string]string{"coordinator": s.addresses[0], "master": net.JoinHostPort("127.0.0.1", port)} {
		for kind, from := range map[string][]string{"one": one, "many": many} {
			begun := fill(t, target, from, 32)
			begun.waitSent(t, 16<<20)
			s.serves(value, name+"-"+kind)
			begun.end()
			s.survive()
			if t.Failed() {
				return
			}
		}
	}
}
