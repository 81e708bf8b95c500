package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stallLasts is how long a device does nothing: twice what the coordinator waits for a silent server.
	stallLasts = 5 * time.Second
	// readsMayTake is so many times what they take at other times ...
	readsMayTake = 3
	// ... and this is not counted: what a core that others want may cost at any time.
	readsFloor = 30 * time.Millisecond
	// waitsAtMost is what no operation takes, of any client: usually the slowest takes a fifteenth of this, for heads move.
	waitsAtMost = 2 * time.Second
)

// stalling is a device that stops, on order.
type stalling interface {
	// words are those that go before the command line of a server that uses it.
	words() []string
	stop()
	goOn()
}

// heldCalls holds writes and syncs of a program before they begin.
type heldCalls struct {
	t       *testing.T
	library string
	// held is the file that says which.
	held string
}

func newHeldCalls(t *testing.T) *heldCalls {
	t.Helper()
	folder := t.TempDir()
	calls := &heldCalls{t: t, library: filepath.Join(folder, "stall.so"), held: filepath.Join(folder, "held")}
	compile := exec.Command("cc", "-shared", "-fPIC", "-o", calls.library, filepath.Join("testdata", "stall.c"))
	if output, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: %s", err, output)
	}
	return calls
}

func (c *heldCalls) words() []string {
	return []string{"env", "LD_PRELOAD=" + c.library, "STALL=" + c.held}
}

func (c *heldCalls) stop() {
	c.t.Helper()
	// In one step: nobody finds it half written.
	if err := os.WriteFile(c.held+".new", []byte("write sync\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(c.held+".new", c.held); err != nil {
		c.t.Fatal(err)
	}
}

func (c *heldCalls) goOn() {
	c.t.Helper()
	if err := os.Remove(c.held); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
}

// frozen is a file system on a block device that the kernel freezes: writes and syncs wait in the kernel, and nothing ends them.
type frozen struct {
	t        *testing.T
	folder   string
	isFrozen bool
}

func newFrozen(t *testing.T, bytes int64) *frozen {
	t.Helper()
	device, _ := loopDevice(t, bytes)
	for _, program := range []string{"mkfs.ext4", "fsfreeze"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("NOT TESTED: a file system that is frozen needs %s; install it (apt-get install e2fsprogs util-linux)", program)
		}
	}
	if _, err := exec.Command("mkfs.ext4", "-q", device).Output(); err != nil {
		t.Fatalf("mkfs.ext4: %v", withStderr(err))
	}
	f := &frozen{t: t, folder: t.TempDir()}
	if err := unix.Mount(device, f.folder, "ext4", 0, ""); err != nil {
		t.Skipf("NOT TESTED: a file system on a block device cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(f.folder, unix.MNT_DETACH); err != nil {
			t.Errorf("cannot unmount %s: %v", f.folder, err)
		}
	})
	return f
}

func (f *frozen) path() string { return filepath.Join(f.folder, "m0") }

func (f *frozen) words() []string { return nil }

func (f *frozen) stop() {
	f.t.Helper()
	f.order("--freeze")
	f.isFrozen = true
}

func (f *frozen) goOn() {
	f.t.Helper()
	if f.isFrozen {
		f.order("--unfreeze")
		f.isFrozen = false
	}
}

func (f *frozen) order(option string) {
	f.t.Helper()
	if _, err := exec.Command("fsfreeze", option, f.folder).Output(); err != nil {
		f.t.Fatalf("fsfreeze %s: %v", option, withStderr(err))
	}
}

// TestStalledWrites: all writes and syncs of a process hang for 5 s. It goes on serving reads, its lease does not end, masters have
// their heads elsewhere, the device is named until it goes on, and nothing is lost.
func TestStalledWrites(t *testing.T) {
	for _, durability := range []string{"buffered", "flushed"} {
		t.Run(durability, func(t *testing.T) {
			calls := newHeldCalls(t)
			stalls(t, calls, durability, "--cores", "2")
		})
	}
}

// TestFrozenFileSystem: the same with a file system that the kernel has frozen.
func TestFrozenFileSystem(t *testing.T) {
	const journal = 64 << 20
	device := newFrozen(t, (segmentFrames+1)*frameBytes+journal)
	stalls(t, device, "flushed", "-f", device.path(), "--segmentFrames", strconv.Itoa(segmentFrames))
}

