package resources

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	// nonRoot is the user of the image.
	nonRoot = 65532
	// An unreplicated process that is restarted loses its data: only one that has been dumb for five minutes is.
	livenessPeriodSeconds = 10
	livenessFailures      = 30
	probeTimeoutSeconds   = 5
	readinessPeriod       = 2
	readinessFailures     = 3
)

// PodSpec says which pod to build.
type PodSpec struct {
	// Component is v1alpha1.ComponentCoordinator or v1alpha1.ComponentMaster.
	Component string
	Member    string
	// Number counts the member's pods from 1.
	Number int64
	Inputs Inputs
	// Claim is the name of its volume claim, if it has one.
	Claim string
	// Addresses of its ports, if it has any.
	Addresses []netip.Addr
	// Isolated nodes, on which it may not run.
	Isolated []string
	// ReturnsTo is an isolated node on which it may run all the same, because its volume is there; empty for none.
	ReturnsTo string
}

// Pod builds a pod of the Store.
func Pod(store *v1alpha1.Store, spec PodSpec) (*coreac.PodApplyConfiguration, error) {
	madeFrom, err := spec.Inputs.Encode()
	if err != nil {
		return nil, err
	}
	labels := StoreLabels(store.Name)
	labels[v1alpha1.LabelComponent] = spec.Component
	labels[v1alpha1.LabelMember] = spec.Member

	container := coordinatorContainer(store, spec.Inputs)
	if spec.Component == v1alpha1.ComponentMaster {
		container = masterContainer(store, spec)
	}
	container.
		WithImage(spec.Inputs.Image).
		WithImagePullPolicy(store.Spec.ImagePullPolicy).
		WithResources(containerResources(spec.Inputs)).
		WithSecurityContext(coreac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithRunAsNonRoot(true).
			WithCapabilities(coreac.Capabilities().WithDrop("ALL"))).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError)

	if spec.Inputs.InVolume() {
		container.WithVolumeMounts(coreac.VolumeMount().WithName(volumeName).WithMountPath(volumePath))
	}
	addNetwork(container, spec.Inputs.Network)
	podSpec := coreac.PodSpec().
		WithContainers(container).
		// In place first: the fastest way back for a process that crashed, and one that needs no operator.
		WithRestartPolicy(corev1.RestartPolicyAlways).
		WithTerminationGracePeriodSeconds(graceSeconds(spec.Inputs)).
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithSecurityContext(coreac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithRunAsUser(nonRoot).
			WithRunAsGroup(nonRoot).
			WithSeccompProfile(coreac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithNodeSelector(spec.Inputs.NodeSelector).
		WithTolerations(tolerations(spec.Inputs.Tolerations)...).
		WithImagePullSecrets(pullSecrets(store.Spec.ImagePullSecrets)...)
	if spec.Inputs.PriorityClassName != "" {
		podSpec.WithPriorityClassName(spec.Inputs.PriorityClassName)
	}
	if spec.Inputs.InVolume() {
		addClaim(podSpec, spec.Claim)
	}
	if spec.Inputs.State == v1alpha1.StateKubernetes {
		podSpec.WithServiceAccountName(CoordinatorAccount(store)).WithAutomountServiceAccountToken(true)
	}
	if err := place(podSpec, store, spec); err != nil {
		return nil, err
	}
	pod := coreac.Pod(PodName(store.UID, spec.Member, spec.Number), store.Namespace).
		WithLabels(labels).
		WithAnnotations(map[string]string{
			v1alpha1.AnnotationPodNumber: strconv.FormatInt(spec.Number, 10),
			v1alpha1.AnnotationMadeFrom:  madeFrom,
			// A node that is only scaled away would take the data with it, or the copies.
			"cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
		}).
		WithOwnerReferences(Owner(store)).
		WithSpec(podSpec)
	if len(spec.Addresses) > 0 {
		pod.WithFinalizers(v1alpha1.FinalizerAddresses)
		podSpec.WithSchedulingGates(coreac.PodSchedulingGate().WithName(v1alpha1.GateAddresses))
	}
	configure(pod, spec.Inputs.Pod)
	if err := attach(pod, &store.Spec, spec.Inputs.Network, spec.Addresses); err != nil {
		return nil, err
	}
	return overlaid(pod, spec.Component, spec.Inputs)
}

// place says where a pod may run, and beside what.
func place(pod *coreac.PodSpecApplyConfiguration, store *v1alpha1.Store, spec PodSpec) error {
	affinity, err := affinityBesides(affinityOf(store, spec), spec.Inputs.Pod)
	if err != nil {
		return err
	}
	if affinity != nil {
		pod.WithAffinity(affinity)
	}
	var constraints []*coreac.TopologySpreadConstraintApplyConfiguration
	switch {
	case spec.Component == v1alpha1.ComponentMaster:
		constraints = append(constraints, spread(store, spec.Component, spec.Inputs.FailureDomain))
	case spec.Inputs.State == v1alpha1.StateKubernetes:
		constraints = spreadCoordinators(store)
	}
	constraints, err = spreadBesides(constraints, store, spec)
	if err != nil {
		return err
	}
	pod.WithTopologySpreadConstraints(constraints...)
	return nil
}

// affinityOf is nil where any node will do. Isolated nodes are not among what a pod was made from: one that is elsewhere stays as it is.
// The node that the pod returns to is not left out.
func affinityOf(store *v1alpha1.Store, spec PodSpec) *coreac.AffinityApplyConfiguration {
	isolated := slices.DeleteFunc(slices.Clone(spec.Isolated), func(node string) bool { return node == spec.ReturnsTo })
	isReplicated := spec.Inputs.Replication != nil
	if len(isolated) == 0 && !isReplicated {
		return nil
	}
	affinity := coreac.Affinity()
	if isReplicated {
		affinity.WithPodAntiAffinity(aNodeOfItsOwn(store))
	}
	if len(isolated) > 0 {
		term := coreac.NodeSelectorTerm()
		for _, node := range isolated { // a field takes one value
			term.WithMatchFields(coreac.NodeSelectorRequirement().
				WithKey("metadata.name").WithOperator(corev1.NodeSelectorOpNotIn).WithValues(node))
		}
		affinity.WithNodeAffinity(coreac.NodeAffinity().
			WithRequiredDuringSchedulingIgnoredDuringExecution(coreac.NodeSelector().WithNodeSelectorTerms(term)))
	}
	return affinity
}

// Avoided are the nodes that a pod may not run on because they were isolated when it was made.
func Avoided(pod *corev1.Pod) (nodes []string) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return nil
	}
	for i := range required.NodeSelectorTerms {
		// Terms are alternatives: what one of them lets in is not avoided.
		if left := leftOut(&required.NodeSelectorTerms[i]); i == 0 {
			nodes = left
		} else {
			nodes = slices.DeleteFunc(nodes, func(node string) bool { return !slices.Contains(left, node) })
		}
	}
	return nodes
}

