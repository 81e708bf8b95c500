package planner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
	"rcbox.dev/rcbox/operator/internal/capacity"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

const (
	// maxDrills are in the status.
	maxDrills = 10
	// drillLimit is how long a drill may take until everything is as before. Nothing is done about one that takes longer than that there
	// is no need to do of any loss; it is only not waited for.
	drillLimit = 10 * time.Minute
	// orderPatience is how long an ordered drill waits for what passes by itself: somebody may be looking at it.
	orderPatience = time.Minute
	// defaultWindow is that of the schema.
	defaultWindow = time.Hour
	// maxDrillMessage bounds what is kept of a sentence, in bytes.
	maxDrillMessage = 500
)

var drills = rule{name: "drills", gives: (*planning).drill}

// drill goes on with the drill that there is, and takes note of the next one. What is to be ended is in the status before it is: so that a
// drill that was interrupted is followed, and not repeated.
func (p *planning) drill() {
	drills := &p.plan.Drills
	if current := drills.Current(); current != nil {
		p.lookAgainIn(UnsettledInterval)
		if current.State == v1alpha1.DrillRunning {
			p.finishDrill(current)
		} else {
			p.beginDrill(current)
		}
	}
	p.takeOrder()
	p.takeSchedule()
	for len(drills.List) > maxDrills {
		oldest := slices.IndexFunc(drills.List, func(drill v1alpha1.Drill) bool { return drill.HasEnded() })
		drills.List = slices.Delete(drills.List, oldest, oldest+1) // all but one have ended
	}
}

// takeOrder takes the oldest StoreOperation of which no drill was made yet, while no drill and no ordered restart is under way. The list of
// drills says of which StoreOperation each was made. Before a drill leaves the list, its StoreOperation's status says that it has ended.
func (p *planning) takeOrder() {
	drills := &p.plan.Drills
	if drills.Current() != nil {
		return
	}
	if len(p.observed.OpenOperations(v1alpha1.OperationRestart)) > 0 && p.observed.Store.Copies() > 0 {
		return // it ends masters' processes, too, and goes on by itself
	}
	open := p.observed.OpenOperations(v1alpha1.OperationDrill)
	if slices.ContainsFunc(open, func(operation *facts.Operation) bool { return drills.Of(operation.UID) != nil }) {
		return
	}
	if len(open) > 0 {
		p.newDrill(open[0], p.observed.Now)
	}
}

// takeSchedule looks at the clock.
func (p *planning) takeSchedule() {
	o, notes := p.observed, &p.plan.Drills.Notes
	spec := o.Store.Spec.Recovery.Drill
	if spec == nil {
		notes.Schedule, notes.NextAt = "", nil
		return
	}
	text := "CRON_TZ=" + cmp.Or(spec.TimeZone, "Etc/UTC") + " " + spec.Schedule
	isNew := text != notes.Schedule
	if !isNew && (notes.NextAt == nil || o.Now.Before(notes.NextAt.Time)) {
		if notes.NextAt != nil {
			p.lookAgainIn(notes.NextAt.Sub(o.Now))
		}
		return
	}
	if !isNew {
		p.newDrill(nil, notes.NextAt.Time)
	}
	notes.Schedule, notes.NextAt = text, nil
	next, err := nextDue(text, o.Now)
	if err != nil {
		p.newDrill(nil, o.Now)
		p.endDrill(&p.plan.Drills.List[len(p.plan.Drills.List)-1], v1alpha1.DrillRefused, "recovery.drill.schedule: "+err.Error())
		return
	}
	at := metav1.NewTime(next)
	notes.NextAt = &at
}

// nextDue is when the schedule is due for the first time after now.
func nextDue(text string, now time.Time) (time.Time, error) {
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("it cannot be read, and nothing comes of it: %w", err)
	}
	next := schedule.Next(now)
	if next.IsZero() {
		return time.Time{}, errors.New("it is never due")
	}
	return next.UTC(), nil
}

