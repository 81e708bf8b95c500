package perf

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/brief"
)

const (
	// waitInterval is the pause between looks of a run that waits for its turn.
	waitInterval = 5 * time.Second
	// runInterval is the pause between questions to the first client.
	runInterval = 2 * time.Second
	// soon is long enough for the cache to see what was just written.
	soon = 200 * time.Millisecond
	// cleanupPatience bounds how long dropping the tables may take, with waiting for a Store that is not Available.
	cleanupPatience = 10 * time.Minute
	// StuckAfter is how long after its time a pod that does not end is waited for: its node is dead.
	StuckAfter = 30 * time.Second
)

// Plan is what to do, and the status once that is done.
type Plan struct {
	Steps  []Step
	Status v1alpha1.ClusterPerfStatus
	// Next is when to look again; 0 if nothing is awaited.
	Next time.Duration
}

// Make decides.
func Make(o Observed) Plan {
	p := &planning{Observed: o}
	p.Status = *o.Run.Status.DeepCopy()
	// Both are there from the start on, unless somebody has written the status by hand.
	if p.Status.Environment == nil {
		p.Status.Environment = &v1alpha1.PerfEnvironment{}
	}
	if p.Status.Progress == nil {
		p.Status.Progress = progress(0, int32(len(o.Run.Spec.Tests))) //nolint:gosec // at most 18
	}
	switch {
	case o.Run.DeletionTimestamp != nil: // its pods go with it
	case o.Run.Ended():
		p.afterEnd()
	case o.Run.Status.StartTime == nil:
		p.beforeStart()
	default:
		p.underWay()
	}
	return p.Plan
}

type planning struct {
	Observed
	Plan
}

func (p *planning) do(steps ...Step) { p.Steps = append(p.Steps, steps...) }

func (p *planning) set(condition string, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{
		Type: condition, Status: value, Reason: reason, Message: brief.Fit(message, maxMessage),
		ObservedGeneration: p.Run.Generation, LastTransitionTime: metav1.NewTime(p.Now),
	})
}

// say what a run does that has not ended.
func (p *planning) say(progressing metav1.ConditionStatus, reason, message string) {
	p.set(v1alpha1.ConditionComplete, metav1.ConditionFalse, reason, message)
	p.set(v1alpha1.ConditionProgressing, progressing, reason, message)
	p.set(v1alpha1.ConditionFailed, metav1.ConditionFalse, v1alpha1.ReasonNotFailed, "nothing has failed")
}

// beforeStart waits for the run's turn, and for the Store.
func (p *planning) beforeStart() {
	p.Next = waitInterval
	if text := p.storeTrouble(); text != "" {
		p.say(metav1.ConditionFalse, v1alpha1.ReasonWaitsForStore, text)
		return
	}
	if text := p.turnTrouble(); text != "" {
		p.say(metav1.ConditionFalse, v1alpha1.ReasonWaitsForTurn, text)
		return
	}
	now := metav1.NewTime(p.Now)
	p.Status.StartTime = &now
	p.Status.TablePrefix = tablePrefix(p.Run)
	p.Status.Environment = environment(p.Run, p.Store)
	p.say(metav1.ConditionTrue, v1alpha1.ReasonStarting, "its pods are being made")
	p.do(CheckTurn{})
	p.Next = soon
}

// tablePrefix makes the run's tables its own: a run never touches a table that somebody else has made.
func tablePrefix(run *v1alpha1.ClusterPerf) string {
	uid, _, _ := strings.Cut(string(run.UID), "-")
	return "clusterperf-" + run.Name + "-" + uid + "-"
}

