package planner

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/capacity"
	"rcbox.dev/rcbox/operator/internal/planner/addressbook"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

const (
	// SettledInterval is how often a Store is looked at where nothing is to be done: only the coordinator knows when a
	// process was lost, and it does not call.
	SettledInterval = 5 * time.Second
	// UnsettledInterval is how often it is looked at while something is awaited.
	UnsettledInterval = 2 * time.Second
	// endedPodInterval is the least age at which a pod that has ended is replaced, so that a node that refuses every pod is
	// not asked without pause.
	endedPodInterval = 10 * time.Second
	// strandedAfter is how long a process may run without being ready and without the coordinator knowing its member, before it is
	// replaced. A process that was let go for a scaling in that was then taken back never becomes ready.
	strandedAfter = 5 * time.Minute
	// goneAfter is how long past its time a pod may take to end before a Store's deletion no longer waits for it: its node
	// is dead.
	goneAfter = 30 * time.Second
)

// Plan is what to do next, and what was made of what was seen.
type Plan struct {
	// Steps in order. Each is right only if those before it succeeded.
	Steps []steps.Step
	// NotAllowed says what of the spec the Store may not have; then there are no steps. Privileges are what it has in any case.
	NotAllowed string
	Privileges *v1alpha1.PrivilegesStatus
	// Withheld are steps that would be taken if the Store were not paused.
	Withheld []steps.Step
	// Hibernation is set for a Store that is to sleep.
	Hibernation *Hibernation
	// IsWaking: it was hibernated, and pods are left that somebody may still be about to end for that.
	IsWaking bool
	// Image is that of new pods.
	Image string
	// Coordinators and Masters, by ordinal, are what is and what should be.
	Coordinators []MemberView
	Masters      []MemberView
	// Coordinator is the one that leads, as far as is known.
	Coordinator MemberView
	// Shortfall is what keeps the data from having all its copies; nil when nothing does, and for a Store without copies.
	Shortfall *Shortfall
	// Capacity is what the loss of a failure domain would cost; nil without copies, and while nobody knows.
	Capacity *capacity.Check
	// HeldBack says which change waits because of that, and why; empty when none does.
	HeldBack string
	// Drills is what becomes of them.
	Drills Drills
	// Addresses of masters' ports.
	Addresses Addresses
	// Fences are the nodes that are fenced, or are to be.
	Fences []v1alpha1.FenceStatus
	// Turn is what is to be on record as the next process to end; nil if there is none.
	Turn *v1alpha1.TurnStatus
	// Next is when to look again, if nothing happens before.
	Next time.Duration
}

// MemberView is what was seen of a member, and what is to become of it.
type MemberView struct {
	Name string
	// Wanted is false for a member that the spec has no place for any more.
	Wanted bool
	// Pod that counts; nil when there is none.
	Pod *facts.Pod
	// Reported is what the coordinator knows; nil when it knows nothing.
	Reported *facts.MemberReport
	// Up is whether its present process serves.
	Up bool
	// Unheard: the coordinator has begun to lead, and has yet to hear from it. Nothing follows from that it is not up.
	Unheard bool
	// Pending is how the pod differs from the spec; empty when it does not.
	Pending string
	// Claim is the name of its volume claim; empty when it has none.
	Claim string
	// PodNumber is the greatest that a pod of it is known to have had, not counting one that this plan makes.
	PodNumber int64
	// Rolls: it is outdated, and the operator restarts it as soon as that costs nothing.
	Rolls bool
	// Lost is set while the node that it was on is lost, and it has no other.
	Lost *Lost
	// Evacuation is set while the node that it is on is drained, and then until it is up on another one.
	Evacuation *Evacuation
	// Failures is what went wrong with it lately where it is.
	Failures *v1alpha1.FailureStatus
	// Addresses on its ports; AddressWait is what it waits for until it gets a pod with some.
	Addresses   []addressbook.Address
	AddressWait string
	// inputs of its next pod.
	inputs resources.Inputs
	// Refusals of its pods by kubelets, one after the other; nil if there were none, or one was admitted since.
	Refusals *v1alpha1.RefusalStatus
}

