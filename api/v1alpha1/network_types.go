package v1alpha1

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Transport is how RPCs travel.
//
// +kubebuilder:validation:Enum=TCP;FastUDP;DPDK
type Transport string

const (
	// TransportTCP is RAMCloud's wire format over the kernel's TCP.
	TransportTCP Transport = "TCP"
	// TransportFastUDP is the fast protocol over the kernel's UDP sockets.
	TransportFastUDP Transport = "FastUDP"
	// TransportDPDK is the fast protocol over network ports that the masters drive themselves.
	TransportDPDK Transport = "DPDK"
)

// NetworkProvider is where the masters' data ports come from.
//
// +kubebuilder:validation:Enum=Kernel;DevicePlugin
type NetworkProvider string

const (
	// NetworkKernel is the pod network.
	NetworkKernel NetworkProvider = "Kernel"
	// NetworkDevicePlugin is ports of their own: handed out by a device plugin, attached by Multus.
	NetworkDevicePlugin NetworkProvider = "DevicePlugin"
)

// NetworkProfile is what such a port is, and so what its process may do.
//
// +kubebuilder:validation:Enum=VF;WholePort;Interface
type NetworkProfile string

const (
	// NetworkVF is a virtual function behind an IOMMU.
	NetworkVF NetworkProfile = "VF"
	// NetworkWholePort is a whole port of a machine without an IOMMU.
	NetworkWholePort NetworkProfile = "WholePort"
	// NetworkInterface is a network interface of the kernel.
	NetworkInterface NetworkProfile = "Interface"
)

// NetworkCapability is a right that a process needs to drive a port.
//
// +kubebuilder:validation:Enum=IPC_LOCK;NET_RAW;NET_ADMIN;SYS_RAWIO;SYS_ADMIN
type NetworkCapability string

// Capabilities of processes.
const (
	// CapabilityIPCLock lets it lock memory, which devices read and write.
	CapabilityIPCLock NetworkCapability = "IPC_LOCK"
	// CapabilityNetRaw lets it send and receive raw frames through an interface of the kernel.
	CapabilityNetRaw NetworkCapability = "NET_RAW"
	// CapabilityNetAdmin lets it change its interfaces.
	CapabilityNetAdmin NetworkCapability = "NET_ADMIN"
	// CapabilitySysRawIO lets it open a device that no IOMMU stands before.
	CapabilitySysRawIO NetworkCapability = "SYS_RAWIO"
	// CapabilitySysAdmin lets it see where in the machine's memory its own is.
	CapabilitySysAdmin NetworkCapability = "SYS_ADMIN"
)

