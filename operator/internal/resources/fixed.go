package resources

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// NetworkPolicies open the client ports and the HTTP ports (health and metrics) to everybody, the member port and the peer ports
// to the Store's masters, and the admin port to the operator and to pods of the Store's namespace that carry
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
	clients := clientsOf(store)
	master := []*networkingac.NetworkPolicyIngressRuleApplyConfiguration{
		ingress(policyPort(MasterClientPort).WithEndPort(MasterClientPort + MaxShards - 1)).WithFrom(clients...),
		ingress(policyPort(MasterHTTPPort)),
	}
	speaksFast := store.Spec.Network.Transport == v1alpha1.TransportFastUDP && !store.Spec.HasPorts()
	if speaksFast {
		master = append(master, ingress(datagramPorts(MasterFastPort)).WithFrom(clients...))
	}
	peers := []*networkingac.NetworkPolicyPortApplyConfiguration{policyPort(MasterPeerPort).WithEndPort(MasterPeerPort + MaxShards - 1)}
	// Without copies tablets that leave a master are all that others read there, over TCP.
	if speaksFast && store.Copies() > 0 {
		peers = append(peers, datagramPorts(MasterFastPeerPort))
	}
	master = append(master, ingress(peers...).WithFrom(masters))
	return []*networkingac.NetworkPolicyApplyConfiguration{
		networkPolicy(store, v1alpha1.ComponentCoordinator,
			ingress(policyPort(CoordinatorClientPort)).WithFrom(clients...),
			ingress(policyPort(CoordinatorHTTPPort)),
			ingress(policyPort(CoordinatorMemberPort)).WithFrom(masters),
			ingress(policyPort(CoordinatorAdminPort)).WithFrom(admins...)),
		networkPolicy(store, v1alpha1.ComponentMaster, master...),
	}
}

// clientsOf are those who may reach the client ports: none for everybody.
func clientsOf(store *v1alpha1.Store) []*networkingac.NetworkPolicyPeerApplyConfiguration {
	from := store.Spec.Network.Clients.From
	if len(from) == 0 {
		return nil
	}
	podsWith := func(label string) *networkingac.NetworkPolicyPeerApplyConfiguration {
		labels := map[string]string{label: store.Name}
		return networkingac.NetworkPolicyPeer().WithPodSelector(metaac.LabelSelector().WithMatchLabels(labels))
	}
	peers := []*networkingac.NetworkPolicyPeerApplyConfiguration{
		podsWith(v1alpha1.LabelStore), podsWith(v1alpha1.LabelClusterPerfStore), podsWith(v1alpha1.LabelAdminClient),
	}
	for i := range from {
		peer := networkingac.NetworkPolicyPeer()
		if from[i].PodSelector != nil {
			peer.WithPodSelector(selectorOf(from[i].PodSelector))
		}
		if from[i].NamespaceSelector != nil {
			peer.WithNamespaceSelector(selectorOf(from[i].NamespaceSelector))
		}
		if block := from[i].IPBlock; block != nil {
			peer.WithIPBlock(networkingac.IPBlock().WithCIDR(block.CIDR).WithExcept(block.Except...))
		}
		peers = append(peers, peer)
	}
	return peers
}

func selectorOf(selector *metav1.LabelSelector) *metaac.LabelSelectorApplyConfiguration {
	applied := metaac.LabelSelector().WithMatchLabels(selector.MatchLabels)
	for i := range selector.MatchExpressions {
		expression := &selector.MatchExpressions[i]
		applied.WithMatchExpressions(metaac.LabelSelectorRequirement().
			WithKey(expression.Key).WithOperator(expression.Operator).WithValues(expression.Values...))
	}
	return applied
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

// datagramPorts are the UDP ports of all shards that a master can have.
func datagramPorts(first int32) *networkingac.NetworkPolicyPortApplyConfiguration {
	return networkingac.NetworkPolicyPort().
		WithProtocol(corev1.ProtocolUDP).WithPort(intstr.FromInt32(first)).WithEndPort(first + MaxShards - 1)
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