func stalls(t *testing.T, device stalling, durability string, more ...string) {
	t.Helper()
	s := startStore(t, onLoopback)
	s.addServers("b", 3, "-B", "--durability", durability)
	words := s.words("m0", slices.Concat(threeCopies, []string{"--durability", durability}, more)...)
	s.run("m0", append(device.words(), words...))
	for _, member := range []string{"m1", "m2"} {
		s.add(member, append(slices.Clone(threeCopies), "-M")...)
	}
	for _, member := range []string{"m0", "m1", "m2"} {
		s.waitReady(member)
	}
	clients := record(t, s.locator, usual)
	reading := usual
	reading.firstClient, reading.ballast, reading.more = 100, 0, []string{"--only-reads"}
	readers := record(t, s.locator, reading)
	s.waitOwner("m0")
	waitFor(t, "copies of open segments on m0", func() error {
		open, err := s.metric("m0", "rcbox_backup_frames_open")
		if err == nil && open == 0 {
			err = errors.New("it has none")
		}
		return err
	})
	before := now(t)
	readers.waitProgress(usual.keys, 200)
	usually, count := slowReads(readers, before, now(t))

	began := now(t)
	// A process with a thread in a frozen file system does not end before that goes on.
	t.Cleanup(device.goOn)
	device.stop()
	s.servers["m0"].waitLogged("the storage has stopped")
	waitFor(t, "the device to be named", func() error { return s.stallIsNamed("m0", true) })
	clients.waitProgress(usual.keys, 20)
	waitFor(t, "the end of the stall", func() error {
		// It says so when its serving lease has ended.
		for _, member := range []string{"m0", "m1", "m2"} {
			if _, err := s.get(member, "/readyz"); err != nil {
				t.Errorf("%s does not serve during the stall: %v", member, err)
			}
		}
		if left := stallLasts - time.Duration(now(t)-began); left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	slow, during := slowReads(readers, began, now(t))
	device.goOn()
	t.Logf("the slowest hundredth of reads took at least %v of %d before, and %v of %d during the stall", usually, count, slow, during)
	for _, operation := range slices.Concat(readers.seen(), clients.seen()) {
		if took := time.Duration(operation.Return - operation.Call); operation.Call >= began && took > waitsAtMost {
			t.Errorf("%v after %v: %+v", took, time.Duration(operation.Call-began), operation)
		}
	}
	if most := max(readsMayTake*usually, readsFloor); slow > most || during < 100 {
		t.Errorf("of %d reads during the stall the slowest hundredth took %v, more than %v", during, slow, most)
	}

	s.servers["m0"].waitLogged("the storage goes on")
	waitFor(t, "the device not to be named any more", func() error { return s.stallIsNamed("m0", false) })
	clients.waitProgress(usual.keys, 20)
	if line := s.coordinator.logged("is dead"); line != "" {
		t.Error(line)
	}
	s.waitCopies("m0", "m1", "m2")
	judge(t, usual.keys, clients, readers)
}

// slowReads is what the slowest hundredth of operations took at least that began in this time, and how many there were.
func slowReads(readers *recorder, from, until int64) (slow time.Duration, count int) {
	var took []time.Duration
	for _, operation := range readers.seen() {
		if operation.Call >= from && operation.Call < until && operation.IsKnown() {
			took = append(took, time.Duration(operation.Return-operation.Call))
		}
	}
	slices.Sort(took)
	if len(took) == 0 {
		return 0, 0
	}
	return took[len(took)*99/100], len(took)
}

// stallIsNamed tells whether the coordinator names a device of a member, as it should.
func (s *store) stallIsNamed(name string, should bool) error {
	known, err := s.member(name)
	if err != nil {
		return err
	}
	var named []string
	for _, shard := range known.Shards {
		if shard.Backup.StalledReason != "" {
			named = append(named, shard.Backup.StalledReason)
		}
	}
	if is := len(named) > 0; is != should {
		return fmt.Errorf("it says %q", strings.Join(named, "; "))
	}
	return nil
}
