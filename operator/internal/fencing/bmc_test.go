package fencing_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/fencing"
)

const machine = "00112233-4455-4677-8899-aabbccddeeff"

var lostAt = metav1.NewTime(time.Date(2026, 5, 20, 9, 0, 0, 0, time.UTC))

// fenced is a Store that has lost the node n1.
type fenced struct {
	*testing.T

	client client.Client
	fencer fencing.Fencer
}

func newFenced(t *testing.T) *fenced {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.NodeInfo.SystemUUID = machine
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.NodeFence{}).WithObjects(node).Build()
	f := &fenced{T: t, client: c}
	f.fencer = f.of("uid-of-box", lostAt)
	return f
}

func (f *fenced) of(uid types.UID, since metav1.Time) fencing.Fencer {
	f.Helper()
	fencer, err := fencing.For(v1alpha1.FencingSpec{Type: v1alpha1.FencingBMC}, fencing.Clients{
		Writer: f.client, Live: f.client, Owner: types.NamespacedName{Namespace: "default", Name: "box"}, UID: uid, Since: since,
	})
	must(f.T, err)
	return fencer
}

// fence is the NodeFence; nil if there is none.
func (f *fenced) fence() *v1alpha1.NodeFence {
	f.Helper()
	fence := &v1alpha1.NodeFence{}
	err := f.client.Get(f.Context(), client.ObjectKey{Namespace: "default", Name: "box.n1"}, fence)
	if client.IgnoreNotFound(err) != nil {
		f.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return fence
}

// prove writes what the box controller would.
func (f *fenced) prove(change func(*v1alpha1.NodeFenceStatus)) {
	f.Helper()
	fence := f.fence()
	accepted := metav1.NewTime(lostAt.Add(time.Minute))
	fence.Status = v1alpha1.NodeFenceStatus{
		State: v1alpha1.NodeFenceDone, Message: "atom001 is off", Server: "atom001", AcceptedAt: &accepted, SystemGUID: machine,
		Off: &v1alpha1.OffProof{At: accepted, By: []v1alpha1.Witness{v1alpha1.WitnessMMC, v1alpha1.WitnessPowerReading}},
	}
	if change != nil {
		change(&fence.Status)
	}
	must(f.T, f.client.Status().Update(f.Context(), fence))
}

// setNode changes the node.
func (f *fenced) setNode(change func(*corev1.Node)) {
	f.Helper()
	node := nodeOf(f.T, f.client)
	change(node)
	must(f.T, f.client.Status().Update(f.Context(), node))
}

func TestPowerIsAskedForProvedAndGivenBack(t *testing.T) {
	f := newFenced(t)
	if got := observe(t, f.fencer); got != (fencing.State{}) {
		t.Errorf("before: %+v", got)
	}
	for range 2 {
		must(t, f.fencer.Fence(t.Context(), "n1"))
	}
	fence := f.fence()
	if fence == nil || fence.Spec.Node != "n1" || fence.Spec.StoreName != "box" || fence.Spec.SystemUUID != machine ||
		!fence.Spec.LostSince.Equal(&lostAt) || len(fence.OwnerReferences) != 1 || fence.OwnerReferences[0].UID != "uid-of-box" {
		t.Fatalf("%+v", fence)
	}
	if got := observe(t, f.fencer); !got.Requested || got.Done || !strings.Contains(got.Message, "box.enabled") {
		t.Errorf("asked for: %+v", got)
	}
	f.prove(func(s *v1alpha1.NodeFenceStatus) {
		s.State, s.Message, s.Off = v1alpha1.NodeFenceRunning, "atom001 is on", nil
	})
	if got := observe(t, f.fencer); !got.Requested || got.Done || got.Message != "atom001 is on" {
		t.Errorf("under way: %+v", got)
	}
	f.prove(nil)
	if got := observe(t, f.fencer); !got.Requested || !got.Done {
		t.Errorf("proved: %+v", got)
	}
	for range 2 {
		must(t, f.fencer.Release(t.Context(), "n1"))
	}
	if f.fence() != nil || observe(t, f.fencer) != (fencing.State{}) {
		t.Error("it is there still")
	}
}

// Only a proof of this loss, of this machine, by two witnesses counts.
func TestProofsThatDoNotCount(t *testing.T) {
	for name, test := range map[string]struct {
		status func(*v1alpha1.NodeFenceStatus)
		world  func(*fenced)
	}{
		"older than the request": {status: func(s *v1alpha1.NodeFenceStatus) { s.Off.At = metav1.NewTime(s.AcceptedAt.Add(-time.Second)) }},
		"never accepted":         {status: func(s *v1alpha1.NodeFenceStatus) { s.AcceptedAt = nil }},
		"no proof":               {status: func(s *v1alpha1.NodeFenceStatus) { s.Off = nil }},
		"one witness twice":      {status: func(s *v1alpha1.NodeFenceStatus) { s.Off.By[1] = s.Off.By[0] }},
		"another machine's BMC":  {status: func(s *v1alpha1.NodeFenceStatus) { s.SystemGUID = "99999999-4455-4677-8899-aabbccddeeff" }},
		"only asked for":         {status: func(s *v1alpha1.NodeFenceStatus) { s.State = v1alpha1.NodeFenceRunning }},
		"the node is another machine": {world: func(f *fenced) {
			f.setNode(func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "99999999-4455-4677-8899-aabbccddeeff" })
		}},
		"an earlier loss": {world: func(f *fenced) {
			f.fencer = f.of("uid-of-box", metav1.NewTime(lostAt.Add(time.Hour)))
		}},
		"an earlier Store of that name": {world: func(f *fenced) { f.fencer = f.of("another uid", lostAt) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFenced(t)
			must(t, f.fencer.Fence(t.Context(), "n1"))
			f.prove(test.status)
			if test.world != nil {
				test.world(f)
			}
			if got := observe(t, f.fencer); got.Done {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A request of an earlier loss is taken away first; one that another Store has made stays.
func TestNodeFenceThatIsThere(t *testing.T) {
	f := newFenced(t)
	must(t, f.fencer.Fence(t.Context(), "n1"))
	f.prove(nil)
	later := f.of("uid-of-box", metav1.NewTime(lostAt.Add(time.Hour)))
	if err := later.Fence(t.Context(), "n1"); !errors.Is(err, fencing.ErrTaken) || f.fence() != nil {
		t.Errorf("%v: %+v", err, f.fence())
	}
	must(t, later.Fence(t.Context(), "n1"))
	if got := observe(t, later); !got.Requested || got.Done {
		t.Errorf("anew: %+v", got)
	}
	another := f.of("another uid", lostAt)
	if err := another.Fence(t.Context(), "n1"); !errors.Is(err, fencing.ErrTaken) {
		t.Error(err)
	}
	must(t, another.Release(t.Context(), "n1"))
	if f.fence() == nil {
		t.Error("another Store took it back")
	}
}

func TestNodesThatAreNotFencedByPower(t *testing.T) {
	f := newFenced(t)
	f.setNode(func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "" })
	if err := f.fencer.Fence(t.Context(), "n1"); err == nil || !strings.Contains(err.Error(), "identifies no machine") || f.fence() != nil {
		t.Error(err)
	}
}

// A box controller that is not installed is said to be missing.
func TestWithoutTheBoxController(t *testing.T) {
	f := newFenced(t)
	inner, isWatching := f.client.(client.WithWatch)
	if !isWatching {
		t.Fatalf("%T", f.client)
	}
	f.client = interceptor.NewClient(inner, interceptor.Funcs{Get: getNoFences})
	f.fencer = f.of("uid-of-box", lostAt)
	if err := f.fencer.Fence(t.Context(), "n1"); err == nil || !strings.Contains(err.Error(), "the box controller is not installed") {
		t.Error(err)
	}
	if got := observe(t, f.fencer); got != (fencing.State{}) {
		t.Errorf("%+v", got)
	}
}

func getNoFences(
	ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	if _, isFence := object.(*v1alpha1.NodeFence); isFence {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "NodeFence"}}
	}
	return inner.Get(ctx, key, object, options...)
}
