package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// clusterOfStrangers has two Chassis, and NodeFences in a namespace that neither names. It counts reads and writes.
type clusterOfStrangers struct {
	client.Client

	lists, writes map[string]int
	// read is the number of NodeFences in all lists that were read.
	read int
}

const (
	strangersNamespace, namedNamespace = "strangers", "stores"
	manyFences                         = 300
)

func newClusterOfStrangers(t *testing.T) *clusterOfStrangers {
	t.Helper()
	c := &clusterOfStrangers{lists: map[string]int{}, writes: map[string]int{}}
	builder := fake.NewClientBuilder().WithScheme(newScheme(t)).WithIndex(&v1alpha1.NodeFence{}, acceptedIndex, acceptedOf).
		WithStatusSubresource(&v1alpha1.NodeFence{}, &v1alpha1.Chassis{}, &v1alpha1.Server{}).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				err := api.List(ctx, list, options...)
				c.lists[fmt.Sprintf("%T", list)]++
				if fences, is := list.(*v1alpha1.NodeFenceList); is {
					c.read += len(fences.Items)
				}
				return err
			},
			SubResourceUpdate: func(
				ctx context.Context, api client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption,
			) error {
				c.writes[fmt.Sprintf("%T", object)]++
				return api.SubResource(name).Update(ctx, object, options...)
			},
		})
	for n := range 2 {
		chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("mercury%d", n+1), UID: "its-uid"}}
		chassis.Spec = v1alpha1.ChassisSpec{
			Model: "EmulatedRack", NamePrefix: "atom", FirstServer: int32(1 + 4*n), Slots: "1-4",
			Management: v1alpha1.ChassisManagement{MMC: fmt.Sprintf("192.168.5.%d+4", 1+4*n), CredentialsSecret: "bmc"},
			Fencing:    v1alpha1.ChassisFencing{Namespaces: []string{namedNamespace}},
		}
		builder = builder.WithObjects(chassis)
	}
	for n := range manyFences {
		builder = builder.WithObjects(&v1alpha1.NodeFence{
			ObjectMeta: metav1.ObjectMeta{Namespace: strangersNamespace, Name: fmt.Sprint("f", n)},
			Spec:       v1alpha1.NodeFenceSpec{StoreName: "box", Node: fmt.Sprint("n", n), SystemUUID: fmt.Sprintf("%036d", n+1)},
		})
	}
	c.Client = builder.Build()
	return c
}

// NodeFences in a namespace that no Chassis names cost the reconciliation of a Chassis nothing. Each reconciliation reads each kind once.
func TestStrangersCostNoRound(t *testing.T) {
	api := newClusterOfStrangers(t)
	r := &Reconciler{
		Client: api, Live: api, Recorder: events.NewFakeRecorder(1000), Times: plan.DefaultTimes, Namespace: "rcbox-system",
		Clock: poll.NewClock(), Poller: &poll.Poller{Clock: poll.NewClock()},
	}
	for _, name := range []string{"mercury1", "mercury2"} {
		clear(api.lists)
		if _, err := r.Reconcile(t.Context(), request(name)); err != nil {
			t.Fatal(err)
		}
		for kind, times := range api.lists {
			most := 1
			if strings.Contains(kind, "NodeFence") {
				most = 2 // a list of the accepted ones, and one of the named namespace
			}
			if times > most {
				t.Errorf("a look at %s lists %s %d times", name, kind, times)
			}
		}
	}
	if api.read > 0 || api.writes["*v1alpha1.NodeFence"] > 0 {
		t.Errorf("the looks read %d NodeFences of strangers, and write %v", api.read, api.writes)
	}
	fence := &v1alpha1.NodeFence{}
	fence.Namespace = strangersNamespace
	if all := r.allForFence(t.Context(), fence); len(all) > 0 {
		t.Errorf("a NodeFence of a stranger has %v looked at", all)
	}
	fence.Namespace = namedNamespace
	if all := r.allForFence(t.Context(), fence); len(all) != 2 {
		t.Errorf("another one has %v looked at", all)
	}
}

// They are refused once, with a message that says what to write. Once a Chassis names the namespace, that Chassis decides on them, and
// accepted NodeFences stay accepted.
func TestStrangersAreRefused(t *testing.T) {
	api := newClusterOfStrangers(t)
	s := &strangers{Client: api, Recorder: events.NewFakeRecorder(1000)}
	get := func(name string) *v1alpha1.NodeFence {
		fence := &v1alpha1.NodeFence{}
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: strangersNamespace, Name: name}, fence); err != nil {
			t.Fatal(err)
		}
		return fence
	}
	look := func(name string) {
		_, err := s.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: strangersNamespace, Name: name}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		look("f7")
	}
	const says = "none of the 2 Chassis lists namespace strangers in spec.fencing.namespaces: add it to the Chassis of node n7 to let " +
		"the namespace's Stores fence that node"
	if status := get("f7").Status; status.State != v1alpha1.NodeFenceRefused || status.Message != says {
		t.Errorf("%+v", status)
	}
	if writes := api.writes["*v1alpha1.NodeFence"]; writes != 1 {
		t.Errorf("it was written %d times", writes)
	}
	look("gone")
	accepted, now := get("f8"), metav1.Now()
	accepted.Status = v1alpha1.NodeFenceStatus{State: v1alpha1.NodeFenceDone, AcceptedAt: &now}
	if err := api.Status().Update(t.Context(), accepted); err != nil {
		t.Fatal(err)
	}
	if look("f8"); get("f8").Status.State != v1alpha1.NodeFenceDone {
		t.Error("what was accepted before is refused by somebody who does not know its server")
	}
	chassis := &v1alpha1.Chassis{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "mercury2"}, chassis); err != nil {
		t.Fatal(err)
	}
	chassis.Spec.Fencing.Namespaces = []string{strangersNamespace}
	if err := api.Update(t.Context(), chassis); err != nil {
		t.Fatal(err)
	}
	if look("f9"); get("f9").Status.State != "" {
		t.Errorf("a Chassis names its namespace, and it is %+v", get("f9").Status)
	}
	if all := s.all(t.Context(), nil); len(all) != manyFences {
		t.Errorf("a change of a Chassis has %d NodeFences looked at", len(all))
	}
}