// Tablets is how many parts of tables the member holds.
func (v *MemberView) Tablets() int64 {
	if v.Reported == nil {
		return 0
	}
	return v.Reported.Tablets
}

// Make decides what to do next.
func Make(o facts.Observed) Plan {
	p := &planning{observed: &o, plan: Plan{Next: SettledInterval, Image: facts.ResolveImage(&o), Drills: drillsOf(o.Store)}}
	p.plan.Privileges = o.Privileges()
	p.plan.NotAllowed = o.NotAllowed(p.plan.Privileges)
	switch {
	case o.Store.DeletionTimestamp != nil:
		p.tearDown()
	default:
		p.build()
		if o.Store.Spec.Hibernated {
			p.hibernate()
		} else {
			p.wake()
		}
		if o.CopiesUnrecorded {
			p.onRecordFirst()
		}
		if p.plan.NotAllowed != "" {
			p.plan.Steps = nil
		}
		if o.Store.Spec.Paused {
			p.plan.Steps, p.plan.Withheld = nil, p.plan.Steps
		}
	}
	return p.plan
}

// MakeForEnd decides what to do for a Store whose namespace is being deleted: nothing can be made there any more, and pods are let go as
// if the Store were being deleted, which Kubernetes does only when they have gone.
func MakeForEnd(o facts.Observed) []steps.Step {
	o.NamespaceEnds = true
	p := &planning{observed: &o}
	p.releaseAll()
	return p.plan.Steps
}

type planning struct {
	observed *facts.Observed
	plan     Plan
	book     *addressbook.Book
	// asked is the first process whose end this plan asks for.
	asked *v1alpha1.TurnStatus
}

func (p *planning) add(step steps.Step) { p.plan.Steps = append(p.plan.Steps, step) }

func (p *planning) lookAgainIn(d time.Duration) { p.plan.Next = min(p.plan.Next, d) }

func (p *planning) build() {
	o := p.observed
	if !hasFinalizer(o.Store) {
		p.add(steps.AddFinalizer{Why: "so that the Store outlives its pods"})
	}
	for _, object := range o.Objects {
		switch object.State {
		case facts.ObjectMissing:
			p.add(steps.ApplyObject{Kind: object.Kind, Name: object.Name, Create: true, Why: "it is missing"})
		case facts.ObjectDifferent:
			p.add(steps.ApplyObject{Kind: object.Kind, Name: object.Name, Why: "it differs from what the Store needs"})
		case facts.ObjectCurrent:
		}
	}
	p.keepCoordinators()
	p.openBook()
	masters := o.Masters()
	allUp := true
	for _, m := range masters {
		wanted := m.Ordinal < int(o.Store.Spec.Masters.Replicas)
		p.plan.Masters = append(p.plan.Masters, p.keep(m, v1alpha1.ComponentMaster, wanted))
		allUp = allUp && (!wanted || m.Up())
	}
	p.closeBook(masters)
	if o.Cluster == nil || !allUp {
		p.lookAgainIn(UnsettledInterval)
	}
	p.keepSettings()
	p.plan.Shortfall = FindShortfall(o, p.plan.Masters)
	p.plan.Capacity = p.checkCapacity()
	if len(o.RecoveriesLeft()) > 0 {
		p.lookAgainIn(UnsettledInterval)
	}
	p.followLost(masters)
	if o.Cluster != nil {
		p.followEvacuations(masters)
	}
	p.followFencing()
	p.isolateFailing()
	// While the coordinator cannot note what it does, its word on who may go is not to be had.
	if o.Cluster != nil && o.Cluster.StateWait == "" && !p.scaleIn(masters) && !p.replaceEmpty() {
		p.roll()
	}
	p.growClaim()
	p.drill()
	p.settleTurn()
}

