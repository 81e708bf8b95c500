package planner_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// world is a stand-in for everything outside the planner: API server, kubelets, scheduler, coordinator, masters. What must never happen,
// panics here.
type world struct {
	// builds take settings
	takesSettings bool
	allowed       facts.Allowed
	// refusedImage is one of which the API server admits no pods, isQuotaFull: it admits none of any image, and isMute: it does not say
	refusedImage        string
	isQuotaFull, isMute bool
	// trials are what the API server has said of pods, and admittedAt is when it admitted the pod that follows one, by that one's uid
	trials     map[string]facts.Trial
	admittedAt map[string]time.Time
	now        time.Time
	store      *v1alpha1.Store
	objects    map[string]facts.ObjectState
	pods       map[string]*fakePod
	// names of pods that the operator has put on record (in a status that it wrote)
	names map[string]bool
	// the coordinator's state; nil while its process does not run
	cluster  *fakeCluster
	clusters int
	uids     int
	// volume claims, and what the coordinator's volume holds
	claims map[string]facts.Claim
	kept   *fakeCluster
	// with local volumes, a master's can be used on the node alone on which it was made
	isLocal bool
	// volumes do not get larger
	rigid bool
	// nodes that do not answer, and those that take no more pods
	dead     map[string]bool
	cordoned map[string]bool
	// frozen are dead nodes that Kubernetes calls ready for a while, and since when
	frozen map[string]time.Time
	// fenced nodes
	fenced map[string]bool
	// proved are fenced nodes whose machines were proved to be off; where fencing is by power, no others are fenced
	proved map[string]bool
	// foreign is one that somebody else has fenced
	foreign string
	// isFull: there is no other node.
	isFull bool
	// how often the operator ended a process that held data, or copies that nobody else had
	broken []string
	// senders may send under these addresses, by the names of their pods
	senders map[string]sender
	// released pods, by somebody's word
	released []string
	// foreigners are other Stores with ports
	foreigners []facts.Foreign
	// the store's format
	format facts.Format
	// what was ordered, and whether its status is never written
	operations []facts.Operation
	forgetful  bool
	// the members whose processes were ended for drills
	drilled []string
	// tables that can be split, by name
	tables map[string]*fakeTable
	// splits that nobody had ordered, or that were withdrawn
	unordered int
}

type fakePod struct {
	facts.Pod
	deadNode bool
	// counts the processes that ran in this pod
	restarts int
}

type fakeCluster struct {
	id      string
	pod     string
	members map[string]*fakeMember
	// with copies: tablets of dead members, and for how many seconds copies are still being made anew
	lost  int64
	short int
	// nil for a build that takes none
	settings *facts.Settings
	// recoveries that have ended
	recovered []facts.Recovery
}

type fakeMember struct {
	instance string
	tablets  int64
	// known to be dead
	isDead bool
	// it is to leave, and for so many seconds others still need copies that it keeps
	isDraining bool
	copies     int64
}

func (m *fakeMember) isDrained(w *world) bool {
	return m.isDraining && m.tablets == 0 && m.copies == 0 && w.cluster.lost == 0
}

func newWorld(replicas int32) *world {
	return &world{
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		store: &v1alpha1.Store{
			ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "default", UID: types.UID("store-uid"), Generation: 1},
			Spec: v1alpha1.StoreSpec{
				Masters:     v1alpha1.MastersSpec{Replicas: replicas, Memory: resource.MustParse("1Gi"), Cores: 1},
				Coordinator: v1alpha1.CoordinatorSpec{Replicas: 1, State: v1alpha1.StateSpec{Type: v1alpha1.StateMemory}},
			},
		},
		objects: map[string]facts.ObjectState{"box": facts.ObjectMissing},
		pods:    map[string]*fakePod{},
		names:   map[string]bool{},
		claims:  map[string]facts.Claim{},
		dead:    map[string]bool{}, cordoned: map[string]bool{}, frozen: map[string]time.Time{},
		fenced: map[string]bool{}, proved: map[string]bool{},
		senders: map[string]sender{}, trials: map[string]facts.Trial{}, admittedAt: map[string]time.Time{},
	}
}

