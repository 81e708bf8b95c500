package controller

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/ipmi"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// chassisOfOne is a chassis with one server, stand-ins for the server's BMC and the chassis manager, and the reconciler of the chassis.
type chassisOfOne struct {
	*testing.T

	api            client.Client
	reconciler     *Reconciler
	blade, manager *standin.BMC
	// liesOnceTold: after its first command, the BMC reports that its server is off.
	liesOnceTold bool
}

const (
	standInPassword = "canary-4mTd"
	wattsWhenOn     = 22
	// cyclePatience is ten times as long as any step of these tests takes.
	cyclePatience = 3 * time.Minute
)

func newChassisOfOne(t *testing.T) *chassisOfOne {
	t.Helper()
	c := &chassisOfOne{T: t}
	start := func(config standin.Config) *standin.BMC {
		started, err := standin.Start(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(started.Close)
		return started
	}
	c.manager = start(standin.Config{Username: "admin", Password: standInPassword, Sensors: []standin.Sensor{
		{Name: "In Charge", Type: types.SensorTypePowerSupply, Unit: types.SensorUnitType_Unspecified, Count: 1},
		{Name: "Slot 01 Power", Type: types.SensorTypePowerSupply, Unit: types.SensorUnitType_Watts, Count: wattsWhenOn},
	}})
	port := c.manager.Address().Port()
	at := c.manager.Address()
	for next := at.Addr().Next(); c.blade == nil; next = next.Next() { // the first address of this machine whose port is free, too
		blade, err := standin.Start(standin.Config{
			Address: netip.AddrPortFrom(next, port), Username: "admin", Password: standInPassword, On: true, SystemGUID: lostUUID(0),
		})
		if err == nil {
			c.blade, at = blade, netip.AddrPortFrom(next, port)
			t.Cleanup(blade.Close)
		}
	}
	chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1", UID: "its-uid"}}
	chassis.Spec = v1alpha1.ChassisSpec{
		Model: "EmulatedRack", NamePrefix: "atom", FirstServer: 1, Slots: "1",
		Management: v1alpha1.ChassisManagement{
			MMC: at.Addr().String(), CMM: []string{c.manager.Address().Addr().String()}, Port: int32(port), CredentialsSecret: "bmc",
		},
		ModelOverrides: &v1alpha1.ModelOverrides{Server: v1alpha1.ModelServer{CommandSeconds: 1}},
	}
	chassis.Spec.Power.StartsAtOnce = 1
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rcbox-system", Name: "bmc"}, Type: v1alpha1.SecretTypeBMC,
		Data: map[string][]byte{"username": []byte("admin"), "password": []byte(standInPassword)},
	}
	c.api = fake.NewClientBuilder().WithScheme(newScheme(t)).WithIndex(&v1alpha1.NodeFence{}, acceptedIndex, acceptedOf).
		WithStatusSubresource(&v1alpha1.Chassis{}, &v1alpha1.Server{}).WithObjects(chassis, secret).Build()
	sessions := pool.New(pool.Config{Dial: func(ctx context.Context, access bmc.Access) (bmc.BMC, error) { return ipmi.Dial(ctx, access) }})
	times := plan.DefaultTimes
	times.Given, times.Proof = time.Second, 3*time.Second
	intervals := poll.DefaultIntervals
	intervals.Power, intervals.Hurry = 200*time.Millisecond, 100*time.Millisecond
	c.reconciler = &Reconciler{
		Client: c.api, Live: c.api, Recorder: events.NewFakeRecorder(1000), Clock: poll.NewClock(), Times: times, Namespace: "rcbox-system",
		Poller: &poll.Poller{Pool: sessions, Clock: poll.NewClock(), Changed: func(string) {}, Intervals: intervals},
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- c.reconciler.Poller.Start(ctx) }()
	t.Cleanup(func() { stop(); <-stopped; sessions.Close() })
	return c
}

// until reconciles the chassis again and again until its server is in the wanted state.
func (c *chassisOfOne) until(what string, is func(*v1alpha1.Server) bool) *v1alpha1.Server {
	c.Helper()
	server := &v1alpha1.Server{}
	for begun := time.Now(); time.Since(begun) < cyclePatience; <-time.After(50 * time.Millisecond) {
		if _, err := c.reconciler.Reconcile(c.Context(), request("mercury1")); err != nil {
			c.Fatal(err)
		}
		if err := c.api.Get(c.Context(), client.ObjectKey{Name: "atom001"}, server); err == nil && is(server) {
			return server
		}
		if c.liesOnceTold && len(c.blade.Seen().Orders) > 0 {
			c.blade.Fault(func(f *standin.Faults) { f.SaysOff = true })
		}
		watts := uint8(0)
		if c.blade.On() {
			watts = wattsWhenOn
		}
		c.manager.SetSensor("Slot 01 Power", func(s *standin.Sensor) { s.Count = watts })
	}
	c.Fatalf("after %s still not %s: %+v", cyclePatience, what, server.Status)
	return nil
}

func (c *chassisOfOne) cycle() *v1alpha1.OrderStatus {
	c.Helper()
	server := c.until("on", func(s *v1alpha1.Server) bool { return s.Status.Power.State == v1alpha1.PowerOn })
	server.Spec.Order = &v1alpha1.PowerOrder{ID: "1", Action: v1alpha1.ActionCycle}
	if err := c.api.Update(c.Context(), server); err != nil {
		c.Fatal(err)
	}
	return c.until("ended", func(s *v1alpha1.Server) bool {
		order := s.Status.Order
		return order != nil && (order.State == v1alpha1.OrderDone || order.State == v1alpha1.OrderFailed)
	}).Status.Order
}

// A Cycle is done only if the server was off and is on again. The Cycle fails if the BMC says yes and does nothing, or reports that the
// server is off although the slot draws power.
func TestCycleIsProved(t *testing.T) {
	for name, test := range map[string]struct {
		keepsPower, lies bool
		state            v1alpha1.OrderState
		says             string
	}{
		"as it should be": {false, false, v1alpha1.OrderDone, "the server is on again"},
		"says yes and does nothing": {
			true, false, v1alpha1.OrderFailed, "the BMC was told 3 times to switch the server off, and the server is on",
		},
		"says that the server is off": {
			true, true, v1alpha1.OrderFailed, "the power reading of its slot says On, and its BMC says Off",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChassisOfOne(t)
			c.liesOnceTold = test.lies
			c.blade.Fault(func(f *standin.Faults) { f.KeepsPower = test.keepsPower })
			order := c.cycle()
			if order.State != test.state || !strings.Contains(order.Message, test.says) {
				t.Errorf("%+v", order)
			}
			orders := c.blade.Seen().Orders
			if wasSwitchedOn := slices.Contains(orders, "up"); !c.blade.On() || wasSwitchedOn == test.keepsPower {
				t.Errorf("it was told %v", orders)
			}
		})
	}
}