// keep sees to it that a member has one pod, made from the spec as far as that costs nothing.
func (p *planning) keep(m *facts.Member, component string, wanted bool) MemberView {
	o := p.observed
	view := MemberView{
		Name: m.Name, Wanted: wanted, Pod: m.Pod(), Reported: m.Reported, Up: m.Up(), PodNumber: m.HighestPod,
		Unheard: o.Cluster != nil && m.Reported != nil && m.Reported.NotHeard && o.Cluster.IsNew,
	}
	if component == v1alpha1.ComponentCoordinator {
		view.Up = o.Cluster != nil && (o.LeaderPod == "" || view.Pod != nil && view.Pod.Name == o.LeaderPod)
	}
	if component == v1alpha1.ComponentMaster {
		view.Lost, view.Evacuation = p.lostNode(m, &view), p.evacuation(m, &view)
		view.Failures = p.failures(m, &view)
		view.Addresses, view.Refusals = p.book.AddressesOf(m), p.refusals(m)
	}
	inputs := resources.InputsFor(o.Store, component, p.plan.Image, o.StateType())
	view.Claim = p.claim(m, component, inputs, wanted)
	inputs = p.asFarAsThereIsRoom(m, view.Claim, inputs)
	view.inputs = inputs
	if view.Pod == nil {
		p.fill(m, &view, component, inputs)
	} else {
		p.keepPod(m, &view, component, inputs)
		view.Rolls = p.rolls(&view, component)
	}
	p.tellDomain(view.Pod)
	p.deleteSurplus(m, component)
	return view
}

// fill gives a member a pod that has none.
func (p *planning) fill(m *facts.Member, view *MemberView, component string, inputs resources.Inputs) {
	switch {
	case view.Lost != nil && view.Lost.withVolume, p.isLeaving(view) && view.Evacuation.withVolume:
		// It could not start: the node comes back, or the member moves.
		p.lookAgainIn(UnsettledInterval)
	case view.Wanted || m.Tablets() > 0:
		// One that is not wanted but still owns tablets stays a member until they are dropped.
		view.AddressWait = p.createPod(m, component, inputs, "")
	}
}

// keepPod deletes a member's pod where that costs nothing and another one would be better.
func (p *planning) keepPod(m *facts.Member, view *MemberView, component string, inputs resources.Inputs) {
	pod := view.Pod
	if pod.Process == facts.ProcessEnded {
		p.replaceEnded(m, view, component)
		return
	}
	view.Pending = p.outdated(pod.Inputs, inputs)
	if pod.Misplaced != "" {
		p.add(steps.DeletePod{Member: m.Name, Pod: pod.Ref(), Why: pod.Misplaced})
		p.lookAgainIn(UnsettledInterval)
		return
	}
	// The kubelet reports an end late: where a process serves again by now, nothing is replaced.
	if pod.Process != facts.ProcessAbsent || view.Up {
		return
	}
	// Nor where only the coordinator could tell, and does not.
	if component == v1alpha1.ComponentMaster && p.observed.Cluster == nil {
		return
	}
	var why string
	switch {
	case pod.Claim != "" && pod.Claim != view.Claim:
		why = fmt.Sprintf("its volume claim is %s, and the member's is %s", pod.Claim, view.Claim)
	case view.Pending != "" && (view.Wanted || component == v1alpha1.ComponentCoordinator):
		why = "no process runs in it, and the spec has changed: " + view.Pending
	default:
		return
	}
	p.add(steps.DeletePod{Member: m.Name, Pod: pod.Ref(), Why: why})
	p.lookAgainIn(UnsettledInterval)
}