// NetworkSpec says how clients and members talk, and over which ports. The coordinator, members' control and clients of RAMCloud's own
// protocol are on the pod network in any case.
//
// +kubebuilder:validation:XValidation:rule="self.transport != 'DPDK' || self.provider == 'DevicePlugin'",message="network.transport: DPDK needs network.provider: DevicePlugin: a master drives a port that nobody else has"
// +kubebuilder:validation:XValidation:rule="self.provider != 'DevicePlugin' || self.transport != 'TCP'",message="network.provider: DevicePlugin needs network.transport: DPDK or FastUDP: TCP is on the pod network"
// +kubebuilder:validation:XValidation:rule="self.provider == 'DevicePlugin' ? has(self.profile) && has(self.attachments) && size(self.attachments) > 0 : !has(self.profile) && !has(self.attachments)",message="network.profile and network.attachments are for provider: DevicePlugin, which needs both"
// +kubebuilder:validation:XValidation:rule="self.transport != 'FastUDP' || !has(self.profile) || self.profile == 'Interface'",message="network.transport: FastUDP needs network.profile: Interface: the kernel has no sockets on a port that it does not drive"
// +kubebuilder:validation:XValidation:rule="!has(self.profile) || self.profile == 'Interface' || !has(self.attachments) || self.attachments.all(a, has(a.resourceName))",message="network.attachments[].resourceName is needed with profile: VF or WholePort: the device plugin hands the port out under that name"
// +kubebuilder:validation:XValidation:rule="self.transport == 'DPDK' || (!has(self.hugepages) && !has(self.ealArguments) && !has(self.capabilities))",message="network.hugepages, network.ealArguments and network.capabilities are for transport: DPDK"
// +kubebuilder:validation:XValidation:rule="!has(self.profile) || self.profile != 'WholePort' || (has(self.capabilities) && ['IPC_LOCK', 'SYS_RAWIO', 'SYS_ADMIN'].all(c, c in self.capabilities))",message="network.profile: WholePort needs network.capabilities: [IPC_LOCK, SYS_RAWIO, SYS_ADMIN], said by you: without an IOMMU the process can reach all of the node's memory"
// +kubebuilder:validation:XValidation:rule="!has(self.attachments) || size(self.attachments) < 2 || !(cidr(self.attachments[0].addresses.cidr).containsCIDR(self.attachments[1].addresses.cidr) || cidr(self.attachments[1].addresses.cidr).containsCIDR(self.attachments[0].addresses.cidr))",message="network.attachments must have different addresses.cidr: each port is in a network of its own"
type NetworkSpec struct {
	// How RPCs travel. TCP: RAMCloud's own format, locators `tcp:host=...,port=...`. FastUDP: the fast protocol over the kernel's UDP.
	// DPDK: the fast protocol over ports that masters drive themselves. With both of these TCP is there as well, for clients that
	// know nothing else, and for when a port fails.
	//
	// +optional
	// +kubebuilder:default=TCP
	Transport Transport `json:"transport,omitempty"`

	// Where the ports come from. Kernel: the pod network. DevicePlugin: each master has ports of its own, that a device plugin hands
	// out and Multus attaches, with addresses that the operator allots.
	//
	// +optional
	// +kubebuilder:default=Kernel
	Provider NetworkProvider `json:"provider,omitempty"`

	// The kind of the ports. VF: a virtual function behind an IOMMU (vfio-pci; mlx5). WholePort: a whole port without an IOMMU (vfio-pci
	// without IOMMU), whose process can reach all of the node's memory; the installation of the operator has to allow it
	// (allow.networkProfiles of the chart). Interface: an interface of the kernel (macvlan, host-device, a veth), for FastUDP, or for DPDK
	// by AF_PACKET.
	//
	// +optional
	Profile NetworkProfile `json:"profile,omitempty"`

	// The ports of each master, one or two.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Attachments []NetworkAttachment `json:"attachments,omitempty"`

	// The sources that may reach the ports for clients on the pod network.
	//
	// +optional
	Clients ClientsSpec `json:"clients,omitzero"`

	// The largest IP packet of these networks, in bytes.
	//
	// +optional
	// +kubebuilder:default=1500
	// +kubebuilder:validation:Minimum=1280
	// +kubebuilder:validation:Maximum=9000
	MTU int32 `json:"mtu,omitempty"`

	// Huge pages for DPDK's buffers, from which devices read and into which they write. Without this field the buffers take 256 MiB of
	// masters.memory, in ordinary pages; that does not work without an IOMMU.
	//
	// +optional
	Hugepages *NetworkHugepages `json:"hugepages,omitempty"`

	// Arguments for DPDK's environment abstraction layer, besides those that the server gives itself, such as which devices and which
	// memory. The installation of the operator has to allow them (allow.ealArguments of the chart). With profile Interface, and without
	// a --vdev here, each interface is driven by AF_PACKET.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(a, a.matches('^[-A-Za-z0-9_.,:=/@+]+$'))",message="network.ealArguments must consist of letters, digits and -_.,:=/@+, without spaces: one argument each"
	EALArguments []string `json:"ealArguments,omitempty"`

	// Rights of the masters' processes. Left empty they are what the profile needs: IPC_LOCK for VF, NET_ADMIN and NET_RAW for Interface.
	// mlx5 needs [IPC_LOCK, NET_RAW]. WholePort has no default. The installation of the operator has to allow them, also those of the
	// profile (allow.capabilities of the chart).
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	Capabilities []NetworkCapability `json:"capabilities,omitempty"`
}

// ClientsSpec says who the clients are.
type ClientsSpec struct {
	// Where clients may be: pods, namespaces and networks, as in a NetworkPolicy; besides them the Store's own pods, clients of its
	// ClusterPerfs, and pods of its namespace with the label rcbox.dev/admin-client: STORE. Left empty, everybody. The cluster's network
	// has to enforce NetworkPolicies. Ports of attachments are not concerned.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	From []networkingv1.NetworkPolicyPeer `json:"from,omitempty"`
}

// NetworkAttachment is a port of each master.
type NetworkAttachment struct {
	// The NetworkAttachmentDefinition by which Multus attaches it, as name or namespace/name.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="networkAttachmentDefinition must be a name, or namespace/name"
	NetworkAttachmentDefinition string `json:"networkAttachmentDefinition"`

	// The extended resource under which the device plugin hands the port out, such as intel.com/rcbox.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="resourceName must be an extended resource, such as intel.com/rcbox"
	ResourceName string `json:"resourceName,omitempty"`

	// The addresses that masters get there.
	Addresses AddressPool `json:"addresses"`
}

