package resources

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
)

const (
	// statusVolume has what Multus says of the pod's ports.
	statusVolume = "network"
	statusPath   = "/etc/rcbox/network"
	statusFile   = "status"
	// hugepagesVolume is where the environment abstraction layer looks for huge pages.
	hugepagesVolume = "hugepages"
	hugepagesPath   = "/dev/hugepages"
	// ordinaryBuffersMiB is what DPDK's buffers take of the master's memory where there are no huge pages for them.
	ordinaryBuffersMiB = 256
	defaultMTU         = 1500
)

// Network is what a master needs to know of the way in which it talks.
type Network struct {
	Transport v1alpha1.Transport      `json:"transport"`
	Profile   v1alpha1.NetworkProfile `json:"profile,omitempty"`
	Ports     []Port                  `json:"ports,omitempty"`
	MTU       int32                   `json:"mtu,omitempty"`
	// HugepageSize and Hugepages are empty where DPDK's buffers are in ordinary memory.
	HugepageSize string                       `json:"hugepageSize,omitempty"`
	Hugepages    *resource.Quantity           `json:"hugepages,omitempty"`
	EALArguments []string                     `json:"ealArguments,omitempty"`
	Capabilities []v1alpha1.NetworkCapability `json:"capabilities,omitempty"`
}

// Port of a master's own.
type Port struct {
	Definition   string `json:"definition"`
	ResourceName string `json:"resourceName,omitempty"`
	CIDR         string `json:"cidr"`
}

// networkOf is nil for what has always been: TCP on the pod network.
func networkOf(spec *v1alpha1.StoreSpec) *Network {
	from := &spec.Network
	if from.Transport == "" || from.Transport == v1alpha1.TransportTCP {
		return nil
	}
	n := &Network{Transport: from.Transport, EALArguments: from.EALArguments, Capabilities: capabilities(from)}
	if from.MTU != defaultMTU {
		n.MTU = from.MTU
	}
	if spec.HasPorts() {
		n.Profile = from.Profile
		for i := range from.Attachments {
			attachment := &from.Attachments[i]
			n.Ports = append(n.Ports, Port{
				Definition: attachment.NetworkAttachmentDefinition, ResourceName: attachment.ResourceName, CIDR: attachment.Addresses.CIDR,
			})
		}
	}
	if from.Hugepages != nil {
		n.HugepageSize, n.Hugepages = from.Hugepages.PageSize, &from.Hugepages.Size
	}
	return n
}

// capabilities are what the profile needs: a virtual function behind an IOMMU reads and writes locked memory, and nothing but its
// process's; raw frames through an interface of the kernel need the right to send them, and DPDK, which sets flags of the interface, the
// right to change those of its own network namespace. A whole port has what its Store lists.
func capabilities(spec *v1alpha1.NetworkSpec) []v1alpha1.NetworkCapability {
	switch {
	case spec.Transport != v1alpha1.TransportDPDK:
		return nil
	case len(spec.Capabilities) > 0:
		return slices.Sorted(slices.Values(spec.Capabilities))
	case spec.Profile == v1alpha1.NetworkInterface:
		return []v1alpha1.NetworkCapability{v1alpha1.CapabilityNetAdmin, v1alpha1.CapabilityNetRaw}
	default:
		return []v1alpha1.NetworkCapability{v1alpha1.CapabilityIPCLock}
	}
}

// String is "DPDK over VF a (intel.com/rcbox), mtu 9000"; empty for none.
func (n *Network) String() string {
	if n == nil {
		return ""
	}
	ports := make([]string, len(n.Ports))
	for i, port := range n.Ports {
		ports[i] = port.Definition
		if port.ResourceName != "" {
			ports[i] += " (" + port.ResourceName + ")"
		}
	}
	text := string(n.Transport)
	if len(ports) > 0 {
		text += " over " + string(n.Profile) + " " + strings.Join(ports, " and ")
	}
	if n.MTU != 0 {
		text += fmt.Sprintf(", mtu %d", n.MTU)
	}
	if n.Hugepages != nil {
		text += fmt.Sprintf(", %s of %s pages", n.Hugepages, n.HugepageSize)
	}
	if len(n.Capabilities) > 0 {
		text += fmt.Sprintf(", %s", n.Capabilities)
	}
	if len(n.EALArguments) > 0 {
		text += ", " + strings.Join(n.EALArguments, " ")
	}
	return text
}

// buffersMiB is what of the master's memory is for buffers of DPDK.
func (n *Network) buffersMiB() int64 {
	if n == nil || n.Transport != v1alpha1.TransportDPDK || n.Hugepages != nil {
		return 0
	}
	return ordinaryBuffersMiB
}

// resources are the devices and huge pages of a pod, for requests and limits alike.
func (n *Network) resources() corev1.ResourceList {
	list := corev1.ResourceList{}
	if n == nil {
		return list
	}
	for _, port := range n.Ports {
		if port.ResourceName != "" {
			count := list[corev1.ResourceName(port.ResourceName)]
			count.Add(*resource.NewQuantity(1, resource.DecimalSI))
			list[corev1.ResourceName(port.ResourceName)] = count
		}
	}
	if n.Hugepages != nil {
		list[corev1.ResourceName(corev1.ResourceHugePagesPrefix+n.HugepageSize)] = *n.Hugepages
	}
	return list
}