// newReplicatedWorld has one copy of everything, in volumes, and racks.
func newReplicatedWorld(replicas int32) *world {
	w := newWorld(replicas)
	w.store.Spec.Replication = v1alpha1.ReplicationSpec{Factor: new(int32(1)), Durability: v1alpha1.Buffered}
	w.store.Spec.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageVolume, Size: new(resource.MustParse("4Gi"))}
	w.store.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain
	w.store.Spec.Placement.FailureDomain = "rack"
	w.store.Spec.Coordinator.State.Type = v1alpha1.StateVolume
	w.store.Spec.Recovery = v1alpha1.RecoverySpec{RescheduleAfter: "10s", MaxConcurrentReplacements: 1}
	return w
}

// newStandbyWorld has several coordinators, whose state is in the API server.
func newStandbyWorld(coordinators int32) *world {
	w := newWorld(2)
	w.store.Spec.Coordinator = v1alpha1.CoordinatorSpec{
		Replicas: coordinators, State: v1alpha1.StateSpec{Type: v1alpha1.StateKubernetes},
	}
	return w
}

func (w *world) hasStandbys() bool {
	return w.store.Spec.Coordinator.State.Type == v1alpha1.StateKubernetes
}

// coordinators are the names of the members whose pods were not told to end.
func (w *world) coordinators() []string {
	var names []string
	for _, pod := range w.livePods() {
		if pod.Component == v1alpha1.ComponentCoordinator {
			names = append(names, pod.Member)
		}
	}
	return names
}

func (w *world) isReplicated() bool { return w.store.Copies() > 0 }

// lacksCopies: another process less, and something may be gone.
func (w *world) lacksCopies() bool {
	return w.isReplicated() && w.cluster != nil && (w.cluster.lost > 0 || w.cluster.short > 0)
}

