package controller

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
)

// silent is a coordinator that does not lead, and says so.
type silent struct{ err error }

func (s silent) Status(context.Context) (*adminv1.GetClusterStatusResponse, error) { return nil, s.err }
func (s silent) RemoveMember(context.Context, string, string) error                { return s.err }
func (s silent) SetSettings(context.Context, *adminv1.SetSettingsRequest) error    { return s.err }
func (s silent) DrainMember(context.Context, string) error                         { return s.err }
func (s silent) UndrainMember(context.Context, string) error                       { return s.err }
func (s silent) FinalizeUpgrade(context.Context, int32) error                      { return s.err }
func (s silent) SplitTable(context.Context, string, int32) (*adminv1.SplitTableResponse, error) {
	return nil, s.err
}
func (s silent) Close() error { return nil }

// withStandbys is a settled Store with three coordinators, each at an address of its own; the second one leads, others say err.
func withStandbys(t *testing.T, err error) *harness {
	t.Helper()
	h := newHarness(t)
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.StateKind = adminv1.StateKind_STATE_KIND_KUBERNETES
		r.Leader = &adminv1.Leader{Name: "somebody", Term: 7}
	})
	h.change(func(s *v1alpha1.Store) { s.Spec.Coordinator.Replicas = 3 })
	for range 3 {
		h.mustReconcile()
		h.run()
	}
	for member, pod := range h.pods() {
		if ordinal, ok := v1alpha1.CoordinatorOrdinal("box", member); ok {
			pod.Status.PodIP = "10.0.0." + string(rune('0'+ordinal))
			if ordinal != 1 {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
			}
			if err := h.client.Status().Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	dial := h.reconciler.Dial
	h.reconciler.Dial = func(ip string, port int) (admin.Client, error) {
		if ip == "10.0.0.1" {
			return dial(ip, port)
		}
		return silent{err}, nil
	}
	h.mustReconcile()
	h.mustReconcile()
	h.takeEvents()
	return h
}

func TestTheLeaderIsFoundAmongStandbys(t *testing.T) {
	h := withStandbys(t, status.Error(codes.Unavailable, "this coordinator is a standby"))
	h.want(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonServing)
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAsSpecified)
	pods, got := h.pods(), h.store().Status.Coordinator
	if got.Pod != pods["box-coordinator-1"].Name || got.State != v1alpha1.StateKubernetes || got.Term != 7 || !got.Ready {
		t.Errorf("status is %+v", got)
	}
	var names []string
	for _, standby := range got.Standbys {
		names = append(names, standby.Name)
		if !standby.Running || standby.Pod != pods[standby.Name].Name || standby.Node != "node-a" {
			t.Errorf("standby is %+v", standby)
		}
	}
	if !slices.Equal(names, []string{"box-coordinator", "box-coordinator-2"}) {
		t.Errorf("standbys are %v", names)
	}
	before := h.writes
	h.mustReconcile()
	if h.writes != before {
		t.Errorf("%d writes although nothing changed", h.writes-before)
	}
	// Nobody leads. That is told of once another one should.
	h.coordinator.SetDown(true)
	h.mustReconcile()
	h.want(v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	h.now = h.now.Add(10 * time.Second)
	h.mustReconcile()
	h.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonCoordinatorDown)
	// Fewer of them: standbys go, the leader stays as long as it is not the only one that is wanted.
	h.coordinator.SetDown(false)
	h.change(func(s *v1alpha1.Store) { s.Spec.Coordinator.Replicas = 2 })
	h.mustReconcile()
	h.mustReconcile()
	if pods := h.pods(); pods["box-coordinator-2"] != nil || pods["box-coordinator-1"] == nil || pods["box-coordinator"] == nil {
		t.Errorf("pods are %v", pods)
	}
}

func TestACoordinatorThatMustNotLeadIsShown(t *testing.T) {
	const text = "StateRolledBack: the root is of term 3"
	h := withStandbys(t, status.Error(codes.FailedPrecondition, text))
	h.coordinator.SetDown(true)
	h.mustReconcile()
	if got := h.want(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonStateUnusable); !strings.Contains(got, text) {
		t.Errorf("message is %q", got)
	}
	if got := h.store().Status.Coordinator.StateTrouble; got != text {
		t.Errorf("trouble is %q", got)
	}
	// One that did lead shows what it knew; that is no answer either.
	h.coordinator.SetDown(false)
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.Leader.Refusal = text })
	h.mustReconcile()
	h.want(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonStateUnusable)
}