// leftOut are the nodes that a term leaves out by name.
func leftOut(term *corev1.NodeSelectorTerm) (nodes []string) {
	for _, field := range term.MatchFields {
		if field.Key == "metadata.name" && field.Operator == corev1.NodeSelectorOpNotIn {
			nodes = append(nodes, field.Values...)
		}
	}
	return nodes
}

// aNodeOfItsOwn keeps masters apart: copies on one node are lost together, and count as one.
func aNodeOfItsOwn(store *v1alpha1.Store) *coreac.PodAntiAffinityApplyConfiguration {
	return coreac.PodAntiAffinity().
		WithRequiredDuringSchedulingIgnoredDuringExecution(coreac.PodAffinityTerm().
			WithTopologyKey(corev1.LabelHostname).
			WithLabelSelector(metaac.LabelSelector().
				WithMatchLabels(ComponentLabels(store.Name, v1alpha1.ComponentMaster))))
}

// Owner makes an object the Store's, so that it goes when the Store goes.
func Owner(store *v1alpha1.Store) *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind("Store").
		WithName(store.Name).
		WithUID(store.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}

func coordinatorContainer(store *v1alpha1.Store, inputs Inputs) *coreac.ContainerApplyConfiguration {
	container := withProbes(coreac.Container().
		WithName(v1alpha1.ComponentCoordinator).
		WithCommand("coordinator").
		WithArgs(
			"-C", fmt.Sprintf("tcp:host=0.0.0.0,port=%d", CoordinatorClientPort),
			"--advertise", fmt.Sprintf("tcp:host=$(POD_IP),port=%d", CoordinatorClientPort),
			"--logFormat", "json",
		).
		WithEnv(fieldEnv("POD_IP", "status.podIP")).
		WithPorts(
			port("client", CoordinatorClientPort),
			port("member", CoordinatorMemberPort),
			port("admin", CoordinatorAdminPort),
			port("http", CoordinatorHTTPPort),
		))
	switch inputs.State {
	case v1alpha1.StateVolume:
		container.WithArgs("--state", "file:"+stateDirectory)
	case v1alpha1.StateKubernetes:
		container.WithArgs("--state", "kubernetes", "--stateName", store.Name,
			"--services", ClientService(store)+","+InternalService(store)).
			// A process that is started again in its pod leads again at once, if nobody else does.
			WithEnv(fieldEnv("RCBOX_CANDIDATE", "metadata.name"))
	case v1alpha1.StateMemory:
	}
	// Not one of the inputs: it means nothing to a coordinator that has a state, so none is outdated by it.
	if store.Spec.Coordinator.Rebuild == v1alpha1.RebuildFromVolumes {
		container.WithEnv(coreac.EnvVar().WithName("RCBOX_REBUILD").WithValue("true"))
	}
	switch inputs.Rebalancing {
	case "":
	case "off":
		container.WithArgs("--rebalance", "off")
	default:
		container.WithArgs("--rebalanceMBps", inputs.Rebalancing)
	}
	return container
}