// networkArgs are where the server listens besides TCP. Clients are told all of it: what is not said here of its ports, such as their
// hardware addresses, the server knows best.
func networkArgs(n *Network, addresses []netip.Addr) []string {
	args := fastArgs(n, addresses, MasterFastPort)
	args = append(args, "--advertise", fmt.Sprintf("tcp:host=$(POD_IP),port=%d", MasterClientPort))
	if eal := n.ealArguments(); len(eal) > 0 {
		args = append(args, "--dpdk", strings.Join(eal, " "))
	}
	return args
}

// fastArgs are the places of the fast protocol, one for each port.
func fastArgs(n *Network, addresses []netip.Addr, udpPort int) []string {
	var args []string
	for port, host := range fastHosts(n, addresses) {
		locator := fmt.Sprintf("%s:host=%s,port=%d", fastTransport(n), host, udpPort)
		if n.MTU != 0 {
			locator += fmt.Sprintf(",mtu=%d", n.MTU)
		}
		if n.Transport == v1alpha1.TransportDPDK {
			locator += fmt.Sprintf(",prefix=%d", network.Bits(n.Ports[port].CIDR))
		}
		args = append(args, "-L", locator)
	}
	return args
}

// ealArguments are the Store's, and for interfaces of the kernel a device of AF_PACKET for each, unless the Store names devices itself.
func (n *Network) ealArguments() []string {
	if n == nil || n.Transport != v1alpha1.TransportDPDK {
		return nil
	}
	isDevice := func(argument string) bool { return strings.HasPrefix(argument, "--vdev") }
	if n.Profile != v1alpha1.NetworkInterface || slices.ContainsFunc(n.EALArguments, isDevice) {
		return n.EALArguments
	}
	var arguments []string
	for port := range n.Ports {
		arguments = append(arguments, fmt.Sprintf("--vdev=net_af_packet%d,iface=%s,qdisc_bypass=1", port, network.Interface(port)))
	}
	return append(arguments, n.EALArguments...)
}

// fastHosts are the addresses of the fast protocol.
func fastHosts(n *Network, addresses []netip.Addr) []string {
	switch {
	case n == nil:
		return nil
	case len(n.Ports) == 0:
		return []string{"$(POD_IP)"}
	default:
		hosts := make([]string, len(addresses))
		for i, ip := range addresses {
			hosts[i] = ip.String()
		}
		return hosts
	}
}

func fastTransport(n *Network) string {
	if n.Transport == v1alpha1.TransportDPDK {
		return "fast+dpdk"
	}
	return "fast+udp"
}

// addNetwork gives a container what its process needs for its ports, and the rights for them and no others.
func addNetwork(container *coreac.ContainerApplyConfiguration, n *Network) {
	if n == nil {
		return
	}
	if len(n.Ports) > 0 {
		container.
			WithVolumeMounts(coreac.VolumeMount().WithName(statusVolume).WithMountPath(statusPath).WithReadOnly(true)).
			WithEnv(coreac.EnvVar().WithName("RCBOX_NETWORK_STATUS").WithValue(statusPath + "/" + statusFile))
	}
	if n.Hugepages != nil {
		container.WithVolumeMounts(coreac.VolumeMount().WithName(hugepagesVolume).WithMountPath(hugepagesPath))
	}
	for _, capability := range n.Capabilities {
		container.SecurityContext.Capabilities.WithAdd(corev1.Capability(capability))
		container.SecurityContext.WithRunAsNonRoot(false)
	}
}

// attach asks for a pod's ports.
func attach(pod *coreac.PodApplyConfiguration, spec *v1alpha1.StoreSpec, n *Network, addresses []netip.Addr) error {
	if n == nil {
		return nil
	}
	if len(n.Ports) > 0 {
		request, err := network.Request(*pod.Namespace, network.Attachments(spec), addresses)
		if err != nil {
			return err
		}
		pod.WithAnnotations(map[string]string{
			network.AnnotationNetworks: request, v1alpha1.AnnotationAddresses: network.Join(addresses),
		})
		// In a file: it may be said after the container was started.
		field := coreac.ObjectFieldSelector().WithFieldPath(fmt.Sprintf("metadata.annotations['%s']", network.AnnotationStatus))
		pod.Spec.WithVolumes(coreac.Volume().WithName(statusVolume).WithDownwardAPI(coreac.DownwardAPIVolumeSource().
			WithItems(coreac.DownwardAPIVolumeFile().WithPath(statusFile).WithFieldRef(field))))
	}
	if n.Hugepages != nil {
		pod.Spec.WithVolumes(coreac.Volume().WithName(hugepagesVolume).WithEmptyDir(coreac.EmptyDirVolumeSource().
			WithMedium(corev1.StorageMediumHugePagesPrefix + corev1.StorageMedium(n.HugepageSize))))
	}
	if len(n.Capabilities) > 0 {
		// Kubernetes gives capabilities to root only, which without any others may do no more in its container than anybody else. Its
		// group is that of the image's user, who may have written what is in the volume.
		pod.Spec.SecurityContext.WithRunAsNonRoot(false).WithRunAsUser(0).WithRunAsGroup(nonRoot)
	}
	return nil
}
