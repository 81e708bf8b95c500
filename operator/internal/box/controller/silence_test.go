package controller

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

var noon = time.Date(2026, 5, 20, 12, 0, 0, 0, time.UTC)

func renewed(at time.Time) *coordinationv1.Lease {
	const duration = int32(40)
	seconds, renewTime := duration, metav1.NewMicroTime(at)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &renewTime, LeaseDurationSeconds: &seconds},
	}
}

// A kubelet whose clock is wrong is silent no earlier and no later than another one.
func TestSilenceIsByOurOwnClock(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"right": 0, "late": -time.Hour, "early": time.Hour} {
		var heard heartbeats
		if !heard.silentFrom("n1", 0).IsZero() {
			t.Errorf("%s: a kubelet that was never heard is silent at some time", name)
		}
		heard.note(renewed(noon.Add(wrong)), poll.Moment{Wall: noon})
		heard.note(renewed(noon.Add(wrong)), poll.Moment{Wall: noon.Add(10 * time.Second)}) // seen again, and not renewed
		if got := heard.silentFrom("n1", 0); !got.Equal(noon.Add(15 * time.Second)) {
			t.Errorf("%s: silent from %s", name, got)
		}
		heard.note(renewed(noon.Add(wrong+10*time.Second)), poll.Moment{Wall: noon.Add(10 * time.Second)})
		if got := heard.silentFrom("n1", 0); !got.Equal(noon.Add(25 * time.Second)) {
			t.Errorf("%s: silent from %s after a renewal", name, got)
		}
	}
}

// A jump of the clock makes no kubelet silent: its time begins anew with the next renewal.
func TestSilenceAfterAJump(t *testing.T) {
	var heard heartbeats
	heard.note(renewed(noon), poll.Moment{Wall: noon})
	if got := heard.silentFrom("n1", 1); !got.IsZero() {
		t.Errorf("silent from %s", got)
	}
	heard.note(renewed(noon), poll.Moment{Wall: noon.Add(time.Hour), Jumps: 1})
	if got := heard.silentFrom("n1", 1); !got.Equal(noon.Add(time.Hour + 15*time.Second)) {
		t.Errorf("silent from %s", got)
	}
}

// storeThatLostItsMember is what the operator writes of a Store before it asks for a fence.
func storeThatLostItsMember() (*v1alpha1.Store, *v1alpha1.NodeFence) {
	since, proven := metav1.NewTime(noon), metav1.NewTime(noon.Add(time.Second))
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "default"}}
	store.Status.Fences = []v1alpha1.FenceStatus{{Node: "n1", Type: v1alpha1.FencingBMC, Member: "box-master-0", Since: since}}
	store.Status.Masters.Members = []v1alpha1.MemberStatus{
		{
			Name:          "box-master-0",
			MemberFigures: v1alpha1.MemberFigures{Pod: "p0", Node: "n1"},
			MemberRecord: v1alpha1.MemberRecord{
				DeadSince: &since,
				Lost:      &v1alpha1.LostStatus{Node: "n1", Cause: v1alpha1.NodeSilent, Since: since, ProvenAt: &proven},
			},
		},
		{Name: "box-master-1", MemberFigures: v1alpha1.MemberFigures{Pod: "p1", Node: "n2"}},
	}
	store.Status.Coordinator = v1alpha1.CoordinatorStatus{Pod: "c", Node: "n3"}
	return store, &v1alpha1.NodeFence{Spec: v1alpha1.NodeFenceSpec{StoreName: "box", Node: "n1", LostSince: since}}
}

