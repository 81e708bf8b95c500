package faults

import (
	"slices"
	"testing"
)

// replicated is what members are started with where a test says nothing else.
var (
	replicated  = []string{"-r", "2", "--minReplicas", "1"}
	threeCopies = []string{"-r", "3", "--minReplicas", "1"}
)

// TestNothingHappens: without a fault and without copies, and with them.
func TestNothingHappens(t *testing.T) {
	for name, more := range map[string][]string{"one copy": nil, "replicated": replicated} {
		t.Run(name, func(t *testing.T) {
			s := withServers(t, 3, more...)
			clients := record(t, s.locator, usual)
			clients.waitProgress(usual.keys, 50)
			judge(t, usual.keys, clients)
		})
	}
}

// TestKilledMaster: others bring back what a master held, and the member comes back as another process.
func TestKilledMaster(t *testing.T) {
	s := withServers(t, 4, replicated...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	s.waitOwner("m1")
	s.servers["m1"].kill()
	s.waitMoved("m1")
	s.coordinator.waitLogged("server", `\"m1\" is dead`)
	clients.waitProgress(usual.keys, 20)
	s.restart("m1")
	s.waitReady("m1")
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// TestKilledMasters: two at once, and a third one that has what they held, while it takes that over or soon after.
func TestKilledMasters(t *testing.T) {
	s := withServers(t, 6, threeCopies...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	s.servers["m1"].kill()
	s.servers["m2"].kill()
	s.coordinator.waitLogged("recovering", "tablets that server")
	s.servers["m3"].kill()
	for _, member := range []string{"m1", "m2", "m3"} {
		s.restart(member)
	}
	for _, member := range []string{"m1", "m2", "m3"} {
		s.waitReady(member)
	}
	s.waitMoved()
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// TestKilledBackup: writes go on, and lost copies are made again; then all that is left of one master is on backups one of which
// was away in between.
func TestKilledBackup(t *testing.T) {
	s := startStore(t, onLoopback)
	masters := []string{"m0", "m1"}
	for _, member := range masters {
		s.add(member, append(slices.Clone(replicated), "-M")...)
	}
	s.addServers("b", 4, "-B")
	clients := record(t, s.locator, usual)
	s.servers["b0"].kill()
	clients.waitProgress(usual.keys, 50)
	s.waitCopies(masters...)
	s.restart("b0")
	s.waitReady("b0")
	s.servers["b1"].kill()
	clients.waitProgress(usual.keys, 50)
	s.waitCopies(masters...)
	s.servers["b2"].kill()
	s.servers["m0"].kill()
	s.waitMoved("m0")
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// TestKilledInTurn: every member is killed once, when there are all copies.
func TestKilledInTurn(t *testing.T) {
	s := withServers(t, 4, replicated...)
	members := []string{"m0", "m1", "m2", "m3"}
	clients := record(t, s.locator, usual)
	for _, member := range members {
		s.servers[member].kill()
		clients.waitProgress(usual.keys, 20)
		s.restart(member)
		s.waitReady(member)
		s.waitCopies(members...)
	}
	judge(t, usual.keys, clients)
}

// TestKilledCoordinator: clients go on without one. A master that dies meanwhile is recovered when there is one again, and that goes on
// when it, too, is killed on the way.
func TestKilledCoordinator(t *testing.T) {
	s := withServers(t, 4, replicated...)
	clients := record(t, s.locator, usual)
	clients.waitProgress(usual.keys, 20)
	s.coordinator.kill()
	clients.waitProgress(usual.keys, 50)
	s.servers["m1"].kill()
	s.restartCoordinator()
	s.coordinator.waitLogged("recovering", "tablets that server")
	s.coordinator.kill()
	s.restartCoordinator()
	s.waitMoved("m1")
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// TestKilledAll: all processes at once. The disks stay, and everything comes back, twice.
func TestKilledAll(t *testing.T) {
	for _, durability := range []string{"buffered", "flushed"} {
		t.Run(durability, func(t *testing.T) {
			s := withServers(t, 4, append(slices.Clone(replicated), "--durability", durability)...)
			clients := record(t, s.locator, usual)
			for range 2 {
				clients.waitProgress(usual.keys, 20)
				s.coordinator.kill()
				for _, server := range s.servers {
					server.kill()
				}
				s.restartCoordinator()
				for member := range s.servers {
					s.restart(member)
				}
				s.waitMoved()
			}
			clients.waitProgress(usual.keys, 20)
			judge(t, usual.keys, clients)
		})
	}
}
