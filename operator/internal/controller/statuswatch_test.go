package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// watched is a StatusWatch of one Store, and a queue that nobody but the StatusWatch puts the Store into.
type watched struct {
	t     *testing.T
	watch *StatusWatch
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	pods  []*facts.Pod
}

func watchStore(t *testing.T, dial admin.Dialer, listen admin.Watcher) *watched {
	t.Helper()
	w := &watched{
		t: t, watch: NewStatusWatch(dial, listen),
		pods:  []*facts.Pod{{Name: "box-coordinator-1", UID: "uid-1", IP: "10.0.0.1", Ready: true}},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
	}
	t.Cleanup(w.queue.ShutDown)
	if err := w.watch.Source().Start(t.Context(), w.queue); err != nil {
		t.Fatal(err)
	}
	return w
}

// seen waits until the Store is to be reconciled and what is known then is so.
func (w *watched) seen(what string, isSo func(Sight) bool) {
	w.t.Helper()
	timeout := time.AfterFunc(seenWithin, w.queue.ShutDown)
	defer timeout.Stop()
	for {
		request, isOver := w.queue.Get()
		if isOver {
			last, known := w.watch.Newest(storeKey, w.pods)
			w.t.Fatalf("%s: not seen; known: %v, %+v", what, known, last)
		}
		w.queue.Done(request)
		if sight, known := w.watch.Newest(storeKey, w.pods); known && isSo(sight) {
			return
		}
	}
}

func hasMembers(count int) func(Sight) bool {
	return func(s Sight) bool { return s.Cluster != nil && len(s.Cluster.Members) == count }
}

func startStandIn(t *testing.T) *standin.Coordinator {
	t.Helper()
	coordinator := standin.Start()
	t.Cleanup(coordinator.Stop)
	return coordinator
}

func enlist(coordinator *standin.Coordinator, member string) {
	coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { standin.Enlist(r, member, "uid", 0) })
}

// TestCoordinatorTellsOfChanges: nothing but the stream has the Store reconciled here.
func TestCoordinatorTellsOfChanges(t *testing.T) {
	coordinator := startStandIn(t)
	w := watchStore(t, coordinator.Dial, coordinator.Watch)
	if _, known := w.watch.Newest(storeKey, w.pods); known {
		t.Error("a status is known that nobody has asked for")
	}
	w.seen("the first status", hasMembers(0))
	enlist(coordinator, "box-master-0")
	w.seen("a member", hasMembers(1))
	coordinator.SetDown(true)
	w.seen("the outage", func(s Sight) bool { return s.Cluster == nil && s.Error != "" })
	enlist(coordinator, "box-master-1")
	coordinator.SetDown(false)
	w.seen("the end of the outage", hasMembers(2))
	if streams := coordinator.Watched(); streams != 1 {
		t.Errorf("%d streams are open", streams)
	}
	w.watch.Forget(storeKey)
	eventually(t, "the stream is closed", func() bool { return coordinator.Watched() == 0 })
}

// TestCoordinatorOfAnOlderBuild is asked again and again.
func TestCoordinatorOfAnOlderBuild(t *testing.T) {
	coordinator := startStandIn(t)
	coordinator.SetOld(true)
	w := watchStore(t, coordinator.Dial, coordinator.Watch)
	w.watch.Newest(storeKey, w.pods)
	w.seen("the first status", hasMembers(0))
	enlist(coordinator, "box-master-0")
	w.seen("a member", hasMembers(1))
}

