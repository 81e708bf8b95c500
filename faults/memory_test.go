package faults

import (
	"testing"

	"rcbox.dev/rcbox/faults/contain"
)

// TestMemoryGroup: a program that takes more than its limit is killed, and that is seen.
func TestMemoryGroup(t *testing.T) {
	g := contain.New(t, "greedy", 32<<20)
	greedy := start(t, "greedy", "", nil, command(g.Words([]string{"/bin/sh", "-c", "x=x; while :; do x=$x$x; done"})))
	greedy.waitEnd()
	if g.Kills() == 0 || !g.IsFull() || greedy.cmd.ProcessState.Success() {
		t.Errorf("%d kills, the limit was reached: %v, %v", g.Kills(), g.IsFull(), greedy.cmd.ProcessState)
	}
	// Where it was set, the limit is also the most that was ever used.
	if peak := g.PeakMiB(); peak > 32 {
		t.Errorf("%d MiB in a group of 32", peak)
	}
}
