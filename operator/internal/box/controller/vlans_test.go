package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/poll"
	"rcbox.dev/rcbox/operator/internal/box/vlan"
)

// vlanRack is a chassis whose BMCs are reached in one VLAN only, and a cluster.
type vlanRack struct {
	lock     sync.Mutex
	api      client.Client
	now      time.Time
	vlans    map[string]int
	isMerged bool
	// loses: the next BMC that is told moves, and its answer is lost.
	loses bool
}

// vlanBMC is a session with one of them; its address is that of its number.
type vlanBMC struct {
	rack *vlanRack
	name string
}

func (r *vlanRack) isReached(name string) bool { return (r.vlans[name] == 0) == r.isMerged }

func (b vlanBMC) VLAN(context.Context) (int, error) {
	b.rack.lock.Lock()
	defer b.rack.lock.Unlock()
	if !b.rack.isReached(b.name) {
		return 0, bmc.ErrSilent
	}
	return b.rack.vlans[b.name], nil
}

func (b vlanBMC) SetVLAN(_ context.Context, id int) error {
	b.rack.lock.Lock()
	defer b.rack.lock.Unlock()
	if !b.rack.isReached(b.name) {
		return bmc.ErrSilent
	}
	b.rack.vlans[b.name] = id
	if b.rack.loses {
		b.rack.loses = false
		return bmc.ErrSilent
	}
	return nil
}

func (vlanBMC) Close() error { return errors.New("it has moved") }

func (r *vlanRack) start(t *testing.T) *VLANs {
	t.Helper()
	sessions := pool.New(pool.Config{})
	t.Cleanup(sessions.Close)
	poller := &poll.Poller{Pool: sessions, Clock: poll.NewClock()}
	wanted := map[string]poll.Want{}
	for name := range r.vlans {
		wanted[name] = poll.Want{Target: pool.Target{Name: name, Access: bmc.Access{Protocol: bmc.IPMI, Username: name}}}
	}
	poller.Set("mercury1", wanted)
	return &VLANs{
		Client: r.api, Recorder: events.NewFakeRecorder(1000), Poller: poller, Now: func() time.Time { return r.now },
		Dial: func(_ context.Context, access bmc.Access) (VLANSession, error) {
			return vlanBMC{r, access.Username}, nil
		},
		answers: map[string]*vlan.Answer{}, silent: map[string]time.Time{},
	}
}

// TestVLANs: the controller is killed and started again after each look, loses an answer, and is told what somebody has seen.
func TestVLANs(t *testing.T) {
	chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1", UID: "1"}}
	chassis.Spec.Management.VLAN = 1
	objects := []client.Object{chassis}
	rack := &vlanRack{now: time.Now(), vlans: map[string]int{}, loses: true}
	for i := range 6 {
		name := fmt.Sprintf("atom%03d", i+1)
		rack.vlans[name] = 4092
		objects = append(objects, &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: []metav1.OwnerReference{ownedBy(chassis)},
		}})
	}
	rack.api = fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.Server{}, &v1alpha1.Chassis{}).Build()
	phases := map[string]bool{}
	for range 40 {
		rack.now = rack.now.Add(20 * time.Second)
		if _, err := rack.start(t).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "mercury1"}}); err != nil {
			t.Fatal(err)
		}
		if err := rack.api.Get(t.Context(), client.ObjectKey{Name: "mercury1"}, chassis); err != nil {
			t.Fatal(err)
		}
		phase := chassis.Status.VLAN.Phase
		phases[phase] = true
		switch phase {
		case "Blocked": // the one whose answer was lost
			rack.confirm(t)
		case "Switch":
			for name, id := range rack.vlans {
				if id != 0 {
					t.Fatalf("the switch boards come next, and %s is in VLAN %d", name, id)
				}
			}
			rack.isMerged = true
		case "Done":
			if !phases["MMCs"] || !phases["Blocked"] || !phases["Switch"] {
				t.Errorf("phases were %v", phases)
			}
			return
		}
	}
	t.Errorf("it does not end: %+v", chassis.Status.VLAN)
}

// confirm is what somebody does who asks the chassis manager about each BMC that has given no answer.
func (r *vlanRack) confirm(t *testing.T) {
	t.Helper()
	list := &v1alpha1.ServerList{}
	if err := r.api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		server := &list.Items[i]
		if of := server.Status.MMC.VLAN; of.Stage != "Told" || of.Agreed || r.vlans[server.Name] != 0 {
			continue
		}
		server.Annotations = map[string]string{v1alpha1.AnnotationVLANMoved: "1"}
		if err := r.api.Update(t.Context(), server); err != nil {
			t.Fatal(err)
		}
	}
}
