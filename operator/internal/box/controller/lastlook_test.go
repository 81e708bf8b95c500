package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// told is a BMC that records its commands, and also the pool that has the session with this BMC.
type told struct {
	bmc.BMC

	identity bmc.Identity
	err      error
	orders   []bmc.Action
}

func (b *told) Identity(context.Context) (bmc.Identity, error) { return b.identity, b.err }

func (b *told) Do(_ context.Context, action bmc.Action) error {
	b.orders = append(b.orders, action)
	return nil
}

func (b *told) Read(ctx context.Context, _ pool.Target, call func(context.Context, bmc.BMC) error) error {
	return call(ctx, b)
}

func (b *told) Order(ctx context.Context, _ pool.Target, call func(context.Context, bmc.BMC) error) error {
	return call(ctx, b)
}

func (*told) Forget(context.Context, string) error { return nil }

// lost has the objects in the API server when the server of a node that is not ready is to be switched off.
type lost struct {
	chassis *v1alpha1.Chassis
	fence   *v1alpha1.NodeFence
	node    *corev1.Node
	store   *v1alpha1.Store
	servers []*v1alpha1.Server
}

func lostUUID(i int) string { return fmt.Sprintf("%08d-1111-4222-8333-444444444444", i+1) }

const lostServers = 5

func newLost() *lost {
	l := &lost{
		chassis: &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1", UID: "c1"}},
		node:    &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}},
		store:   &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}},
		fence:   &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "box-n3"}},
	}
	l.chassis.Spec = v1alpha1.ChassisSpec{
		Model: "EmulatedRack", FirstServer: 1, Slots: fmt.Sprintf("1-%d", lostServers), NamePrefix: "atom",
		Management: v1alpha1.ChassisManagement{
			MMC: fmt.Sprintf("192.168.5.1+%d", lostServers), CMM: []string{"192.168.5.201"}, CredentialsSecret: "mercury1-bmc",
		},
		Fencing: v1alpha1.ChassisFencing{Namespaces: []string{"default"}},
	}
	l.node.Status.NodeInfo.SystemUUID = lostUUID(2)
	l.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	accepted := metav1.NewTime(noon.Add(-time.Minute))
	l.fence.Spec = v1alpha1.NodeFenceSpec{StoreName: "box", Node: "n3", SystemUUID: lostUUID(2), LostSince: accepted}
	l.fence.Status.AcceptedAt = &accepted
	for i := range lostServers {
		server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("atom%03d", i+1), UID: types.UID(fmt.Sprint("s", i)),
			OwnerReferences: []metav1.OwnerReference{ownedBy(l.chassis)},
		}}
		server.Spec.Power = v1alpha1.WantUnmanaged
		server.Status.MMC.SystemGUID = lostUUID(i)
		l.servers = append(l.servers, server)
	}
	return l
}

func (l *lost) client(t *testing.T) client.Client {
	t.Helper()
	builder := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(l.chassis, l.node, l.store)
	if l.fence != nil {
		builder = builder.WithObjects(l.fence)
	}
	for _, server := range l.servers {
		builder = builder.WithObjects(server)
	}
	return builder.Build()
}