func environment(run *v1alpha1.ClusterPerf, store *v1alpha1.Store) *v1alpha1.PerfEnvironment {
	e := &v1alpha1.PerfEnvironment{
		StoreUID:    string(store.UID),
		Image:       store.Status.Image,
		ClientImage: run.Spec.Image,
		Masters:     store.Status.Masters.Ready,
		Cores:       store.Spec.Masters.Cores,
		Copies:      store.Status.Replication.Factor,
		Durability:  store.Status.Durability,
		Transport:   store.Spec.Network.Transport,
	}
	if e.ClientImage == "" {
		e.ClientImage = store.Status.Image
	}
	const maxNodes = 64
	for i := range store.Status.Masters.Members {
		node := store.Status.Masters.Members[i].Node
		if node != "" && !slices.Contains(e.MasterNodes, node) && len(e.MasterNodes) < maxNodes {
			e.MasterNodes = append(e.MasterNodes, node)
		}
	}
	return e
}

// storeTrouble says why the Store cannot be measured; empty if it can.
func (p *planning) storeTrouble() string {
	name := p.Run.Spec.StoreRef.Name
	if p.Store == nil {
		return fmt.Sprintf("there is no Store %s in namespace %s", name, p.Run.Namespace)
	}
	if p.Store.DeletionTimestamp != nil {
		return fmt.Sprintf("Store %s is being deleted", name)
	}
	if !meta.IsStatusConditionTrue(p.Store.Status.Conditions, v1alpha1.ConditionAvailable) {
		text := "the operator has not seen it yet"
		if available := meta.FindStatusCondition(p.Store.Status.Conditions, v1alpha1.ConditionAvailable); available != nil {
			text = available.Message
		}
		return bounded(fmt.Sprintf("Store %s is not Available: %s", name, text))
	}
	// Clients get the privileges that the Store's spec asks for, so that it matters whether it may have them.
	if p.Store.Status.ObservedGeneration != p.Store.Generation {
		return fmt.Sprintf("the operator has not seen the present spec of Store %s yet", name)
	}
	progressing := meta.FindStatusCondition(p.Store.Status.Conditions, v1alpha1.ConditionProgressing)
	if progressing != nil && progressing.Reason == v1alpha1.ReasonNotAllowed {
		return bounded(fmt.Sprintf("Store %s: %s", name, progressing.Message))
	}
	return ""
}

func (p *planning) turnTrouble() string {
	if other := Blocker(p.Run, p.Others); other != nil {
		if active(other) {
			return fmt.Sprintf("%s is measuring Store %s", other.Name, other.Spec.StoreRef.Name)
		}
		return other.Name + " was there before"
	}
	if len(p.Strays) > 0 {
		return "pods of a run that was deleted are ending: " + strings.Join(p.Strays[:min(len(p.Strays), 3)], ", ")
	}
	return ""
}

// Blocker is the run that this one has to wait for, if any: one that has the Store, or that comes before. Those that allow it go together.
func Blocker(run *v1alpha1.ClusterPerf, others []v1alpha1.ClusterPerf) *v1alpha1.ClusterPerf {
	for i := range others {
		other := &others[i]
		shared := run.Spec.Concurrency == v1alpha1.PerfAllow && other.Spec.Concurrency == v1alpha1.PerfAllow
		if other.UID == run.UID || other.Spec.StoreRef != run.Spec.StoreRef || shared {
			continue
		}
		waiting := other.Status.StartTime == nil && other.DeletionTimestamp == nil
		if active(other) || waiting && before(other, run) {
			return other
		}
	}
	return nil
}

// active says whether a run has its Store: from its start until its pods are gone and its tables dropped.
func active(run *v1alpha1.ClusterPerf) bool {
	over := run.Ended() && (progressesBy(&run.Status, v1alpha1.ReasonEnded) || progressesBy(&run.Status, v1alpha1.ReasonTablesLeft))
	return run.Status.StartTime != nil && !over
}

func before(a, b *v1alpha1.ClusterPerf) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// storeIsGone says whether the Store that the run was started with is there no more.
func (p *planning) storeIsGone() bool {
	return p.Store == nil || p.Store.DeletionTimestamp != nil || string(p.Store.UID) != p.Status.Environment.StoreUID
}