// newDrill waits, or is refused while another one does or is under way. It is due by the schedule where there is no order.
func (p *planning) newDrill(order *facts.Operation, dueAt time.Time) {
	drills := &p.plan.Drills
	current := drills.Current()
	drills.Notes.Count++
	drill := v1alpha1.Drill{
		Number: drills.Notes.Count, State: v1alpha1.DrillWaiting, DueAt: metav1.NewTime(dueAt.Truncate(time.Second)),
	}
	if order != nil {
		drill.Order, drill.OrderUID = order.Name, order.UID
	}
	if current != nil {
		p.endDrill(&drill, v1alpha1.DrillRefused, fmt.Sprintf("drill %d has not ended", current.Number))
	}
	drills.List = append(drills.List, drill)
	p.lookAgainIn(UnsettledInterval)
}

func (p *planning) endDrill(drill *v1alpha1.Drill, state v1alpha1.DrillState, message string) {
	ended := metav1.NewTime(p.observed.Now.Truncate(time.Second))
	drill.State, drill.EndedAt, drill.Message = state, &ended, brief.Fit(message, maxDrillMessage)
}

// beginDrill chooses a process in one reconcile and ends it in the next, if nothing speaks against it. Otherwise an order waits a minute
// for what passes by itself, and is refused; what is due by the clock waits for so long as it may.
func (p *planning) beginDrill(drill *v1alpha1.Drill) {
	if len(drill.ServerIDs) > 0 && p.hasEnded(drill) {
		BeginDrill(drill, p.observed.Now)
		return
	}
	view, why := p.drillTarget(drill)
	gate, passes := p.whyNoDrill()
	if gate != "" {
		why = gate
	}
	verdict := untried
	if why == "" {
		verdict, why = p.tryForDrill(view, drill)
	}
	switch {
	case drill.OrderUID != "" && p.observed.Operation(drill.OrderUID) == nil:
		drill.Member, drill.ServerIDs = "", nil
		p.endDrill(drill, v1alpha1.DrillRefused, "StoreOperation "+drill.Order+" was deleted before the drill began")
	case drill.Order == "" && p.observed.Store.Spec.Recovery.Drill == nil:
		drill.Member, drill.ServerIDs = "", nil
		p.endDrill(drill, v1alpha1.DrillMissed, "recovery.drill was taken out before it could begin")
	case drill.Order == "" && p.observed.Now.After(drill.DueAt.Add(p.drillWindow())):
		drill.Member, drill.ServerIDs = "", nil
		p.endDrill(drill, v1alpha1.DrillMissed, "it could not begin in time: "+cmp.Or(why, "the operator did not look at the Store"))
	case why == "" && len(drill.ServerIDs) > 0 && drill.Member == view.Name:
		p.endForDrill(view, drill, verdict)
	case why == "":
		drill.Member, drill.ServerIDs, drill.Message = view.Name, slices.Clone(view.Reported.ServerIDs), ""
		p.endForDrill(view, drill, verdict)
	case drill.Order != "" && (gate == "" || !passes || p.observed.Now.After(drill.DueAt.Add(orderPatience))):
		p.endDrill(drill, v1alpha1.DrillRefused, why)
	default:
		drill.Member, drill.ServerIDs, drill.Message = "", nil, brief.Fit("the drill waits: "+why, maxDrillMessage)
	}
}

// tryForDrill says whether the API server would admit the next pod of the process that a drill is to end, and what speaks against its end.
func (p *planning) tryForDrill(view *MemberView, drill *v1alpha1.Drill) (verdict admission, why string) {
	verdict, words := p.tryNext(view, describeOrder(drill))
	// An order is refused at once if anything speaks against it: first it has a minute in which it is tried.
	givesUp := drill.Order == "" || len(drill.ServerIDs) > 0 && p.observed.Now.After(drill.DueAt.Add(orderPatience))
	switch {
	case verdict == refused:
		why = "the API server refuses the next pod of " + view.Name + "; it says: " + words
	case verdict == untried && givesUp:
		why = words
	}
	return verdict, why
}

