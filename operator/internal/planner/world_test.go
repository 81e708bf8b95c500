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
	"rcbox.dev/rcbox/operator/internal/resources"
	"rcbox.dev/rcbox/operator/internal/status"
)

// world is a stand-in for everything outside the planner: API server, kubelets, scheduler, coordinator, masters. What must never happen,
// panics here.
type world struct {
	now     time.Time
	store   *v1alpha1.Store
	objects map[string]planner.ObjectState
	pods    map[string]*fakePod
	// names of pods that the operator has put on record (in a status that it wrote)
	names map[string]bool
	// the coordinator's state; nil while its process does not run
	cluster  *fakeCluster
	clusters int
	uids     int
	// how often the operator ended a process that held data
	broken []string
}

type fakePod struct {
	planner.Pod
	deadNode bool
	// counts the processes that ran in this pod
	restarts int
}

type fakeCluster struct {
	id      string
	pod     string
	members map[string]*fakeMember
}

type fakeMember struct {
	instance string
	tablets  int64
}

func newWorld(replicas int32) *world {
	return &world{
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		store: &v1alpha1.Store{
			ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "default", UID: types.UID("store-uid"), Generation: 1},
			Spec: v1alpha1.StoreSpec{
				Masters: v1alpha1.MastersSpec{Replicas: replicas, Memory: resource.MustParse("1Gi"), Cores: 1},
			},
		},
		objects: map[string]planner.ObjectState{"box": planner.ObjectMissing},
		pods:    map[string]*fakePod{},
		names:   map[string]bool{},
	}
}