// TestStatusOfAReplacedCoordinator does not count: it is another process's.
func TestStatusOfAReplacedCoordinator(t *testing.T) {
	former, next := startStandIn(t), startStandIn(t)
	enlist(next, "box-master-0")
	of := func(ip string) *standin.Coordinator {
		if ip == "10.0.0.1" {
			return former
		}
		return next
	}
	w := watchStore(t, func(ip string, port int) (admin.Client, error) { return of(ip).Dial(ip, port) },
		func(ctx context.Context, ip string, port int, heard func(uint64) error) error {
			return of(ip).Watch(ctx, ip, port, heard)
		})
	w.watch.Newest(storeKey, w.pods)
	w.seen("the first status", hasMembers(0))
	w.pods = []*facts.Pod{{Name: "box-coordinator-2", UID: "uid-2", IP: "10.0.0.2"}}
	if sight, known := w.watch.Newest(storeKey, w.pods); known {
		t.Errorf("%+v is known of a coordinator that was not asked", sight)
	}
	w.seen("the successor's status", hasMembers(1))
	eventually(t, "the former stream is closed", func() bool { return former.Watched() == 0 })
}

// TestLargeAnswersAreNotKept beyond a bound: reconciles ask.
func TestLargeAnswersAreNotKept(t *testing.T) {
	coordinator := startStandIn(t)
	w := watchStore(t, coordinator.Dial, coordinator.Watch)
	w.watch.kept = mostKept // of other Stores
	w.watch.Newest(storeKey, w.pods)
	w.seen("that it is not kept", func(s Sight) bool { return s.NotKept && s.Cluster == nil && s.Error == "" })
}

// TestCoordinatorThatMustNotLead says so with its status, and its stream goes on.
func TestCoordinatorThatMustNotLead(t *testing.T) {
	coordinator := startStandIn(t)
	w := watchStore(t, coordinator.Dial, coordinator.Watch)
	w.watch.Newest(storeKey, w.pods)
	w.seen("the first status", hasMembers(0))
	coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.Leader = &adminv1.Leader{Refusal: "its state is not known"}
	})
	w.seen("the refusal", func(s Sight) bool { return s.Cluster == nil && s.Refusal == "its state is not known" })
	coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.Leader = nil })
	w.seen("that it leads again", hasMembers(0))
}

func eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	within(t, seenWithin, what, isSo)
}

