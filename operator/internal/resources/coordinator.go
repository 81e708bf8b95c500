package resources

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	coordinationac "k8s.io/client-go/applyconfigurations/coordination/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryac "k8s.io/client-go/applyconfigurations/discovery/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// What a coordinator with its state in Kubernetes needs. Its names for these objects are made as the program makes them
// (--stateName is the Store's name).

const rbacGroup = "rbac.authorization.k8s.io"

// LeaderLease is the name of the Lease by which coordinators elect one of them.
func LeaderLease(store *v1alpha1.Store) string { return store.Name + "-coordinator" }

// LeaderSlice is the name of the EndpointSlice through which a Service leads to the leader.
func LeaderSlice(service string) string { return service + "-leader" }

// CoordinatorAccount is the name of the coordinators' ServiceAccount, Role and RoleBinding.
func CoordinatorAccount(store *v1alpha1.Store) string { return v1alpha1.CoordinatorMember(store.Name) }

// ServiceAccount is what the coordinators are to the API server.
func ServiceAccount(store *v1alpha1.Store) *coreac.ServiceAccountApplyConfiguration {
	return coreac.ServiceAccount(CoordinatorAccount(store), store.Namespace).
		WithLabels(StoreLabels(store.Name)).
		WithOwnerReferences(Owner(store)).
		WithAutomountServiceAccountToken(false) // those pods that need it say so
}

// Role is what the coordinators may do: with named objects only, as far as rights can name them. The names of the state's chunks
// are made on the way; so a coordinator may make, read and delete any ConfigMap of its namespace, but change only its root.
func Role(store *v1alpha1.Store) *rbacac.RoleApplyConfiguration {
	rule := func(group, resource string, verbs ...string) *rbacac.PolicyRuleApplyConfiguration {
		return rbacac.PolicyRule().WithAPIGroups(group).WithResources(resource).WithVerbs(verbs...)
	}
	return rbacac.Role(CoordinatorAccount(store), store.Namespace).
		WithLabels(StoreLabels(store.Name)).
		WithOwnerReferences(Owner(store)).
		WithRules(
			rule("", "configmaps", "create", "list", "get", "delete"),
			rule("", "configmaps", "patch").WithResourceNames(v1alpha1.StateRoot(store.Name)),
			rule("coordination.k8s.io", "leases", "get", "update").WithResourceNames(LeaderLease(store)),
			rule("discovery.k8s.io", "endpointslices", "get", "update").
				WithResourceNames(LeaderSlice(ClientService(store)), LeaderSlice(InternalService(store))),
		)
}

// RoleBinding gives the Role to the ServiceAccount.
func RoleBinding(store *v1alpha1.Store) *rbacac.RoleBindingApplyConfiguration {
	name := CoordinatorAccount(store)
	return rbacac.RoleBinding(name, store.Namespace).
		WithLabels(StoreLabels(store.Name)).
		WithOwnerReferences(Owner(store)).
		WithRoleRef(rbacac.RoleRef().WithAPIGroup(rbacGroup).WithKind("Role").WithName(name)).
		WithSubjects(rbacac.Subject().WithKind("ServiceAccount").WithNamespace(store.Namespace).WithName(name))
}

// Lease is there for the coordinators to write into: so they need no right to make one.
func Lease(store *v1alpha1.Store) *coordinationac.LeaseApplyConfiguration {
	return coordinationac.Lease(LeaderLease(store), store.Namespace).
		WithLabels(StoreLabels(store.Name)).
		WithOwnerReferences(Owner(store))
}

// EndpointSlices are there for the leader to write itself into.
func EndpointSlices(store *v1alpha1.Store) []*discoveryac.EndpointSliceApplyConfiguration {
	var slices []*discoveryac.EndpointSliceApplyConfiguration
	for _, service := range []string{ClientService(store), InternalService(store)} {
		labels := StoreLabels(store.Name)
		labels[discoveryv1.LabelServiceName] = service
		labels[discoveryv1.LabelManagedBy] = "coordinator.rcbox.dev"
		slices = append(slices, discoveryac.EndpointSlice(LeaderSlice(service), store.Namespace).
			WithLabels(labels).
			WithOwnerReferences(Owner(store)).
			WithAddressType(discoveryv1.AddressTypeIPv4))
	}
	return slices
}

// spreadCoordinators over nodes, and over failure domains if these are others: a standby that goes with the leader is none. One on the same
// node is better than none. The domain is not one of the inputs: no coordinator is outdated by another one, it counts for later pods.
func spreadCoordinators(store *v1alpha1.Store) []*coreac.TopologySpreadConstraintApplyConfiguration {
	list := []*coreac.TopologySpreadConstraintApplyConfiguration{spread(store, v1alpha1.ComponentCoordinator, corev1.LabelHostname)}
	if domain := store.Spec.Placement.FailureDomain; domain != "" && domain != corev1.LabelHostname {
		list = append(list, spread(store, v1alpha1.ComponentCoordinator, domain))
	}
	return list
}

func spread(store *v1alpha1.Store, component, domain string) *coreac.TopologySpreadConstraintApplyConfiguration {
	return coreac.TopologySpreadConstraint().
		WithMaxSkew(1).
		WithTopologyKey(domain).
		WithWhenUnsatisfiable(corev1.ScheduleAnyway).
		WithLabelSelector(metaac.LabelSelector().WithMatchLabels(ComponentLabels(store.Name, component)))
}