// replaceEnded: one whose process is still connected may only be replaced when it has let go.
func (p *planning) replaceEnded(m *facts.Member, view *MemberView, component string) {
	wait := pauseAfter(view.Refusals) - p.observed.Now.Sub(view.Pod.CreatedAt)
	if view.Up && component == v1alpha1.ComponentMaster {
		wait = UnsettledInterval
	}
	if wait > 0 {
		p.lookAgainIn(wait)
		return
	}
	why := "it has ended for good: " + orElse(view.Pod.Trouble, "no reason given")
	p.add(steps.DeletePod{Member: m.Name, Pod: view.Pod.Ref(), Why: why})
	p.lookAgainIn(UnsettledInterval)
}

// createPod gives the member a pod, unless it waits for an address. The pod may run on the isolated node returnsTo.
func (p *planning) createPod(m *facts.Member, component string, inputs resources.Inputs, returnsTo string) (waitsFor string) {
	p.lookAgainIn(UnsettledInterval)
	step := steps.CreatePod{
		Component: component, Member: m.Name, Number: m.HighestPod + 1, Inputs: inputs, ReturnsTo: returnsTo, Why: whyCreate(m, inputs),
	}
	if inputs.InVolume() {
		step.Claim = claimName(m, component)
		if p.observed.Claims[step.Claim].Terminating {
			return "" // until it is gone: a pod would keep it, but a volume that somebody deletes is to go
		}
	}
	if inputs.Network != nil && len(inputs.Network.Ports) > 0 {
		if p.plan.Addresses.Error != "" {
			return p.plan.Addresses.Error
		}
		if step.Addresses, waitsFor = p.book.Allot(m.Name); waitsFor != "" {
			return waitsFor
		}
	}
	p.add(step)
	return ""
}

// claimName is that of the volume claim that the member has, or is to get.
func claimName(m *facts.Member, component string) string {
	if claim, _, found := m.Claim(); found && component == v1alpha1.ComponentMaster {
		return claim.Name
	}
	return resources.ClaimName(m.Name, component)
}

// claim sees to it that a member that needs a volume claim has one, and gives the name of the one that it has or gets. A claim is
// never changed, but for its size, and, while the Store is there, never deleted.
func (p *planning) claim(m *facts.Member, component string, inputs resources.Inputs, wanted bool) string {
	name := claimName(m, component)
	_, found := p.observed.Claims[name]
	pod := m.Pod()
	needed := inputs.InVolume() && (wanted || pod != nil || m.Tablets() > 0)
	if !found && needed {
		p.add(steps.CreateClaim{Component: component, Member: m.Name, Name: name, Why: "the member needs a volume"})
		p.lookAgainIn(UnsettledInterval)
	}
	if found {
		p.touchClaim(m, name)
	}
	if found || needed {
		return name
	}
	return ""
}

// tellDomain: only the operator may read nodes, so it tells the pod in which failure domain it came to be.
func (p *planning) tellDomain(pod *facts.Pod) {
	if pod == nil || pod.DomainKnown || pod.Node == "" || !pod.Inputs.NeedsDomain() {
		return
	}
	if domain, known := p.observed.Domains[pod.Node]; known {
		ref := pod.Ref()
		ref.ResourceVersion = "" // it has a node once and for all
		p.add(steps.TellDomain{Member: pod.Member, Pod: ref, Domain: domain, Why: "it runs on " + pod.Node})
	}
}

// deleteSurplus ends all but one pod of a member. The way in which pods are named leaves no way for a second one; but if one is there,
// its process and the first one would drive each other out for ever.
func (p *planning) deleteSurplus(m *facts.Member, component string) {
	for i := 1; i < len(m.Live); i++ {
		known := component == v1alpha1.ComponentCoordinator || m.Reported.Runs(m.Live[0])
		if m.Live[i].Process != facts.ProcessRunning || (p.observed.Cluster != nil && known) {
			p.add(steps.DeletePod{Member: m.Name, Pod: m.Live[i].Ref(), Why: "the member has another pod, " + m.Live[0].Name})
		}
	}
}

