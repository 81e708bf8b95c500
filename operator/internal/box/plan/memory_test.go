package plan_test

import (
	"slices"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// Memory errors in a BMC's log speak against a server for a day.
func TestMemoryErrors(t *testing.T) {
	const command = ". To take it out of use: kubectl rcbox isolate-server atom003 --reason \"memory errors\"; once it is repaired: " +
		"kubectl rcbox ipmi atom003 sel clear"
	const found = "False MemoryErrors: in the log of its BMC, of the last 24 hours: "
	entries := func(count int, memory bmc.MemoryError, age time.Duration) func(now time.Time) []bmc.LogEntry {
		return func(now time.Time) []bmc.LogEntry {
			one := bmc.LogEntry{At: now.Add(-age), Asserted: true, Memory: memory}
			if age < 0 {
				one.At = time.Time{}
			}
			return slices.Repeat([]bmc.LogEntry{one}, count)
		}
	}
	const unknown = -1
	for name, test := range map[string]struct {
		log  func(now time.Time) []bmc.LogEntry
		says string
	}{
		"not corrected": {
			entries(1, bmc.UncorrectedError, time.Hour),
			found + "memory errors that could not be corrected: 1" + command,
		},
		"nobody knows when": {
			entries(2, bmc.UncorrectedError, unknown),
			found + "memory errors that could not be corrected: 2",
		},
		"yesterday":      {entries(16, bmc.UncorrectedError, 25*time.Hour), "True WithinLimits"},
		"by chance":      {entries(9, bmc.CorrectedError, time.Hour), "True WithinLimits"},
		"not by chance":  {entries(10, bmc.CorrectedError, time.Hour), found + "corrected memory errors: 10"},
		"too many":       {entries(1, bmc.TooManyCorrected, time.Hour), found + "so many corrected"},
		"something else": {entries(16, bmc.NoMemoryError, time.Hour), "True WithinLimits"},
		"over": {func(now time.Time) []bmc.LogEntry {
			return []bmc.LogEntry{{At: now, Memory: bmc.UncorrectedError}}
		}, "True WithinLimits"},
		"cleared": {func(time.Time) []bmc.LogEntry { return []bmc.LogEntry{} }, "True WithinLimits"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.Servers[2].Log = test.log(s.now)
			s.plan()
			expect(t, s.condition("Healthy"), test.says)
			// Another operator has yet to read the log: what was found stays.
			s.Servers[2].Log = nil
			s.plan()
			expect(t, s.condition("Healthy"), test.says)
		})
	}
}