func masterContainer(store *v1alpha1.Store, spec PodSpec) *coreac.ContainerApplyConfiguration {
	container := coreac.Container().
		WithName(v1alpha1.ComponentMaster).
		WithCommand("server").
		WithArgs(
			"-C", fmt.Sprintf("tcp:host=%s.%s.svc,port=%d", InternalService(store), store.Namespace, CoordinatorClientPort),
			"-L", fmt.Sprintf("tcp:host=0.0.0.0,port=%d", MasterClientPort),
		).
		WithArgs(networkArgs(spec.Inputs.Network, spec.Addresses)...).
		WithArgs(
			"--member", spec.Member,
			"--cores", strconv.Itoa(int(spec.Inputs.Cores)),
			"--totalMasterMemory", strconv.FormatInt(StoreMemoryMiB(spec.Inputs), 10),
			"--logFormat", "json",
		).
		WithEnv(
			fieldEnv("POD_IP", "status.podIP"),
			// Options of the server that it takes from its environment.
			fieldEnv("RCBOX_INSTANCE", "metadata.uid"),
			fieldEnv("RCBOX_HOST_ID", "spec.nodeName"),
		)
	for shard := range spec.Inputs.Cores {
		container.WithPorts(port(fmt.Sprintf("shard-%d", shard), MasterClientPort+shard))
		container.WithPorts(port(fmt.Sprintf("peer-%d", shard), MasterPeerPort+shard))
	}
	if spec.Inputs.HugePages == v1alpha1.HugePagesReserved {
		// Memory without a file behind it: no volume is needed, only the limit.
		container.WithArgs("--hugePages", "reserved")
	}
	if spec.Inputs.Replication != nil {
		container.WithArgs(replicationArgs(spec.Inputs)...)
	}
	if spec.Inputs.NeedsDomain() {
		// The operator writes it as soon as the pod has a node.
		container.WithEnv(fieldEnv("RCBOX_DOMAIN", fmt.Sprintf("metadata.annotations['%s']", v1alpha1.AnnotationDomain)))
	}
	return withProbes(container.WithPorts(port("http", MasterHTTPPort)))
}

// StoreMemoryMiB is the part of a master's memory that its logs and hash tables may take. The rest is for the process: a
// fixed part, buffers of each shard's connections (with copies, those to backups and from other masters as well), and what
// the allocator and the kernel need as a container's memory grows. It is as much as the server wants (wanted_buffers in
// crates/serverd/src/settings.rs): tests of both sides read images/store/testdata/masters-memory.txt.
func StoreMemoryMiB(inputs Inputs) int64 {
	const (
		processMiB     = 48
		perShardMiB    = 32
		fromMastersMiB = 32
		perBackupMiB   = 8
		proportionally = 16 // one part in so many
	)
	total := inputs.Memory.Value()/mib - inputs.Network.buffersMiB()
	perShard := int64(perShardMiB)
	if inputs.Replication != nil {
		perShard += fromMastersMiB + perBackupMiB*int64(inputs.Replication.Factor)
	}
	return total - processMiB - perShard*int64(inputs.Cores) - total/proportionally
}

// resourceHugePages are pages of 2 MiB that were reserved on a node.
const resourceHugePages = corev1.ResourceHugePagesPrefix + "2Mi"

// hugePagesMiB is how much of a master's memory is in reserved pages: what its logs and hash tables take, in whole pages. One part in 64 of
// StoreMemoryMiB is for the results of RPCs, which are in ordinary memory; a test of the server holds it to that.
func hugePagesMiB(inputs Inputs) int64 {
	const (
		resultsShare = 64
		pageMiB      = 2
	)
	if inputs.HugePages != v1alpha1.HugePagesReserved {
		return 0
	}
	total := StoreMemoryMiB(inputs)
	wanted := total - total/resultsShare + 1 // a hash table is rounded up to whole lines
	return (wanted + pageMiB - 1) / pageMiB * pageMiB
}

