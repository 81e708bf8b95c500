package planner

import (
	"fmt"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// maxListed is how many members, or recoveries, a sentence names.
const maxListed = 3

// Shortfall says what keeps the data from having all the copies that the spec asks for.
type Shortfall struct {
	// Reason is that of the condition DataSafe.
	Reason string
	// Message is a sentence for people: what is short, or which recovery waits for what.
	Message string
	// absent is the only member whose absence is to blame, if it is nothing else.
	absent string
	// restart: nothing is wrong but that processes were started for fewer copies, and can only be told by another start.
	restart bool
}

// forbidsRemoving says whether a member must stay, because the copies that it keeps may be the last. One that is away already
// keeps nothing from anybody.
func (s *Shortfall) forbidsRemoving(member string) bool {
	return s != nil && s.absent != member
}

// mayRemove says whether a master's process may be ended now: with copies only while nothing is short of them, and not before the
// last one that was told to end has done so, for it takes the others a moment to notice what they are short of then.
func (p *planning) mayRemove(member string) bool {
	if p.observed.Store.Copies() == 0 {
		return true
	}
	isEnding := func(pod Pod) bool {
		return pod.Component == v1alpha1.ComponentMaster && pod.Terminating() && p.observed.Now.Before(pod.EndsAt)
	}
	return !p.plan.Shortfall.forbidsRemoving(member) && !slices.ContainsFunc(p.observed.Pods, isEnding)
}

// recoveriesLeft are those that have not ended.
func (o *Observed) recoveriesLeft() []Recovery {
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

// FindShortfall looks at everything that DataSafe is about, the gravest first. Nil for a Store that asks for no copies.
func FindShortfall(o *Observed, masters []MemberView) *Shortfall {
	factor := o.Store.Copies()
	if factor == 0 {
		return nil
	}
	if o.Cluster == nil {
		return &Shortfall{
			Reason:  v1alpha1.ReasonCoordinatorDown,
			Message: "whether all copies are there is not known, since the coordinator does not answer: " + o.ClusterError,
		}
	}
	if left := o.recoveriesLeft(); len(left) > 0 {
		return &Shortfall{Reason: v1alpha1.ReasonRecoveryRuns, Message: DescribeRecoveries(left)}
	}
	if o.Cluster.StateWait != "" {
		return &Shortfall{
			Reason:  v1alpha1.ReasonStateStuck,
			Message: "the coordinator cannot write its state, and recovers no lost master until it can: " + o.Cluster.StateWait,
		}
	}
	if o.Cluster.State != v1alpha1.StateVolume && o.Cluster.State != v1alpha1.StateKubernetes {
		return &Shortfall{
			Reason: v1alpha1.ReasonCoordinatorInMemory,
			Message: "the coordinator keeps its state in memory: if its process ends, the list of tables is lost, and no table can be " +
				"recovered from its copies. Set coordinator.state.type to Volume",
		}
	}
	return shortMembers(o, masters)
}

func shortMembers(o *Observed, masters []MemberView) *Shortfall {
	factor := o.Store.Copies()
	away, fewer, short, untold := sortShort(masters, factor)
	under := func(absent, message string) *Shortfall {
		return &Shortfall{Reason: v1alpha1.ReasonUnderReplicated, Message: message, absent: absent}
	}
	onlyAway := ""
	if len(away) == 1 && len(short) == 0 {
		onlyAway = away[0]
	}
	switch {
	case len(fewer) > 0:
		text := fmt.Sprintf("fewer copies than %d: %s", factor, listed(fewer))
		result := under("", text)
		if o.Cluster.Settings == nil {
			result.Message += "; after a restart a master keeps the configured number of copies"
			result.restart = len(away)+len(untold) == 0 && !slices.ContainsFunc(o.Cluster.Members, isShort)
		}
		return result
	case len(short) > 0:
		text := fmt.Sprintf("log segments with fewer copies than %d: %s", factor, listed(short))
		if len(away) > 0 {
			text += "; not up: " + listed(away)
		}
		return under("", text)
	case len(away) > 0:
		return under(onlyAway, "masters that are not up, so the copies on them are missing: "+listed(away))
	case len(untold) > 0:
		return under("", "masters that do not serve yet, because backups have not taken their writes: "+listed(untold))
	default:
		return nil
	}
}

// sortShort names the masters that are away, keep fewer copies than `factor`, lack copies of what they have, or wait for their backups.
func sortShort(masters []MemberView, factor int32) (away, fewer, short, untold []string) {
	for i := range masters {
		view := &masters[i]
		reported := view.Reported
		switch {
		case reported == nil:
			// One that has left a drained node had nothing that anybody needs.
			if view.Wanted && !view.Evacuation.Moved() {
				away = append(away, view.Name)
			}
		case !view.Up:
			if view.Wanted || reported.Tablets > 0 {
				away = append(away, view.Name)
			}
		case reported.Copies < factor:
			fewer = append(fewer, fmt.Sprintf("%s keeps %d", view.Name, reported.Copies))
		case reported.SegmentsShort > 0:
			short = append(short, fmt.Sprintf("%s (%d of %d)", view.Name, reported.SegmentsShort, reported.Segments))
		case reported.Tablets > 0 && !reported.Serving:
			untold = append(untold, view.Name)
		}
	}
	return away, fewer, short, untold
}

func isShort(member Member) bool { return member.SegmentsShort > 0 }

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
	text := fmt.Sprintf("%s of %s: tablets left: %d", what, listed(names), tablets)
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

func listed(parts []string) string {
	if more := len(parts) - maxListed; more > 0 {
		parts = append(append([]string{}, parts[:maxListed]...), fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}
