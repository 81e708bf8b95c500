package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// seedsVariable names the seeds to run, such as 0..5000, or 17 for one with its trace.
const seedsVariable = "RCBOX_OPERATOR_SEEDS"

const quickSeeds = 40

// simulation is the whole operator, as it is, in a world of which the seed decides what happens: to pods, nodes, coordinators and spec, to
// each call, and to the operator itself. Time is the simulation's.
type simulation struct {
	random    *rand.Rand
	now       time.Time
	api       *simulatedAPI
	operator  *Reconciler
	cache     *operatorClient
	processes map[types.UID]*process
	cluster   cluster
	keptOut   map[string]bool
	dead      map[string]bool
	muteUntil time.Time
	// nodesDie, more often than single processes.
	nodesDie bool
	faults   faults

	// recorded is the highest number of a pod of each member that a status has had.
	recorded map[string]int64
	// moved is when each member was given a volume elsewhere.
	moved  map[string]time.Time
	images int
	// violations of what the operator promises, and what led to them.
	violations []string
	lines      []string
}

// faults are how likely each is; none in a calm world.
type faults struct{ stale, read, write, kill, coordinator float64 }

// errKilled is the operator's end between any two of its calls.
var errKilled = errors.New("the operator was killed")

// TestSimulation holds the real controller to what docs/operator.md says.
func TestSimulation(t *testing.T) {
	from, to := seeds(t)
	for seed := from; seed < to; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			s := simulate(t, seed)
			if len(s.violations) > 0 {
				t.Errorf("%s\n\nwhat led to it:\n%s\n\nonce more: %s=%d go test ./operator/internal/controller -run TestSimulation",
					strings.Join(s.violations, "\n"), strings.Join(s.lines, "\n"), seedsVariable, seed)
			} else if to == from+1 {
				t.Log(strings.Join(s.lines, "\n"))
			}
		})
	}
}

func seeds(t *testing.T) (from, to uint64) {
	t.Helper()
	text := os.Getenv(seedsVariable)
	if text == "" {
		return 0, quickSeeds
	}
	first, last, isRange := strings.Cut(text, "..")
	from, err := strconv.ParseUint(first, 10, 32)
	to = from + 1
	if isRange && err == nil {
		to, err = strconv.ParseUint(last, 10, 32)
	}
	if err != nil || to <= from {
		t.Fatalf("%s is %q: neither a seed such as 17 nor a range such as 0..5000", seedsVariable, text)
	}
	return from, to
}

func simulate(t *testing.T, seed uint64) *simulation {
	t.Helper()
	s := newSimulation(t, seed)
	s.faults = faults{stale: 0.3, read: 0.02, write: 0.02, kill: 0.02, coordinator: 0.03}
	for range 150 {
		s.disturb()
		if len(s.violations) > 0 {
			return s
		}
	}
	s.calm()
	return s
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	s := &simulation{
		random: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		processes: map[types.UID]*process{}, cluster: cluster{members: map[string]*memberState{}}, keptOut: map[string]bool{},
		nodesDie: seed%4 == 3, dead: map[string]bool{}, recorded: map[string]int64{}, moved: map[string]time.Time{},
	}
	s.api = &simulatedAPI{s: s, Client: newHarness(t).client, objects: map[objectKey]client.Object{}}
	store := &v1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "sim", Namespace: "default", Generation: 1},
		Spec: v1alpha1.StoreSpec{
			ImagePullPolicy: corev1.PullIfNotPresent, ReclaimPolicy: v1alpha1.ReclaimRetain,
			Masters:     v1alpha1.MastersSpec{Replicas: 2 + s.random.Int32N(3), Memory: resource.MustParse("1Gi"), Cores: 1},
			Placement:   v1alpha1.PlacementSpec{FailureDomain: corev1.LabelHostname},
			Coordinator: v1alpha1.CoordinatorSpec{Replicas: 1, State: v1alpha1.StateSpec{Type: v1alpha1.StateKubernetes}},
			Recovery:    v1alpha1.RecoverySpec{RescheduleAfter: "10s", MaxConcurrentReplacements: 1},
		},
	}
	store.Spec.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageVolume, Size: resource.MustParse("4Gi")}
	store.Spec.Coordinator.State.Size = resource.MustParse("1Gi")
	if seed%3 > 0 {
		store.Spec.Replication = v1alpha1.ReplicationSpec{Factor: int32(seed % 3), Durability: v1alpha1.Buffered}
		store.Spec.Masters.Replicas += store.Spec.Replication.Factor - 1
	}
	if seed%2 > 0 {
		store.Spec.Coordinator.Replicas = 2
	}
	s.api.put(store)
	for i := range 8 {
		s.api.put(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			}},
		})
	}
	s.startOperator()
	return s
}

