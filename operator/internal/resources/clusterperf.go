package resources

import (
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
)

const (
	// PerfHTTPPort is where the first client of a run says how far it is.
	PerfHTTPPort = 11500
	// perfDropSeconds is how long a client that is told to end may take to drop the run's tables.
	perfDropSeconds = 30
)

// perfLabels are on every object of a run.
func perfLabels(run *v1alpha1.ClusterPerf) map[string]string {
	return map[string]string{
		v1alpha1.LabelName:             v1alpha1.NameValue,
		v1alpha1.LabelInstance:         run.Name,
		v1alpha1.LabelManagedBy:        v1alpha1.ManagedByValue,
		v1alpha1.LabelClusterPerf:      run.Name,
		v1alpha1.LabelClusterPerfStore: run.Spec.StoreRef.Name,
	}
}

func perfOwner(run *v1alpha1.ClusterPerf) *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind("ClusterPerf").
		WithName(run.Name).
		WithUID(run.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}

// PerfResults builds the ConfigMap that keeps a run's documents.
func PerfResults(run *v1alpha1.ClusterPerf, name string, documents map[string]string) *coreac.ConfigMapApplyConfiguration {
	return coreac.ConfigMap(name, run.Namespace).
		WithLabels(perfLabels(run)).
		WithOwnerReferences(perfOwner(run)).
		WithData(documents)
}

// PerfPolicy opens the first client's port to the operator; nothing else has to reach a client. An operator that does not run in a pod
// (no namespace) is let in with everybody.
func PerfPolicy(run *v1alpha1.ClusterPerf, operatorNamespace string) *networkingac.NetworkPolicyApplyConfiguration {
	rule := ingress(policyPort(PerfHTTPPort))
	if operatorNamespace != "" {
		rule.WithFrom(operatorIn(operatorNamespace))
	}
	return networkingac.NetworkPolicy(run.Name+"-client", run.Namespace).
		WithLabels(perfLabels(run)).
		WithOwnerReferences(perfOwner(run)).
		WithSpec(networkingac.NetworkPolicySpec().
			WithPodSelector(metaac.LabelSelector().WithMatchLabels(map[string]string{
				v1alpha1.LabelClusterPerf: run.Name, v1alpha1.LabelComponent: v1alpha1.ComponentPerfClient,
			})).
			WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(rule))
}

// PerfClient builds the pod of a run's client. Its name is the same each time, so that making it twice makes one.
func PerfClient(run *v1alpha1.ClusterPerf, store *v1alpha1.Store, index int) (*coreac.PodApplyConfiguration, error) {
	container := perfContainer(run, store)
	if ports, _ := perfPorts(&store.Spec, index); ports != nil {
		container.WithResources(perfResources(run, ports.resources()))
	}
	if run.Spec.Clients.Replicas > 1 {
		container.WithArgs("--numClients", strconv.Itoa(int(run.Spec.Clients.Replicas)), "--clientIndex", strconv.Itoa(index))
	}
	// Only the first client has anything to say, and only it drops tables.
	grace := int64(1)
	if index == 0 {
		container.WithArgs("--httpListen", fmt.Sprintf("0.0.0.0:%d", PerfHTTPPort)).WithPorts(port("http", PerfHTTPPort))
		grace = perfDropSeconds
	}
	member := fmt.Sprintf("%s-client-%d", run.Name, index)
	ports, addresses := perfPorts(&store.Spec, index)
	container.WithArgs(fastArgs(ports, addresses, 0)...)
	if eal := ports.ealArguments(); len(eal) > 0 {
		container.WithArgs("--dpdk", strings.Join(eal, " "))
	}
	addNetwork(container, ports)
	pod := perfPod(run, store, member, v1alpha1.ComponentPerfClient, grace, container).
		WithAnnotations(map[string]string{
			v1alpha1.AnnotationPodNumber:                     strconv.Itoa(index),
			"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
		})
	return pod, attach(pod, &store.Spec, ports, addresses)
}

// perfPorts are those of a client: as a master's, with addresses that are set apart for clients. A client for which none are set apart
// measures over the pod network, and so does one of a Store without ports: sockets it has anyway.
func perfPorts(spec *v1alpha1.StoreSpec, index int) (*Network, []netip.Addr) {
	ports := networkOf(spec)
	pools, err := network.Pools(spec)
	if err != nil || ports == nil || len(ports.Ports) == 0 {
		return nil, nil
	}
	var addresses []netip.Addr
	for i := range pools {
		ip, found := pools[i].Client(index)
		if !found {
			return nil, nil
		}
		addresses = append(addresses, ip)
	}
	return ports, addresses
}

