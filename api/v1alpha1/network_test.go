package v1alpha1_test

import (
	"strings"
	"testing"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const onVF = "transport: DPDK, provider: DevicePlugin, profile: VF, attachments: [{networkAttachmentDefinition: a, " +
	"resourceName: intel.com/rcbox, addresses: {cidr: 192.168.101.0/24}}]"

func ofNetwork(network string) string {
	return manifest("box", "{masters: {cpuPolicy: Exclusive}, network: {"+network+"}}")
}

func onPool(pool string) string {
	return ofNetwork("transport: FastUDP, provider: DevicePlugin, profile: Interface, attachments: [{networkAttachmentDefinition: a, " +
		"addresses: {" + pool + "}}]")
}

func TestNetworkDefaults(t *testing.T) {
	store, errs := newAPIServer(t).create(t, ofNetwork(onVF+", hugepages: {}"))
	if errs != nil {
		t.Fatal(errs)
	}
	network := store.Spec.Network
	if !store.Spec.HasPorts() || network.MTU != 1500 || network.Hugepages.PageSize != "2Mi" || network.Hugepages.Size.String() != "256Mi" {
		t.Errorf("network is %+v", network)
	}
	store, errs = newAPIServer(t).create(t, manifest("box", "{}"))
	if errs != nil || store.Spec.HasPorts() || store.Spec.Network.Provider != v1alpha1.NetworkKernel || store.Spec.Network.Profile != "" {
		t.Errorf("a Store that says nothing has the network %+v: %v", store.Spec.Network, errs)
	}
}

func TestValidNetworks(t *testing.T) {
	server := newAPIServer(t)
	for name, network := range map[string]string{
		"the fast protocol on the pod network": "transport: FastUDP",
		"a virtual function":                   onVF,
		"mlx5":                                 onVF + ", capabilities: [IPC_LOCK, NET_RAW]",
		"two ports": "transport: DPDK, provider: DevicePlugin, profile: VF, mtu: 9000, hugepages: {pageSize: 1Gi, size: 2Gi}, " +
			"attachments: [" +
			"{networkAttachmentDefinition: nets/a, resourceName: a.b/c, addresses: {cidr: 10.1.0.0/16, range: 10.1.2.0/24, " +
			"exclude: [10.1.2.1, 10.1.2.240/28], clients: 4}}, " +
			"{networkAttachmentDefinition: nets/b, resourceName: a.b/c, addresses: {cidr: 10.2.0.0/16}}]",
		"a whole port": "transport: DPDK, provider: DevicePlugin, profile: WholePort, capabilities: [IPC_LOCK, SYS_RAWIO, SYS_ADMIN], " +
			"attachments: [{networkAttachmentDefinition: a, resourceName: a.b/c, addresses: {cidr: 192.168.101.0/24}}]",
		"af_packet": "transport: DPDK, provider: DevicePlugin, profile: Interface, ealArguments: ['--vdev', " +
			"'net_af_packet0,iface=net1,qdisc_bypass=1'], attachments: [{networkAttachmentDefinition: a, addresses: {cidr: 10.0.0.0/24}}]",
	} {
		if _, errs := server.create(t, ofNetwork(network)); errs != nil {
			t.Errorf("%s is refused: %v", name, errs)
		}
	}
}

func TestInvalidNetworks(t *testing.T) {
	server := newAPIServer(t)
	const network = "spec.network: Invalid value: "
	onPlugin := func(more string) string {
		return ofNetwork("provider: DevicePlugin, attachments: [{networkAttachmentDefinition: a, addresses: {cidr: 10.0.0.0/24}}], " + more)
	}
	for _, test := range []struct{ name, manifest, want string }{
		{
			"DPDK with shared CPUs", manifest("box", "{network: {"+onVF+"}}"),
			"spec: Invalid value: network.transport: DPDK needs masters.cpuPolicy: Exclusive: its cores never sleep, and kubelets align " +
				"devices, memory and CPUs for pods of the class Guaranteed only",
		},
		{
			"DPDK on the pod network", ofNetwork("transport: DPDK"),
			network + "network.transport: DPDK needs network.provider: DevicePlugin: a master drives a port that nobody else has",
		},
		{
			"TCP on a port", onPlugin("profile: Interface"),
			network + "network.provider: DevicePlugin needs network.transport: DPDK or FastUDP: TCP is on the pod network",
		},
		{
			"no profile", onPlugin("transport: FastUDP"),
			network + "network.profile and network.attachments are for provider: DevicePlugin, which needs both",
		},
		{
			"ports of the pod network", ofNetwork("profile: VF"),
			network + "network.profile and network.attachments are for provider: DevicePlugin, which needs both",
		},
		{
			"sockets on a virtual function", onPlugin("transport: FastUDP, profile: VF"),
			network + "network.transport: FastUDP needs network.profile: Interface: the kernel has no sockets on a port that it does not " +
				"drive" +
				"\n" + network + "network.attachments[].resourceName is needed with profile: VF or WholePort: the device plugin hands " +
				"the port out under that name",
		},
		{
			"a virtual function from nowhere", onPlugin("transport: DPDK, profile: VF"),
			network + "network.attachments[].resourceName is needed with profile: VF or WholePort: the device plugin hands the port out " +
				"under that name",
		},
		{
			"huge pages for sockets", ofNetwork("transport: FastUDP, hugepages: {}"),
			network + "network.hugepages, network.ealArguments and network.capabilities are for transport: DPDK",
		},
		{
			"a whole port without a word", ofNetwork(strings.Replace(onVF, "profile: VF", "profile: WholePort", 1)),
			network + "network.profile: WholePort needs network.capabilities: [IPC_LOCK, SYS_RAWIO, SYS_ADMIN], said by you: without an " +
				"IOMMU the process can reach all of the node's memory",
		},
		{
			"two ports in one network", ofNetwork("transport: FastUDP, provider: DevicePlugin, profile: Interface, attachments: [" +
				"{networkAttachmentDefinition: a, addresses: {cidr: 10.0.0.0/16}}, " +
				"{networkAttachmentDefinition: b, addresses: {cidr: 10.0.3.0/24}}]"),
			network + "network.attachments must have different addresses.cidr: each port is in a network of its own",
		},
		{
			"tiny packets", ofNetwork("mtu: 576"),
			"spec.network.mtu: Invalid value: 576: spec.network.mtu in body should be greater than or equal to 1280",
		},
		{
			"two arguments in one", ofNetwork(onVF + ", ealArguments: ['-l 0']"),
			`spec.network.ealArguments: Invalid value: network.ealArguments must consist of letters, digits and -_.,:=/@+, ` +
				"without spaces: one argument each",
		},
		{
			"half a huge page", ofNetwork(onVF + ", hugepages: {pageSize: 1Gi, size: 512Mi}"),
			"spec.network.hugepages: Invalid value: network.hugepages.size must be a multiple of network.hugepages.pageSize",
		},
		{
			"an address as a network", onPool("cidr: 192.168.101.1/24"),
			`spec.network.attachments[0].addresses.cidr: Invalid value: "192.168.101.1/24": addresses.cidr must be an IPv4 network with ` +
				"a prefix from 16 to 30, such as 192.168.101.0/24",
		},
		{
			"a range from elsewhere", onPool("cidr: 192.168.101.0/24, range: 192.168.102.0/26"),
			"spec.network.attachments[0].addresses: Invalid value: addresses.range must be a part of addresses.cidr, such as " +
				"192.168.101.64/26 of 192.168.101.0/24",
		},
		{
			"a range that is none", onPool("cidr: 192.168.101.0/24, range: some"),
			"spec.network.attachments[0].addresses: Invalid value: addresses.range must be a part of addresses.cidr, such as " +
				"192.168.101.64/26 of 192.168.101.0/24",
		},
		{
			"exclusions that are none", onPool("cidr: 192.168.101.0/24, exclude: [gateway]"),
			`spec.network.attachments[0].addresses.exclude: Invalid value: addresses.exclude must be addresses, or networks ` +
				"such as 192.168.101.0/28",
		},
		{
			"clients without number", onPool("cidr: 192.168.101.0/24, clients: 300"),
			"spec.network.attachments[0].addresses.clients: Invalid value: 300: spec.network.attachments[0].addresses.clients in body " +
				"should be less than or equal to 256",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, errs := server.create(t, test.manifest)
			if got := strings.Join(errs, "\n"); got != test.want {
				t.Errorf("refused with\n  %q\nnot with\n  %q", got, test.want)
			}
		})
	}
}
