package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// isolate has a user isolate atom003, or take that back.
func (s *scene) isolate(isWanted bool) {
	object := s.Servers[2].Object.DeepCopy()
	object.Spec.Isolated = nil
	if isWanted {
		object.Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "ECC errors"}
	}
	s.Servers[2].Object = object
}

// carryOut is the API server's part: nodes are cordoned and uncordoned.
func (s *scene) carryOut() {
	for _, cordon := range s.made.Cordons {
		for i := range s.Nodes {
			if s.Nodes[i].Name == cordon.Node {
				s.Nodes[i].Cordoned, s.Nodes[i].CordonedFor = !cordon.IsUndo, cordon.Server
				if cordon.IsUndo {
					s.Nodes[i].CordonedFor = ""
				}
			}
		}
	}
}

func cordons(made plan.Plan) string {
	var all []string
	for _, cordon := range made.Cordons {
		all = append(all, fmt.Sprint(cordon.Node, " for ", cordon.Server, " undo ", cordon.IsUndo))
	}
	return strings.Join(all, ", ")
}

// leaves is a Store whose master is on atom003 and leaves it.
func leaves(change func(*v1alpha1.Store)) func(*scene) {
	return func(s *scene) {
		s.Members = plan.MembersByNode([]v1alpha1.Store{newStore(func(store *v1alpha1.Store) {
			store.Status.Masters.Members[0].Node = "atom003"
			change(store)
		})})
	}
}

// An isolation goes on only once the node is cordoned, and nothing runs there that would be lost.
func TestIsolationWaits(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *scene)
		steps  string
		says   string
	}{
		"for nothing":              {func(*scene) {}, "Soft atom003", "False SwitchingOff: ECC errors; it is asked to shut down"},
		"of a node that is unlike": {func(s *scene) { s.Nodes[2].SystemUUID = "" }, "Soft atom003", "False SwitchingOff"},
		"for the cordon": {
			func(s *scene) { s.Nodes[2].Cordoned, s.Nodes[2].CordonedFor = false, "" }, "",
			"False MembersLeave: ECC errors; node atom003 is being cordoned",
		},
		"for a master": {leaves(func(store *v1alpha1.Store) {
			store.Status.Masters.Members[0].Evacuation = &v1alpha1.EvacuationStatus{WaitsFor: "db-master-1, which leaves first"}
		}), "", "False MembersLeave: ECC errors; waiting for db-master-0 of Store default/db to leave node atom003, which waits for " +
			"db-master-1, which leaves first"},
		"for the only copy": {leaves(func(store *v1alpha1.Store) {
			store.Spec.Replication.Factor = new(int32(0))
		}), "", "False DataWouldBeLost: ECC errors; its power stays, because without db-master-0, Store default/db would lose " +
			"what it holds: the Store has no copies"},
		"for a coordinator, whose state is in memory": {leaves(func(store *v1alpha1.Store) {
			store.Status.Coordinator = v1alpha1.CoordinatorStatus{Pod: "x", Node: "atom003", State: v1alpha1.StateMemory}
		}), "", "False DataWouldBeLost: ECC errors; its power stays, because without the coordinator, Store default/db would " +
			"lose every table"},
		"for a master before a coordinator": {leaves(func(store *v1alpha1.Store) {
			store.Status.Coordinator = v1alpha1.CoordinatorStatus{Pod: "x", Node: "atom003", State: v1alpha1.StateKubernetes}
		}), "", "waiting for db-master-0 of Store default/db to leave node atom003; and 1 more members"},
		"for a coordinator": {leaves(func(store *v1alpha1.Store) {
			store.Status.Coordinator = v1alpha1.CoordinatorStatus{Pod: "x", Node: "atom003", State: v1alpha1.StateKubernetes}
			store.Status.Masters.Members = nil
		}), "", "waiting for the coordinator of Store default/db to leave node atom003: kubectl drain atom003 evicts it"},
		"for a BMC": {silent, "", "False MembersLeave: ECC errors; waiting for BMC 192.168.5.3, which does not answer"},
		"for witnesses": {
			func(s *scene) { s.see(2, bmc.PowerOn, bmc.PowerOff) }, "", "whether the server is on is not known: its BMC says On, and",
		},
		"for what is in the slot": {func(s *scene) { s.Servers[2].Identity = nil }, "", "waiting for the BMC's system GUID"},
		"for who was in the slot long ago": {
			func(s *scene) { s.Servers[2].IdentityAt = s.now.Add(-time.Minute) }, "", "waiting for the BMC's system GUID",
		},
		"for a second server with its GUID": {func(s *scene) {
			s.Nodes[2].Cordoned, s.Nodes[2].CordonedFor = false, ""
			s.ElsewhereGUIDs = []plan.GUIDOf{{Server: "atom099", SystemGUID: s.Nodes[2].SystemUUID}}
		}, "", "False MembersLeave: ECC errors; the BMCs of atom003 and atom099 report the same system GUID"},
		"for its Chassis": {
			func(s *scene) { s.Layout.Problems = []layout.Problem{{}} }, "", "False NotAccepted: ECC errors; its Chassis is not accepted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.isolate(true)
			s.plan()
			expect(t, cordons(s.made), "atom003 for atom003 undo false")
			expect(t, steps(s.made), "")
			s.carryOut()
			test.change(s)
			expect(t, steps(s.plan()), test.steps)
			expect(t, s.condition("Isolated"), test.says)
		})
	}
}

