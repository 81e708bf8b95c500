package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// draining is what the coordinator tells of a member that is to leave.
type draining struct {
	Drained  bool     `json:"drained"`
	Tablets  int      `json:"tablets"`
	Copies   int      `json:"copies"`
	WaitsFor []string `json:"waitsFor"`
}

// draining is how far a member is; nil for one that stays.
func (s *store) draining(member string) (*draining, error) {
	var status struct {
		Members []struct {
			Name     string    `json:"name"`
			Draining *draining `json:"draining"`
		} `json:"members"`
	}
	if err := s.ask(&status, "status"); err != nil {
		return nil, err
	}
	for _, known := range status.Members {
		if known.Name == member {
			return known.Draining, nil
		}
	}
	return nil, fmt.Errorf("no member %s", member)
}

func (s *store) drain(member string) {
	s.t.Helper()
	waitFor(s.t, "a drain of "+member, func() error {
		output, err := s.tell("member", "drain", member)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, output)
		}
		return err
	})
}

// waitDrained moves the tablets of a member that is drained to others, and waits until nobody needs anything that it has.
func (s *store) waitDrained(member string) {
	s.t.Helper()
	for turn, one := range s.tablets() {
		if one.Member == member {
			s.move(one, s.other(member, turn))
		}
	}
	waitFor(s.t, member+" to be drained", func() error {
		draining, err := s.draining(member)
		if err == nil && (draining == nil || !draining.Drained) {
			err = fmt.Errorf("it is not yet: %+v", draining)
		}
		return err
	})
}

// loseDrained removes a member that is drained, kills it, and deletes its disk.
func (s *store) loseDrained(member string) {
	s.t.Helper()
	if output, err := s.tell("member", "remove", member, "--yes"); err != nil {
		s.t.Fatalf("%s is drained, and is not removed: %v: %s", member, err, output)
	}
	s.servers[member].kill()
	delete(s.servers, member)
	if err := os.Remove(s.file(member)); err != nil {
		s.t.Fatal(err)
	}
}

// TestDrainedServers: one server after the other is drained while it is used, removed, and gone with its disk; then as many die as
// the copies that are left must survive.
func TestDrainedServers(t *testing.T) {
	s := withServers(t, 5, replicated...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	for _, member := range []string{"m4", "m0"} {
		s.drain(member)
		clients.waitProgress(usual.keys, 5)
		s.waitDrained(member)
		s.loseDrained(member)
		clients.waitProgress(usual.keys, 20)
	}
	// Two copies on other machines need the three that are left.
	output, err := s.tell("member", "drain", "m1")
	if err == nil || !strings.Contains(output, "start another member first") {
		t.Errorf("%v: %s", err, output)
	}
	s.waitCopies("m1", "m2", "m3")
	s.servers["m2"].kill()
	s.waitMoved("m2")
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// TestKilledWhileDraining: the server that is drained dies on the way, or the coordinator does, or another server. The drain goes on,
// with the next process, and ends.
func TestKilledWhileDraining(t *testing.T) {
	for _, victim := range []string{"drained", "another", "coordinator"} {
		t.Run(victim, func(t *testing.T) {
			s := withServers(t, 5, replicated...)
			clients := record(t, s.locator, usual)
			clients.waitProgress(usual.keys, 20)
			s.drain("m0")
			switch victim {
			case "coordinator":
				s.coordinator.kill()
				clients.waitProgress(usual.keys, 20)
				s.restartCoordinator()
			default:
				member := map[string]string{"drained": "m0", "another": "m1"}[victim]
				s.servers[member].kill()
				clients.waitProgress(usual.keys, 20)
				s.restart(member)
				s.waitReady(member)
			}
			s.waitDrained("m0")
			s.loseDrained("m0")
			clients.waitProgress(usual.keys, 20)
			judge(t, usual.keys, clients)
		})
	}
}

// TestUndrained: a server that is drained stays after all, and gets tablets again.
func TestUndrained(t *testing.T) {
	s := withServers(t, 4, replicated...)
	s.drain("m3")
	if output, err := s.tell("create-table", "t", "--span", "8"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if owners := ownersOf(s.tablets(), "t"); slices.Contains(owners, "m3") {
		t.Errorf("a server that is drained got a tablet: %v", owners)
	}
	if output, err := s.tell("member", "undrain", "m3"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if draining, err := s.draining("m3"); err != nil || draining != nil {
		t.Errorf("%v: %+v", err, draining)
	}
	if output, err := s.tell("create-table", "u", "--span", "8"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if owners := ownersOf(s.tablets(), "u"); !slices.Contains(owners, "m3") {
		t.Errorf("a server that stays got no tablet of eight: %v", owners)
	}
}

func ownersOf(tablets []tablet, table string) []string {
	var owners []string
	for _, one := range tablets {
		if one.table == table {
			owners = append(owners, one.Member)
		}
	}
	return owners
}
