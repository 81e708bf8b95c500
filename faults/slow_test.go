package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// slowDisk makes the syncs of a program slow, on order.
type slowDisk struct {
	t       *testing.T
	library string
	// delay is the file that says by how much.
	delay string
}

func newSlowDisk(t *testing.T) *slowDisk {
	t.Helper()
	folder := t.TempDir()
	disk := &slowDisk{t: t, library: filepath.Join(folder, "slow_sync.so"), delay: filepath.Join(folder, "delay")}
	compile := exec.Command("cc", "-shared", "-fPIC", "-o", disk.library, filepath.Join("testdata", "slow_sync.c"))
	if output, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: %s", err, output)
	}
	return disk
}

// words are those that go before a program's own.
func (d *slowDisk) words() []string {
	return []string{"env", "LD_PRELOAD=" + d.library, "SLOW_SYNC=" + d.delay}
}

// takes says how much longer each sync takes from now on.
func (d *slowDisk) takes(delay time.Duration) {
	d.t.Helper()
	if err := os.WriteFile(d.delay, []byte(strconv.FormatInt(delay.Milliseconds(), 10)), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// pings sends a client's PING to an address every 20 ms, each when the one before is answered, until done is closed. It gives the
// number of answers, and how long the slowest took.
func pings(address string, done <-chan struct{}) (count int, slowest time.Duration, err error) {
	connection, err := dialFrom("127.0.0.1", address)
	if err != nil {
		return 0, 0, err
	}
	defer connection.Close()
	// Opcode 7 of the service 3, from a caller that is no server.
	ping := fields(uint16(7), uint16(3), uint64(0xffff_ffff_0000_0000))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return count, slowest, nil
		case <-tick.C:
		}
		began := time.Now()
		answer, err := connection.ask(ping)
		if err != nil {
			return count, slowest, err
		}
		if len(answer) < 4 || answer[0] != 0 {
			return count, slowest, fmt.Errorf("a PING is answered with %x", answer)
		}
		count++
		slowest = max(slowest, time.Since(began))
	}
}

// TestSlowStateDisk: each write of the coordinator's state takes 4 s. The coordinator answers pings as promptly as ever, no server
// takes it for dead, nor it any server, one that comes is let in, and what was answered is there after the coordinator was killed.
func TestSlowStateDisk(t *testing.T) {
	const (
		delay = 4 * time.Second
		// A hundred times what a ping takes here, and a fifth of what a client waits for.
		prompt = time.Second
	)
	disk := newSlowDisk(t)
	s := &store{t: t, hosts: onLoopback, around: disk.words()}
	s.start()
	s.addServers("m", 3, replicated...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	disk.takes(delay)

	done := make(chan struct{})
	type result struct {
		count   int
		slowest time.Duration
		err     error
	}
	pinged := make(chan result)
	go func() {
		count, slowest, err := pings(s.addresses[0], done)
		pinged <- result{count, slowest, err}
	}()
	began := time.Now()
	s.createTableWithin(deadline, "slow")
	if took := time.Since(began); took < delay {
		t.Errorf("a table was made in %v, though no write takes less than %v: this test tests nothing", took, delay)
	}
	s.add("m3", replicated...)
	s.waitReady("m3")
	close(done)
	if got := <-pinged; got.err != nil || got.slowest > prompt || got.count < 50 {
		t.Errorf("%d pings were answered, the slowest in %v (at most %v): %v", got.count, got.slowest, prompt, got.err)
	}
	for _, server := range s.servers {
		if line := server.logged("coordinator is silent"); line != "" {
			t.Errorf("%s: %s", server.name, line)
		}
	}
	clients.waitProgress(usual.keys, 20)

	// Nothing that was answered is lost; and while the disk is slow, the next coordinator comes as well.
	s.coordinator.kill()
	s.restartCoordinator()
	s.waitUp()
	disk.takes(0)
	// Tables are shown when what is being written is on the disk.
	waitFor(t, "the tables", func() error {
		var tables []struct{ Name string }
		return s.ask(&tables, "tables")
	})
	if tables := s.tables(); !tables["slow"] {
		t.Errorf("the tables are %v", tables)
	}

	if line := s.coordinator.logged("was silent"); line != "" {
		t.Error(line)
	}

	// A coordinator that is told to end finishes the write that is under way.
	s.createTable("last")
	s.coordinator.signal(syscall.SIGTERM)
	s.coordinator.waitEnd()
	if code := s.coordinator.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	s.restartCoordinator()
	if line := s.coordinator.logged("off the end of the state"); line != "" {
		t.Error(line)
	}
	s.waitUp()
	judge(t, usual.keys, clients)
}