// underWay sees a run that has begun through to its end.
func (p *planning) underWay() {
	p.Next = runInterval
	p.takeNodes()
	p.takeDisturbance()
	p.takeReport()
	first := p.client(0)
	switch failed := p.failedClient(); {
	case p.storeIsGone():
		p.fail(v1alpha1.ReasonStoreDeleted, fmt.Sprintf("Store %s was deleted", p.Run.Spec.StoreRef.Name))
	case p.Report != nil && p.Report.State == StateComplete:
		p.complete()
	case failed != nil:
		p.fail(v1alpha1.ReasonClientFailed, bounded(fmt.Sprintf("client %d (pod %s): %s", failed.Index, failed.Name, failed.Trouble)))
	case p.Report != nil && p.Report.State == StateFailed:
		p.fail(v1alpha1.ReasonClientFailed, bounded("client 0: "+p.Report.Error))
	case first != nil && first.State == PodSucceeded:
		p.fail(v1alpha1.ReasonClientLost, "client 0 was ended before its results could be read")
	case p.isLate():
		p.timeOut()
	case p.Status.RunningTime == nil:
		p.start()
	default:
		p.watch()
	}
}

func (p *planning) isLate() bool {
	return p.Now.Sub(p.Status.StartTime.Time) > time.Duration(p.Run.Spec.TimeoutSeconds)*time.Second
}

func (p *planning) client(index int) *Pod {
	for i := range p.Pods {
		if !p.Pods[i].Cleanup && p.Pods[i].Index == index {
			return &p.Pods[i]
		}
	}
	return nil
}

func (p *planning) failedClient() *Pod {
	for i := range p.Pods {
		if !p.Pods[i].Cleanup && p.Pods[i].State == PodFailed {
			return &p.Pods[i]
		}
	}
	return nil
}

// takeNodes notes when all clients run, and where. They may have measured everything by the time when that is first seen.
func (p *planning) takeNodes() {
	nodes := make([]string, 0, p.Run.Spec.Clients.Replicas)
	for index := range int(p.Run.Spec.Clients.Replicas) {
		if pod := p.client(index); pod != nil && pod.State != PodPending {
			nodes = append(nodes, pod.Node)
		}
	}
	if p.Status.RunningTime == nil && len(nodes) == cap(nodes) {
		now := metav1.NewTime(p.Now)
		p.Status.RunningTime, p.Status.Environment.ClientNodes = &now, nodes
	}
}

// takeDisturbance notes the first thing that makes figures others than those of a Store at rest.
func (p *planning) takeDisturbance() {
	if p.Status.RunningTime == nil || p.Status.DisturbedBy != "" || p.storeIsGone() {
		return
	}
	for _, rest := range []struct {
		condition string
		status    metav1.ConditionStatus
	}{
		{v1alpha1.ConditionAvailable, metav1.ConditionTrue},
		{v1alpha1.ConditionRecovering, metav1.ConditionFalse},
		{v1alpha1.ConditionProgressing, metav1.ConditionFalse},
	} {
		is := meta.FindStatusCondition(p.Store.Status.Conditions, rest.condition)
		// Unknown is the operator's trouble, and not known to be the Store's.
		if is != nil && is.Status != rest.status && is.Status != metav1.ConditionUnknown {
			p.Status.DisturbedBy = bounded(fmt.Sprintf("%s was %s (%s): %s", is.Type, is.Status, is.Reason, is.Message))
			return
		}
	}
}

// start makes the clients' pods and says why they do not all run yet.
func (p *planning) start() {
	replicas := int(p.Run.Spec.Clients.Replicas)
	running, trouble := 0, ""
	for index := range replicas {
		pod := p.client(index)
		switch {
		case pod == nil:
			p.do(CreateClient{Index: index})
		case pod.State == PodPending:
			if pod.Trouble != "" && trouble == "" {
				trouble = fmt.Sprintf("; pod %s: %s", pod.Name, pod.Trouble)
			}
		default:
			running++
		}
	}
	p.say(metav1.ConditionTrue, v1alpha1.ReasonStarting, bounded(fmt.Sprintf("%d of %d clients run%s", running, replicas, trouble)))
}