func TestWhatCannotBeNotedIsShownAndNothingIsRemoved(t *testing.T) {
	h := settled(t)
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		r.Leader = &adminv1.Leader{StateWait: &adminv1.StateWait{Why: "cannot write the root", WaitedMs: 5000}}
	})
	h.change(func(s *v1alpha1.Store) { s.Spec.Masters.Replicas = 1 })
	h.mustReconcile()
	got := h.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonStateStuck)
	if !strings.HasSuffix(got, "cannot write the root") {
		t.Errorf("message is %q", got)
	}
	if removed := h.coordinator.Removed(); len(removed) > 0 {
		t.Errorf("removed are %v", removed)
	}
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { r.Leader = nil })
	h.mustReconcile()
	if removed := h.coordinator.Removed(); len(removed) != 1 {
		t.Errorf("removed are %v", removed)
	}
}

// A Store of the time before keeps what it has, and is told so.
func TestStateOfAnExistingStoreDoesNotMove(t *testing.T) {
	h := newHarness(t)
	h.change(func(s *v1alpha1.Store) { s.Spec.Coordinator.State.Type = v1alpha1.StateMemory })
	for range 3 {
		h.mustReconcile()
		h.run()
	}
	h.change(func(s *v1alpha1.Store) { s.Spec.Coordinator.State.Type = v1alpha1.StateKubernetes })
	before := h.pods()["box-coordinator"].UID
	h.mustReconcile()
	h.mustReconcile()
	h.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonStateFixed)
	if h.pods()["box-coordinator"].UID != before {
		t.Error("the coordinator was replaced")
	}
	service := &corev1.Service{}
	if err := h.client.Get(t.Context(), storeKey, service); err != nil || len(service.Spec.Selector) == 0 {
		t.Errorf("the Service selects %v (%v)", service.Spec.Selector, err)
	}
	role := &rbacv1.Role{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "box-coordinator"}, role); !apierrors.IsNotFound(err) {
		t.Errorf("there is a Role: %v", err)
	}
}

func (h *harness) stateObjects() []string {
	h.t.Helper()
	list := &corev1.ConfigMapList{}
	if err := h.client.List(h.t.Context(), list); err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// heldState are the ConfigMaps that a finalizer keeps.
func (h *harness) heldState() []string {
	h.t.Helper()
	list := &corev1.ConfigMapList{}
	if err := h.client.List(h.t.Context(), list); err != nil {
		h.t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if len(list.Items[i].Finalizers) > 0 {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

func TestStateThatOutlivedItsStoreIsGuardedAgain(t *testing.T) {
	root := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "box-state-root", Namespace: "default",
		Labels: map[string]string{v1alpha1.LabelStore: "box", v1alpha1.LabelState: "root"},
	}}
	h := newHarness(t, root)
	h.mustReconcile()
	if got := h.heldState(); !slices.Equal(got, []string{"box-state-root"}) {
		t.Errorf("%v are held by a finalizer", got)
	}
}

func TestStateOutlivesTheStoreUnlessToldOtherwise(t *testing.T) {
	for policy, want := range map[v1alpha1.ReclaimPolicy]string{
		v1alpha1.ReclaimRetain: "box-state-chunk-1 box-state-root other-state-root somebodys",
		v1alpha1.ReclaimDelete: "other-state-root somebodys",
	} {
		h := settled(t)
		object := func(name, store, kind string, finalizers ...string) {
			labels := map[string]string{v1alpha1.LabelStore: store}
			if kind != "" {
				labels[v1alpha1.LabelState] = kind
			}
			configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: "default", Labels: labels, Finalizers: finalizers,
			}}
			if err := h.client.Create(t.Context(), configMap); err != nil {
				t.Fatal(err)
			}
		}
		object("box-state-root", "box", "root", v1alpha1.FinalizerState)
		object("box-state-chunk-1", "box", "chunk")
		object("other-state-root", "other", "root", v1alpha1.FinalizerState)
		object("somebodys", "box", "")
		h.change(func(s *v1alpha1.Store) { s.Spec.ReclaimPolicy = policy })
		if err := h.client.Delete(t.Context(), h.store()); err != nil {
			t.Fatal(err)
		}
		h.mustReconcile()
		if got := len(h.stateObjects()); got != 4 {
			t.Errorf("%s: %d objects while pods end", policy, got)
		}
		h.mustReconcile()
		if err := h.client.Get(t.Context(), storeKey, &v1alpha1.Store{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: the Store is still there: %v", policy, err)
		}
		if got := strings.Join(h.stateObjects(), " "); got != want {
			t.Errorf("%s: %s are left", policy, got)
		}
		// What stays goes with its namespace: nobody is left who would take a finalizer away. Another Store's is that one's.
		if got := h.heldState(); !slices.Equal(got, []string{"other-state-root"}) {
			t.Errorf("%s: %v are held by a finalizer", policy, got)
		}
	}
}