// replaceEmpty replaces the pod of a master that holds nothing, if its pod was made from another spec or its process is stranded: one at a
// time. One that serves waits until all others do, so that there is always somewhere to put a new table. True if there is one.
func (p *planning) replaceEmpty() bool {
	var first *MemberView
	allUp := true
	for i := range p.plan.Masters {
		view := &p.plan.Masters[i]
		if !view.Wanted {
			continue
		}
		allUp = allUp && view.Up
		if p.whyReplace(view) != "" && (first == nil || first.Up && !view.Up) {
			first = view
		}
	}
	if first == nil {
		return false
	}
	if first.Up && !allUp || !p.mayRemove(first.Name) {
		return true
	}
	ref := first.Pod.Ref()
	p.add(steps.RetireMember{Member: first.Name, Pod: &ref, Why: p.whyReplace(first)})
	p.lookAgainIn(UnsettledInterval)
	return true
}

// whyReplace says why an empty master with a running process should have another pod; empty when it should not, or when it keeps copies for
// others: then it is restarted like one that holds something.
func (p *planning) whyReplace(view *MemberView) string {
	pod := view.Pod
	if pod == nil || pod.Process != facts.ProcessRunning || view.Tablets() > 0 || view.Evacuation != nil {
		return ""
	}
	if view.Pending != "" && (view.Reported.Runs(pod) && !view.Rolls || !pod.Ready) {
		return "it holds nothing, and the spec has changed: " + view.Pending
	}
	if view.Reported == nil && !pod.NotReadySince.IsZero() && p.observed.Now.Sub(pod.NotReadySince) >= strandedAfter {
		return "its process has not enlisted for a long time; the coordinator may have removed it"
	}
	return ""
}

// tearDown ends all pods and waits until they have ended, but not for those on dead nodes.
func (p *planning) tearDown() {
	o := p.observed
	p.plan.Next = UnsettledInterval
	p.releaseAll()
	if !hasFinalizer(o.Store) {
		return
	}
	waiting := 0
	for i := range o.Pods {
		switch pod := &o.Pods[i]; {
		case !pod.Terminating():
			ref := pod.Ref()
			ref.ResourceVersion = "" // whatever it does meanwhile, it goes
			p.add(steps.DeletePod{Member: pod.Member, Pod: ref, Why: "the Store is being deleted"})
			waiting++
		case o.Now.Before(pod.EndsAt.Add(goneAfter)):
			waiting++
		}
	}
	if waiting > 0 {
		return
	}
	if o.Store.Spec.ReclaimPolicy == v1alpha1.ReclaimDelete {
		for _, name := range slices.Sorted(maps.Keys(o.Claims)) {
			if !o.Claims[name].Terminating {
				p.add(steps.DeleteClaim{Name: name, Why: "the Store is being deleted, and its reclaimPolicy is Delete"})
			}
		}
	}
	for _, object := range o.StateObjects {
		switch {
		case o.Store.Spec.ReclaimPolicy == v1alpha1.ReclaimDelete:
			p.add(steps.DeleteState{Name: object.Name, Why: "the Store is being deleted, and its reclaimPolicy is Delete"})
		case object.Held:
			p.add(steps.ReleaseState{Name: object.Name, Why: "the Store is being deleted; the ConfigMap stays as long as its namespace"})
		}
	}
	p.releaseFences()
	p.add(steps.RemoveFinalizer{Why: "its pods have ended"})
}

func hasFinalizer(store *v1alpha1.Store) bool {
	return slices.Contains(store.Finalizers, v1alpha1.Finalizer)
}

func whyCreate(m *facts.Member, inputs resources.Inputs) string {
	switch {
	case m.Tablets() > 0 && inputs.Replication != nil:
		return fmt.Sprintf("its pod is gone; its data is recovered from copies (tablets: %d)", m.Tablets())
	case m.Tablets() > 0:
		return fmt.Sprintf("its pod is gone; its data is lost with it (tablets: %d)", m.Tablets())
	case !m.IsKnown:
		return "it is new"
	default:
		return "its pod is gone"
	}
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
