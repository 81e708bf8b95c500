package planner_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
	"rcbox.dev/rcbox/operator/internal/status"
)

// What becomes of the world when a step is carried out: it objects to what must never be.

// makePlan is asked by the worlds: a test that plants a bug has another one.
var makePlan = planner.Make

// reconcile is what the controller does; a lost one ends before the status is written. It gives the plan and the refusal, if there was one.
func (w *world) reconcile(lost bool) (planner.Plan, string) {
	o := w.observe()
	plan := makePlan(o)
	logPlan(plan)
	var outcome status.Outcome
	for _, step := range plan.Steps {
		if countOf[steps.TryPod](plan) > 0 && steps.RowOf(step).Look == steps.Everything && !w.stillPlans(o, step) {
			break
		}
		hands := &hands{w: w}
		if err := step.Do(context.Background(), hands); err != nil {
			panic(err)
		}
		if split, isSplit := step.(steps.SplitTable); isSplit {
			if outcome.Splits == nil {
				outcome.Splits = map[string]status.Split{}
			}
			outcome.Splits[split.Operation] = *hands.split
		}
		if hands.refused != "" {
			if drain, isDrain := step.(steps.DrainMember); isDrain && drain.Ordered {
				outcome.RefusedOrders = map[string]string{drain.Member: hands.refused}
			} else {
				outcome.Refused = hands.refused
			}
			continue
		}
		outcome.Done = append(outcome.Done, step)
	}
	if !lost {
		w.store.Status = status.Compute(o, plan, outcome)
		w.writeOperations(o, plan, outcome)
		logStatus(w.store.Status)
		for name := range w.pods {
			w.names[name] = true
		}
	}
	return plan, outcome.Refused
}

// stillPlans says whether a step is planned also with what the API server has said of pods meanwhile.
func (w *world) stillPlans(o facts.Observed, step steps.Step) bool {
	o.Trials = w.trials
	return slices.ContainsFunc(makePlan(o).Steps, func(other steps.Step) bool { return reflect.DeepEqual(other, step) })
}

// writeOperations has the StoreOperations that are left say how far they are.
func (w *world) writeOperations(o facts.Observed, plan planner.Plan, outcome status.Outcome) {
	for i := range w.operations {
		if operation := o.Operation(w.operations[i].UID); operation != nil && !w.forgetful {
			w.operations[i].Status = status.Operation(o, plan, outcome, operation, &w.store.Status)
		}
	}
}

// createClaim: never twice.
func (w *world) createClaim(name string) {
	if _, there := w.claims[name]; there {
		panic("the claim " + name + " is there already")
	}
	w.claims[name] = w.newClaim(name)
}

// growClaim: to what the spec asks for, and never twice.
func (w *world) growClaim(step steps.GrowClaim) {
	claim, there := w.claims[step.Name]
	wanted := w.store.CopiesStorage()
	if step.Component == v1alpha1.ComponentCoordinator {
		wanted = w.store.Spec.Coordinator.State.Size
	}
	if !there || claim.Terminating || claim.AskedFor.Cmp(wanted) >= 0 {
		panic(fmt.Sprintf("the claim %+v is to grow to %s", claim, wanted.String()))
	}
	claim.AskedFor = wanted
	w.claims[step.Name] = claim
}

// newClaim asks for what the spec has.
func (w *world) newClaim(name string) facts.Claim {
	size := w.store.CopiesStorage()
	if strings.HasSuffix(name, "-state") {
		size = w.store.Spec.Coordinator.State.Size
	}
	return facts.Claim{Name: name, AskedFor: size}
}

// growVolumes makes volumes as large as their claims ask for.
func (w *world) growVolumes() {
	if w.rigid {
		return
	}
	for name, claim := range w.claims {
		claim.Size = claim.AskedFor
		w.claims[name] = claim
	}
}