func (p *planning) endForDrill(view *MemberView, drill *v1alpha1.Drill, verdict admission) {
	why := describeOrder(drill) + ", and everything has its copies"
	p.endAdmitted(view, verdict, why, func(ref facts.PodRef) steps.Step {
		return steps.DrillMember{Member: view.Name, Pod: ref, Number: drill.Number, Why: why}
	})
}

// BeginDrill notes that the process was told to end.
func BeginDrill(drill *v1alpha1.Drill, now time.Time) {
	began := metav1.NewTime(now.Truncate(time.Second))
	drill.State, drill.BeganAt, drill.Message = v1alpha1.DrillRunning, &began, ""
}

func describeOrder(drill *v1alpha1.Drill) string {
	if drill.Order != "" {
		return "ordered by StoreOperation " + drill.Order
	}
	return "due by recovery.drill.schedule"
}

func (p *planning) drillWindow() time.Duration {
	if spec := p.observed.Store.Spec.Recovery.Drill; spec != nil {
		if window, err := time.ParseDuration(spec.Window); err == nil {
			return window
		}
	}
	return defaultWindow
}

// whyNoDrill says what speaks against ending any process now, and whether that passes by itself; empty if nothing does. It is what a
// rolling restart waits for, and more.
func (p *planning) whyNoDrill() (why string, passes bool) {
	if why := p.whyNoDrillAtAll(); why != "" {
		return why, false
	}
	o, plan := p.observed, &p.plan
	isAway := func(v MemberView) bool { return v.Wanted && !v.Up || !v.Wanted || v.Lost != nil }
	safe := meta.FindStatusCondition(o.Store.Status.Conditions, v1alpha1.ConditionDataSafe)
	switch {
	case plan.Shortfall != nil:
		return plan.Shortfall.Message, true
	case safe == nil:
		return "nothing is known of the copies yet", true
	case safe.Status != metav1.ConditionTrue:
		return "DataSafe is not True: " + safe.Message, safe.Reason != v1alpha1.ReasonDataLost
	case slices.ContainsFunc(plan.Masters, isAway):
		return "not all masters are up, or one is on its way out", true
	case p.isPodEnding():
		return "a pod is ending", true
	case p.requested != nil:
		return p.requested.Member + " is to end first: " + p.requested.Why, true
	case len(plan.Steps) > 0:
		return "the operator has something else to do: " + steps.Describe(plan.Steps[0]), true
	default:
		return "", false
	}
}

// whyNoDrillAtAll says what somebody has to change, or takes long.
func (p *planning) whyNoDrillAtAll() string {
	o, plan := p.observed, &p.plan
	isLeaving := func(v MemberView) bool { return v.Reported != nil && v.Reported.Draining != nil || v.Evacuation != nil }
	isOutdated := func(v MemberView) bool { return v.Rolls }
	switch {
	case o.Store.Spec.Paused:
		return "spec.paused is set"
	case o.Store.Spec.Hibernated:
		return "spec.hibernated is set"
	case o.Store.Copies() == 0:
		return "there are no copies: what a process holds would be lost (replication.factor)"
	case slices.ContainsFunc(plan.Masters, isLeaving):
		return "a master is drained, or its node is"
	case slices.ContainsFunc(slices.Concat(plan.Masters, plan.Coordinators), isOutdated):
		return "outdated pods are restarted first"
	case plan.Shortfall == nil && plan.Capacity != nil && plan.Capacity.Verdict >= capacity.NoRoomForCopies:
		return plan.Capacity.Describe()
	default:
		return ""
	}
}

