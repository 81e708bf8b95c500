package facts

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/operator/internal/brief"
)

// maxNamed is how many recoveries a sentence names.
const maxNamed = 3

// RecoveriesLeft are those that have not ended.
func (o *Observed) RecoveriesLeft() []Recovery {
	var left []Recovery
	if o.Cluster != nil {
		for _, recovery := range o.Cluster.Recoveries {
			if recovery.TabletsLeft > 0 {
				left = append(left, recovery)
			}
		}
	}
	return left
}

// DescribeRecoveries says which recoveries there are, and of one what it is missing, and what to do if that is gone: of the first that
// somebody may give up, or else of the first that waits. The whole of each is in status.recoveries.
func DescribeRecoveries(recoveries []Recovery) string {
	names := make([]string, 0, len(recoveries))
	tablets := int64(0)
	for i := range recoveries {
		names = append(names, fmt.Sprintf("%s (%s)", recoveries[i].Member, recoveries[i].ServerID))
		tablets += recoveries[i].TabletsLeft
	}
	isOne := len(recoveries) == 1
	what := "recoveries"
	if isOne {
		what = "recovery"
	}
	text := fmt.Sprintf("%s of %s: tablets left: %d", what, brief.List(names, maxNamed), tablets)
	shown := slices.IndexFunc(recoveries, func(one Recovery) bool { return one.CanBeGivenUp })
	if shown < 0 {
		shown = slices.IndexFunc(recoveries, func(one Recovery) bool { return one.WaitsFor != "" })
	}
	if shown < 0 {
		return text
	}
	one := &recoveries[shown]
	if one.WaitsFor != "" {
		which := ", it"
		if !isOne {
			which = "; that of server " + one.ServerID
		}
		text += which + " waits: " + one.WaitsFor
	}
	if one.CanBeGivenUp {
		text += "; if the volumes with its copies are gone for good: rcbox recovery accept-loss " + one.ServerID
	}
	return text
}