// AddressPool is IPv4 addresses that the operator allots. There is no gateway: everybody is in one network.
//
// +kubebuilder:validation:XValidation:rule="!has(self.range) || (isCIDR(self.range) && isCIDR(self.cidr) && cidr(self.cidr).containsCIDR(self.range))",message="addresses.range must be a part of addresses.cidr, such as 192.168.101.64/26 of 192.168.101.0/24"
type AddressPool struct {
	// The network.
	//
	// +kubebuilder:validation:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self).prefixLength() >= 16 && cidr(self).prefixLength() <= 30 && cidr(self) == cidr(self).masked()",message="addresses.cidr must be an IPv4 network with a prefix from 16 to 30, such as 192.168.101.0/24"
	CIDR string `json:"cidr"`

	// The part of it from which addresses are taken; left empty, all of it. Two Stores that reach each other must have different ones.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=18
	Range string `json:"range,omitempty"`

	// Addresses and networks that are not taken from there.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="self.all(e, isIP(e) || isCIDR(e))",message="addresses.exclude must be addresses, or networks such as 192.168.101.0/28"
	Exclude []string `json:"exclude,omitempty"`

	// How many of them, the last ones, are for the clients of ClusterPerfs and not for masters.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=256
	Clients int32 `json:"clients,omitempty"`
}

// NetworkHugepages is memory for DPDK's buffers.
//
// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self.size)) || quantity(string(self.size)).asInteger() > 0 && quantity(string(self.size)).asInteger() % quantity(self.pageSize).asInteger() == 0",message="network.hugepages.size must be a multiple of network.hugepages.pageSize"
type NetworkHugepages struct {
	// The size of a page.
	//
	// +optional
	// +kubebuilder:default="2Mi"
	// +kubebuilder:validation:Enum="2Mi";"1Gi"
	PageSize string `json:"pageSize,omitempty"`

	// How much, request and limit alike.
	//
	// +optional
	// +kubebuilder:default="256Mi"
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="network.hugepages.size must be an amount of bytes such as 512Mi or 1Gi"
	Size resource.Quantity `json:"size,omitempty"`
}

// PrivilegesStatus is what masters' processes may do beyond those of an ordinary restricted pod.
type PrivilegesStatus struct {
	// Capabilities of the processes.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	Capabilities []NetworkCapability `json:"capabilities,omitempty"`
	// Arguments for DPDK's environment abstraction layer.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	EALArguments []string `json:"ealArguments,omitempty"`
	// Whether they drive whole ports, without an IOMMU.
	//
	// +optional
	WholePort bool `json:"wholePort,omitempty"`
}

// NetworkStatus describes the ports' networks; absent for Stores on the pod network.
type NetworkStatus struct {
	// The pools of addresses, in the order of spec.network.attachments.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Pools []PoolStatus `json:"pools,omitempty"`

	// Addresses that no pod gets, because a pod that had them may still send under them.
	//
	// +optional
	// +listType=map
	// +listMapKey=ip
	// +listMapKey=pod
	// +kubebuilder:validation:MaxItems=4000
	Quarantined []QuarantinedAddress `json:"quarantined,omitempty"`
}

// PoolStatus says how much of a pool is left.
type PoolStatus struct {
	// The part of the network from which addresses are taken.
	Range string `json:"range"`
	// How many addresses it has for masters.
	//
	// +optional
	Size int32 `json:"size"`
	// How many of them are free.
	//
	// +optional
	Free int32 `json:"free"`
}

// QuarantinedAddress is an address that no pod gets.
type QuarantinedAddress struct {
	// The address.
	IP string `json:"ip"`
	// The hardware address that goes with it; empty for a whole port, which has its own.
	//
	// +optional
	MAC string `json:"mac,omitempty"`
	// The pod that may still send under it.
	Pod string `json:"pod"`
	// Its member, and its node.
	//
	// +optional
	Member string `json:"member,omitempty"`
	// +optional
	Node string `json:"node,omitempty"`
	// Since when.
	Since metav1.Time `json:"since"`
	// Why, and what would end it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
}

// MemberAddress is what a master has on one of its ports.
type MemberAddress struct {
	// The address. It stays the member's, wherever its pods are, unless a former pod may still send under it.
	IP string `json:"ip"`
	// The hardware address, made from the IP address; empty for a whole port, which has its own.
	//
	// +optional
	MAC string `json:"mac,omitempty"`
	// The pod that has it, or had it last and may still send under it.
	//
	// +optional
	Pod string `json:"pod,omitempty"`
	// The attachment as Multus describes it: the interface's name in the pod, and the device on the PCI bus.
	//
	// +optional
	Interface string `json:"interface,omitempty"`
	// +optional
	PCI string `json:"pci,omitempty"`
}

// RefusalStatus says how often kubelets did not admit a master's pods, one after the other.
type RefusalStatus struct {
	// The last such pod, and its node.
	Pod string `json:"pod"`
	// +optional
	Node string `json:"node,omitempty"`
	// How many there were, without one that was admitted between them.
	Count int32 `json:"count"`
	// When the first one of them was made.
	Since metav1.Time `json:"since"`
	// Why, in Kubernetes' words.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// HasPorts says whether masters have ports of their own.
func (s *StoreSpec) HasPorts() bool {
	return s.Network.Provider == NetworkDevicePlugin && len(s.Network.Attachments) > 0
}
