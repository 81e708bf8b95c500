package faults

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"rcbox.dev/rcbox/faults/history"
)

const (
	// overwrites is how often all files of a store are filled: then nothing depends any more on there having been room at first.
	overwrites = 4
	copies     = 2
	// valueBytes is the size of an object that is overwritten.
	valueBytes = 256 << 10
)

// noFrame is what a master says whose writes wait because all disks are full.
const noFrame = "no backup has a free frame"

// TestOverwrittenDisks: a few objects are overwritten until so much was acknowledged as all files of the default size can hold, four
// times over. Meanwhile each member is killed, and once all processes are. Nothing is lost, and no write ever waits for a frame.
func TestOverwrittenDisks(t *testing.T) {
	members := []string{"m0", "m1", "m2"}
	s := withServers(t, len(members), "-t", "24", "-r", strconv.Itoa(copies), "--minReplicas", "1")
	var room int64
	for _, member := range members {
		file, err := os.Stat(s.file(member))
		if err != nil {
			t.Fatal(err)
		}
		room += file.Size()
	}
	enough := overwrites * room / copies

	clients := record(t, s.locator, workload{clients: 4, ballast: 24, more: []string{
		"--overwrite", "--ballast-bytes", strconv.Itoa(valueBytes), "--think-micros", "0",
	}})
	harm := []func(){
		func() { s.replaceInTurn("m0") },
		func() { s.replaceInTurn("m1") },
		func() { s.replaceAll() },
		func() { s.replaceInTurn("m2") },
	}
	for at, strike := range harm {
		clients.waitWritten(enough * int64(at+1) / int64(len(harm)+1))
		strike()
	}
	clients.waitWritten(enough)
	t.Logf("%d MiB were acknowledged, each in %d copies; the files have %d MiB", clients.written()>>20, copies, room>>20)
	judge(t, 0, clients)
	for _, process := range s.processes {
		if line := process.logged(noFrame); line != "" {
			t.Errorf("%s: %s", process.name, line)
		}
	}
}

// replaceInTurn kills a member and starts its next process, and waits until all copies are there.
func (s *store) replaceInTurn(member string) {
	s.t.Helper()
	s.servers[member].kill()
	s.restart(member)
	s.waitReady(member)
	s.waitCopies(s.members()...)
}

// replaceAll kills all processes and starts them again.
func (s *store) replaceAll() {
	s.t.Helper()
	s.coordinator.kill()
	members := s.members()
	for _, member := range members {
		s.servers[member].kill()
	}
	s.restartCoordinator()
	for _, member := range members {
		s.restart(member)
	}
	s.waitMoved()
}

func (s *store) members() []string {
	var members []string
	for member := range s.servers {
		members = append(members, member)
	}
	slices.Sort(members)
	return members
}

// written is how many bytes of values were acknowledged.
func (r *recorder) written() int64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var bytes int64
	for _, operation := range r.recording.Operations {
		if operation.Kind == history.Write && operation.Outcome == history.Done {
			bytes += valueBytes
		}
	}
	return bytes
}

func (r *recorder) waitWritten(wanted int64) {
	r.t.Helper()
	waitFor(r.t, fmt.Sprintf("%d MiB to be written", wanted>>20), func() error {
		if bytes := r.written(); bytes < wanted {
			return fmt.Errorf("%d MiB are", bytes>>20)
		}
		return nil
	})
}
