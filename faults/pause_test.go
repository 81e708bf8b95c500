package faults

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// still is how long clients that hardly ever pause must be silent to be taken for waiting.
const still = time.Second

// TestPausedMaster: a master is stopped until others have what it held, and then runs on with reads before it that were sent to it. It
// must not answer them: the objects have been changed elsewhere.
func TestPausedMaster(t *testing.T) {
	s := withServers(t, 4, replicated...)
	clients := record(t, s.locator, usual)
	patient := usual
	patient.firstClient, patient.ballast = 100, 0
	patient.more = []string{"--only-reads", "--session-timeout-ms", "60000"}
	readers := record(t, s.locator, patient)
	readers.waitProgress(usual.keys, 20)
	s.waitOwner("m1")

	s.servers["m1"].stop()
	readers.waitStill()
	s.waitMoved("m1")
	clients.waitProgress(usual.keys, 20)
	resumed := now(t)
	s.servers["m1"].signal(syscall.SIGCONT)
	s.waitDeposed("m1")
	readers.waitProgress(usual.keys, 20)
	s.restart("m1")
	s.waitReady("m1")
	judge(t, usual.keys, clients, readers)

	waited := 0
	for _, operation := range readers.seen() {
		if operation.Call < resumed && operation.Return > resumed {
			waited++
		}
	}
	if waited != patient.clients {
		t.Errorf("%d readers had asked the master when it ran on, not %d: the test shows nothing", waited, patient.clients)
	}
}

// TestPausedBackups: a master goes on with the one backup of three that is not silent. The others are taken for dead, end when they run
// on, and get the copies that are missing when they are started again.
func TestPausedBackups(t *testing.T) {
	s := startStore(t, onLoopback)
	s.add("m0", append([]string{"-M"}, replicated...)...)
	s.addServers("b", 3, "-B")
	clients := record(t, s.locator, usual)
	s.waitCopies("m0")
	silent := []string{"b0", "b1"}
	for _, member := range silent {
		s.servers[member].stop()
	}
	s.waitShort("m0")
	clients.waitProgress(usual.keys, 50)
	for _, member := range silent {
		s.coordinator.waitLogged(`\"` + member + `\" is dead`)
		s.servers[member].signal(syscall.SIGCONT)
		s.waitDeposed(member)
		s.restart(member)
	}
	s.waitCopies("m0")
	clients.waitProgress(usual.keys, 20)
	judge(t, usual.keys, clients)
}

// waitStill waits until all clients wait for something.
func (r *recorder) waitStill() {
	r.t.Helper()
	waitFor(r.t, r.name+" to wait", func() error {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		last := r.recording.Operations[len(r.recording.Operations)-1].Return
		if age := time.Duration(now(r.t) - last); age < still {
			return fmt.Errorf("an operation ended %v ago", age)
		}
		return nil
	})
}
