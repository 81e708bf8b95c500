package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStatePutBack: the directory of the coordinator's state is put back to an older one, from before a table was made. Whoever is
// elected by that must not lead: it says so, changes nothing, and clients go on. With the newer state the same store goes on, and the
// table is there.
func TestStatePutBack(t *testing.T) {
	s := withServers(t, 3, replicated...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	s.coordinator.kill()
	older := s.keepState("older")
	s.restartCoordinator()
	s.waitUp()
	s.createTable("newer")
	s.coordinator.kill()
	newer := s.keepState("newer")

	s.putStateBack(older)
	s.restartCoordinator()
	s.coordinator.waitLogged("ERROR", "StateRolledBack", "put the newer state back and start again")
	refused := s.keepState("refused")
	clients.waitProgress(usual.keys, 50)
	var status struct {
		Leader struct{ Refusal string }
	}
	waitFor(t, "the status to say so", func() error {
		if err := s.ask(&status, "status"); err != nil {
			return err
		}
		if !strings.HasPrefix(status.Leader.Refusal, "StateRolledBack") {
			return fmt.Errorf("it says %+v", status)
		}
		return nil
	})
	// It does not end by itself: whoever would start it again would only get the same. It ends when it is told to, in good order.
	s.coordinator.signal(syscall.SIGTERM)
	s.coordinator.waitEnd()
	if code := s.coordinator.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	if !sameFile(t, s.stateFile(), refused) {
		t.Error("a coordinator that must not lead has changed the state")
	}

	s.putStateBack(newer)
	s.restartCoordinator()
	s.waitUp()
	if tables := s.tables(); !tables["newer"] {
		t.Errorf("the tables are %v", tables)
	}
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// TestDamagedState: a coordinator that cannot read its state ends at once, with exit code 1 and advice.
func TestDamagedState(t *testing.T) {
	s := withServers(t, 2)
	s.createTable("fruit")
	s.coordinator.kill()
	file := s.stateFile()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[60] ^= 1
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s.startCoordinator(s.addresses[0])
	s.coordinator.waitEnd()
	if code := s.coordinator.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	s.coordinator.waitLogged("it is damaged at byte")
}

func (s *store) stateFile() string { return filepath.Join(s.folder, "state", "state") }

// keepState copies the file that the coordinator has left.
func (s *store) keepState(name string) string {
	s.t.Helper()
	kept := filepath.Join(s.folder, "kept-"+name)
	copyFile(s.t, s.stateFile(), kept)
	return kept
}

func (s *store) putStateBack(kept string) {
	s.t.Helper()
	copyFile(s.t, kept, s.stateFile())
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sameFile(t *testing.T, one, other string) bool {
	t.Helper()
	first, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	return string(first) == string(second)
}

// waitUp waits until the coordinator is connected with all members.
func (s *store) waitUp() {
	s.t.Helper()
	for member := range s.servers {
		s.waitState(member, "UP")
	}
}

func (s *store) createTable(name string) {
	s.t.Helper()
	s.createTableWithin(5*time.Second, name)
}

func (s *store) createTableWithin(timeout time.Duration, name string) {
	s.t.Helper()
	var id any
	if err := s.askWithin(timeout, &id, "create-table", name); err != nil {
		s.t.Fatal(err)
	}
}

// tables are the names of those that there are.
func (s *store) tables() map[string]bool {
	s.t.Helper()
	var tables []struct{ Name string }
	if err := s.ask(&tables, "tables"); err != nil {
		s.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, table := range tables {
		names[table.Name] = true
	}
	return names
}
