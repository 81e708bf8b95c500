package plan_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maker makes the world of a seed; with a planted bug, its operator breaks a rule.
type maker func(seed uint64, planted *bug) *sim

// seedsToRun is the range of seeds that a run has, because one that failed is repeated alone with RCBOX_SEEDS=FROM-TO.
func seedsToRun(t *testing.T, usual uint64) (from, to uint64) {
	t.Helper()
	text, isSet := os.LookupEnv("RCBOX_SEEDS")
	if !isSet {
		return 0, usual
	}
	first, last, _ := strings.Cut(text, "-")
	from, err := strconv.ParseUint(first, 10, 64)
	to, err2 := strconv.ParseUint(last, 10, 64)
	if err != nil || err2 != nil {
		t.Fatalf("RCBOX_SEEDS=%s: write FROM-TO", text)
	}
	return from, to
}

// runSeeds runs the worlds of a range of seeds, up to the first violation, and counts the things that happened in all of them.
func runSeeds(t *testing.T, from, to uint64, create maker) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for seed := from; seed < to; seed++ {
		s := create(seed, nil)
		s.run()
		if s.violation != "" {
			t.Fatalf("seed %d: %s\n%s", seed, s.violation, strings.Join(s.log, "\n"))
		}
		for what, n := range s.counts {
			counts[what] += n
		}
	}
	t.Log(counts)
	return counts
}

// expectMet demands that each of these things happened, because rules about things that do not happen hold by themselves.
func expectMet(t *testing.T, counts map[string]int, atLeast int, things ...string) {
	t.Helper()
	for _, what := range things {
		if counts[what] < atLeast {
			t.Errorf("%s happened %d times only: the simulation does not test it", what, counts[what])
		}
	}
}

// findPlanted demands that the simulation finds each bug within its limit. Where seeds are named, the seed in the table has to find it:
// a search through all the others takes long.
func findPlanted(t *testing.T, bugs []bug, areSeedsNamed bool, create maker) {
	t.Helper()
	for i := range bugs {
		planted := &bugs[i]
		name, _, _ := strings.Cut(planted.name, ":")
		t.Run(name, func(t *testing.T) { findBug(t, planted, areSeedsNamed, create) })
	}
}

// findBug tries the seed in the table first, and then those within the limit.
func findBug(t *testing.T, planted *bug, isSeedNamed bool, create maker) {
	t.Helper()
	tried := []uint64{planted.seed}
	for seed := range planted.within {
		tried = append(tried, seed)
	}
	for _, seed := range slices.Compact(tried) {
		s := create(seed, planted)
		s.run()
		if s.violation == "" {
			continue
		}
		if !strings.Contains(s.violation, planted.reported) {
			t.Errorf("seed %d: %s, which does not say %q", seed, s.violation, planted.reported)
		}
		if isSeedNamed && seed != planted.seed {
			t.Errorf("seed %d finds it (%s), and seed %d does not any more: name it in the table", seed, s.violation, planted.seed)
		}
		return
	}
	t.Errorf("%d seeds do not find that %s", planted.within, planted.name)
}
