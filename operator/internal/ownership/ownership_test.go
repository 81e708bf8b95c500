package ownership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const namespace = "team-a"

// bench is an API server with a Store, and a clock.
type bench struct {
	*testing.T
	client client.WithWatch
	now    time.Time
	// refuse, if it is set, is the answer to every attempt to make a Lease; writes counts what was made or changed.
	refuse error
	writes int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: namespace}}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(store).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if b.refuse != nil {
				return b.refuse
			}
			b.writes++
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			b.writes++
			return c.Update(ctx, object, options...)
		},
	}).Build()
	return b
}

func (b *bench) operator(identity string) *Leases {
	return &Leases{Client: b.client, Live: b.client, Now: func() time.Time { return b.now }, Identity: identity}
}

func (b *bench) round(operators ...*Leases) {
	b.Helper()
	for _, each := range operators {
		if err := each.Round(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// pass lets time pass, with some operators alive.
func (b *bench) pass(long time.Duration, alive ...*Leases) {
	b.Helper()
	for end := b.now.Add(long); b.now.Before(end); {
		b.now = b.now.Add(Renewal)
		b.round(alive...)
	}
}

func (b *bench) want(who *Leases, owner, waiting string) {
	b.Helper()
	view, err := who.Look(b.Context(), namespace)
	if err != nil {
		b.Fatal(err)
	}
	if view.Owner != owner || view.Mine != (owner == who.Identity) || view.Waiting != waiting {
		b.Errorf("%s sees %+v, not owner %q and %q waiting", who.Identity, view, owner, waiting)
	}
	err = who.Ready(nil)
	if isReady := owner == "" || owner == who.Identity; isReady != (err == nil) || !isReady && !strings.Contains(err.Error(), owner) {
		b.Errorf("%s is ready: %v", who.Identity, err)
	}
}

func TestOneOfTwoOperatorsWaits(t *testing.T) {
	b := newBench(t)
	first, second := b.operator("first"), b.operator("second")
	if first.Ready(nil) == nil {
		t.Error("it is ready before it has looked")
	}
	b.round(first, second)
	b.want(first, "first", "")
	b.want(second, "first", "")
	b.pass(5*time.Minute, first, second)
	b.want(first, "first", "second")
	b.want(second, "first", "")
	// The second operator is uninstalled, or its scope gets narrower.
	b.pass(Duration+Renewal, first)
	b.want(first, "first", "")
}

// Whatever the owner's clock says, another operator waits by its own.
func TestHandOver(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		b := newBench(t)
		first, second := b.operator("first"), b.operator("second")
		first.Now = func() time.Time { return b.now.Add(skew) }
		b.pass(time.Minute, first, second)
		b.pass(Duration-Renewal, second)
		b.want(second, "first", "")
		b.pass(2*Renewal, second)
		b.want(second, "second", "")
		// The first one was only away: now the first one waits.
		b.pass(time.Minute, first, second)
		b.want(first, "second", "")
		b.want(second, "second", "first")
	}
}

// A new version of the same operator, or its other replica, goes on at once.
func TestSameOperator(t *testing.T) {
	b := newBench(t)
	old, other := b.operator("first"), b.operator("second")
	b.pass(time.Minute, old, other)
	upgraded := b.operator("first")
	b.round(upgraded)
	b.want(upgraded, "first", "") // the Lease of those that wait is to change before somebody is said to wait
	b.pass(Renewal, other, upgraded)
	b.want(upgraded, "first", "second")
	b.want(other, "first", "")
}

func TestReplicaThatDoesNotLeadWritesNothing(t *testing.T) {
	b := newBench(t)
	elected := make(chan struct{})
	standby := b.operator("first")
	standby.Elected = elected
	b.round(standby)
	b.want(standby, "", "")
	if b.writes != 0 {
		t.Errorf("it has written %d times", b.writes)
	}
	close(elected)
	b.round(standby)
	b.want(standby, "first", "")

	late := b.operator("second")
	late.Elected = make(chan struct{})
	b.writes = 0
	b.pass(2*time.Minute, late)
	b.want(late, "first", "")
	if b.writes != 0 {
		t.Errorf("it has written %d times", b.writes)
	}
}

// Of two that take a Lease at the same moment, one is refused, and finds the other next time.
func TestBothAtTheSameMoment(t *testing.T) {
	b := newBench(t)
	first, second := b.operator("first"), b.operator("second")
	b.round(first)
	b.pass(2*Duration, second) // takes it
	lease := &coordinationv1.Lease{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: OwnerLease}, lease); err != nil {
		t.Fatal(err)
	}
	third := b.operator("third")
	third.Live = &racing{Reader: b.client, before: func() { b.pass(Renewal, second) }}
	third.observe(client.ObjectKeyFromObject(lease), lease)
	b.now = b.now.Add(2 * Duration)
	if err := third.Round(t.Context()); !apierrors.IsConflict(err) {
		t.Fatalf("it was to meet a conflict: %v", err)
	}
	b.pass(Renewal, third)
	b.want(third, "second", "")
}

// racing has something happen between a read and what follows.
type racing struct {
	client.Reader
	before func()
}

func (r *racing) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, object, options...)
	if meanwhile := r.before; meanwhile != nil {
		r.before = nil
		meanwhile()
	}
	return err
}

// Leases may go before the Stores when their namespace is deleted, and cannot be made any more.
func TestNamespaceEnds(t *testing.T) {
	b := newBench(t)
	first, second := b.operator("first"), b.operator("second")
	b.pass(time.Minute, first, second)
	if err := b.client.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	ends := apierrors.NewForbidden(coordinationv1.Resource("leases"), OwnerLease, errors.New("the namespace is being terminated"))
	ends.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	b.refuse = ends
	b.pass(Renewal, first, second)
	b.want(first, "first", "")
	b.want(second, "first", "")
	b.pass(Duration, second)
	b.want(second, "second", "")
}

// What one cannot find out, it does not claim.
func TestAPIServerRefuses(t *testing.T) {
	b := newBench(t)
	first := b.operator("first")
	b.refuse = errors.New("no")
	if err := first.Round(t.Context()); err == nil || first.Ready(nil) == nil {
		t.Errorf("%v", err)
	}
	if view, err := first.Look(t.Context(), namespace); err == nil || view.Mine {
		t.Errorf("%+v, %v", view, err)
	}
}
