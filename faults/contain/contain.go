// Package contain has tests run programs in memory cgroups, each of which stands for the container of one process: the kernel kills what
// takes more than the limit. It starts no programs itself.
package contain

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// root is where cgroups are.
	root = "/sys/fs/cgroup"
	// emptied is how long the kernel has at most to take the last process out of a group, and poll how often it is looked at.
	emptied, poll = 60 * time.Second, 10 * time.Millisecond
)

// Group is a memory cgroup.
type Group struct {
	t      *testing.T
	folder string
	limit  int64
	// peak names the file with the most memory that was in use at one time, events the one that counts kills.
	peak, events string
}

// New makes a cgroup with this limit, of version 1 or 2, whichever the machine has. It is removed after the test, once the processes in
// it have ended.
func New(t *testing.T, name string, limitBytes int64) *Group {
	t.Helper()
	skip := func(reason any) {
		t.Helper()
		t.Skipf("NOT TESTED: limits on memory need a cgroup, and this machine lets us make none: %v", reason)
	}
	if os.Geteuid() != 0 {
		skip("run as root")
	}
	name = fmt.Sprintf("rcbox-%d-%s", os.Getpid(), name)
	g := &Group{
		t: t, folder: filepath.Join(root, "memory", name), limit: limitBytes,
		peak: "memory.max_usage_in_bytes", events: "memory.oom_control",
	}
	limits := []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	if _, err := os.Stat(filepath.Join(root, "memory")); err != nil {
		g.folder, g.peak, g.events = filepath.Join(root, name), "memory.peak", "memory.events"
		limits = []string{"memory.max"}
		// Ignored where that was done already; the limit below tells whether the group has one.
		_ = write(filepath.Join(root, "cgroup.subtree_control"), "+memory")
	}
	if err := os.Mkdir(g.folder, 0o750); err != nil {
		skip(err)
	}
	t.Cleanup(g.remove)
	for number, limit := range limits {
		path := filepath.Join(g.folder, limit)
		if _, err := os.Stat(path); err != nil && number > 0 {
			continue // This kernel does not count swap.
		}
		if err := write(path, strconv.FormatInt(limitBytes, 10)); err != nil {
			skip(err)
		}
	}
	return g
}

// write to a file of the kernel's.
func write(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("set up a cgroup: %w", err)
	}
	return nil
}

// Words is the command line that runs another one in this group.
func (g *Group) Words(words []string) []string {
	enter := fmt.Sprintf("echo $$ > %s/cgroup.procs && exec \"$@\"", g.folder)
	return append([]string{"/bin/sh", "-c", enter, "sh"}, words...)
}

// Kills is how many processes the kernel has killed for want of memory.
func (g *Group) Kills() int64 {
	g.t.Helper()
	return g.count(g.events, "oom_kill ")
}

// PeakMiB is the most memory that was in use at one time.
func (g *Group) PeakMiB() int64 {
	g.t.Helper()
	return g.count(g.peak, "") >> 20
}

// IsFull is whether the limit was ever reached: the kernel then took pages of files back, or killed. (Version 1 has a counter for that,
// which not every kernel advances.)
func (g *Group) IsFull() bool {
	g.t.Helper()
	return g.count(g.peak, "") >= g.limit
}

// count is the number behind a word at the beginning of a line.
func (g *Group) count(file, word string) int64 {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.folder, file)) //nolint:gosec // a file of the kernel's
	if err != nil {
		g.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if number, isIt := strings.CutPrefix(line, word); isIt {
			count, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if err != nil {
				g.t.Fatal(err)
			}
			return count
		}
	}
	g.t.Fatalf("%s/%s has no %q", g.folder, file, word)
	return 0
}

func (g *Group) remove() {
	end := time.Now().Add(emptied)
	for {
		err := os.Remove(g.folder)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			g.t.Errorf("processes in a cgroup have not ended: %v", err)
			return
		}
		time.Sleep(poll) //nolint:forbidigo // the interval of a poll
	}
}
