package plan

import "rcbox.dev/rcbox/api/v1alpha1"

// MembersByNode are the masters and coordinators of Stores, which may not be switched off, by the node that they run on. A node that has
// none is drained.
func MembersByNode(stores []v1alpha1.Store) map[string][]Blocker {
	all := map[string][]Blocker{}
	for i := range stores {
		store := &stores[i]
		add := func(node, pod string, blocker Blocker) {
			if node == "" || pod == "" {
				return
			}
			blocker.Store = store.Namespace + "/" + store.Name
			if blocker.Why == "" {
				blocker.Why = "drain its node first: kubectl drain " + node
			}
			all[node] = append(all[node], blocker)
		}
		for j := range store.Status.Masters.Members {
			member := &store.Status.Masters.Members[j]
			blocker := Blocker{Member: member.Name}
			if member.Evacuation != nil {
				blocker.WaitsFor = member.Evacuation.WaitsFor
			}
			if store.Copies() == 0 {
				blocker.Loses = "what it holds: the Store has no copies"
			}
			add(member.Node, member.Pod, blocker)
		}
		coordinator := &store.Status.Coordinator
		leader := Blocker{Member: "the coordinator", IsCoordinator: true}
		if store.LosesTables() {
			leader.Loses = "every table"
			leader.Why = "its state is in memory (coordinator.state.type), and a drain loses that, too: save what the Store holds first"
		}
		add(coordinator.Node, coordinator.Pod, leader)
		for j := range coordinator.Standbys {
			standby := &coordinator.Standbys[j]
			add(standby.Node, standby.Pod, Blocker{Member: "the standby " + standby.Name, IsCoordinator: true})
		}
	}
	return all
}
