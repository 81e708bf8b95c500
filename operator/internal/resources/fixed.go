package resources

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const namespaceNameLabel = "kubernetes.io/metadata.name"

// Services are the one that clients connect to and the one for members and administrators. With state Kubernetes they select no
// pods: the leader writes where it is (EndpointSlices).
func Services(store *v1alpha1.Store, state v1alpha1.StateType) []*coreac.ServiceApplyConfiguration {
	selector := ComponentLabels(store.Name, v1alpha1.ComponentCoordinator)
	if state == v1alpha1.StateKubernetes {
		selector = nil
	}
	return []*coreac.ServiceApplyConfiguration{
		service(store, ClientService(store), selector, servicePort("client", CoordinatorClientPort)),
		// The client port as well, so that the CLI gets at everything by one locator.
		service(store, InternalService(store), selector,
			servicePort("client", CoordinatorClientPort),
			servicePort("member", CoordinatorMemberPort),
			servicePort("admin", CoordinatorAdminPort)),
	}
}

func service(
	store *v1alpha1.Store, name string, selector map[string]string, ports ...*coreac.ServicePortApplyConfiguration,
) *coreac.ServiceApplyConfiguration {
	return coreac.Service(name, store.Namespace).
		WithLabels(StoreLabels(store.Name)).
		WithOwnerReferences(Owner(store)).
		WithSpec(coreac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithSelector(selector).
			WithPorts(ports...))
}

func servicePort(name string, number int32) *coreac.ServicePortApplyConfiguration {
	return coreac.ServicePort().
		WithName(name).
		WithProtocol(corev1.ProtocolTCP).
		WithPort(number).
		WithTargetPort(intstr.FromString(name))
}

// NetworkPolicies open the client ports and the HTTP ports (health and metrics) to everybody, the member port and, with copies,
// the peer ports to the Store's masters, and the admin port to the operator and to pods of the Store's namespace that carry
// v1alpha1.LabelAdminClient.
func NetworkPolicies(store *v1alpha1.Store, operatorNamespace string) []*networkingac.NetworkPolicyApplyConfiguration {
	masters := networkingac.NetworkPolicyPeer().WithPodSelector(metaac.LabelSelector().
		WithMatchLabels(ComponentLabels(store.Name, v1alpha1.ComponentMaster)))
	admins := []*networkingac.NetworkPolicyPeerApplyConfiguration{
		networkingac.NetworkPolicyPeer().WithPodSelector(metaac.LabelSelector().
			WithMatchLabels(map[string]string{v1alpha1.LabelAdminClient: store.Name})),
	}
	if operatorNamespace != "" {
		admins = append(admins, operatorIn(operatorNamespace))
	}
	master := []*networkingac.NetworkPolicyIngressRuleApplyConfiguration{
		ingress(policyPort(MasterClientPort).WithEndPort(MasterClientPort+MaxShards-1), policyPort(MasterHTTPPort)),
	}
	if store.Spec.Network.Transport == v1alpha1.TransportFastUDP && !store.Spec.HasPorts() {
		fast := networkingac.NetworkPolicyPort().
			WithProtocol(corev1.ProtocolUDP).WithPort(intstr.FromInt32(MasterFastPort)).WithEndPort(MasterFastPort + MaxShards - 1)
		master = append(master, ingress(fast))
	}
	if store.Spec.Replication.Factor > 0 {
		master = append(master, ingress(policyPort(MasterPeerPort).WithEndPort(MasterPeerPort+MaxShards-1)).WithFrom(masters))
	}
	return []*networkingac.NetworkPolicyApplyConfiguration{
		networkPolicy(store, v1alpha1.ComponentCoordinator,
			ingress(policyPort(CoordinatorClientPort), policyPort(CoordinatorHTTPPort)),
			ingress(policyPort(CoordinatorMemberPort)).WithFrom(masters),
			ingress(policyPort(CoordinatorAdminPort)).WithFrom(admins...)),
		networkPolicy(store, v1alpha1.ComponentMaster, master...),
	}
}

func operatorIn(namespace string) *networkingac.NetworkPolicyPeerApplyConfiguration {
	return networkingac.NetworkPolicyPeer().
		WithNamespaceSelector(metaac.LabelSelector().
			WithMatchLabels(map[string]string{namespaceNameLabel: namespace})).
		WithPodSelector(metaac.LabelSelector().
			WithMatchLabels(map[string]string{v1alpha1.LabelName: v1alpha1.ManagedByValue}))
}

func networkPolicy(
	store *v1alpha1.Store, component string, rules ...*networkingac.NetworkPolicyIngressRuleApplyConfiguration,
) *networkingac.NetworkPolicyApplyConfiguration {
	return networkingac.NetworkPolicy(store.Name+"-"+component, store.Namespace).
		WithLabels(StoreLabels(store.Name)).
		WithOwnerReferences(Owner(store)).
		WithSpec(networkingac.NetworkPolicySpec().
			WithPodSelector(metaac.LabelSelector().WithMatchLabels(ComponentLabels(store.Name, component))).
			WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(rules...))
}

func ingress(
	ports ...*networkingac.NetworkPolicyPortApplyConfiguration,
) *networkingac.NetworkPolicyIngressRuleApplyConfiguration {
	return networkingac.NetworkPolicyIngressRule().WithPorts(ports...)
}

func policyPort(number int32) *networkingac.NetworkPolicyPortApplyConfiguration {
	return networkingac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(number))
}

// DisruptionBudget lets an eviction take one master at a time, and never waits for one that is broken anyway. Without copies it does
// not save what an evicted master holds: only a budget that blocks every drain would. Where members move away from drained nodes, an
// eviction would be faster than they are, so there it takes none: the operator ends their pods, with nothing in them.
func DisruptionBudget(store *v1alpha1.Store, moves bool) *policyac.PodDisruptionBudgetApplyConfiguration {
	evictable := int32(1)
	if moves {
		evictable = 0
	}
	return policyac.PodDisruptionBudget(store.Name+"-"+v1alpha1.ComponentMaster, store.Namespace).
		WithLabels(StoreLabels(store.Name)).
		WithOwnerReferences(Owner(store)).
		WithSpec(policyac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(evictable)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metaac.LabelSelector().
				WithMatchLabels(ComponentLabels(store.Name, v1alpha1.ComponentMaster))))
}