// From the order to the proof, and back: what was on is on again, and what the operator has cordoned gets pods again.
func TestIsolationAndBack(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.isolate(true)
	s.plan()
	s.carryOut()
	s.pass(time.Second)
	expect(t, steps(s.made), "Soft atom003")
	s.pass(6 * time.Minute)
	expect(t, steps(s.made), "Off atom003")
	s.now = s.now.Add(2 * time.Second)
	s.see(2, bmc.PowerOff, bmc.PowerOff)
	s.Nodes[2].Ready = false
	s.plan()
	expect(t, s.condition("Isolated"), "True Isolated: ECC errors; it is off, as two witnesses say; its switch ports stay on, because "+
		"spec.switchPorts of the Chassis names none; kubectl rcbox isolate-server atom003 --undo brings it back")
	for _, action := range []v1alpha1.PowerAction{v1alpha1.ActionOn, v1alpha1.ActionCycle, v1alpha1.ActionReset} {
		s.order(2, action)
		s.plan()
		expect(t, s.orderOf(2), "Refused: the server is isolated (ECC errors): kubectl rcbox isolate-server atom003 --undo brings it back")
	}
	want(v1alpha1.WantOn)(s)
	s.pass(10 * time.Minute)
	expect(t, steps(s.made), "")
	want(v1alpha1.WantUnmanaged)(s)

	s.isolate(false)
	expect(t, steps(s.plan()), "On atom003")
	expect(t, cordons(s.made), "")
	s.now = s.now.Add(2 * time.Second)
	s.see(2, bmc.PowerOn, bmc.PowerOn)
	s.plan()
	expect(t, cordons(s.made), "")
	expect(t, s.condition("Isolated"), "False Returning: ECC errors; waiting for node atom003 to be ready; then it gets pods again")
	s.Nodes[2].Ready = true
	s.plan()
	expect(t, cordons(s.made), "atom003 for atom003 undo true")
	s.carryOut()
	s.plan()
	status := &s.Servers[2].Object.Status
	if status.Isolation != nil || meta.FindStatusCondition(status.Conditions, "Isolated") != nil || len(s.made.Cordons) > 0 {
		t.Errorf("it is back, and %+v, %+v, %v", status.Isolation, status.Conditions, s.made.Cordons)
	}
}

// A server that was off stays off, and gets pods again at once when somebody starts it. A node that somebody else cordoned stays cordoned.
func TestIsolationOfWhatIsOff(t *testing.T) {
	s := newScene(bmc.PowerOff)
	s.Nodes[2].Cordoned = true
	s.isolate(true)
	s.plan()
	expect(t, s.condition("Isolated"), "True Isolated")
	s.isolate(false)
	s.pass(time.Second)
	if steps(s.made) != "" || len(s.made.Cordons) > 0 || s.Servers[2].Object.Status.Isolation != nil {
		t.Errorf("%v, %v, %+v", s.made.Steps, s.made.Cordons, s.Servers[2].Object.Status.Isolation)
	}
}

// A server that was told to shut down when its isolation is taken back is started once it is off; a new order of a user counts more.
func TestIsolationTakenBackInTheMiddle(t *testing.T) {
	begin := func() *scene {
		s := newScene(bmc.PowerOn)
		s.isolate(true)
		s.plan()
		s.carryOut()
		s.pass(time.Second)
		s.isolate(false)
		return s
	}
	s := begin()
	s.pass(time.Second)
	expect(t, steps(s.made), "")
	expect(t, s.condition("Isolated"), "False Returning: ECC errors; the server was told to shut down before")
	s.now = s.now.Add(2 * time.Second)
	s.see(2, bmc.PowerOff, bmc.PowerOff)
	expect(t, steps(s.plan()), "On atom003")

	s = begin() // its operating system has not heard it
	s.pass(6 * time.Minute)
	expect(t, cordons(s.made), "atom003 for atom003 undo true")
	expect(t, steps(s.made), "")

	s = begin()
	s.order(2, v1alpha1.ActionOff)
	s.pass(time.Second)
	expect(t, steps(s.made), "Off atom003")
	s.now = s.now.Add(2 * time.Second)
	s.see(2, bmc.PowerOff, bmc.PowerOff)
	s.plan()
	s.carryOut()
	s.pass(time.Second)
	expect(t, s.orderOf(2), "Done")
	if steps(s.made) != "" || s.Servers[2].Object.Status.Isolation != nil || s.Nodes[2].Cordoned {
		t.Errorf("%v, %+v", s.made.Steps, s.Servers[2].Object.Status.Isolation)
	}
}

// Right before its power is taken away, it is looked once more whether that is still wanted, and whether its node gets no pods.
func TestLastLookForIsolation(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *scene)
		says   string
	}{
		"nothing has changed": {func(*scene) {}, ""},
		"it was taken back":   {func(s *scene) { s.isolate(false) }, "atom003: the server is not isolated any more"},
		"the node was uncordoned": {
			func(s *scene) { s.Nodes[2].Cordoned = false }, "atom003: node atom003 is being cordoned",
		},
		"a member has come": {leaves(func(*v1alpha1.Store) {}), "atom003: db-master-0 of Store default/db runs on it"},
	} {
		s := newScene(bmc.PowerOn)
		s.isolate(true)
		s.plan()
		s.carryOut()
		s.pass(time.Second)
		test.change(s)
		got := plan.WhyNotGiven(s.now, s.Observed, &s.made.Steps[0])
		if !strings.HasPrefix(got, test.says) || test.says == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
