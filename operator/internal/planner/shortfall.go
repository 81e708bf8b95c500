package planner

import (
	"fmt"
	"slices"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// maxListed is how many members a sentence names.
const maxListed = 3

// FindShortfall looks at everything that DataSafe is about, the gravest first. Nil for a Store that asks for no copies.
func FindShortfall(o *facts.Observed, masters []MemberView) *Shortfall {
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
	if left := o.RecoveriesLeft(); len(left) > 0 {
		return &Shortfall{Reason: v1alpha1.ReasonRecoveryRuns, Message: facts.DescribeRecoveries(left)}
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

func shortMembers(o *facts.Observed, masters []MemberView) *Shortfall {
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
		text := fmt.Sprintf("fewer copies than %d: %s", factor, brief.List(fewer, maxListed))
		result := under("", text)
		if o.Cluster.Settings == nil {
			result.Message += "; after a restart a master keeps the configured number of copies"
			result.restart = len(away)+len(untold) == 0 && !slices.ContainsFunc(o.Cluster.Members, isShort)
		}
		return result
	case len(short) > 0:
		text := fmt.Sprintf("log segments with fewer copies than %d: %s", factor, brief.List(short, maxListed))
		if len(away) > 0 {
			text += "; not up: " + brief.List(away, maxListed)
		}
		return under("", text)
	case len(away) > 0:
		return under(onlyAway, "masters that are not up, so the copies on them are missing: "+brief.List(away, maxListed))
	case len(untold) > 0:
		return under("", "masters that do not serve yet, because backups have not taken their writes: "+brief.List(untold, maxListed))
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

func isShort(member facts.MemberReport) bool { return member.SegmentsShort > 0 }

// mayRemove says whether a master's process may be ended now: with copies only while nothing is short of them, and not before the
// last one that was told to end has done so, for it takes the others a moment to notice what they are short of then.
func (p *planning) mayRemove(member string) bool {
	if p.observed.Store.Copies() == 0 {
		return true
	}
	isEnding := func(pod facts.Pod) bool {
		return pod.Component == v1alpha1.ComponentMaster && pod.Terminating() && p.observed.Now.Before(pod.EndsAt)
	}
	return !p.plan.Shortfall.forbidsRemoving(member) && !slices.ContainsFunc(p.observed.Pods, isEnding)
}