// drill: of a process that others make up for, if that is on record, and never of a Store that its user wants to be left alone.
func (w *world) drill(step steps.DrillMember) {
	member := w.cluster.members[step.Member]
	isRecorded := func(drill v1alpha1.Drill) bool {
		return drill.Number == step.Number && drill.State == v1alpha1.DrillWaiting && drill.Member == step.Member &&
			slices.Equal(drill.ServerIDs, []string{member.instance})
	}
	safe := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionDataSafe)
	switch {
	case !slices.ContainsFunc(w.store.Status.Drills, isRecorded):
		panic(step.Member + " is ended for a drill, and that is not on record")
	case safe.Status != metav1.ConditionTrue:
		panic(step.Member + " is ended for a drill, and DataSafe is not True")
	case w.store.Spec.Paused || w.store.Spec.Hibernated:
		panic(step.Member + " is ended for a drill of a Store that is to be left alone")
	}
	w.drilled = append(w.drilled, step.Member)
	w.restart(steps.RestartMember{Member: step.Member, Pod: step.Pod})
}

// refusalOf is what the API server says of a pod; empty if it admits the pod.
func (w *world) refusalOf(image string) string {
	switch {
	case w.isQuotaFull:
		return "pods are forbidden: exceeded quota"
	case image == w.refusedImage && image != "":
		return "pods of " + image + " are forbidden"
	default:
		return ""
	}
}

// checkAdmitted: a member's process is ended only while the API server is known to admit the member's next pod.
func (w *world) checkAdmitted(member string, ref facts.PodRef) {
	pod := w.pods[ref.Name]
	if pod == nil || pod.UID != ref.UID || pod.Process != facts.ProcessRunning || pod.deadNode {
		return
	}
	const validFor = 45 * time.Second
	if at, isKnown := w.admittedAt[ref.UID]; !isKnown || w.now.Sub(at) >= validFor {
		panic(member + " is ended, and the API server was not asked about its next pod, or refuses it")
	}
}

// restart: of a process that others make up for, while none of these is away.
func (w *world) restart(step steps.RestartMember) {
	w.checkLock(step.Pod)
	pod := w.pods[step.Pod.Name]
	w.checkAdmitted(step.Member, step.Pod)
	if !w.isReplicated() || pod.Inputs.Replication == nil && pod.Component == v1alpha1.ComponentMaster {
		panic(step.Member + " is restarted, and what it holds is nowhere else")
	}
	if w.lacksCopies() {
		w.broken = append(w.broken, pod.Name)
	}
	for name, member := range w.cluster.members {
		if !w.runs(name, member) {
			panic(fmt.Sprintf("%s is restarted while %s is away", step.Member, name))
		}
	}
	w.end(pod)
}

// move: nothing must be lost by it, and that must be on record.
func (w *world) move(step steps.MoveMember) {
	member := w.cluster.members[step.Member]
	if step.Drained {
		w.leave(step, member)
		return
	}
	if !w.dead[step.Node] && !w.isToBeLeft(step.Node) || member != nil && (w.runs(step.Member, member) || member.tablets > 0) {
		panic(step.Member + " is moved from " + step.Node + ", and its process lives, or its data is nowhere else")
	}
	if w.lostDomains() > int(w.store.Copies()) {
		panic(step.Member + " is moved, though more nodes are lost than copies make up for")
	}
	isRecorded := func(m v1alpha1.MemberStatus) bool {
		return m.Name == step.Member && m.Lost != nil && m.Lost.Node == step.Node && m.Lost.ProvenAt != nil
	}
	if !slices.ContainsFunc(w.store.Status.Masters.Members, isRecorded) {
		panic(step.Member + " is moved, and why is not on record")
	}
	w.moveAway(step)
}

// isolateFailing: while all others are up, and nothing else is isolated without an order.
func (w *world) isolateFailing(step steps.IsolateNode) {
	for ordinal := range int(w.store.Spec.Masters.Replicas) {
		other := v1alpha1.MasterMember("box", ordinal)
		if member := w.cluster.members[other]; other != step.Member && (member == nil || !w.runs(other, member)) {
			panic(step.Node + " is isolated while " + other + " is away")
		}
	}
	for _, isolation := range w.store.Status.Isolations {
		if isolation.Cause == v1alpha1.IsolatedFailures && slices.Contains(w.isolatedNodes(), isolation.Node) {
			panic(step.Node + " is isolated besides " + isolation.Node)
		}
	}
	w.isolate(append(w.isolatedNodes(), step.Node)...)
	w.operations[len(w.operations)-1].Spec.Isolate.Cause = v1alpha1.IsolatedFailures
}

// unfence: a machine whose power was taken away is switched on again.
func (w *world) unfence(node string) {
	delete(w.fenced, node)
	if w.proved[node] {
		delete(w.proved, node)
		w.reviveNode(node)
	}
}