// watch says how far the run is. A pod that is gone, or is told to end, takes what the clients agreed on with it.
func (p *planning) watch() {
	for index := range int(p.Run.Spec.Clients.Replicas) {
		pod := p.client(index)
		if pod == nil {
			p.fail(v1alpha1.ReasonClientLost, fmt.Sprintf("the pod of client %d was deleted", index))
			return
		}
		if !pod.EndsAt.IsZero() && pod.State != PodSucceeded {
			p.fail(v1alpha1.ReasonClientLost, fmt.Sprintf("pod %s of client %d is being deleted", pod.Name, index))
			return
		}
	}
	message := p.Status.Progress.Text
	switch {
	case p.ReportError != "":
		message = "client 0 does not say how far it is: " + p.ReportError
	case p.Report != nil && p.Report.Note != "":
		message += "; " + cut(p.Report.Note)
	}
	p.say(metav1.ConditionTrue, v1alpha1.ReasonRunning, bounded(message))
}

// takeReport notes what the first client says. Results are saved as they come, so that a run that fails later keeps them.
func (p *planning) takeReport() {
	r, first := p.Report, p.client(0)
	if r == nil || first == nil {
		return
	}
	tests := p.Status.Progress.Tests
	done := min(max(r.TestsDone, 0), tests)
	if done > p.Status.Progress.TestsDone {
		p.Status.Results, p.Status.ResultsOmitted = results(r)
		p.Status.Summary = summary(p.Status.Results)
		// Documents that cannot be saved are not tried for ever: others wait for the Store.
		if !p.isLate() || !progressesBy(&p.Status, v1alpha1.ReasonApplyFailed) {
			p.Status.ResultsConfigMap = ResultsName(p.Run)
			p.do(SaveResults{IP: first.IP})
		}
	}
	p.Status.Progress = progress(done, tests)
	e := p.Status.Environment
	e.Kernel, e.CPU = cut(r.Environment.Kernel), cut(r.Environment.CPU)
	e.CPUs, e.Load = r.Environment.CPUs, cut(r.Environment.Load)
}

// ResultsName is that of the run's ConfigMap.
func ResultsName(run *v1alpha1.ClusterPerf) string { return run.Name + "-results" }

func progress(done, tests int32) *v1alpha1.PerfProgress {
	return &v1alpha1.PerfProgress{
		TestsDone: done, Tests: tests,
		Text: fmt.Sprintf("%d of %d tests, %d %%", done, tests, 100*done/max(tests, 1)),
	}
}

func (p *planning) complete() {
	if p.Status.Progress.TestsDone < p.Status.Progress.Tests {
		p.fail(v1alpha1.ReasonClientFailed, "client 0 has ended without all tests: is its image of another version?")
		return
	}
	message := fmt.Sprintf("%d figures", len(p.Status.Results)+int(p.Status.ResultsOmitted))
	if p.Status.ResultsConfigMap != "" {
		message += "; all of them in ConfigMap " + p.Status.ResultsConfigMap
	} else {
		message += "; their documents could not be saved"
	}
	p.end(message)
	p.set(v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonCompleted, message)
	p.set(v1alpha1.ConditionFailed, metav1.ConditionFalse, v1alpha1.ReasonNotFailed, "nothing has failed")
	// The first client has dropped them before it said that it was complete.
	p.Status.TablesDropped = true
	if previous := previous(p.Run, p.Others); previous != nil {
		p.Status.ComparedTo = previous.Name
		compare(p.Status.Results, previous.Status.Results)
	}
}

func (p *planning) timeOut() {
	text := fmt.Sprintf("not complete within timeoutSeconds (%d)", p.Run.Spec.TimeoutSeconds)
	if complete := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionComplete); complete != nil {
		text += "; the last that was seen: " + complete.Message
	}
	p.fail(v1alpha1.ReasonTimedOut, bounded(text))
}

