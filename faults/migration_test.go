package faults

import (
	"fmt"
	"strings"
	"testing"
)

// tablet is one of a table, by the coordinator's account.
type tablet struct {
	table        string
	StartKeyHash string `json:"startKeyHash"`
	Member       string `json:"member"`
	State        string `json:"state"`
	Bytes        int    `json:"bytes"`
}

// migration is what the coordinator tells of one.
type migration struct {
	MigrationID  int    `json:"migrationId"`
	SourceMember string `json:"sourceMember"`
	TargetMember string `json:"targetMember"`
	EndedNs      int64  `json:"endedNs"`
	Failure      string `json:"failure"`
	Objects      int    `json:"objects"`
}

func (s *store) tablets() []tablet {
	s.t.Helper()
	var all []tablet
	waitFor(s.t, "the tables", func() error {
		var tables []struct {
			Name    string   `json:"name"`
			Tablets []tablet `json:"tablets"`
		}
		if err := s.ask(&tables, "tables"); err != nil {
			return err
		}
		all = nil
		for _, table := range tables {
			for _, one := range table.Tablets {
				one.table = table.Name
				all = append(all, one)
			}
		}
		return nil
	})
	return all
}

// other is a member that is not this one; which one depends on the turn.
func (s *store) other(member string, turn int) string {
	var others []string
	for _, one := range s.members() {
		if one != member {
			others = append(others, one)
		}
	}
	return others[turn%len(others)]
}

// move moves a tablet to another member, and waits until it is there.
func (s *store) move(one tablet, target string) {
	s.t.Helper()
	waitFor(s.t, fmt.Sprintf("the tablet %s of %s to move to %s", one.StartKeyHash, one.Member, target), func() error {
		output, err := s.tell("tablet", "migrate", one.table, one.StartKeyHash, target)
		if err != nil && !strings.Contains(output, "has this tablet already") {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
}

func (s *store) migrations() ([]migration, error) {
	var status struct {
		Migrations []migration `json:"migrations"`
	}
	err := s.ask(&status, "status")
	return status.Migrations, err
}

// begin begins to move a tablet, so slowly that much can happen meanwhile, and waits until its first objects have arrived.
func (s *store) begin(one tablet, target string) {
	s.t.Helper()
	words := []string{"tablet", "migrate", one.table, one.StartKeyHash, target, "--megabytes-per-second", "1", "--no-wait"}
	waitFor(s.t, "a migration", func() error {
		output, err := s.tell(words...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	waitFor(s.t, "the first objects", func() error {
		migrations, err := s.migrations()
		if err != nil || len(migrations) == 0 {
			return fmt.Errorf("%v %w", migrations, err)
		}
		if last := migrations[len(migrations)-1]; last.Objects == 0 && last.EndedNs == 0 {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
}

// TestMigratedToAndFro: every tablet moves again and again, and nothing else happens.
func TestMigratedToAndFro(t *testing.T) {
	s := withServers(t, 4, replicated...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	for turn := range 3 {
		for _, one := range s.tablets() {
			s.move(one, s.other(one.Member, turn))
		}
		clients.waitProgress(usual.keys, 20)
	}
	for _, one := range s.tablets() {
		s.move(one, "m0")
	}
	s.waitMoved("m1", "m2", "m3")
	// What they had is gone from the others' memory, and comes back from m0's copies.
	s.waitCopies("m0")
	s.servers["m0"].kill()
	s.waitMoved("m0")
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// TestKilledMigrations: one of those who take part is killed, or both, in the middle of a migration. The tablet is served by one of
// those who are left or its next process, and moves when it is tried again.
func TestKilledMigrations(t *testing.T) {
	for _, victim := range []string{"source", "target", "both", "coordinator"} {
		t.Run(victim, func(t *testing.T) {
			s := withServers(t, 5, threeCopies...)
			clients := record(t, s.locator, usual)
			clients.waitProgress(usual.keys, 20)
			one := s.tablets()[0]
			target := s.other(one.Member, 0)
			s.begin(one, target)
			killed := map[string][]string{
				"source": {one.Member}, "target": {target}, "both": {one.Member, target},
			}[victim]
			for _, member := range killed {
				s.servers[member].kill()
			}
			if victim == "coordinator" {
				s.coordinator.kill()
				clients.waitProgress(usual.keys, 20)
				s.restartCoordinator()
			} else {
				s.coordinator.waitLogged("migration", "given up after")
			}
			for _, member := range killed {
				s.restart(member)
				s.waitReady(member)
			}
			s.waitMoved()
			clients.waitProgress(usual.keys, 20)
			s.waitCopies(s.members()...)
			one = s.tablets()[0]
			s.move(one, s.other(one.Member, 1))
			clients.waitProgress(usual.keys, 20)
			judge(t, usual.keys, clients)
		})
	}
}

// TestMigratedWithoutCopies: what moves is in one process's memory alone. A target that dies before it has a tablet takes nothing with
// it, and neither does a source that has given all of its tablets away.
func TestMigratedWithoutCopies(t *testing.T) {
	s := withServers(t, 3, "-M")
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	for turn := range 2 {
		for _, one := range s.tablets() {
			s.move(one, s.other(one.Member, turn))
		}
		clients.waitProgress(usual.keys, 20)
	}
	for _, one := range s.tablets() {
		s.move(one, "m0")
	}
	s.begin(s.tablets()[0], "m1")
	s.servers["m1"].kill()
	s.coordinator.waitLogged("migration", "given up after")
	clients.waitProgress(usual.keys, 20)
	for _, one := range s.tablets() {
		s.move(one, "m2")
	}
	s.servers["m0"].kill()
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// TestMigrationIsRefused: what cannot be is refused with a text that says why, and nothing moves.
func TestMigrationIsRefused(t *testing.T) {
	s := withServers(t, 2, replicated...)
	if output, err := s.tell("create-table", "t"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	one := s.tablets()[0]
	for target, expected := range map[string]string{
		one.Member: "has this tablet already",
		"nobody":   `no member "nobody"`,
		"9.0":      "there is no server 9.0",
	} {
		output, err := s.tell("tablet", "migrate", "t", "0", target)
		if err == nil || !strings.Contains(output, expected) {
			t.Errorf("to %s: %v: %s", target, err, output)
		}
	}
	output, err := s.tell("tablet", "migrate", "no", "0", "m0")
	if err == nil || !strings.Contains(output, `there is no table "no"`) {
		t.Errorf("%v: %s", err, output)
	}
	if owner := s.tablets()[0].Member; owner != one.Member {
		t.Errorf("the tablet has moved from %s to %s", one.Member, owner)
	}
}