// Power is taken away on behalf of a Store only if the reasons still hold right before the command: according to the API server itself, not
// to a cache that lags behind, and to the BMC that gets the command.
func TestLastLookBeforePowerIsTakenAway(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(l *lost, b *told)
		dropped string
	}{
		"nothing has changed": {func(*lost, *told) {}, ""},
		"the node is ready again": {func(l *lost, _ *told) {
			l.node.Status.Conditions[0].Status = corev1.ConditionTrue
		}, "node n3 is Ready"},
		"the NodeFence was taken back": {
			func(l *lost, _ *told) { l.fence = nil }, "no Store requests a fence of the node of atom003 any more",
		},
		"the NodeFence is being deleted": {func(l *lost, _ *told) {
			l.fence.DeletionTimestamp, l.fence.Finalizers = &metav1.Time{Time: noon}, []string{"example.com/wait"}
		}, "no Store requests"},
		"the node is another machine": {func(l *lost, _ *told) {
			l.node.Status.NodeInfo.SystemUUID = "99999999-1111-4222-8333-444444444444"
		}, "no Store requests"},
		"the node is gone": {func(l *lost, _ *told) {
			l.node.Name, l.node.Status.NodeInfo.SystemUUID = "n9", lostUUID(8)
		}, "no Store requests"},
		"another blade is in the slot": {func(_ *lost, b *told) {
			b.identity.SystemGUID = "99999999-1111-4222-8333-444444444444"
		}, "no Store requests"},
		"the blade is in another slot": {
			func(_ *lost, b *told) { b.identity.Slot = 4 }, "the server's hardware reports slot 4, not slot 3",
		},
		"the BMC does not say which machine it is": {
			func(_ *lost, b *told) { b.err = bmc.ErrSilent }, "ask the BMC of atom003 for its system GUID",
		},
		"the Chassis names the namespace no more": {
			func(l *lost, _ *told) { l.chassis.Spec.Fencing.Namespaces = nil }, "does not list namespace default",
		},
		"another Store is served there": {func(l *lost, _ *told) {
			l.store.Status.Masters.Members = []v1alpha1.MemberStatus{
				{
					Name:          "other-master-0",
					MemberFigures: v1alpha1.MemberFigures{Pod: "p", Node: "n3", State: v1alpha1.MemberUp},
				},
			}
		}, "other-master-0 of Store default/other there serves"},
	} {
		t.Run(name, func(t *testing.T) {
			cached, live := newLost(), newLost()
			b := &told{identity: bmc.Identity{SystemGUID: lostUUID(2), Slot: 3}}
			test.change(live, b)
			err := given(t, cached, live, b, plan.Step{
				Action: bmc.ActionOff, For: v1alpha1.ForFencing, Servers: []string{"atom003"}, TriedAt: noon, Until: noon.Add(time.Second),
			})
			switch {
			case test.dropped == "" && (err != nil || len(b.orders) != 1):
				t.Errorf("it was told %v: %v", b.orders, err)
			case test.dropped != "" && (err == nil || len(b.orders) > 0 || !strings.Contains(err.Error(), test.dropped)):
				t.Errorf("it was told %v: %v, which does not say %q", b.orders, err, test.dropped)
			}
		})
	}
}

// given gives a command about atom003, planned from what is cached, and returns the answer.
func given(t *testing.T, cached, live *lost, b *told, step plan.Step) error {
	t.Helper()
	answered := make(chan struct{}, 2*lostServers+2)
	clock := &poll.Clock{Read: func() (time.Time, time.Duration) { return noon, 0 }}
	r := &Reconciler{
		Client: cached.client(t), Live: live.client(t), Clock: clock, Times: plan.DefaultTimes,
		Poller: &poll.Poller{
			Pool: b, Clock: clock, Intervals: poll.DefaultIntervals, Changed: func(string) { answered <- struct{}{} },
		},
	}
	r.seeAll(t, answered)
	b.orders = nil
	r.give(t.Context(), clock.Look(), "mercury1", step)
	for {
		if answer := r.Poller.Seen("mercury1")["atom003"].Answers[plan.KindPower]; answer != nil {
			return answer.Err
		}
		<-answered
	}
}

// seeAll asks each controller of the Chassis once.
func (r *Reconciler) seeAll(t *testing.T, answered <-chan struct{}) {
	t.Helper()
	wanted := map[string]poll.Want{"192.168.5.201": {Role: poll.SwitchBoard}}
	for i := range lostServers {
		wanted[fmt.Sprintf("atom%03d", i+1)] = poll.Want{Role: poll.SwitchBoard}
	}
	r.Poller.Set("mercury1", wanted)
	r.Poller.Round(t.Context())
	for range wanted {
		<-answered
	}
}

func (b *told) Sensors(context.Context, func(string) bool) ([]bmc.Sensor, error) { return nil, nil }
