package plan_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// newStore has a master on the node atom004, and change has more of it elsewhere.
func newStore(change func(*v1alpha1.Store)) v1alpha1.Store {
	store := v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}}
	store.Spec.Replication.Factor = new(int32(1))
	store.Status.Coordinator = v1alpha1.CoordinatorStatus{State: v1alpha1.StateKubernetes}
	store.Status.Masters.Members = []v1alpha1.MemberStatus{
		{Name: "db-master-0", MemberFigures: v1alpha1.MemberFigures{Node: "atom004", Pod: "db-master-0-x"}},
	}
	change(&store)
	return store
}

// Masters, coordinators and standbys of Stores keep the server that they run on from being switched off.
func TestMembersOfStores(t *testing.T) {
	const drain = "drain its node first: kubectl drain atom003"
	leader := func(state v1alpha1.StateType) func(*v1alpha1.Store) {
		return func(s *v1alpha1.Store) {
			s.Status.Coordinator.Pod, s.Status.Coordinator.Node, s.Status.Coordinator.State = "db-coordinator-x", "atom003", state
		}
	}
	for name, test := range map[string]struct {
		change      func(*v1alpha1.Store)
		steps, says string
	}{
		"nobody": {func(*v1alpha1.Store) {}, "Off atom003", "Running"},
		"a master": {func(s *v1alpha1.Store) {
			s.Status.Masters.Members[0].Node = "atom003"
		}, "", "Refused: db-master-0 of Store default/db runs on it: " + drain},
		"a master without copies": {func(s *v1alpha1.Store) {
			s.Status.Masters.Members[0].Node, s.Spec.Replication.Factor = "atom003", new(int32(0))
		}, "", "force loses what it holds: the Store has no copies"},
		"a coordinator": {
			leader(v1alpha1.StateKubernetes), "",
			"Refused: the coordinator of Store default/db runs on it: " + drain,
		},
		"a coordinator with its state in a volume": {
			leader(v1alpha1.StateVolume), "",
			"Refused: the coordinator of Store default/db runs on it: " + drain,
		},
		"a coordinator with its state in memory": {
			leader(v1alpha1.StateMemory), "",
			"Refused: the coordinator of Store default/db runs on it: its state is in memory (coordinator.state.type), and a drain " +
				"loses that, too: save what the Store holds first; force loses every table",
		},
		"a coordinator of which the spec alone says that its state is in memory": {func(s *v1alpha1.Store) {
			leader("")(s)
			s.Spec.Coordinator.State.Type = v1alpha1.StateMemory
		}, "", "force loses every table"},
		"a coordinator that is to lose its memory": {func(s *v1alpha1.Store) {
			leader(v1alpha1.StateMemory)(s)
			s.Spec.Coordinator.State.Type = v1alpha1.StateVolume
		}, "", "force loses every table"},
		"the loss is said, whoever is first": {func(s *v1alpha1.Store) {
			leader(v1alpha1.StateMemory)(s)
			s.Status.Masters.Members[0].Node = "atom003"
		}, "", "; and 1 more members; force loses every table"},
		"a standby": {func(s *v1alpha1.Store) {
			s.Status.Coordinator.Standbys = []v1alpha1.StandbyStatus{{Name: "db-coordinator-1", Pod: "db-coordinator-1-x", Node: "atom003"}}
		}, "", "Refused: the standby db-coordinator-1 of Store default/db runs on it: " + drain},
		"a coordinator without a pod": {func(s *v1alpha1.Store) {
			leader(v1alpha1.StateMemory)(s)
			s.Status.Coordinator.Pod = ""
		}, "Off atom003", "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.order(2, v1alpha1.ActionOff)
			s.Members = plan.MembersByNode([]v1alpha1.Store{newStore(test.change)})
			expect(t, steps(s.plan()), test.steps)
			expect(t, s.orderOf(2), test.says)
		})
	}
}