// containerMemory is what a master's container may use besides reserved pages, which do not count as memory: copies that are kept in memory
// come on top.
func containerMemory(inputs Inputs) resource.Quantity {
	memory := inputs.Memory.DeepCopy()
	if pages := hugePagesMiB(inputs); pages > 0 {
		memory.Sub(*resource.NewQuantity(pages*mib, resource.BinarySI))
	}
	if inputs.Replication != nil && inputs.Replication.Storage == v1alpha1.StorageMemory {
		memory.Add(inputs.Replication.StorageSize)
	}
	return memory
}

func containerResources(inputs Inputs) *coreac.ResourceRequirementsApplyConfiguration {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	if inputs.Memory != nil {
		requests[corev1.ResourceMemory] = containerMemory(inputs)
		limits[corev1.ResourceMemory] = containerMemory(inputs)
		requests[corev1.ResourceCPU] = *resource.NewQuantity(int64(inputs.Cores), resource.DecimalSI)
		// A limit without a request would be taken for the request, too.
		if limit, limited := inputs.Limits[corev1.ResourceCPU]; limited && limit.Cmp(requests[corev1.ResourceCPU]) < 0 {
			requests[corev1.ResourceCPU] = limit
		}
	}
	ports := inputs.Network.resources()
	maps.Copy(requests, ports)
	maps.Copy(limits, ports)
	maps.Copy(requests, inputs.Requests)
	maps.Copy(limits, inputs.Limits)
	if pages := hugePagesMiB(inputs); pages > 0 {
		// On top of what somebody asks for, such as for packets. There are no pages beyond what is requested.
		all := resource.NewQuantity(pages*mib, resource.BinarySI)
		others, limited := inputs.Limits[resourceHugePages]
		if !limited {
			others = inputs.Requests[resourceHugePages]
		}
		all.Add(others)
		all.Add(ports[resourceHugePages])
		requests[resourceHugePages], limits[resourceHugePages] = *all, *all
	}
	return coreac.ResourceRequirements().WithRequests(requests).WithLimits(limits)
}

func withProbes(container *coreac.ContainerApplyConfiguration) *coreac.ContainerApplyConfiguration {
	get := func(path string) *coreac.ProbeApplyConfiguration {
		return coreac.Probe().
			WithHTTPGet(coreac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString("http"))).
			WithTimeoutSeconds(probeTimeoutSeconds)
	}
	return container.
		WithLivenessProbe(get("/healthz").WithPeriodSeconds(livenessPeriodSeconds).WithFailureThreshold(livenessFailures)).
		WithReadinessProbe(get("/readyz").WithPeriodSeconds(readinessPeriod).WithFailureThreshold(readinessFailures))
}

func port(name string, number int32) *coreac.ContainerPortApplyConfiguration {
	return coreac.ContainerPort().WithName(name).WithContainerPort(number).WithProtocol(corev1.ProtocolTCP)
}

func fieldEnv(name, path string) *coreac.EnvVarApplyConfiguration {
	return coreac.EnvVar().WithName(name).
		WithValueFrom(coreac.EnvVarSource().WithFieldRef(coreac.ObjectFieldSelector().WithFieldPath(path)))
}

func tolerations(list []corev1.Toleration) []*coreac.TolerationApplyConfiguration {
	configurations := make([]*coreac.TolerationApplyConfiguration, 0, len(list))
	for _, toleration := range list {
		configuration := coreac.Toleration()
		if toleration.Key != "" {
			configuration.WithKey(toleration.Key)
		}
		if toleration.Operator != "" {
			configuration.WithOperator(toleration.Operator)
		}
		if toleration.Value != "" {
			configuration.WithValue(toleration.Value)
		}
		if toleration.Effect != "" {
			configuration.WithEffect(toleration.Effect)
		}
		if toleration.TolerationSeconds != nil {
			configuration.WithTolerationSeconds(*toleration.TolerationSeconds)
		}
		configurations = append(configurations, configuration)
	}
	return configurations
}

func pullSecrets(list []corev1.LocalObjectReference) []*coreac.LocalObjectReferenceApplyConfiguration {
	configurations := make([]*coreac.LocalObjectReferenceApplyConfiguration, 0, len(list))
	for _, reference := range list {
		configurations = append(configurations, coreac.LocalObjectReference().WithName(reference.Name))
	}
	return configurations
}