// proveOff is what the box controller and Kubernetes do about a fenced node: its machine is off, and its pods are removed.
func (w *world) proveOff(node string) {
	w.proved[node] = true
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if pod := w.pods[name]; pod.Node == node {
			w.end(pod)
			delete(w.senders, name)
			if !pod.IsHeld {
				delete(w.pods, name)
			}
		}
	}
}

// fence: only what is on record, does not answer, and has no process of a master that lives.
func (w *world) fence(node string) {
	isRecorded := func(f v1alpha1.FenceStatus) bool { return f.Node == node }
	if !w.dead[node] || !slices.ContainsFunc(w.store.Status.Fences, isRecorded) || len(w.fenced) >= int(w.store.Copies()) {
		panic(fmt.Sprintf("node %s is fenced: dead %v, on record %+v, fenced before %v", node, w.dead, w.store.Status.Fences, w.fenced))
	}
	w.fenced[node] = true
}

// isToBeLeft: it takes no pods of this Store.
func (w *world) isToBeLeft(node string) bool {
	return w.cordoned[node] || slices.Contains(w.isolatedNodes(), node)
}

// leave: a member that moves away from a drained node has nothing that anybody needs, by the coordinator's word.
func (w *world) leave(step steps.MoveMember, member *fakeMember) {
	if !w.isToBeLeft(step.Node) || member != nil && !member.isDrained(w) {
		panic(step.Member + " leaves " + step.Node + ", and is not drained, or has no reason to")
	}
	if step.Pod != nil {
		w.checkAdmitted(step.Member, *step.Pod)
	}
	delete(w.cluster.members, step.Member)
	w.moveAway(step)
}

func (w *world) moveAway(step steps.MoveMember) {
	if step.Pod != nil {
		w.end(w.pods[step.Pod.Name])
	}
	if step.Claim == "" {
		return
	}
	if _, there := w.claims[step.Claim]; there {
		panic("the claim " + step.Claim + " is there already")
	}
	w.claims[step.Claim] = w.newClaim(step.Claim)
}

func (w *world) retire(step steps.RetireMember) (refused string) {
	member := w.cluster.members[step.Member]
	if member != nil && member.tablets > 0 {
		return fmt.Sprintf("%s owns %d tablets", step.Member, member.tablets)
	}
	isDrained := member != nil && member.isDrained(w)
	if pod := w.podOf(step.Member); pod != nil && !isDrained && w.lacksCopies() && member != nil && w.runs(step.Member, member) {
		w.broken = append(w.broken, pod.Name)
	}
	ordinal, _ := v1alpha1.MasterOrdinal("box", step.Member)
	if member != nil && !isDrained && w.isReplicated() && ordinal >= int(w.store.Spec.Masters.Replicas) {
		panic(step.Member + " is removed for good, and is not drained")
	}
	if step.Pod != nil && ordinal < int(w.store.Spec.Masters.Replicas) {
		w.checkAdmitted(step.Member, *step.Pod)
	}
	delete(w.cluster.members, step.Member)
	if !isDrained {
		w.cluster.short = 3
	}
	if step.Pod != nil {
		w.deletePod(facts.PodRef{Name: step.Pod.Name, UID: step.Pod.UID})
	}
	return ""
}

func (w *world) drain(name string) (refused string) {
	member := w.cluster.members[name]
	if member.isDraining {
		panic(name + " is drained twice")
	}
	w.checkOneLeaves(name)
	for other, staying := range w.cluster.members {
		if other != name && !staying.isDraining {
			member.isDraining, member.copies = true, int64(3*w.store.Copies())
			return ""
		}
	}
	return "nobody would stay but " + name
}

// checkOneLeaves: of members that the spec has a place for, one at a time is drained, and only while nobody is away.
func (w *world) checkOneLeaves(name string) {
	replicas := int(w.store.Spec.Masters.Replicas)
	if ordinal, _ := v1alpha1.MasterOrdinal("box", name); ordinal >= replicas {
		return
	}
	if home := w.podOf(name).Node; !w.isToBeLeft(home) {
		panic(name + " is drained, and may stay where it is")
	}
	for ordinal := range replicas {
		other := v1alpha1.MasterMember("box", ordinal)
		member := w.cluster.members[other]
		if other != name && (member == nil || member.isDraining || !w.runs(other, member)) {
			panic(name + " is drained while " + other + " is away, or is drained")
		}
	}
	if w.lacksCopies() {
		panic(name + " is drained while something is short of copies")
	}
}