// drillTarget is the master that was asked for, or else the next one after that of the last drill that holds something.
func (p *planning) drillTarget(drill *v1alpha1.Drill) (target *MemberView, why string) {
	views := p.plan.Masters
	holds := func(v MemberView) bool { return v.Up && v.Tablets() > 0 && len(v.Reported.ServerIDs) > 0 }
	if wanted := p.wantedForDrill(drill); wanted != "" {
		i := slices.IndexFunc(views, func(v MemberView) bool { return v.Name == wanted })
		switch {
		case i < 0:
			return nil, fmt.Sprintf("there is no master %q", wanted)
		case !holds(views[i]):
			return nil, wanted + " is not up, or holds nothing"
		default:
			return &views[i], ""
		}
	}
	first := 0
	for _, before := range p.plan.Drills.List {
		if i := slices.IndexFunc(views, func(v MemberView) bool { return v.Name == before.Member }); i >= 0 && before.BeganAt != nil {
			first = i + 1
		}
	}
	for i := range views {
		if view := &views[(first+i)%len(views)]; holds(*view) {
			return view, ""
		}
	}
	return nil, "no master holds anything that could be recovered"
}

// wantedForDrill is the master that the order names; empty if it names none.
func (p *planning) wantedForDrill(drill *v1alpha1.Drill) string {
	order := p.observed.Operation(drill.OrderUID)
	if order == nil || order.Spec.Drill == nil {
		return ""
	}
	return order.Spec.Drill.Member
}

// hasEnded says whether the process that was chosen is not there any more, as far as the coordinator answers.
func (p *planning) hasEnded(drill *v1alpha1.Drill) bool {
	if p.observed.Cluster == nil {
		return false
	}
	i := slices.IndexFunc(p.plan.Masters, func(v MemberView) bool { return v.Name == drill.Member })
	return i < 0 || !p.plan.Masters[i].Up || !slices.Equal(p.plan.Masters[i].Reported.ServerIDs, drill.ServerIDs)
}

// finishDrill reads the coordinator's record of the recovery, once it has ended and the master is up again.
func (p *planning) finishDrill(drill *v1alpha1.Drill) {
	why := "the coordinator does not answer"
	if o := p.observed; o.Cluster != nil {
		if why = p.readRecord(drill); why == "" {
			state, message := v1alpha1.DrillSucceeded, fmt.Sprintf("%d ms, on target", drill.MeasuredMs)
			if drill.MeasuredMs > drill.TargetMs {
				state, message = v1alpha1.DrillTooSlow, fmt.Sprintf("%d ms, and the target is %d ms", drill.MeasuredMs, drill.TargetMs)
			}
			p.endDrill(drill, state, message)
			return
		}
	}
	drill.Message = brief.Fit("waiting: "+why, maxDrillMessage)
	if began := drill.BeganAt; began == nil || p.observed.Now.Sub(began.Time) > drillLimit {
		p.endDrill(drill, v1alpha1.DrillFailed, fmt.Sprintf("after %s: %s", drillLimit, why))
	}
}

// readRecord notes what the recovery took; it says why there is nothing to note yet. The cores of a process are servers of their own.
func (p *planning) readRecord(drill *v1alpha1.Drill) (why string) {
	var left []facts.Recovery
	var found int
	var size, promised, measured int64
	for _, recovery := range p.observed.Cluster.Recoveries {
		if !slices.Contains(drill.ServerIDs, recovery.ServerID) {
			continue
		}
		found++
		if recovery.TabletsLeft > 0 || recovery.MeasuredMs == 0 {
			left = append(left, recovery)
		}
		size += recovery.Bytes
		promised, measured = max(promised, recovery.PromisedMs), max(measured, recovery.MeasuredMs)
	}
	i := slices.IndexFunc(p.plan.Masters, func(v MemberView) bool { return v.Name == drill.Member })
	switch {
	case len(left) > 0:
		return facts.DescribeRecoveries(left)
	case found == 0:
		return "the coordinator has no record of the recovery"
	case i < 0 || !p.plan.Masters[i].Up:
		return drill.Member + " is not up again"
	}
	drill.Bytes, drill.PromisedMs, drill.MeasuredMs = size, promised, measured
	drill.TargetMs = p.capacityInput().Target.Milliseconds()
	return ""
}
