package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// carrying is a chassis whose first servers carry masters of a Store, on the nodes n1 and on; the last one of more is elsewhere.
func carrying(copies int32, nodes ...string) []client.Object {
	objects := mercury()
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "default"}}
	store.Spec.Masters.Replicas = int32(len(nodes))
	store.Spec.Replication.Factor = &copies
	store.Spec.Backups.Storage.Type = v1alpha1.StorageVolume
	for i, node := range nodes {
		store.Status.Masters.Members = append(store.Status.Masters.Members, v1alpha1.MemberStatus{
			Name:          v1alpha1.MasterMember("box", i),
			MemberFigures: v1alpha1.MemberFigures{Node: node, Pod: "pod-on-" + node},
		})
		if node != "n1" {
			objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		}
		if server, isServer := objects[1+i].(*v1alpha1.Server); isServer && node != "elsewhere" {
			server.Status.Node, server.Status.Power.State = node, v1alpha1.PowerOn
		}
	}
	for _, name := range []string{"box-coordinator-x", "box-coordinator-1-x"} {
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	return append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, store)
}

// onNode1 has n1 run on the last server.
func onNode1(objects []client.Object) []client.Object {
	if server, isServer := objects[10].(*v1alpha1.Server); isServer {
		server.Status.Node, server.Status.Power.State = "n1", v1alpha1.PowerOn
	}
	return objects
}

// withCoordinator has the coordinator on n1, and withStandby a standby.
func withCoordinator(state v1alpha1.StateType) func(*v1alpha1.Store) {
	return func(s *v1alpha1.Store) {
		s.Status.Coordinator = v1alpha1.CoordinatorStatus{Pod: "box-coordinator-x", Node: "n1", State: state}
	}
}

func withStandby(s *v1alpha1.Store) {
	s.Status.Coordinator = v1alpha1.CoordinatorStatus{
		Pod: "box-coordinator-x", Node: "elsewhere", State: v1alpha1.StateKubernetes,
		Standbys: []v1alpha1.StandbyStatus{{Name: "box-coordinator-1", Pod: "box-coordinator-1-x", Node: "n1"}},
	}
}

// Members leave before servers are shut down, and nothing is where something would be lost.
func TestDownMakesRoom(t *testing.T) {
	for name, test := range map[string]struct {
		objects    []client.Object
		change     func(*v1alpha1.Store)
		says       string
		isCordoned bool
		hibernates bool
	}{
		"drains": {
			carrying(1, "n1", "n2", "elsewhere"), nil, "waiting for members to leave: default/box: box-master-0, box-master-1", true, false,
		},
		"hibernates": {carrying(1, "n1", "n2"), nil, "waiting for members to leave", false, true},
		"no copies": {
			carrying(0, "n1", "elsewhere"), nil,
			"nothing was shut down: the Store default/box has no copies, so what box-master-0 holds would be lost", false, false,
		},
		"cannot sleep": {
			carrying(1, "n1", "n2"), func(s *v1alpha1.Store) { s.Spec.Coordinator.State.Type = v1alpha1.StateMemory },
			"all masters of Store default/box run there, and it cannot be hibernated", false, false,
		},
		"the coordinator": {
			onNode1(carrying(1, "elsewhere")), withCoordinator(v1alpha1.StateKubernetes),
			"waiting for members to leave: default/box: coordinator box-coordinator-x", true, false,
		},
		"the coordinator, after members": {
			onNode1(carrying(1, "n2", "elsewhere")), withCoordinator(v1alpha1.StateKubernetes),
			"waiting for members to leave: default/box: box-master-0, coordinator box-coordinator-x", true, false,
		},
		"a standby": {
			onNode1(carrying(1, "elsewhere")), withStandby,
			"waiting for members to leave: default/box: standby box-coordinator-1", true, false,
		},
		"the coordinator, and all masters": {
			onNode1(carrying(1, "n2")), withCoordinator(v1alpha1.StateKubernetes), "Store default/box is hibernated", false, true,
		},
		"every table": {
			onNode1(carrying(1, "elsewhere")), withCoordinator(v1alpha1.StateMemory),
			"nothing was shut down: the coordinator of Store default/box runs there with its state in memory, so every table would be lost",
			false, false,
		},
		"cannot sleep, by the status": {
			carrying(1, "n1", "n2"), func(s *v1alpha1.Store) { s.Status.Coordinator.State = v1alpha1.StateMemory },
			"all masters of Store default/box run there, and it cannot be hibernated", false, false,
		},
		"stays on drained nodes": {
			carrying(1, "n1", "elsewhere"), func(s *v1alpha1.Store) { s.Spec.Recovery.DrainedNodes = v1alpha1.DrainedWait },
			"recovery.drainedNodes: Wait", false, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if store, isStore := test.objects[len(test.objects)-1].(*v1alpha1.Store); isStore && test.change != nil {
				test.change(store)
			}
			h := newHarness(t, test.objects...)
			code, out, errs := h.run("down", "mercury1", "--timeout=100ms")
			if code == 0 || !strings.Contains(out+errs, test.says) {
				t.Fatalf("%d: %s%s", code, out, errs)
			}
			if order := h.server("atom001").Spec.Order; order != nil {
				t.Errorf("it is shut down while a member runs there: %+v", order)
			}
			node, store := &corev1.Node{}, &v1alpha1.Store{}
			for key, object := range map[client.ObjectKey]client.Object{{Name: "n1"}: node, {Namespace: "default", Name: "box"}: store} {
				if err := h.client.Get(t.Context(), key, object); err != nil {
					t.Fatal(err)
				}
			}
			if node.Spec.Unschedulable != test.isCordoned || store.Spec.Hibernated != test.hibernates {
				t.Errorf("cordoned %v, hibernated %v", node.Spec.Unschedulable, store.Spec.Hibernated)
			}
		})
	}
}