// A NodeFence is worth what the Store's status says, and nothing where that does not have it.
func TestVerdictIsTheStatusOfTheStore(t *testing.T) {
	if store, fence := storeThatLostItsMember(); !isDecided(store, fence) {
		t.Fatal("the verdict is not found")
	}
	for name, change := range map[string]func(*v1alpha1.Store, *v1alpha1.NodeFence){
		"the operator has not decided": func(s *v1alpha1.Store, _ *v1alpha1.NodeFence) { s.Status.Fences = nil },
		"it is of another loss": func(_ *v1alpha1.Store, f *v1alpha1.NodeFence) {
			f.Spec.LostSince = metav1.NewTime(noon.Add(time.Hour))
		},
		"it is of another node": func(_ *v1alpha1.Store, f *v1alpha1.NodeFence) { f.Spec.Node = "n2" },
		"it is fenced in another way": func(s *v1alpha1.Store, _ *v1alpha1.NodeFence) {
			s.Status.Fences[0].Type = v1alpha1.FencingRemediation
		},
		"the member lives": func(s *v1alpha1.Store, _ *v1alpha1.NodeFence) {
			s.Status.Masters.Members[0].DeadSince = nil
		},
		"something may be lost": func(s *v1alpha1.Store, _ *v1alpha1.NodeFence) {
			s.Status.Masters.Members[0].Lost.ProvenAt = nil
		},
		"the member is not lost": func(s *v1alpha1.Store, _ *v1alpha1.NodeFence) {
			s.Status.Masters.Members[0].Lost = nil
		},
		"the member is elsewhere by now": func(s *v1alpha1.Store, _ *v1alpha1.NodeFence) {
			s.Status.Masters.Members[0].Node = "n2"
		},
	} {
		store, fence := storeThatLostItsMember()
		if change(store, fence); isDecided(store, fence) {
			t.Errorf("%s, and it counts", name)
		}
	}
}

// Who speaks for a node: masters that are not declared dead, and coordinators that lead.
func TestWhoIsAlive(t *testing.T) {
	store, _ := storeThatLostItsMember()
	alive := aliveByNode([]v1alpha1.Store{*store})
	if len(alive["n1"]) > 0 || !slices.Equal(alive["n2"], []string{"box-master-1 of Store default/box"}) ||
		!slices.Equal(alive["n3"], []string{"coordinator c of Store default/box"}) {
		t.Errorf("%v", alive)
	}
}

// A process serves on a node if it is a master that is up, or a coordinator that answers, in the status that the operator wrote last.
func TestWhoServes(t *testing.T) {
	since := metav1.NewTime(noon)
	serving := func(change func(*v1alpha1.Store)) map[string][]plan.Process {
		store, _ := storeThatLostItsMember()
		store.Status.Masters.Members[1].State, store.Status.Coordinator.Ready = v1alpha1.MemberUp, true
		change(store)
		return servingByNode([]v1alpha1.Store{*store})
	}
	all := serving(func(*v1alpha1.Store) {})
	if len(all["n1"]) > 0 || !slices.Equal(all["n2"], []plan.Process{{Store: "default/box", Name: "box-master-1"}}) ||
		!slices.Equal(all["n3"], []plan.Process{{Store: "default/box", Name: "coordinator c"}}) {
		t.Errorf("%v", all)
	}
	for name, change := range map[string]func(*v1alpha1.Store){
		"declared dead": func(s *v1alpha1.Store) { s.Status.Masters.Members[1].DeadSince = &since },
		"not connected": func(s *v1alpha1.Store) { s.Status.Masters.Members[1].State = v1alpha1.MemberUnreachable },
		"not known":     func(s *v1alpha1.Store) { s.Status.Masters.Members[1].State = v1alpha1.MemberUnknown },
		"not serving":   func(s *v1alpha1.Store) { s.Status.Masters.Members[1].NotServingSince = &since },
		"without a pod": func(s *v1alpha1.Store) { s.Status.Masters.Members[1].Pod = "" },
	} {
		if got := serving(change)["n2"]; len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name, change := range map[string]func(*v1alpha1.Store){
		"not ready": func(s *v1alpha1.Store) { s.Status.Coordinator.Ready = false },
		"silent":    func(s *v1alpha1.Store) { s.Status.Coordinator.SilentSince = &since },
	} {
		if got := serving(change)["n3"]; len(got) > 0 {
			t.Errorf("coordinator %s: %v", name, got)
		}
	}
}
