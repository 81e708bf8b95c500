package faults

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// rest lasts longer than the second in which a master does not forgive a backup's connection twice.
func rest() {
	time.Sleep(1200 * time.Millisecond) //nolint:forbidigo // time without faults is what the master asks for
}

// breakConnections has the kernel end all connections to these ports, as a switch or a proxy would that starts again, and says how many
// there were.
func breakConnections(t *testing.T, ports []string) int {
	t.Helper()
	var filter []string
	for _, port := range ports {
		filter = append(filter, "dport = :"+port)
	}
	words := []string{"--kill", "--tcp", "--numeric", "--no-header", "state", "established", strings.Join(filter, " or ")}
	output, err := exec.Command("ss", words...).CombinedOutput()
	if err != nil {
		t.Fatalf("ss %s: %v: %s", strings.Join(words, " "), err, output)
	}
	return strings.Count(string(output), "\n")
}

// inner is the ports between the processes of a store: those of the coordinator for members, and of servers for each other.
func (s *store) inner() []string {
	s.t.Helper()
	ports := []string{portIn(s.addresses[1])}
	for member := range s.servers {
		line := s.serving(s.servers[member].process, "serving other servers")
		ports = append(ports, portIn(line["listening"]))
	}
	return ports
}

func portIn(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// segments is how many segments the members' logs have.
func (s *store) segments() map[string]float64 {
	s.t.Helper()
	counts := map[string]float64{}
	for _, member := range s.members() {
		count, err := s.metric(member, "rcbox_replication_segments")
		if err != nil {
			s.t.Fatal(err)
		}
		counts[member] = count
	}
	return counts
}

// TestBrokenConnections: all connections between processes break, again and again. A migration that is under way goes on, nothing is
// recovered, no head is replaced, and clients see what they should.
func TestBrokenConnections(t *testing.T) {
	s := withServers(t, 4, threeCopies...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	ports := s.inner()
	if breakConnections(t, ports) == 0 {
		t.Skip("NOT TESTED: this kernel does not end connections for others (ss --kill, CONFIG_INET_DIAG_DESTROY)")
	}
	clients.waitProgress(usual.keys, 20)
	one := s.tablets()[0]
	s.begin(one, s.other(one.Member, 0))
	for range 3 {
		rest()
		if broken := breakConnections(t, ports); broken < 2*len(s.servers) {
			t.Fatalf("%d connections between processes", broken)
		}
		clients.waitProgress(usual.keys, 5)
	}
	waitFor(t, "the migration to end", func() error {
		migrations, err := s.migrations()
		if err != nil {
			return err
		}
		if last := migrations[len(migrations)-1]; last.EndedNs == 0 {
			return fmt.Errorf("%+v", last)
		}
		return nil
	})
	migrations, err := s.migrations()
	failed := slices.IndexFunc(migrations, func(one migration) bool { return one.Failure != "" })
	if err != nil || failed >= 0 {
		t.Errorf("%v, migrations %+v", err, migrations)
	}
	judge(t, usual.keys, clients)
	s.waitCopies(s.members()...)
	// Nobody writes: a head that is replaced leaves one more segment.
	before := s.segments()
	for range 3 {
		rest()
		breakConnections(t, ports)
	}
	rest()
	s.waitCopies(s.members()...)
	if after := s.segments(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("segments before: %v, after: %v", before, after)
	}
	for _, words := range [][]string{{"declared dead"}, {"recovering"}} {
		if line := s.coordinator.logged(words...); line != "" {
			t.Error(line)
		}
	}
}