func (w *world) observe() facts.Observed {
	o := facts.Observed{
		Now: w.now, Store: w.store.DeepCopy(), DefaultImage: "store:1", Allowed: w.allowed, Trials: maps.Clone(w.trials),
		Claims: maps.Clone(w.claims), Domains: map[string]string{}, Operations: slices.Clone(w.operations),
	}
	w.observePorts(&o)
	for _, name := range slices.Sorted(maps.Keys(w.objects)) {
		o.Objects = append(o.Objects, facts.Object{Kind: "Service", Name: name, State: w.objects[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		o.Pods = append(o.Pods, w.pods[name].Pod)
		o.Domains[w.pods[name].Node] = "rack of " + w.pods[name].Node
	}
	o.Nodes, o.Fences = w.nodes(), map[string]facts.FenceState{}
	for _, fence := range w.store.Status.Fences {
		o.Fences[fence.Node] = facts.FenceState{
			Requested: w.fenced[fence.Node], Done: w.fenced[fence.Node] || w.foreign == fence.Node,
		}
		if fence.Type == v1alpha1.FencingBMC {
			state := facts.FenceState{Requested: w.fenced[fence.Node], Done: w.proved[fence.Node]}
			if state.Requested {
				state.Message = "a message"
			}
			o.Fences[fence.Node] = state
		}
	}
	o.LockState = w.lockState()
	asked := slices.IndexFunc(facts.Coordinators(o.Pods, o.Store.Status.Coordinator.Pod), func(pod *facts.Pod) bool {
		return w.cluster != nil && pod.Name == w.cluster.pod
	})
	if asked < 0 {
		o.ClusterError = "no answer"
		return o
	}
	o.LeaderPod = w.cluster.pod
	o.Cluster = &facts.Cluster{ID: w.cluster.id, State: w.pods[w.cluster.pod].Inputs.State}
	o.Cluster.Settings, o.Cluster.Format = w.cluster.settings, w.format
	if w.cluster.lost > 0 {
		o.Cluster.Recoveries = []facts.Recovery{{Member: "somebody", TabletsLeft: w.cluster.lost}}
	}
	o.Cluster.Recoveries = append(o.Cluster.Recoveries, w.cluster.recovered...)
	for _, name := range slices.Sorted(maps.Keys(w.cluster.members)) {
		member := w.cluster.members[name]
		o.Cluster.Tables += member.tablets
		o.Cluster.Members = append(o.Cluster.Members, facts.MemberReport{
			Name: name, Connected: w.runs(name, member), Instance: member.instance, Tablets: member.tablets,
			Draining: w.draining(member), Copies: w.copiesOf(name, member), Serving: true,
			ServerIDs: []string{member.instance}, Dead: member.isDead,
			SegmentsShort: int64(w.cluster.short), Segments: 10,
		})
	}
	return o
}

// copiesOf is what a process keeps of each object: none is known of one that is away.
func (w *world) copiesOf(name string, member *fakeMember) int32 {
	if !w.runs(name, member) {
		return 0
	}
	return w.cluster.copiesOf(w.podOf(name))
}

// copiesOf are those in force for a process, else those that it was started with.
func (c *fakeCluster) copiesOf(pod *fakePod) int32 {
	switch {
	case pod == nil || pod.Inputs.Replication == nil:
		return 0
	case c.settings != nil && c.settings.Replicas != nil:
		return *c.settings.Replicas
	default:
		return pod.Inputs.Replication.Factor
	}
}

// nodes that pods are or were on.
func (w *world) nodes() map[string]facts.Node {
	nodes := map[string]facts.Node{}
	see := func(name string) {
		node := facts.Node{Ready: !w.dead[name], OutOfService: w.proved[name], SilentFrom: w.now.Add(silentAfter)}
		if since, isFrozen := w.frozen[name]; isFrozen {
			node.Ready, node.SilentFrom = w.now.Before(since.Add(notReadyAfter)), since.Add(silentAfter)
		}
		if w.cordoned[name] {
			node.Drained = v1alpha1.DrainCordoned
		}
		nodes[name] = node
	}
	for _, pod := range w.pods {
		see(pod.Node)
	}
	for _, claim := range w.claims {
		see(claim.TiedTo)
	}
	for _, fence := range w.store.Status.Fences {
		see(fence.Node)
	}
	delete(nodes, "")
	return nodes
}

// killNode: its kubelet says nothing any more, so what it said last stands.
func (w *world) killNode(name string) {
	w.dead[name] = true
	for _, pod := range w.pods {
		if pod.Node != name {
			continue
		}
		pod.deadNode, pod.Ready = true, false
		if w.cluster != nil && w.cluster.pod == pod.Name {
			w.cluster = nil
		}
	}
}

// A node that is not heard is silent after the one, and not ready after the other.
const (
	silentAfter   = 15 * time.Second
	notReadyAfter = 40 * time.Second
)

// freezeNode: nothing on it goes on, and Kubernetes finds that out late.
func (w *world) freezeNode(name string) {
	w.killNode(name)
	w.frozen[name] = w.now
}

// reviveNode: processes on it begin anew.
func (w *world) reviveNode(name string) {
	delete(w.dead, name)
	delete(w.frozen, name)
	for _, pod := range w.pods {
		if pod.Node == name {
			pod.deadNode = false
			w.stop(pod)
		}
	}
	w.killOrphaned(name)
}

// lostDomains are as many as nodes that do not answer and on which the present volume of a master is, or a master.
func (w *world) lostDomains() int {
	present := map[string]facts.Claim{}
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		if member, _, ok := resources.ParseMasterClaim(name); ok && w.isNeeded(member) {
			present[member] = w.claims[name]
		}
	}
	lost := map[string]bool{}
	for _, claim := range present {
		lost[claim.TiedTo] = w.dead[claim.TiedTo]
	}
	for _, pod := range w.livePods() {
		if pod.Component == v1alpha1.ComponentMaster && w.isNeeded(pod.Member) {
			lost[pod.Node] = w.dead[pod.Node]
		}
	}
	count := 0
	for _, isLost := range lost {
		if isLost {
			count++
		}
	}
	return count
}

// isNeeded: a master that is to stay, or one that is to leave and has what others need.
func (w *world) isNeeded(master string) bool {
	if ordinal, _ := v1alpha1.MasterOrdinal("box", master); ordinal < int(w.store.Spec.Masters.Replicas) || w.cluster == nil {
		return true
	}
	member := w.cluster.members[master]
	return member != nil && !member.isDrained(w)
}

func (w *world) draining(member *fakeMember) *facts.Draining {
	if !member.isDraining {
		return nil
	}
	return &facts.Draining{Drained: member.isDrained(w), Tablets: member.tablets, Copies: member.copies}
}

// runs says whether the very process that enlisted is still there.
func (w *world) runs(name string, member *fakeMember) bool {
	for _, pod := range w.pods {
		if pod.Member == name && pod.Process == facts.ProcessRunning && !pod.deadNode && instance(pod) == member.instance {
			return true
		}
	}
	return false
}

func instance(pod *fakePod) string { return fmt.Sprintf("%s-%d", pod.UID, pod.restarts) }

// end tells a pod to end.
func (w *world) end(pod *fakePod) {
	if !pod.Terminating() {
		pod.EndsAt = w.now.Add(10 * time.Second)
		pod.Ended = pod.Ended || pod.Node == ""
	}
}

// tick lets kubelets and processes go on for a second.
func (w *world) tick() {
	w.now = w.now.Add(time.Second)
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pod := w.pods[name]
		switch {
		case pod.deadNode:
		case pod.Terminating():
			w.stop(pod)
			pod.Process, pod.Ended = facts.ProcessEnded, true
			delete(w.senders, name)
			if !pod.IsHeld {
				delete(w.pods, name)
			}
		case pod.Process == facts.ProcessEnded:
			pod.Ended = true
			delete(w.senders, name)
		case pod.Process == facts.ProcessAbsent && !w.schedule(pod):
		case pod.Process == facts.ProcessAbsent:
			pod.Process, pod.IP = facts.ProcessRunning, "10.0.0.1"
			pod.ResourceVersion += "1"
			pod.restarts++
			w.send(pod)
		}
	}
	w.releaseClaims()
	w.growVolumes()
	for _, coordinator := range w.livePods() {
		if coordinator.Component == v1alpha1.ComponentCoordinator && coordinator.Process == facts.ProcessRunning &&
			!coordinator.deadNode && w.cluster == nil {
			w.startCluster(coordinator)
		}
	}
	if w.cluster == nil {
		return
	}
	w.recover()
	w.evacuate()
	for _, pod := range w.pods {
		if pod.Component != v1alpha1.ComponentMaster || pod.deadNode || pod.Process != facts.ProcessRunning || pod.Terminating() {
			continue
		}
		// A new process takes over, empty, the tablets of the one before it.
		member := w.cluster.members[pod.Member]
		if member == nil {
			member = &fakeMember{}
			w.cluster.members[pod.Member] = member
		}
		member.instance = instance(pod)
		pod.Ready = true
	}
}

// schedule gives a pod a node, unless its volume is on one that does not answer.
func (w *world) schedule(pod *fakePod) bool {
	if pod.Node != "" {
		return true
	}
	if pod.Gated {
		return false
	}
	claim, there := w.claims[pod.Claim]
	if claim.TiedTo != "" && (w.dead[claim.TiedTo] || w.isToBeLeft(claim.TiedTo)) {
		return false
	}
	if claim.TiedTo == "" && w.isFull {
		pod.Trouble = "Unschedulable: 0/3 nodes are available"
		return false
	}
	pod.Node, pod.Trouble = claim.TiedTo, ""
	if pod.Node == "" {
		pod.Node = "node-of-" + pod.Name
	}
	if there && w.isLocal && pod.Component == v1alpha1.ComponentMaster {
		claim.TiedTo = pod.Node
		w.claims[pod.Claim] = claim
	}
	return true
}

// startCluster: a coordinator finds in its volume what the one before knew.
func (w *world) startCluster(coordinator *fakePod) {
	if w.kept != nil && coordinator.Inputs.State != "" {
		w.cluster = w.kept
		w.cluster.pod = coordinator.Name
		return
	}
	w.clusters++
	w.cluster = &fakeCluster{
		id: fmt.Sprintf("cluster%d", w.clusters), pod: coordinator.Name, members: map[string]*fakeMember{},
	}
	if w.takesSettings {
		w.cluster.settings = &facts.Settings{}
	}
	w.kept = w.cluster
}

// recover gives what dead processes held to others, and has copies made anew.
func (w *world) recover() {
	if !w.isReplicated() {
		return
	}
	w.cluster.short = max(w.cluster.short-1, 0)
	var alive *fakeMember
	for _, name := range slices.Sorted(maps.Keys(w.cluster.members)) {
		member := w.cluster.members[name]
		if w.runs(name, member) {
			alive, member.isDead = member, false
			continue
		}
		w.cluster.lost += member.tablets
		if member.tablets > 0 {
			w.cluster.recovered = append(w.cluster.recovered, facts.Recovery{
				Member: name, ServerID: member.instance, Bytes: 100 * mib, PromisedMs: 900, MeasuredMs: 1000,
			})
		}
		member.tablets = 0
		if !member.isDead {
			member.isDead, w.cluster.short = true, 3
		}
	}
	if alive != nil {
		alive.tablets += w.cluster.lost
		w.cluster.lost = 0
	}
}

// releaseClaims lets claims go that were told to and that no pod uses. A pod on a dead node would keep one until somebody removes the
// pod: who deletes a claim does that, too.
func (w *world) releaseClaims() {
	for name, claim := range w.claims {
		used := false
		for _, pod := range w.pods {
			used = used || !pod.deadNode && pod.Claim == name
		}
		if claim.Terminating && !used {
			delete(w.claims, name)
			if strings.HasSuffix(name, "-state") {
				w.kept = nil
			}
		}
	}
}

// stop ends the process of a pod.
func (w *world) stop(pod *fakePod) {
	if w.cluster != nil && w.cluster.pod == pod.Name {
		w.cluster = nil
	}
	if pod.Process == facts.ProcessRunning {
		pod.Process, pod.CrashedAt = facts.ProcessAbsent, w.now
	}
	pod.Ready = false
	pod.ResourceVersion += "1"
}

// podOf is the live pod of a member.
func (w *world) podOf(member string) *fakePod {
	for _, pod := range w.pods {
		if pod.Member == member && !pod.Terminating() {
			return pod
		}
	}
	return nil
}

func (w *world) livePods() []*fakePod {
	var live []*fakePod
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if pod := w.pods[name]; !pod.Terminating() {
			live = append(live, pod)
		}
	}
	return live
}

func (w *world) masters() []string {
	var names []string
	for _, pod := range w.livePods() {
		if strings.Contains(pod.Member, "-master-") {
			names = append(names, pod.Member)
		}
	}
	slices.Sort(names)
	return names
}

// settle reconciles until nothing is left to do but what was refused, or until it has taken too long.
func (w *world) settle(reconciles int) (planner.Plan, string, bool) {
	var plan planner.Plan
	var refused string
	quiet := 0
	for range reconciles {
		plan, refused = w.reconcile(false)
		steps := len(plan.Steps)
		if refused != "" {
			steps--
		}
		if steps == 0 && plan.PodRefused == nil { // a refused pod is tried again
			quiet++
		} else {
			quiet = 0
		}
		longest := 15 // than anything here takes
		if w.store.Spec.HasPorts() {
			longest = 30 // a member waits for its address
		}
		if quiet == longest {
			return plan, refused, true
		}
		w.tick()
	}
	return plan, refused, false
}