func within(t *testing.T, long time.Duration, what string, isSo func() bool) {
	t.Helper()
	for timeout, look := time.After(long), time.Tick(10*time.Millisecond); !isSo(); {
		select {
		case <-look:
		case <-timeout:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// fixedStatus is a StatusSource that never hears of a change.
type fixedStatus struct{ Sight }

func (s fixedStatus) Newest(types.NamespacedName, []*facts.Pod) (Sight, bool) { return s.Sight, true }
func (fixedStatus) Forget(types.NamespacedName)                               {}

// remembered is what the coordinator says now, for later.
func (h *harness) remembered() fixedStatus {
	h.t.Helper()
	coordinator, answer, err := ask(h.t.Context(), h.coordinator.Dial, "")
	if err != nil {
		h.t.Fatal(err)
	}
	defer coordinator.Close()
	return fixedStatus{Sight{Cluster: answer.cluster, LeaderPod: h.store().Status.Coordinator.Pod, At: h.now}}
}

// TestWhatIsRememberedDecidesNothing but that there is nothing to do: a status from a time when a master was lost, and its node with it,
// has nobody move and is not written, and the coordinator is asked.
func TestWhatIsRememberedDecidesNothing(t *testing.T) {
	h := withALostNode(t)
	old := h.remembered()
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		for _, member := range r.GetMembers() {
			member.State = adminv1.MemberState_MEMBER_STATE_UP
		}
	})
	h.mustReconcile()
	h.reconciler.Statuses = old
	before, asked, writes := h.store(), h.coordinator.Asked(), h.writes
	for range 6 {
		h.mustReconcile()
	}
	hasMoved := len(h.claims()) != 3 || h.pods()["box-master-1"] == nil
	if hasMoved || h.store().ResourceVersion != before.ResourceVersion || h.writes != writes {
		t.Errorf("%d writes: %+v, %v", h.writes-writes, h.store().Status.Masters.Members[1], h.claims())
	}
	if h.coordinator.Asked() == asked {
		t.Error("the coordinator was not asked")
	}
}

// TestNobodyIsAskedWhileNothingIsToBeDone: a settled Store's reconciles go by what is remembered.
func TestNobodyIsAskedWhileNothingIsToBeDone(t *testing.T) {
	h := settled(t)
	h.reconciler.Statuses = h.remembered()
	asked := h.coordinator.Asked()
	for range 5 {
		h.mustReconcile()
	}
	if now := h.coordinator.Asked(); now != asked {
		t.Errorf("it was asked %d times", now-asked)
	}
}

// TestNothingIsPlannedBeforeACoordinatorWasHeard: a status would say of each Store that its coordinator does not answer.
func TestNothingIsPlannedBeforeACoordinatorWasHeard(t *testing.T) {
	h := settled(t)
	h.reconciler.Statuses = NewStatusWatch(h.coordinator.Dial, func(ctx context.Context, _ string, _ int, _ func(uint64) error) error {
		<-ctx.Done()
		return ctx.Err()
	})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	if err := h.reconciler.Statuses.(*StatusWatch).Source().Start(t.Context(), queue); err != nil { //nolint:forcetypeassert // set above
		t.Fatal(err)
	}
	before := h.store().ResourceVersion
	result, err := h.reconcile()
	if err != nil || result.RequeueAfter == 0 || h.store().ResourceVersion != before {
		t.Errorf("%+v, %v, %+v", result, err, h.store().Status)
	}
}

// crowd are Stores of one operator, of which all but the first have coordinators that never answer.
type crowd struct {
	*harness

	stores []client.ObjectKey
	// deaf is an address at which nobody accepts connections.
	deaf string
}

const unreachable = 50

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	var others []client.Object
	c := &crowd{stores: []client.ObjectKey{storeKey}}
	for i := range unreachable {
		key := client.ObjectKey{Namespace: storeKey.Namespace, Name: fmt.Sprintf("silent-%d", i)}
		c.stores = append(c.stores, key)
		others = append(others, &v1alpha1.Store{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID("uid-of-" + key.Name), Generation: 1},
			Spec: v1alpha1.StoreSpec{
				Masters:     v1alpha1.MastersSpec{Replicas: 1, Memory: resource.MustParse("1Gi"), Cores: 1},
				Placement:   v1alpha1.PlacementSpec{FailureDomain: corev1.LabelHostname},
				Replication: v1alpha1.ReplicationSpec{Factor: new(int32(0))},
				// Half as many objects as with another: the fake API server takes its time.
				Coordinator: v1alpha1.CoordinatorSpec{Replicas: 1, State: v1alpha1.StateSpec{Type: v1alpha1.StateMemory}},
			},
		})
	}
	c.harness = newHarness(t, others...)
	// Connections are made by the kernel, up to the listener's backlog, and nobody ever reads from them.
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	c.deaf = "passthrough:///" + listener.Addr().String()
	c.form()
	return c
}