// PerfCleanup builds the pod that drops the tables of a run whose clients could not.
func PerfCleanup(run *v1alpha1.ClusterPerf, store *v1alpha1.Store) *coreac.PodApplyConfiguration {
	container := perfContainer(run, store).WithArgs("--dropTables")
	return perfPod(run, store, run.Name+"-cleanup", v1alpha1.ComponentPerfCleanup, 1, container)
}

func perfContainer(run *v1alpha1.ClusterPerf, store *v1alpha1.Store) *coreac.ContainerApplyConfiguration {
	container := coreac.Container().
		WithName(perfContainerName).
		WithImage(run.Status.Environment.ClientImage).
		WithImagePullPolicy(store.Spec.ImagePullPolicy).
		WithCommand("clusterperf").
		WithArgs("-C", Locator(store), "--tablePrefix", run.Status.TablePrefix).
		// Clients start when their images are there: whoever comes first waits as long as the run may take.
		WithArgs("--patience", strconv.Itoa(int(run.Spec.TimeoutSeconds))).
		WithArgs(perfOptions(&run.Spec.Options)...).
		WithResources(perfResources(run, nil)).
		WithSecurityContext(coreac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithRunAsNonRoot(true).
			WithCapabilities(coreac.Capabilities().WithDrop("ALL"))).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError)
	for _, test := range run.Spec.Tests {
		container.WithArgs(string(test))
	}
	return container
}

// perfResources are those that the run asks for, and what ports need, requests and limits alike.
func perfResources(run *v1alpha1.ClusterPerf, ports corev1.ResourceList) *coreac.ResourceRequirementsApplyConfiguration {
	requests, limits := maps.Clone(run.Spec.Clients.Resources.Requests), maps.Clone(run.Spec.Clients.Resources.Limits)
	if len(ports) > 0 {
		if requests == nil {
			requests = corev1.ResourceList{}
		}
		if limits == nil {
			limits = corev1.ResourceList{}
		}
		maps.Copy(requests, ports)
		maps.Copy(limits, ports)
	}
	return coreac.ResourceRequirements().WithRequests(requests).WithLimits(limits)
}

func perfOptions(options *v1alpha1.PerfOptions) []string {
	args := []string{"--seconds", strconv.Itoa(int(options.Seconds))}
	if options.Count != nil {
		args = append(args, "--count", strconv.FormatInt(*options.Count, 10))
	}
	for _, option := range []struct {
		name  string
		value *int32
	}{
		{"--size", options.Size},
		{"--numObjects", options.NumObjects},
		{"--numTables", options.NumTables},
		{"--batch", options.Batch},
		{"--warmup", options.Warmup},
		{"--targetOps", options.TargetOps},
		{"--fillMB", options.FillMB},
	} {
		if option.value != nil {
			args = append(args, option.name, strconv.Itoa(int(*option.value)))
		}
	}
	if options.Workload != "" {
		args = append(args, "--workload", options.Workload)
	}
	return args
}

func perfPod(
	run *v1alpha1.ClusterPerf, store *v1alpha1.Store, member, component string, graceSeconds int64,
	container *coreac.ContainerApplyConfiguration,
) *coreac.PodApplyConfiguration {
	labels := perfLabels(run)
	labels[v1alpha1.LabelComponent] = component
	spec := coreac.PodSpec().
		WithContainers(container).
		// A client that ended takes what the others agreed on with it: a run is never a part of one and a part of another.
		WithRestartPolicy(corev1.RestartPolicyNever).
		WithTerminationGracePeriodSeconds(graceSeconds).
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithSecurityContext(coreac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithRunAsUser(nonRoot).
			WithRunAsGroup(nonRoot).
			WithSeccompProfile(coreac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithNodeSelector(run.Spec.Clients.NodeSelector).
		WithTolerations(tolerations(run.Spec.Clients.Tolerations)...).
		WithImagePullSecrets(pullSecrets(store.Spec.ImagePullSecrets)...)
	if component == v1alpha1.ComponentPerfClient {
		spec.WithTopologySpreadConstraints(coreac.TopologySpreadConstraint().
			WithMaxSkew(1).
			WithTopologyKey(corev1.LabelHostname).
			WithWhenUnsatisfiable(corev1.ScheduleAnyway).
			WithLabelSelector(metaac.LabelSelector().WithMatchLabels(map[string]string{
				v1alpha1.LabelClusterPerf: run.Name, v1alpha1.LabelComponent: component,
			})))
		if run.Spec.Clients.AwayFromMasters {
			spec.WithAffinity(coreac.Affinity().WithPodAntiAffinity(aNodeOfItsOwn(store)))
		}
	}
	return coreac.Pod(PodName(run.UID, member, 1), run.Namespace).
		WithLabels(labels).
		WithOwnerReferences(perfOwner(run)).
		WithSpec(spec)
}