// startOperator: all that a former one knew is gone, and its successor sees what there is.
func (s *simulation) startOperator() {
	s.cache = s.api.newOperatorClient()
	live := liveReader{view{func() map[objectKey]client.Object { return s.api.objects }, s.api.Client}, s}
	s.operator = &Reconciler{
		Client: s.cache, Live: live, Recorder: tracer{s}, Dial: s.dial, Now: func() time.Time { return s.now },
		DefaultImage: "store:1", Namespace: "rcbox-system",
	}
}

// tracer has events in the trace: they say why.
type tracer struct{ s *simulation }

func (r tracer) Eventf(_, _ runtime.Object, _, reason, _, note string, arguments ...any) {
	r.s.trace("  %s: "+note, append([]any{reason}, arguments...)...)
}

func (s *simulation) chance(of float64) bool { return of > 0 && s.random.Float64() < of }

func (s *simulation) trace(format string, arguments ...any) {
	s.lines = append(s.lines, s.now.Format("15:04:05 ")+fmt.Sprintf(format, arguments...))
}

func (s *simulation) violate(format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	s.trace("VIOLATION: %s\n  %s", text, s.describe())
	s.violations = append(s.violations, text)
}

// write is one call of the operator's that changes something: it fails before or after it has, or the operator ends there.
func (s *simulation) write(what string, do func() error) error {
	if s.chance(s.faults.kill / 2) {
		s.trace("killed before: %s", what)
		panic(errKilled)
	}
	if s.chance(s.faults.write) {
		if s.chance(0.5) {
			s.trace("fails: %s", what)
			return apierrors.NewTimeoutError(what, 1)
		}
		s.trace("is refused for a conflict: %s", what)
		return conflict(what)
	}
	err := do()
	s.trace("%s: %v", what, err)
	switch {
	case s.chance(s.faults.kill / 2):
		s.trace("killed after: %s", what)
		panic(errKilled)
	case s.chance(s.faults.write):
		s.trace("its answer is lost: %s", what)
		return apierrors.NewTimeoutError(what, 1)
	}
	return err
}

// visit is one look at the Store with a cache that may be behind, each kind for itself.
func (s *simulation) visit() (err error) {
	for _, kind := range []reflect.Type{
		kindOf[*v1alpha1.Store](), kindOf[*corev1.Pod](), kindOf[*corev1.PersistentVolumeClaim](),
	} {
		if !s.chance(s.faults.stale) {
			s.cache.refresh(kind)
		}
	}
	defer func() {
		if end := recover(); end != nil {
			if end != errKilled { //nolint:errorlint // the very value
				panic(end)
			}
			s.startOperator()
			err = errKilled
		}
	}()
	quietly := ctrl.LoggerInto(context.Background(), logr.Discard())
	_, err = s.operator.Reconcile(quietly, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "sim"}})
	return err
}

func kindOf[Object client.Object]() reflect.Type { return reflect.TypeFor[Object]() }