// form has the operator make everything, and every pod run.
func (c *crowd) form() {
	c.t.Helper()
	c.reconciler.Now = time.Now
	dial := c.reconciler.Dial
	c.reconciler.Dial = func(ip string, port int) (admin.Client, error) {
		if ip != healthyIP {
			return nil, errors.New("it does not answer")
		}
		return dial(ip, port)
	}
	reconcileStore := func(key client.ObjectKey) {
		if _, err := c.reconciler.Reconcile(c.t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, key := range c.stores[1:] {
		reconcileStore(key)
	}
	c.runSilent()
	for range 4 {
		reconcileStore(storeKey)
		c.run()
	}
}

const healthyIP = "10.0.0.1"

// runSilent has the coordinators run that never answer, and nobody else of their Stores: harness.run is for the pods that are left.
func (c *crowd) runSilent() {
	c.t.Helper()
	pods := &corev1.PodList{}
	if err := c.client.List(c.t.Context(), pods); err != nil {
		c.t.Fatal(err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Labels[v1alpha1.LabelStore] == storeKey.Name || len(pod.Status.ContainerStatuses) > 0 {
			continue
		}
		isCoordinator := pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentCoordinator
		pod.UID, pod.Spec.NodeName = types.UID("uid-of-"+pod.Name), "node-b"
		if err := c.client.Update(c.t.Context(), pod); err != nil {
			c.t.Fatal(err)
		}
		state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		if isCoordinator {
			state, pod.Status.PodIP = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, "10.0.0.2"
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: resources.ContainerName(pod), State: state}}
		if err := c.client.Status().Update(c.t.Context(), pod); err != nil {
			c.t.Fatal(err)
		}
	}
}

// start runs the controller as the manager does, with all Stores in its queue.
func (c *crowd) start(reconciles *atomic.Int64) {
	c.t.Helper()
	r := c.reconciler
	coordinator := c.coordinator
	r.Dial = func(ip string, port int) (admin.Client, error) {
		if ip == healthyIP {
			return coordinator.Dial(ip, port)
		}
		return admin.DialTarget(c.deaf)
	}
	watch := NewStatusWatch(r.Dial, func(ctx context.Context, ip string, port int, heard func(uint64) error) error {
		if ip == healthyIP {
			return coordinator.Watch(ctx, ip, port, heard)
		}
		return admin.WatchTarget(ctx, c.deaf, heard)
	})
	r.Statuses = watch
	skip := true
	operator, err := controller.NewTypedUnmanaged("crowd", controller.TypedOptions[reconcile.Request]{
		SkipNameValidation: &skip, MaxConcurrentReconciles: concurrency, Logger: logr.Discard(),
		Reconciler: reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			reconciles.Add(1)
			result, err := r.Reconcile(ctx, request)
			if result.RequeueAfter > 0 {
				result.RequeueAfter = planner.SettledInterval // likewise
			}
			return result, err
		}),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	all := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for _, key := range c.stores {
			queue.Add(reconcile.Request{NamespacedName: key})
		}
		return nil
	})
	if err := errors.Join(operator.Watch(all), operator.Watch(watch.Source())); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- operator.Start(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
}

// TestUnreachableCoordinatorsDelayNobody: 50 Stores have coordinators that never answer, and a change of another Store is seen at once. If
// each reconcile waited for its coordinator, those of the 50 would take 19 s in turn.
func TestUnreachableCoordinatorsDelayNobody(t *testing.T) {
	c := newCrowd(t)
	var reconciles atomic.Int64
	c.start(&reconciles)
	unanswered := func() (count int) {
		for _, key := range c.stores[1:] {
			if sight, known := c.reconciler.Statuses.Newest(key, c.coordinatorsOf(key)); known && sight.Error != "" {
				count++
			}
		}
		return count
	}
	within(t, time.Minute, "it is known of all 50 that they do not answer", func() bool { return unanswered() == unreachable })
	for i := range 3 {
		before, reconciled := time.Now(), reconciles.Load()
		c.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
			r.Losses = append(r.Losses, &adminv1.Loss{Member: "box-master-0", Tables: []string{"t"}, TabletCount: 1})
		})
		eventually(t, "the loss is on record", func() bool { return c.store().Status.LossCount == int64(i+1) })
		t.Logf("on record after %v, beside %d reconciles", time.Since(before), reconciles.Load()-reconciled)
	}
}

func (c *crowd) coordinatorsOf(key client.ObjectKey) []*facts.Pod {
	c.t.Helper()
	store := &v1alpha1.Store{}
	if err := c.client.Get(c.t.Context(), key, store); err != nil {
		c.t.Fatal(err)
	}
	v := &reconcileState{observed: facts.Observed{Store: store}}
	if err := observePods(c.t.Context(), c.client, v); err != nil {
		c.t.Fatal(err)
	}
	return facts.Coordinators(v.observed.Pods, store.Status.Coordinator.Pod)
}