func (p *planning) fail(reason, message string) {
	if p.Status.Progress.TestsDone > 0 {
		message += fmt.Sprintf("; the figures of %d tests are kept", p.Status.Progress.TestsDone)
	}
	p.end(message)
	p.set(v1alpha1.ConditionComplete, metav1.ConditionFalse, reason, message)
	p.set(v1alpha1.ConditionFailed, metav1.ConditionTrue, reason, message)
}

func (p *planning) end(message string) {
	now := metav1.NewTime(p.Now)
	p.Status.CompletionTime = &now
	p.set(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonCleaningUp, message)
	p.Next = soon
}

// afterEnd ends the pods, then drops the tables if the clients did not, then waits until the run is old enough to go.
func (p *planning) afterEnd() {
	if p.endPods(false, "the run has ended") {
		p.set(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonCleaningUp, "waiting for the clients' pods to end")
		p.Next = runInterval
		return
	}
	if !p.Status.TablesDropped && !progressesBy(&p.Status, v1alpha1.ReasonTablesLeft) && !p.dropTables() {
		p.Next = runInterval
		return
	}
	if p.endPods(true, "it has ended") {
		p.Next = runInterval
		return
	}
	if p.Status.TablesDropped {
		p.set(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonEnded, "pods and tables of the run are gone")
	}
	p.Next = 0
	if keep := p.Run.Spec.TTLSecondsAfterFinished; keep != nil {
		left := p.Status.CompletionTime.Add(time.Duration(*keep) * time.Second).Sub(p.Now)
		if left <= 0 {
			p.do(DeleteRun{Why: fmt.Sprintf("it ended more than ttlSecondsAfterFinished (%d) ago", *keep)})
			return
		}
		p.Next = left
	}
}

// endPods deletes what there is of clients' pods, or of the one that drops tables, and says whether something is left.
func (p *planning) endPods(cleanup bool, why string) bool {
	left := false
	for i := range p.Pods {
		pod := &p.Pods[i]
		switch {
		case pod.Cleanup != cleanup:
		case pod.EndsAt.IsZero():
			p.do(DeletePod{Name: pod.Name, UID: pod.UID, Why: why})
			left = true
		case p.Now.Before(pod.EndsAt.Add(StuckAfter)):
			left = true
		}
	}
	return left
}

// progressesBy says whether Progressing has this reason.
func progressesBy(status *v1alpha1.ClusterPerfStatus, reason string) bool {
	progressing := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing)
	return progressing != nil && progressing.Reason == reason
}

// dropTables says whether nothing more is to be done for them.
func (p *planning) dropTables() bool {
	if p.storeIsGone() {
		p.Status.TablesDropped = true
		return true
	}
	pod, trouble := p.cleanup(), p.storeTrouble()
	switch {
	case pod != nil && pod.State == PodSucceeded:
		p.Status.TablesDropped = true
		return true
	case pod != nil && pod.State == PodFailed:
		trouble = pod.Trouble
	case p.Now.Sub(p.Status.CompletionTime.Time) < cleanupPatience:
		message := "dropping the run's tables"
		if pod == nil && trouble == "" {
			p.do(CreateCleanup{})
		} else if trouble != "" {
			message = "its tables can be dropped when the Store is there: " + trouble
		}
		p.set(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonCleaningUp, bounded(message))
		return false
	case pod != nil && pod.Trouble != "":
		trouble = pod.Trouble
	case trouble == "":
		trouble = "it took too long"
	}
	p.set(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonTablesLeft, bounded(fmt.Sprintf(
		"tables whose names begin with %q may be left in Store %s, drop them with rcbox drop-table: %s",
		p.Status.TablePrefix, p.Run.Spec.StoreRef.Name, trouble)))
	return true
}

func (p *planning) cleanup() *Pod {
	for i := range p.Pods {
		if p.Pods[i].Cleanup {
			return &p.Pods[i]
		}
	}
	return nil
}

// bounded keeps a message within what a condition may have.
func bounded(text string) string {
	const most = 1000
	return brief.Fit(text, most)
}
