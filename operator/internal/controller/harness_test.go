package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoapplyconfigurations "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
	"rcbox.dev/rcbox/operator/internal/record"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// harness is a Reconciler with controller-runtime's fake API server, a stand-in for the coordinator, and the test as kubelet.
type harness struct {
	t           *testing.T
	client      client.Client
	reconciler  *Reconciler
	coordinator *standin.Coordinator
	events      *events.FakeRecorder
	now         time.Time
	// writes counts what reached the API server; failWrite makes one fail.
	writes    int
	failWrite func(object string) error
}

// withoutNullStatus mends what the fake API server does to kinds that have no status: it gives them one, null, which their schema forbids.
type withoutNullStatus struct{ managedfields.TypeConverter }

func (c withoutNullStatus) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if u, ok := object.(*unstructured.Unstructured); ok && u.Object["status"] == nil {
		delete(u.Object, "status")
	}
	return c.TypeConverter.ObjectToTyped(object, options...)
}

var storeKey = client.ObjectKey{Namespace: "default", Name: "box"}

func newHarness(t *testing.T, objects ...client.Object) *harness {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	h := &harness{
		t: t, coordinator: standin.Start(), events: events.NewFakeRecorder(1000),
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	t.Cleanup(h.coordinator.Stop)
	store := &v1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: storeKey.Name, Namespace: storeKey.Namespace, UID: "store-uid", Generation: 1},
		Spec: v1alpha1.StoreSpec{
			ImagePullPolicy: corev1.PullIfNotPresent,
			Masters:         v1alpha1.MastersSpec{Replicas: 2, Memory: resource.MustParse("1Gi"), Cores: 1},
			Placement:       v1alpha1.PlacementSpec{FailureDomain: "kubernetes.io/hostname"},
			Replication:     v1alpha1.ReplicationSpec{Factor: new(int32(0))},
		},
	}
	h.client = fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().
		WithStatusSubresource(&v1alpha1.Store{}, &v1alpha1.ClusterPerf{}, &v1alpha1.StoreOperation{}).
		WithIndex(&v1alpha1.StoreMember{}, indexStore, storeOfMember).
		WithObjects(append(objects, store)...).
		WithTypeConverters(
			withoutNullStatus{clientgoapplyconfigurations.NewTypeConverter(clientgoscheme.Scheme)},
			managedfields.NewDeducedTypeConverter()).
		WithInterceptorFuncs(h.interceptors()).Build()
	h.reconciler = &Reconciler{
		Client: h.client, Live: h.client, Nodes: nodesByReader{h.client}, Recorder: h.events,
		Dial: h.coordinator.Dial, Now: func() time.Time { return h.now },
		DefaultImage: "store:1", Namespace: "rcbox-system",
	}
	return h
}

func (h *harness) interceptors() interceptor.Funcs {
	written := func(what string) error {
		h.writes++
		if h.failWrite != nil {
			return h.failWrite(what)
		}
		return nil
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := written("create " + object.GetName()); err != nil {
				return err
			}
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if _, isMember := object.(*v1alpha1.StoreMember); isMember {
				if err := written("update " + object.GetName()); err != nil {
					return err
				}
			}
			return c.Update(ctx, object, options...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if wanted := (&client.ApplyOptions{}).ApplyOptions(options); len(wanted.DryRun) > 0 {
				return nil // the fake API server would keep what is applied for trial
			}
			if err := written(fmt.Sprintf("apply %T", object)); err != nil {
				return err
			}
			return c.Apply(ctx, object, options...)
		},
		Patch: func(
			ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			if err := written("patch " + object.GetName()); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := written("delete " + object.GetName()); err != nil {
				return err
			}
			return c.Delete(ctx, object, options...)
		},
		SubResourceUpdate: func(
			ctx context.Context, c client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption,
		) error {
			if err := written("update status"); err != nil {
				return err
			}
			return c.SubResource(name).Update(ctx, object, options...)
		},
	}
}

// nodesByReader is a NodeSource that is never behind.
type nodesByReader struct{ client.Reader }

func (n nodesByReader) Node(name string) *corev1.Node {
	node := &corev1.Node{}
	if err := n.Get(context.Background(), client.ObjectKey{Name: name}, node); err != nil {
		return nil
	}
	return node
}

func (n nodesByReader) AreHidden() bool {
	err := n.Get(context.Background(), client.ObjectKey{Name: "any"}, &corev1.Node{})
	return apierrors.IsForbidden(err)
}

// reconcile runs the controller once.
func (h *harness) reconcile() (ctrl.Result, error) {
	h.now = h.now.Add(5 * time.Second)
	return h.reconciler.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: storeKey})
}

