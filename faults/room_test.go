package faults

import (
	"fmt"
	"testing"
)

// TestRoomStaysWhileABackupRestarts: each time a backup is killed, the others' heads end early, nearly empty, and clients overwrite little.
// A master has as much room for objects in the end as at first: segments that are hardly filled are cleaned, though others are free.
func TestRoomStaysWhileABackupRestarts(t *testing.T) {
	// So little memory that as many segments as there are restarts are most of the log.
	const restarts, masters = 6, 4
	s := withServers(t, masters, "-t", "24", "-r", "2", "--minReplicas", "1")
	fresh := s.roomOf("m1")
	if fresh <= 0 {
		t.Fatalf("m1 has room for %v bytes", fresh)
	}
	clients := record(t, s.locator, workload{clients: 2, keys: 8, ballast: 8})
	for range restarts {
		s.replaceInTurn("m3")
		clients.waitProgress(8, 1)
	}
	waitFor(t, "the room of m1 to come back", func() error {
		if room := s.roomOf("m1"); room < fresh*9/10 {
			return fmt.Errorf("it has room for %.1f MiB of %.1f", room/(1<<20), fresh/(1<<20))
		}
		return nil
	})
	judge(t, 8, clients)
}

// roomOf is how many bytes of objects a master has room for.
func (s *store) roomOf(member string) float64 {
	s.t.Helper()
	var room float64
	waitFor(s.t, "the metrics of "+member, func() (err error) {
		room, err = s.metric(member, "rcbox_log_max_live_bytes")
		return err
	})
	return room
}