func (w *world) observe() planner.Observed {
	o := planner.Observed{Now: w.now, Store: w.store.DeepCopy(), DefaultImage: "store:1"}
	for _, name := range slices.Sorted(maps.Keys(w.objects)) {
		o.Objects = append(o.Objects, planner.Object{Kind: "Service", Name: name, State: w.objects[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		o.Pods = append(o.Pods, w.pods[name].Pod)
	}
	asked := planner.Coordinator(o.Pods)
	if w.cluster == nil || asked == nil || asked.Name != w.cluster.pod || asked.Process != planner.ProcessRunning {
		o.ClusterError = "no answer"
		return o
	}
	o.Cluster = &planner.Cluster{ID: w.cluster.id}
	for _, name := range slices.Sorted(maps.Keys(w.cluster.members)) {
		member := w.cluster.members[name]
		o.Cluster.Tables += member.tablets
		o.Cluster.Members = append(o.Cluster.Members, planner.Member{
			Name: name, Connected: w.runs(name, member), Instance: member.instance, Tablets: member.tablets,
		})
	}
	return o
}

// runs says whether the very process that enlisted is still there.
func (w *world) runs(name string, member *fakeMember) bool {
	for _, pod := range w.pods {
		if pod.Member == name && pod.Process == planner.ProcessRunning && !pod.deadNode && instance(pod) == member.instance {
			return true
		}
	}
	return false
}

func instance(pod *fakePod) string { return fmt.Sprintf("%s-%d", pod.UID, pod.restarts) }

// visit is what the controller does; a lost one ends before the status is written. It gives the plan and the refusal, if there was one.
func (w *world) visit(lost bool) (planner.Plan, string) {
	o := w.observe()
	plan := planner.Make(o)
	var outcome status.Outcome
	for _, step := range plan.Steps {
		if refused := w.apply(step); refused != "" {
			outcome.Refused = refused
			continue
		}
		outcome.Done = append(outcome.Done, step)
	}
	if !lost {
		w.store.Status = status.Compute(o, plan, outcome)
		for name := range w.pods {
			w.names[name] = true
		}
	}
	return plan, outcome.Refused
}

func (w *world) apply(step planner.Step) (refused string) {
	switch step := step.(type) {
	case planner.AddFinalizer:
		w.store.Finalizers = append(w.store.Finalizers, v1alpha1.Finalizer)
	case planner.RemoveFinalizer:
		w.store.Finalizers = nil
	case planner.ApplyObject:
		w.objects[step.Name] = planner.ObjectCurrent
	case planner.CreatePod:
		w.createPod(step)
	case planner.DeletePod:
		w.deletePod(step.Pod)
	case planner.RetireMember:
		if member := w.cluster.members[step.Member]; member != nil && member.tablets > 0 {
			return fmt.Sprintf("%s owns %d tablets", step.Member, member.tablets)
		}
		delete(w.cluster.members, step.Member)
		if step.Pod != nil {
			w.deletePod(planner.PodRef{Name: step.Pod.Name, UID: step.Pod.UID})
		}
	default:
		panic(fmt.Sprintf("unknown step %T", step))
	}
	return ""
}

func (w *world) createPod(step planner.CreatePod) {
	for _, pod := range w.pods {
		if pod.Member == step.Member && !pod.Terminating() {
			panic(fmt.Sprintf("%s gets a second pod beside %s", step.Member, pod.Name))
		}
	}
	name := resources.PodName(w.store.UID, step.Member, step.Number)
	if w.names[name] || w.pods[name] != nil {
		panic("the pod name " + name + " is used again")
	}
	w.uids++
	w.pods[name] = &fakePod{Pod: planner.Pod{
		Name: name, UID: fmt.Sprintf("uid%d.", w.uids), ResourceVersion: "1", Component: step.Component, Member: step.Member,
		Number: step.Number, CreatedAt: w.now, Inputs: step.Inputs,
	}}
}

// deletePod by the operator: the gate that must hold.
func (w *world) deletePod(ref planner.PodRef) {
	pod := w.pods[ref.Name]
	if pod == nil || pod.UID != ref.UID || (ref.ResourceVersion != "" && pod.ResourceVersion != ref.ResourceVersion) {
		return
	}
	if w.store.DeletionTimestamp == nil && pod.Process == planner.ProcessRunning && w.holdsData(pod) {
		w.broken = append(w.broken, pod.Name)
	}
	w.end(pod)
}

func (w *world) holdsData(pod *fakePod) bool {
	if w.cluster == nil {
		return false
	}
	if pod.Component == v1alpha1.ComponentCoordinator {
		return pod.Name == w.cluster.pod
	}
	member := w.cluster.members[pod.Member]
	return member != nil && member.tablets > 0 && member.instance == instance(pod)
}

// end tells a pod to end.
func (w *world) end(pod *fakePod) {
	if !pod.Terminating() {
		pod.EndsAt = w.now.Add(10 * time.Second)
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
			delete(w.pods, name)
		case pod.Process == planner.ProcessAbsent:
			pod.Process = planner.ProcessRunning
			pod.ResourceVersion += "1"
			pod.restarts++
		}
	}
	coordinator := w.podOf(v1alpha1.CoordinatorMember("box"))
	if coordinator != nil && coordinator.Process == planner.ProcessRunning && !coordinator.deadNode && w.cluster == nil {
		w.clusters++
		w.cluster = &fakeCluster{
			id: fmt.Sprintf("cluster%d", w.clusters), pod: coordinator.Name, members: map[string]*fakeMember{},
		}
	}
	if w.cluster == nil {
		return
	}
	for _, pod := range w.pods {
		if pod.Component != v1alpha1.ComponentMaster || pod.deadNode || pod.Process != planner.ProcessRunning || pod.Terminating() {
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

// stop ends the process of a pod.
func (w *world) stop(pod *fakePod) {
	if w.cluster != nil && w.cluster.pod == pod.Name {
		w.cluster = nil
	}
	if pod.Process == planner.ProcessRunning {
		pod.Process = planner.ProcessAbsent
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

// settle visits until nothing is left to do but what was refused, or until it has taken too long.
func (w *world) settle(visits int) (planner.Plan, string, bool) {
	var plan planner.Plan
	var refused string
	quiet := 0
	for range visits {
		plan, refused = w.visit(false)
		steps := len(plan.Steps)
		if refused != "" {
			steps--
		}
		if steps == 0 {
			quiet++
		} else {
			quiet = 0
		}
		if quiet == 15 { // longer than anything here takes
			return plan, refused, true
		}
		w.tick()
	}
	return plan, refused, false
}

// strand lets a process run that the coordinator does not know.
func (w *world) strand(member string, since time.Time) {
	delete(w.cluster.members, member)
	pod := w.podOf(member)
	pod.Ready, pod.NotReadySince = false, since
}