// disturb lets something happen.
func (s *simulation) disturb() {
	pods := s.pods()
	anyPod := func() *corev1.Pod { return pods[s.random.IntN(len(pods))] }
	switch n := s.random.IntN(100); {
	case n < 40:
		s.trace("visit: %v", s.visit())
	case n < 74:
		s.tick()
	case n < 77:
		s.change(func(spec *v1alpha1.StoreSpec) {
			spec.Masters.Replicas = max(2, spec.Replication.Factor+1) + s.random.Int32N(3)
		})
	case n < 79:
		s.images++
		s.change(func(spec *v1alpha1.StoreSpec) { spec.Image = fmt.Sprintf("store:new%d", s.images) })
	case n < 80:
		s.change(func(spec *v1alpha1.StoreSpec) { spec.Paused = !spec.Paused })
	case n < 84:
		for _, member := range s.cluster.members {
			if !member.draining && member.instance != "" {
				member.tablets++
			}
		}
	case n < 85:
		s.dropTables()
	case n < 87:
		s.trace("the coordinator is mute")
		s.muteUntil = s.now.Add(time.Duration(s.random.IntN(20)) * second)
	case n < 88:
		s.trace("another coordinator is to lead")
		s.cluster.leader = ""
	case n < 89 && len(s.dead) > 0:
		s.reviveNode(slices.Sorted(maps.Keys(s.dead))[0])
	case len(pods) == 0:
	case s.nodesDie && n < 96:
		s.killNodeOf(anyPod())
	case n < 92:
		pod := anyPod()
		s.trace("somebody deletes %s", pod.Name)
		s.api.tellToEnd(pod)
	case n < 96:
		pod := anyPod()
		s.trace("the process in %s ends", pod.Name)
		s.stop(pod, s.chance(0.5))
	case n < 98:
		pod := anyPod()
		if !s.dead[pod.Spec.NodeName] && pod.Spec.NodeName != "" {
			s.trace("%s is evicted", pod.Name)
			s.stop(pod, true)
			edit(s.api, pod.Name, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
		}
	case n < 99:
		s.killNodeOf(anyPod())
	default:
		s.evictFromDead()
	}
}

// killNodeOf leaves as many nodes as the largest Store needs.
func (s *simulation) killNodeOf(pod *corev1.Pod) {
	const most = 3
	if node := pod.Spec.NodeName; node != "" && len(s.dead) < most && !s.dead[node] {
		s.trace("%s dies", node)
		s.killNode(node)
	}
}

// evictFromDead is what Kubernetes does with pods on nodes that it has given up.
func (s *simulation) evictFromDead() {
	for _, pod := range s.pods() {
		if s.dead[pod.Spec.NodeName] {
			s.api.tellToEnd(pod)
		}
	}
}

func (s *simulation) change(change func(*v1alpha1.StoreSpec)) {
	edit(s.api, "sim", func(store *v1alpha1.Store) {
		change(&store.Spec)
		store.Generation++
		s.trace("the spec: masters %d, image %q, paused %v", store.Spec.Masters.Replicas, store.Spec.Image, store.Spec.Paused)
	})
}

func (s *simulation) dropTables() {
	s.cluster.lost = 0
	for _, member := range s.cluster.members {
		member.tablets = 0
	}
}

// calm: nothing happens any more, and the Store comes to what its spec says; then it is deleted, and goes.
func (s *simulation) calm() {
	s.trace("from here on, nothing happens any more")
	s.faults, s.muteUntil = faults{}, s.now
	for node := range s.dead {
		s.reviveNode(node)
	}
	s.change(func(spec *v1alpha1.StoreSpec) { spec.Paused = false })
	s.dropTables() // so that nothing that was made from an older spec has to stay
	if !s.isReplicated() && s.store().Spec.Coordinator.Replicas == 1 {
		s.endOutdatedCoordinator()
	}
	// Longer than a stranded process is waited for.
	quietSince, lines := s.now, len(s.lines)
	isQuiet := func() bool {
		if len(s.lines) != lines || !s.isAsSpecified() {
			quietSince, lines = s.now, len(s.lines)
		}
		return s.now.Sub(quietSince) >= 10*second
	}
	if !s.until(15*time.Minute, isQuiet) {
		s.violate("the Store does not come to what its spec says: %+v", s.store().Status.Conditions)
		return
	}
	if len(s.violations) > 0 {
		return
	}
	claims := len(all[*corev1.PersistentVolumeClaim](s.api.objects))
	s.trace("the Store is deleted")
	edit(s.api, "sim", func(store *v1alpha1.Store) { store.DeletionTimestamp = &metav1.Time{Time: s.now} })
	if !s.until(2*time.Minute, func() bool { return s.store() == nil }) {
		s.violate("the Store does not go")
	}
	if kept := len(all[*corev1.PersistentVolumeClaim](s.api.objects)); kept < claims {
		s.violate("of %d claims %d are left, and reclaimPolicy is Retain", claims, kept)
	}
	if live := slices.DeleteFunc(s.pods(), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }); len(live) > 0 {
		s.violate("the Store has gone before its pods")
	}
}

