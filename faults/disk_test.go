package faults

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Of a backup's file; see docs/replication.md.
const (
	blockBytes   = 4096
	places       = 3
	segmentBytes = 2 << 20
	frameBytes   = places*blockBytes + segmentBytes
)

// replica is what the header of a frame says of it.
type replica struct {
	sequence, log, segment uint64
	state                  byte
	length                 uint32
	// offset of its data in the file.
	offset int64
}

const (
	free   = 0
	closed = 2
)

// replicas are those of a file, frame by frame.
func replicas(t *testing.T, path string) []replica {
	t.Helper()
	bytes, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found []replica
	for at := places * blockBytes; at+frameBytes <= len(bytes); at += frameBytes {
		newest := replica{state: free}
		for place := range places {
			header := bytes[at+place*blockBytes:]
			sequence := binary.LittleEndian.Uint64(header[24:])
			if string(header[:8]) != "rcboxFRM" || sequence < newest.sequence {
				continue
			}
			newest = replica{
				sequence: sequence, state: header[32], length: binary.LittleEndian.Uint32(header[36:]),
				log: binary.LittleEndian.Uint64(header[48:]), segment: binary.LittleEndian.Uint64(header[56:]),
			}
		}
		newest.offset = int64(at + places*blockBytes)
		found = append(found, newest)
	}
	return found
}

// closedOf is the closed replicas of a log, by segment.
func closedOf(t *testing.T, path string, log uint64) map[uint64]replica {
	t.Helper()
	found := map[uint64]replica{}
	for _, replica := range replicas(t, path) {
		if replica.state == closed && replica.log == log {
			found[replica.segment] = replica
		}
	}
	return found
}

// damage changes one byte of a replica's data.
func damage(t *testing.T, path string, of replica) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	at := of.offset + int64(of.length)/2
	var one [1]byte
	if _, err := file.ReadAt(one[:], at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 0x10
	if _, err := file.WriteAt(one[:], at); err != nil {
		t.Fatal(err)
	}
}

// logID is the number that a server id stands for, such as "3.1": index 3, generation 1.
func logID(t *testing.T, serverID string) uint64 {
	t.Helper()
	index, generation, _ := strings.Cut(serverID, ".")
	low, err := strconv.ParseUint(index, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	high, err := strconv.ParseUint(generation, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return high<<32 | low
}

// TestDamagedFrame: of three copies of a segment two are damaged by hand and one is away when the master dies. The damage is named, the
// recovery waits, says what for, and is completed once the third copy is back.
func TestDamagedFrame(t *testing.T) {
	s := startStore(t, onLoopback)
	s.addServers("b", 3, "-B")
	for _, member := range []string{"m0", "m1"} {
		s.add(member, append(slices.Clone(threeCopies), "-M")...)
		s.waitReady(member)
	}
	load := usual
	load.ballast = 1500
	clients := record(t, s.locator, load)
	s.waitOwner("m0")
	s.waitCopies("m0")
	known, err := s.member("m0")
	if err != nil {
		t.Fatal(err)
	}
	log := logID(t, known.Shards[0].ServerID)

	s.servers["b2"].kill()
	segment, copies := uint64(0), make([]replica, 2)
	waitFor(t, "a segment of which all backups have a closed replica", func() error {
		first, second := closedOf(t, s.file("b0"), log), closedOf(t, s.file("b1"), log)
		for id, third := range closedOf(t, s.file("b2"), log) {
			if second[id].length == third.length && first[id].length == third.length && third.length > segmentBytes/2 {
				segment, copies = id, []replica{first[id], second[id]}
				return nil
			}
		}
		return fmt.Errorf("%d, %d", len(first), len(second))
	})
	for at, member := range []string{"b0", "b1"} {
		damage(t, s.file(member), copies[at])
	}
	s.servers["m0"].kill()
	for _, member := range []string{"b0", "b1"} {
		s.servers[member].waitLogged("ERROR", "backup: frame", known.Shards[0].ServerID)
	}
	s.coordinator.waitLogged("ERROR", "recovery of server "+known.Shards[0].ServerID+" waits", fmt.Sprintf("segment %d ", segment))
	s.restart("b2")
	s.waitMoved("m0")
	clients.waitProgress(load.keys, 20)
	judge(t, load.keys, clients)
}

// smallDisk is a file system of so many bytes, in memory.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: a full disk needs a small file system, and mounting one needs root; run as root")
	}
	folder := t.TempDir()
	if err := unix.Mount("rcbox-faults", folder, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Fatalf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Errorf("cannot unmount %s: %v", folder, err)
		}
	})
	return folder
}

// TestFullDisk: a backup whose room was promised to others as well (as on thinly provisioned disks) finds its disk full. It retires and
// says so; writes go on, and other backups get the copies.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t, (segmentFrames+1)*frameBytes)
	s := startStore(t, onLoopback)
	file := filepath.Join(disk, "b0")
	s.add("b0", "-B", "-f", file)
	s.waitReady("b0")
	// Before there are masters: nobody takes a frame meanwhile.
	takeRoom(t, disk, file, 6*frameBytes)
	s.addServers("m", 3, replicated...)
	clients := record(t, s.locator, usual)
	more := usual
	more.firstClient, more.keys, more.ballast = 100, 0, 2500
	// They go on: a master that once found the backup slow avoids it for a while, and must have something to write after that.
	more.more = []string{"--overwrite"}
	writers := record(t, s.locator, more)
	backup := s.servers["b0"]
	backup.waitLogged("ERROR", "nothing new is accepted", "No space left")
	s.coordinator.waitLogged("has retired")
	clients.waitProgress(usual.keys, 50)
	s.waitCopies("m0", "m1", "m2")
	judge(t, usual.keys, clients, writers)
}

// takeRoom gives the room of all free frames back to the file system, and then takes all that there is but so many bytes.
func takeRoom(t *testing.T, disk, path string, left int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, replica := range replicas(t, path) {
		if replica.state != free {
			continue
		}
		mode := uint32(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
		if err := unix.Fallocate(int(file.Fd()), mode, replica.offset, segmentBytes); err != nil {
			t.Fatal(err)
		}
	}
	var room unix.Statfs_t
	if err := unix.Statfs(disk, &room); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	if err := unix.Fallocate(int(filler.Fd()), 0, 0, int64(room.Bfree)*room.Bsize-left); err != nil {
		t.Fatal(err)
	}
}

// TestDiskTooSmall: a backup that cannot have its room does not start, and says what to do.
func TestDiskTooSmall(t *testing.T) {
	disk := smallDisk(t, 8<<20)
	s := startStore(t, onLoopback)
	refused := start(t, "b0", "", nil, command(s.words("b0", "-B", "-f", filepath.Join(disk, "b0"))))
	t.Cleanup(refused.kill)
	refused.waitEnd()
	refused.waitLogged("cannot reserve", "No space left", "give it more room, or ask for fewer with --segmentFrames")
	if refused.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v", refused.cmd.ProcessState)
	}
}
