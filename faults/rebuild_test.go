package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkpoint is what the coordinator says of the copies of its state in the volumes.
type checkpoint struct {
	Number    int  `json:"number"`
	IsCurrent bool `json:"isCurrent"`
}

// waitCheckpoint waits until the volumes have all that the coordinator knows.
func (s *store) waitCheckpoint() {
	s.t.Helper()
	waitFor(s.t, "the volumes to have the coordinator's state", func() error {
		var status struct {
			Leader struct {
				Checkpoint *checkpoint `json:"checkpoint"`
			} `json:"leader"`
		}
		if err := s.ask(&status, "status"); err != nil {
			return err
		}
		if found := status.Leader.Checkpoint; found == nil || !found.IsCurrent {
			return fmt.Errorf("%+v", found)
		}
		return nil
	})
}

// loseAllButDisks ends every process at once and deletes what the coordinator has noted.
func (s *store) loseAllButDisks() {
	s.t.Helper()
	s.coordinator.kill()
	for _, server := range s.servers {
		server.kill()
	}
	if err := os.RemoveAll(filepath.Join(s.folder, "state")); err != nil {
		s.t.Fatal(err)
	}
}

// startAgain starts another coordinator at the addresses of the one before, with nothing noted.
func (s *store) startAgain(more ...string) {
	s.t.Helper()
	words := []string{"--memberListen", s.addresses[1], "--adminListen", s.addresses[2], "--httpListen", s.addresses[3]}
	s.startCoordinator(s.addresses[0], append(words, more...)...)
	s.serving(s.coordinator, "member")
}

// TestRebuilt: everything dies at once, and what the coordinator has noted is gone. The store is made again from the files of the servers,
// twice, and everything that was acknowledged is there.
func TestRebuilt(t *testing.T) {
	for _, durability := range []string{"buffered", "flushed"} {
		t.Run(durability, func(t *testing.T) {
			s := withServers(t, 4, append(slices.Clone(replicated), "--durability", durability)...)
			clients := record(t, s.locator, usual)
			for range 2 {
				clients.waitProgress(usual.keys, 20)
				s.waitCheckpoint()
				s.loseAllButDisks()
				s.startAgain("--rebuild")
				for member := range s.servers {
					s.restart(member)
				}
				s.coordinator.waitLogged("the store is made again from checkpoint")
				s.waitMoved()
			}
			clients.waitProgress(usual.keys, 20)
			judge(t, usual.keys, clients)
		})
	}
}

// TestEmptyStateLosesNoVolume: a coordinator is started on an empty folder by mistake. It takes no volume and says so; the same servers and
// files make the store again when it is told to.
func TestEmptyStateLosesNoVolume(t *testing.T) {
	s := withServers(t, 4, replicated...)
	if output, err := s.tell("create-table", "t"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	waitFor(t, "a write", func() error {
		output, err := s.tell("put", "t", "key", "value")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, output)
		}
		return err
	})
	s.waitCheckpoint()
	s.loseAllButDisks()
	s.startAgain()
	for member := range s.servers {
		s.restart(member)
	}
	for member := range s.servers {
		s.coordinator.waitLogged("the volume of member", member, "it is left as it is", "--rebuild")
	}
	var status struct {
		Members []member `json:"members"`
	}
	if err := s.ask(&status, "status"); err != nil || len(status.Members) > 0 {
		t.Fatalf("members of an empty store: %+v %v", status.Members, err)
	}
	s.loseAllButDisks()
	s.startAgain("--rebuild")
	for member := range s.servers {
		s.restart(member)
	}
	s.waitMoved()
	waitFor(t, "what was written", func() error {
		output, err := s.tell("get", "t", "key")
		if err == nil && !strings.Contains(output, "value") {
			err = errors.New(output)
		}
		return err
	})
}

// rebuiltByHalf is a store of four that is to be made again, and two of its volumes are there.
func rebuiltByHalf(t *testing.T) *store {
	t.Helper()
	s := withServers(t, 4, replicated...)
	if output, err := s.tell("create-table", "t"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	s.waitCheckpoint()
	s.loseAllButDisks()
	s.startAgain("--rebuild")
	for _, member := range []string{"m0", "m1"} {
		s.restart(member)
	}
	return s
}

// statusSays waits until it does.
func (s *store) statusSays(text string) {
	s.t.Helper()
	waitFor(s.t, "the status to say "+text, func() error {
		output, err := s.tell("status")
		if err == nil && !strings.Contains(output, text) {
			err = errors.New(output)
		}
		return err
	})
}

// TestRebuildWaitsForVolumes: with two copies, two volumes may be the only ones with the newest checkpoint, so that two that are missing
// are waited for; the status says for whom.
func TestRebuildWaitsForVolumes(t *testing.T) {
	s := rebuiltByHalf(t)
	s.coordinator.waitLogged("Rebuilding: heard from 2 of 4 members", "waiting for m2, m3")
	s.statusSays("waiting for m2, m3")
	for _, member := range []string{"m2", "m3"} {
		s.restart(member)
	}
	s.coordinator.waitLogged("the store is made again from checkpoint")
	s.waitMoved()
}

// TestRebuildGivesVolumesUp: the volumes of two members are gone for good, and the store waits for them until somebody says so of both.
func TestRebuildGivesVolumesUp(t *testing.T) {
	s := rebuiltByHalf(t)
	s.coordinator.waitLogged("waiting for m2, m3", "gone for good: rcbox rebuild give-up m2 m3")
	if output, err := s.tell("rebuild", "give-up", "m0", "m2"); err == nil || !strings.Contains(output, "those of m2, m3 are") {
		t.Fatalf("a volume that is there was given up: %v: %s", err, output)
	}
	for _, member := range []string{"m2", "m3"} {
		if output, err := s.tell("rebuild", "give-up", member); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	s.coordinator.waitLogged("the store is made again from checkpoint", "without the volumes of m2, m3")
	s.statusSays("those of m2, m3 were given up")
}