// endOutdatedCoordinator: one that is alone is the user's to restart, and the operator tells him to.
func (s *simulation) endOutdatedCoordinator() {
	isSaid := func() bool {
		progressing := meta.FindStatusCondition(s.store().Status.Conditions, v1alpha1.ConditionProgressing)
		return s.isAsSpecified() || progressing != nil && progressing.Reason == v1alpha1.ReasonRestartPending
	}
	if !s.until(15*time.Minute, isSaid) {
		return // what is missing is said of the Store
	}
	for _, pod := range s.pods() {
		if !isMaster(pod) {
			s.trace("somebody deletes %s", pod.Name)
			s.api.tellToEnd(pod)
		}
	}
}

func (s *simulation) until(within time.Duration, holds func() bool) bool {
	for end := s.now.Add(within); s.now.Before(end); {
		if err := s.visit(); err != nil {
			s.trace("visit: %v", err)
		}
		s.tick()
		if len(s.violations) > 0 || holds() {
			return true
		}
	}
	return false
}

func (s *simulation) isAsSpecified() bool {
	store := s.store()
	is := func(condition string, status metav1.ConditionStatus) bool {
		return meta.IsStatusConditionPresentAndEqual(store.Status.Conditions, condition, status)
	}
	return store.Status.ObservedGeneration == store.Generation && is(v1alpha1.ConditionAvailable, metav1.ConditionTrue) &&
		is(v1alpha1.ConditionProgressing, metav1.ConditionFalse) &&
		(!s.isReplicated() || is(v1alpha1.ConditionDataSafe, metav1.ConditionTrue)) &&
		store.Status.Masters.Ready == store.Spec.Masters.Replicas && store.Status.Masters.Outdated == 0
}

// noteRecorded is called when a status has been written.
func (s *simulation) noteRecorded() {
	status := &s.store().Status
	note := func(member string, number int64) { s.recorded[member] = max(s.recorded[member], number) }
	for i := range status.Masters.Members {
		note(status.Masters.Members[i].Name, status.Masters.Members[i].PodNumber)
	}
	for ordinal := range 3 {
		note(v1alpha1.CoordinatorMemberAt("sim", ordinal), 0)
	}
}

// checkCreate holds a pod or claim that the operator makes against what it promises.
func (s *simulation) checkCreate(object client.Object) {
	if claim, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
		s.checkMove(claim)
		return
	}
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return
	}
	number, err := strconv.ParseInt(pod.Annotations[v1alpha1.AnnotationPodNumber], 10, 64)
	if err != nil || number <= s.recorded[memberName(pod)] {
		s.violate("%s is number %d of its member, and %d is on record", pod.Name, number, s.recorded[memberName(pod)])
	}
	for _, other := range s.pods() {
		if memberName(other) == memberName(pod) && other.DeletionTimestamp == nil && other.Status.Phase != corev1.PodFailed {
			s.violate("%s gets a second pod beside %s", memberName(pod), other.Name)
		}
	}
	if name := claimOf(pod); name != "" && s.api.objects[objectKey{kindOf[*corev1.PersistentVolumeClaim](), name}] == nil {
		s.violate("%s is made without its claim %s", pod.Name, name)
	}
}