// evacuate moves a tablet, and a copy, of each member that leaves.
func (w *world) evacuate() {
	for _, name := range slices.Sorted(maps.Keys(w.cluster.members)) {
		leaving := w.cluster.members[name]
		if !leaving.isDraining {
			continue
		}
		leaving.copies = max(leaving.copies-1, 0)
		for _, other := range slices.Sorted(maps.Keys(w.cluster.members)) {
			staying := w.cluster.members[other]
			if !staying.isDraining && leaving.tablets > 0 && w.runs(name, leaving) && w.runs(other, staying) {
				leaving.tablets--
				staying.tablets++
			}
		}
	}
}

func (w *world) createPod(step steps.CreatePod) {
	for _, pod := range w.pods {
		if pod.Member == step.Member && !pod.Terminating() {
			panic(fmt.Sprintf("%s gets a second pod beside %s", step.Member, pod.Name))
		}
	}
	claim, there := w.claims[step.Claim]
	if replication := step.Inputs.Replication; there && replication != nil && !claim.Size.IsZero() &&
		replication.StorageSize.Cmp(claim.Size) > 0 {
		panic(fmt.Sprintf("a pod of %s is made for %s, and its volume has %s",
			step.Member, replication.StorageSize.String(), claim.Size.String()))
	}
	if step.Inputs.InVolume() && (!there || claim.Terminating) {
		panic(fmt.Sprintf("a pod of %s is made with the claim %+v", step.Member, claim))
	}
	name := resources.PodName(w.store.UID, step.Member, step.Number)
	if w.names[name] || w.pods[name] != nil {
		panic("the pod name " + name + " is used again")
	}
	w.uids++
	w.pods[name] = &fakePod{Pod: facts.Pod{
		Name: name, UID: fmt.Sprintf("uid%d.", w.uids), ResourceVersion: "1", Component: step.Component, Member: step.Member,
		Number: step.Number, CreatedAt: w.now, Inputs: step.Inputs, Claim: step.Claim,
		Addresses: step.Addresses, IsHeld: len(step.Addresses) > 0, Gated: len(step.Addresses) > 0,
	}}
	w.checkAddresses(w.pods[name])
}

// deletePod by the operator: the gate that must hold.
func (w *world) deletePod(ref facts.PodRef) {
	pod := w.pods[ref.Name]
	if pod == nil || pod.UID != ref.UID || (ref.ResourceVersion != "" && pod.ResourceVersion != ref.ResourceVersion) {
		return
	}
	asleep := w.store.Spec.Hibernated && w.store.Status.HibernatedSince != nil && pod.Inputs.InVolume()
	if w.store.DeletionTimestamp == nil && pod.Process == facts.ProcessRunning && w.holdsData(pod) && !asleep {
		w.broken = append(w.broken, pod.Name)
	}
	w.end(pod)
	if w.store.DeletionTimestamp == nil && w.hasStandbys() && pod.Component == v1alpha1.ComponentCoordinator &&
		pod.Process == facts.ProcessRunning && !w.isLedBySomebody() {
		panic("the operator ends " + pod.Name + ", and no coordinator is left that could lead")
	}
}

func (w *world) holdsData(pod *fakePod) bool {
	if w.cluster == nil {
		return false
	}
	if pod.Component == v1alpha1.ComponentCoordinator {
		return pod.Name == w.cluster.pod && !w.hasStandbys()
	}
	member := w.cluster.members[pod.Member]
	return member != nil && member.tablets > 0 && member.instance == instance(pod)
}

// isLedBySomebody, or could be in a moment.
func (w *world) isLedBySomebody() bool {
	return slices.ContainsFunc(w.livePods(), func(pod *fakePod) bool {
		return pod.Component == v1alpha1.ComponentCoordinator && pod.Process == facts.ProcessRunning && !pod.deadNode
	})
}

// strand lets a process run that the coordinator does not know.
func (w *world) strand(member string, since time.Time) {
	delete(w.cluster.members, member)
	pod := w.podOf(member)
	pod.Ready, pod.NotReadySince = false, since
}
