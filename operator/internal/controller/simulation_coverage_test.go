package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// coverage counts what happened in all seeds of a run: steps that operators have taken and things that the world did to them.
type coverage struct {
	mu     sync.Mutex
	counts map[string]int
	seeds  map[string]int
}

func (c *coverage) add(counts map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, count := range counts {
		c.counts[what] += count
		c.seeds[what]++
	}
}

func (c *coverage) String() string {
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		lines = append(lines, fmt.Sprintf("%6d times in %4d seeds: %s", c.counts[what], c.seeds[what], what))
	}
	return strings.Join(lines, "\n")
}

// hasToHappen in as many seeds as are run by default: what never does, is not tested.
var hasToHappen = []string{
	"PodCreated", "PodDeleted", "ClaimCreated", "MemberRestarted", "MemberRetired", "MemberMoved", "VolumeDropped", "MemberDraining",
	"MemberUndrained", "NodeIsolated", "NodeFenced", "NodeReleased", "DisruptionCancelled", "SettingsChanged", "ClaimGrown",
	isKilled, isKilledAtLook, isRefused, isSecondOperator, isLull, isLateEnd, isLullBeforePod, isAsleep, isWorstMoment,
	isMoreCopies, isProvedOff, isProvedEarly, isSwitchedOn, isMisplaced,
	isRemembered, isDeaf, isKilledBetween, isFormerStatus, isMemberDeleted, isPodRefused,
	isRestartOrdered, isQuotaShrunk, isQuotaRefusal,
	isSplit, isSplitTwice, isSplitLate, isSplitWaiting, isSplitRefused, isWithdrawn, "TableSplit",
}

// What happens to operators.
const (
	isKilled         = "an operator is killed"
	isKilledAtLook   = "an operator is killed between two writes"
	isRefused        = "a volume is refused to grow"
	isSecondOperator = "two operators work"
	isLull           = "an operator stands still before it ends a master"
	isLateEnd        = "its call comes too late"
	isLullBeforePod  = "an operator stands still before it makes a pod"
	isDeaf           = "an operator hears of no new pods while another one works"
	isLatePod        = "its pod comes too late"
	isAsleep         = "a Store is asleep"
	isMoreCopies     = "the number of copies is raised"
	isWorstMoment    = "a master ends right before what cannot be taken back"
	isAnotherLeader  = "another coordinator leads"
	isReplaced       = "a master's pod is replaced"
	isRemembered     = "what a coordinator has told before is all that is known of it"
	isMisplaced      = "a pod is placed where its volume cannot be used"
	isKilledBetween  = "an operator is killed between the status of a Store and those of its members"
	isFormerStatus   = "the status is that of an earlier operator"
	isMemberDeleted  = "somebody deletes a StoreMember"
	isPodRefused     = "a pod that takes another one's place is refused before that ends"
	isHesitation     = "the scheduler finds no node for a second"
)

func (c *coverage) check(t *testing.T, seeds uint64) {
	t.Helper()
	t.Logf("what happened:\n%s", c)
	if seeds < quickSeeds {
		return
	}
	for _, what := range hasToHappen {
		if c.counts[what] == 0 {
			t.Errorf("in %d seeds it never happened: %s", seeds, what)
		}
	}
}