// checkMove: a second claim is for a member whose node is lost, of which nothing is lost by that, and that is on record.
func (s *simulation) checkMove(claim *corev1.PersistentVolumeClaim) {
	name, number, isMasters := resources.ParseMasterClaim(claim.Name)
	if !isMasters || number < 2 {
		return
	}
	before := s.presentClaims()[name]
	if before == nil {
		return
	}
	if node := before.Annotations[annotationSelectedNode]; !s.dead[node] {
		s.violate("%s gets the claim %s, and its node %s is not lost", name, claim.Name, node)
	}
	if member := s.cluster.members[name]; s.enlisted(name) != nil || member != nil && member.tablets > 0 {
		s.violate("%s gets the claim %s, and runs, or holds what nobody else does", name, claim.Name)
	}
	if lost := s.lostNodes(); lost > int(s.store().Spec.Replication.Factor) {
		s.violate("%s gets the claim %s, and %d nodes are lost", name, claim.Name, lost)
	}
	isRecorded := func(m v1alpha1.MemberStatus) bool { return m.Name == name && m.Lost != nil && m.Lost.ProvenAt != nil }
	if !slices.ContainsFunc(s.store().Status.Masters.Members, isRecorded) {
		s.violate("%s gets the claim %s, and why is not on record", name, claim.Name)
	}
	for other, at := range s.moved {
		node := ""
		if present := s.presentClaims()[other]; present != nil {
			node = present.Annotations[annotationSelectedNode]
		}
		wanted, _ := v1alpha1.MasterOrdinal("sim", other)
		if other != name && s.enlisted(other) == nil && !s.dead[node] && s.now.Sub(at) < 5*time.Minute &&
			wanted < int(s.store().Spec.Masters.Replicas) {
			s.violate("%s moves while %s is on its way, and one may be", name, other)
		}
	}
	s.moved[name] = s.now
}

// checkDelete holds the end of a pod or claim by the operator against what it promises.
func (s *simulation) checkDelete(object client.Object) {
	if s.store().DeletionTimestamp != nil {
		return
	}
	if claim, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
		member, _, isMasters := resources.ParseMasterClaim(claim.Name)
		if up := s.enlisted(member); !isMasters || s.lacksCopies() || up == nil || claimOf(up) == claim.Name {
			s.violate("the claim %s is deleted, and may be needed", claim.Name)
		}
		return
	}
	pod, isPod := object.(*corev1.Pod)
	if !isPod || !s.runs(pod) || pod.DeletionTimestamp != nil {
		return
	}
	if !isMaster(pod) {
		s.checkCoordinatorEnds(pod)
		return
	}
	if s.enlisted(memberName(pod)) != pod {
		return // it holds nothing
	}
	if !s.isReplicated() {
		if held := s.cluster.members[memberName(pod)].tablets; held > 0 {
			s.violate("%s is ended, and it holds %d tablets, of which there is one copy", pod.Name, held)
		}
		return
	}
	if s.lacksCopies() {
		s.violate("%s is ended while something is short of copies", pod.Name)
	}
	for other := range s.cluster.members {
		if other != memberName(pod) && s.enlisted(other) == nil {
			s.violate("%s is ended while %s is away", pod.Name, other)
		}
	}
}

// checkCoordinatorEnds is about one that is known to run, and about what the operator saw of the others: a standby answers nobody, so that
// one whose node has just died is taken for one that could lead.
func (s *simulation) checkCoordinatorEnds(pod *corev1.Pod) {
	if processOf(pod) != planner.ProcessRunning {
		return
	}
	for _, other := range all[*corev1.Pod](s.cache.cache) {
		if other.UID != pod.UID && !isMaster(other) && other.DeletionTimestamp == nil && processOf(other) == planner.ProcessRunning {
			return
		}
	}
	if s.store().Spec.Coordinator.Replicas > 1 {
		s.violate("%s is ended, and no coordinator is left that could lead", pod.Name)
	}
}

// checkRemove: with copies, a member that is there goes for good only while nothing is short of any, or once nobody needs what it has.
func (s *simulation) checkRemove(name string) {
	member := s.cluster.members[name]
	if member != nil && !s.isDrained(member) && s.enlisted(name) != nil && s.lacksCopies() {
		s.violate("%s is let go while something is short of copies", name)
	}
}
