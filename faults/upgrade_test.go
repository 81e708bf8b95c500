package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// build is which version a process behaves as.
type build bool

const (
	thisFormat build = false
	// nextFormat reads one format more. Only programs that were built with the tests can be of it.
	nextFormat build = true
)

var asNextFormat = []string{"env", "RCBOX_TEST_NEXT_FORMAT=1"}

// of are the words that start a process as one of this build.
func (b build) of(words []string) []string {
	if words[0] == asNextFormat[0] {
		words = words[len(asNextFormat):]
	}
	if b == thisFormat {
		return words
	}
	return slices.Concat(asNextFormat, words)
}

// coordinatorOf has the coordinator begin anew from a build.
func (s *store) coordinatorOf(which build) {
	s.t.Helper()
	s.coordinator.kill()
	s.build = which
	s.restartCoordinator()
}

// serverOf has a member begin anew from a build, and waits until all is as safe as before.
func (s *store) serverOf(which build, member string) {
	s.t.Helper()
	s.servers[member].kill()
	s.run(member, which.of(s.servers[member].words))
	s.waitReady(member)
	s.waitMoved()
	s.waitCopies(s.members()...)
}

// upgradeTo takes the whole store to a build, one process after the other.
func (s *store) upgradeTo(which build, clients *recorder) {
	s.t.Helper()
	s.coordinatorOf(which)
	for _, member := range s.members() {
		s.serverOf(which, member)
		clients.waitProgress(usual.keys, 5)
	}
}

// upgrade is the format in force, and the newest that the coordinator reads.
type upgrade struct {
	FormatVersion int `json:"formatVersion"`
	NewestFormat  int `json:"newestFormat"`
}

func (s *store) waitUpgrade(want upgrade) {
	s.t.Helper()
	waitFor(s.t, "the formats", func() error {
		var found upgrade
		if err := s.ask(&found, "upgrade", "status"); err != nil {
			return err
		}
		if found != want {
			return fmt.Errorf("they are %+v", found)
		}
		return nil
	})
}

// TestUpgrade: coordinator and servers go to a build with another format and back, one by one, while clients work; then again, for
// good. What comes from the old build after that is refused.
func TestUpgrade(t *testing.T) {
	s := withServers(t, 4, replicated...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	s.upgradeTo(nextFormat, clients)
	s.waitUpgrade(upgrade{FormatVersion: 1, NewestFormat: 2})
	s.upgradeTo(thisFormat, clients)
	s.waitUpgrade(upgrade{FormatVersion: 1, NewestFormat: 1})

	s.coordinatorOf(nextFormat)
	s.serverOf(nextFormat, "m0")
	output, err := s.tell("upgrade", "finalize")
	if err == nil || !strings.Contains(output, `member "m1" runs version`) || strings.Contains(output, `"m0"`) {
		t.Fatalf("m1, m2 and m3 are of the old build, and rcbox says %q, %v", output, err)
	}
	for _, member := range []string{"m1", "m2", "m3"} {
		s.serverOf(nextFormat, member)
	}
	clients.waitProgress(usual.keys, 5)
	if output, err := s.tell("upgrade", "finalize"); err != nil {
		t.Fatalf("%s: %v", output, err)
	}
	s.waitUpgrade(upgrade{FormatVersion: 2, NewestFormat: 2})
	clients.waitProgress(usual.keys, 20)

	// What was written in both formats is brought back by others.
	s.servers["m1"].kill()
	s.waitMoved("m1")
	s.run("m1", thisFormat.of(s.servers["m1"].words))
	s.servers["m1"].waitEnd()
	s.servers["m1"].waitLogged("the store is of format 2", "reads format 1", "start a newer version")
	s.run("m1", nextFormat.of(s.servers["m1"].words))
	s.waitReady("m1")
	s.coordinator.kill()
	s.build = thisFormat
	s.startCoordinator(s.addresses[0])
	s.coordinator.waitEnd()
	s.coordinator.waitLogged("the state was written in format 2 by a newer build")
	s.coordinatorOf(nextFormat)
	s.waitUpgrade(upgrade{FormatVersion: 2, NewestFormat: 2})
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}