// Coordinators are evicted, but only once no master is left there whose drain needs them, and never where that would lose something.
func TestDownEvictsCoordinators(t *testing.T) {
	memory := func(s *v1alpha1.Store) { withCoordinator(v1alpha1.StateMemory)(s) }
	for name, test := range map[string]struct {
		objects   []client.Object
		change    func(*v1alpha1.Store)
		isEvicted bool
	}{
		"alone":            {onNode1(carrying(1, "elsewhere")), withCoordinator(v1alpha1.StateKubernetes), true},
		"with a volume":    {onNode1(carrying(0, "elsewhere")), withCoordinator(v1alpha1.StateVolume), true},
		"with masters":     {onNode1(carrying(1, "n2", "elsewhere")), withCoordinator(v1alpha1.StateKubernetes), false},
		"with all masters": {onNode1(carrying(1, "n2")), withCoordinator(v1alpha1.StateKubernetes), false},
		"asleep": {onNode1(carrying(1)), func(s *v1alpha1.Store) {
			withCoordinator(v1alpha1.StateKubernetes)(s)
			s.Spec.Hibernated = true
		}, false},
		"in memory": {onNode1(carrying(1, "elsewhere")), memory, false},
		"elsewhere": {onNode1(carrying(1, "n2", "elsewhere")), withStandby, false},
	} {
		t.Run(name, func(t *testing.T) {
			if store, isStore := test.objects[len(test.objects)-1].(*v1alpha1.Store); isStore {
				test.change(store)
			}
			h := newHarness(t, test.objects...)
			if code, out, errs := h.run("down", "mercury1", "--timeout=100ms"); code == 0 {
				t.Fatalf("%d: %s%s", code, out, errs)
			}
			err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "box-coordinator-x"}, &corev1.Pod{})
			if apierrors.IsNotFound(err) != test.isEvicted {
				t.Errorf("the coordinator's pod: %v", err)
			}
		})
	}
}

// Force says what is lost first.
func TestForceSaysWhatIsLost(t *testing.T) {
	inMemory := func(s *v1alpha1.Store) { s.Spec.Backups.Storage.Type = v1alpha1.StorageMemory }
	for name, test := range map[string]struct {
		objects []client.Object
		change  func(*v1alpha1.Store)
		says    string
	}{
		"no copies": {
			carrying(0, "n1", "elsewhere"), nil,
			"Store default/box loses what box-master-0 holds: it has no copies\n",
		},
		"every table": {
			onNode1(carrying(1, "elsewhere")), withCoordinator(v1alpha1.StateMemory),
			"Store default/box loses every table",
		},
		"a coordinator": {
			onNode1(carrying(0, "elsewhere")), withCoordinator(v1alpha1.StateVolume),
			"Store default/box loses no data: coord",
		},
		"copies": {
			carrying(1, "n1", "elsewhere"), nil,
			"loses no data while all of its copies are there: box-master-0 ends without",
		},
		"too few copies": {
			carrying(1, "n1", "n2", "elsewhere"), nil,
			"may not serve it until servers are back: box-master-0, box-master-1 end",
		},
		"copies in memory": {
			carrying(1, "n1", "n2", "elsewhere"), inMemory,
			"Store default/box may lose data: box-master-0, box-master-1",
		},
		"an unknown server": {
			carrying(1, "n1", "elsewhere"), nil,
			"whether members of Stores run on atom009 is not known",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if store, isStore := test.objects[len(test.objects)-1].(*v1alpha1.Store); isStore && test.change != nil {
				test.change(store)
			}
			if server, isServer := test.objects[9].(*v1alpha1.Server); isServer {
				server.Status.Power.State = v1alpha1.PowerOn
			}
			for _, verb := range [][]string{{"down", "mercury1"}, {"power", "mercury1", "off"}, {"power", "1-10", "cycle"}} {
				h := newHarness(t, test.objects...)
				if text := h.must(append(verb, "--force", "--wait=false")...); !strings.Contains(text, test.says) ||
					strings.Index(text, test.says) > strings.Index(text, "is ordered of") {
					t.Errorf("%v says: %s", verb, text)
				}
			}
			h := newHarness(t, test.objects...)
			if text := h.must("up", "mercury1", "--force", "--wait=false"); strings.Contains(text, "lose") {
				t.Errorf("up says: %s", text)
			}
		})
	}
}

// Once nobody runs there any more, and with --force at once, servers are shut down.
func TestDownGoesOn(t *testing.T) {
	for name, test := range map[string]struct {
		objects []client.Object
		options []string
	}{
		"nobody there": {carrying(0, "elsewhere"), nil},
		"force":        {carrying(0, "n1"), []string{"--force"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, test.objects...)
			h.must(append([]string{"down", "mercury1", "--wait=false"}, test.options...)...)
			if order := h.server("atom001").Spec.Order; order == nil || order.Action != v1alpha1.ActionSoft {
				t.Errorf("%+v", order)
			}
		})
	}
}