func (h *harness) mustReconcile() {
	h.t.Helper()
	if _, err := h.reconcile(); err != nil {
		h.t.Fatal(err)
	}
}

// store with what its StoreMembers have.
func (h *harness) store() *v1alpha1.Store {
	h.t.Helper()
	store := h.bareStore()
	record.Join(store, h.members())
	return store
}

// bareStore as the API server has it.
func (h *harness) bareStore() *v1alpha1.Store {
	h.t.Helper()
	store := &v1alpha1.Store{}
	if err := h.client.Get(h.t.Context(), storeKey, store); err != nil {
		h.t.Fatal(err)
	}
	return store
}

func (h *harness) members() []v1alpha1.StoreMember {
	h.t.Helper()
	list := &v1alpha1.StoreMemberList{}
	if err := h.client.List(h.t.Context(), list); err != nil {
		h.t.Fatal(err)
	}
	return list.Items
}

// asFormer writes the Store's status as the operator did that knew no StoreMembers.
func (h *harness) asFormer(change func(*v1alpha1.StoreStatus)) {
	h.t.Helper()
	store := h.store()
	change(&store.Status)
	store.Status.Record, store.Status.Masters.Unwell = nil, nil
	for _, member := range h.members() {
		if err := h.client.Delete(h.t.Context(), &member); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := h.client.Status().Update(h.t.Context(), store); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) change(change func(*v1alpha1.Store)) {
	h.t.Helper()
	store := h.bareStore()
	change(store)
	store.Generation++
	if err := h.client.Update(h.t.Context(), store); err != nil {
		h.t.Fatal(err)
	}
}

// pods by member, those that were not told to end.
func (h *harness) pods() map[string]*corev1.Pod {
	h.t.Helper()
	list := &corev1.PodList{}
	if err := h.client.List(h.t.Context(), list); err != nil {
		h.t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.DeletionTimestamp == nil {
			pods[pod.Labels[v1alpha1.LabelMember]] = pod
		}
	}
	return pods
}

// run plays kubelet and members: every pod runs, every master enlists.
func (h *harness) run() {
	h.t.Helper()
	pods := h.pods()
	for _, member := range slices.Sorted(maps.Keys(pods)) {
		pod := pods[member]
		if len(pod.Status.ContainerStatuses) > 0 || len(pod.Spec.SchedulingGates) > 0 {
			continue
		}
		pod.UID = types.UID("uid-of-" + pod.Name) // a real API server gives one
		pod.Spec.NodeName = "node-a"
		if err := h.client.Update(h.t.Context(), pod); err != nil {
			h.t.Fatal(err)
		}
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: resources.ContainerName(pod), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		}
		if err := h.client.Status().Update(h.t.Context(), pod); err != nil {
			h.t.Fatal(err)
		}
		if member != v1alpha1.CoordinatorMember("box") {
			h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { standin.Enlist(r, member, string(pod.UID)+"-1", 0) })
		}
	}
}

// settled is a harness with a Store that is as its spec says.
func settled(t *testing.T) *harness {
	t.Helper()
	h := newHarness(t)
	for range 3 {
		h.mustReconcile()
		h.run()
	}
	h.mustReconcile()
	h.want(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonServing)
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	h.takeEvents()
	return h
}

// tablets gives a member tablets.
func (h *harness) tablets(member string, tablets uint64) {
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.TableCount = 1
		for _, m := range r.GetMembers() {
			if m.GetName() == member {
				m.Shards[0].TabletCount = tablets
			}
		}
	})
}

// lose cuts the coordinator's connection to a member.
func (h *harness) lose(member string) {
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		for _, m := range r.GetMembers() {
			if m.GetName() == member {
				m.State = adminv1.MemberState_MEMBER_STATE_UNREACHABLE
			}
		}
	})
}

func (h *harness) want(condition string, status metav1.ConditionStatus, reason string) string {
	h.t.Helper()
	got := meta.FindStatusCondition(h.store().Status.Conditions, condition)
	if got == nil {
		h.t.Fatalf("there is no condition %s", condition)
	}
	if got.Status != status || got.Reason != reason {
		h.t.Fatalf("%s is %s (%s: %s), not %s (%s)", condition, got.Status, got.Reason, got.Message, status, reason)
	}
	return got.Message
}

// takeEvents gives the events since the last time.
func (h *harness) takeEvents() []string {
	var list []string
	for {
		select {
		case event := <-h.events.Events:
			list = append(list, event)
		default:
			slices.Sort(list)
			return list
		}
	}
}
