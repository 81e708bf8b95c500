package faults

import (
	"fmt"
	"os"
	"testing"
)

// set changes settings, and waits until they are in force everywhere.
func (s *store) set(copies int, values ...string) {
	s.t.Helper()
	if output, err := s.tell(append([]string{"settings", "set"}, values...)...); err != nil {
		s.t.Fatalf("settings set: %v: %s", err, output)
	}
	waitFor(s.t, "the settings to be in force", func() error {
		var status struct {
			Settings   struct{ NotInForceAt []string }
			Durability struct{ Replicas int }
		}
		err := s.ask(&status, "status")
		if err == nil && (len(status.Settings.NotInForceAt) > 0 || status.Durability.Replicas != copies) {
			err = fmt.Errorf("they are not: %+v", status)
		}
		return err
	})
}

// TestSettings: while it is used, a store gets one copy more of everything; then as many servers as that survives are lost at once, with
// their disks. And one copy less again.
func TestSettings(t *testing.T) {
	s := withServers(t, 7, replicated...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	s.set(3, "replicas=3", "minReplicas=1", "pollMicros=0", "logLevel=debug", "cleanerFreePercent=20")
	clients.waitProgress(usual.keys, 20)
	all := []string{"m0", "m1", "m2", "m3", "m4", "m5", "m6"}
	s.waitCopies(all...)
	lost, left := all[:3], all[3:]
	for _, member := range lost {
		s.servers[member].kill()
		if err := os.Remove(s.file(member)); err != nil {
			t.Fatal(err)
		}
	}
	s.waitMoved(lost...)
	clients.waitProgress(usual.keys, 20)

	s.set(1, "replicas=1", "minReplicas=1")
	clients.waitProgress(usual.keys, 20)
	s.waitCopies(left...)
	judge(t, usual.keys, clients)
}
