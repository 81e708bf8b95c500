package resources_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/network"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// onPorts is a Store with two virtual functions for each master.
func onPorts(change func(*v1alpha1.NetworkSpec)) *v1alpha1.Store {
	attachment := func(name, cidr string) v1alpha1.NetworkAttachment {
		return v1alpha1.NetworkAttachment{
			NetworkAttachmentDefinition: name, ResourceName: "intel.com/rcbox", Addresses: v1alpha1.AddressPool{CIDR: cidr},
		}
	}
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "box", Namespace: "shop", UID: "uid"}}
	store.Spec.Masters = v1alpha1.MastersSpec{Replicas: 3, Memory: resource.MustParse("1Gi"), Cores: 2, CPUPolicy: v1alpha1.CPUExclusive}
	store.Spec.Network = v1alpha1.NetworkSpec{
		Transport: v1alpha1.TransportDPDK, Provider: v1alpha1.NetworkDevicePlugin, Profile: v1alpha1.NetworkVF, MTU: 9000,
		Attachments:  []v1alpha1.NetworkAttachment{attachment("a", "10.0.0.0/24"), attachment("nets/b", "10.1.0.0/16")},
		Hugepages:    &v1alpha1.NetworkHugepages{PageSize: "2Mi", Size: resource.MustParse("128Mi")},
		EALArguments: []string{"--log-level", "pmd:debug"},
	}
	change(&store.Spec.Network)
	return store
}

func masterOf(t *testing.T, store *v1alpha1.Store, addresses string) *coreac.PodApplyConfiguration {
	t.Helper()
	pod, err := resources.Pod(store, resources.PodSpec{
		Component: v1alpha1.ComponentMaster, Member: "box-master-0", Number: 1, Addresses: network.Split(addresses),
		Inputs: resources.InputsFor(store, v1alpha1.ComponentMaster, "store:1", v1alpha1.StateMemory),
	})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestPodWithPorts(t *testing.T) {
	pod := masterOf(t, onPorts(func(*v1alpha1.NetworkSpec) {}), "10.0.0.1,10.1.0.1")
	container := pod.Spec.Containers[0]
	const want = `[{"name":"a","namespace":"shop","interface":"net1","mac":"02:52:0a:00:00:01","ips":["10.0.0.1/24"]},` +
		`{"name":"b","namespace":"nets","interface":"net2","mac":"02:52:0a:01:00:01","ips":["10.1.0.1/16"]}]`
	if pod.Annotations[network.AnnotationNetworks] != want {
		t.Errorf("it asks for %s", pod.Annotations[network.AnnotationNetworks])
	}
	if pod.Annotations[v1alpha1.AnnotationAddresses] != "10.0.0.1,10.1.0.1" ||
		!slices.Contains(pod.Finalizers, v1alpha1.FinalizerAddresses) {
		t.Errorf("annotations %v, finalizers %v", pod.Annotations, pod.Finalizers)
	}
	args := strings.Join(container.Args, " ")
	for _, want := range []string{
		"-L tcp:host=0.0.0.0,port=12100",
		"-L fast+dpdk:host=10.0.0.1,port=12300,mtu=9000,prefix=24 -L fast+dpdk:host=10.1.0.1,port=12300,mtu=9000,prefix=16",
		"--advertise tcp:host=$(POD_IP),port=12100",
		"--dpdk --log-level pmd:debug",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("arguments %s have not %s", args, want)
		}
	}
	if !isGuaranteed(pod) || container.Resources.Limits.Cpu().String() != "2" {
		t.Errorf("resources are %+v", container.Resources)
	}
	for name, want := range map[corev1.ResourceName]string{"intel.com/rcbox": "2", "hugepages-2Mi": "128Mi"} {
		if got := (*container.Resources.Limits)[name]; got.String() != want {
			t.Errorf("limit of %s is %s", name, got.String())
		}
	}
	checkRights(t, pod, "IPC_LOCK")
	mounts := map[string]string{}
	for _, mount := range container.VolumeMounts {
		mounts[*mount.Name] = *mount.MountPath
	}
	if mounts["network"] != "/etc/rcbox/network" || mounts["hugepages"] != "/dev/hugepages" {
		t.Errorf("mounts are %v", mounts)
	}
	for _, volume := range pod.Spec.Volumes {
		if *volume.Name == "network" && *volume.DownwardAPI.Items[0].FieldRef.FieldPath !=
			"metadata.annotations['k8s.v1.cni.cncf.io/network-status']" {
			t.Errorf("the status comes from %s", *volume.DownwardAPI.Items[0].FieldRef.FieldPath)
		}
		if *volume.Name == "hugepages" && *volume.EmptyDir.Medium != "HugePages-2Mi" {
			t.Errorf("huge pages come from %s", *volume.EmptyDir.Medium)
		}
	}
}

// checkRights: these capabilities and no others; root only where it needs some.
func checkRights(t *testing.T, pod *coreac.PodApplyConfiguration, capabilities ...corev1.Capability) {
	t.Helper()
	context := pod.Spec.Containers[0].SecurityContext
	if !slices.Equal(context.Capabilities.Add, capabilities) || !slices.Equal(context.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("capabilities are %+v, not %v", context.Capabilities, capabilities)
	}
	isRoot := *pod.Spec.SecurityContext.RunAsUser == 0
	if isRoot != (len(capabilities) > 0) || *context.RunAsNonRoot == isRoot || *pod.Spec.SecurityContext.RunAsNonRoot == isRoot ||
		*context.AllowPrivilegeEscalation || !*context.ReadOnlyRootFilesystem || context.Privileged != nil {
		t.Errorf("security is %+v, %+v", context, pod.Spec.SecurityContext)
	}
}

func TestRightsOfProfiles(t *testing.T) {
	whole := []v1alpha1.NetworkCapability{v1alpha1.CapabilitySysRawIO, v1alpha1.CapabilityIPCLock, v1alpha1.CapabilitySysAdmin}
	for name, test := range map[string]struct {
		change func(*v1alpha1.NetworkSpec)
		want   []corev1.Capability
	}{
		"mlx5": {func(n *v1alpha1.NetworkSpec) {
			n.Capabilities = []v1alpha1.NetworkCapability{v1alpha1.CapabilityNetRaw, v1alpha1.CapabilityIPCLock}
		}, []corev1.Capability{"IPC_LOCK", "NET_RAW"}},
		"a whole port": {func(n *v1alpha1.NetworkSpec) {
			n.Profile, n.Capabilities = v1alpha1.NetworkWholePort, whole
		}, []corev1.Capability{"IPC_LOCK", "SYS_ADMIN", "SYS_RAWIO"}},
		"af_packet": {
			func(n *v1alpha1.NetworkSpec) { n.Profile = v1alpha1.NetworkInterface },
			[]corev1.Capability{"NET_ADMIN", "NET_RAW"},
		},
		"sockets":      {func(n *v1alpha1.NetworkSpec) { n.Transport, n.Hugepages = v1alpha1.TransportFastUDP, nil }, nil},
		"pod network":  {func(n *v1alpha1.NetworkSpec) { *n = v1alpha1.NetworkSpec{Transport: v1alpha1.TransportFastUDP} }, nil},
		"as ever":      {func(n *v1alpha1.NetworkSpec) { *n = v1alpha1.NetworkSpec{} }, nil},
		"a TCP of old": {func(n *v1alpha1.NetworkSpec) { *n = v1alpha1.NetworkSpec{Transport: v1alpha1.TransportTCP} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			checkRights(t, masterOf(t, onPorts(test.change), "10.0.0.1,10.1.0.1"), test.want...)
		})
	}
}

// Interfaces of the kernel are driven by AF_PACKET, unless the Store says how.
func TestDevicesOfInterfaces(t *testing.T) {
	for given, want := range map[string]string{
		"": "--dpdk --vdev=net_af_packet0,iface=net1,qdisc_bypass=1 " +
			"--vdev=net_af_packet1,iface=net2,qdisc_bypass=1",
		"--vdev=net_af_xdp0,iface=net1": "--dpdk --vdev=net_af_xdp0,iface=net1",
	} {
		pod := masterOf(t, onPorts(func(n *v1alpha1.NetworkSpec) {
			n.Profile, n.EALArguments = v1alpha1.NetworkInterface, strings.Fields(given)
		}), "10.0.0.1,10.1.0.1")
		args := strings.Join(pod.Spec.Containers[0].Args, " ")
		if _, after, _ := strings.Cut(args, "--advertise tcp:host=$(POD_IP),port=12100 "); !strings.HasPrefix(after, want+" --member") {
			t.Errorf("with %q the arguments are %s", given, args)
		}
	}
}

// On the pod network nothing is attached, and without the fast protocol all is as it has always been: no pod is outdated by this version.
func TestPodWithoutPorts(t *testing.T) {
	fast := onPorts(func(n *v1alpha1.NetworkSpec) {
		*n = v1alpha1.NetworkSpec{Transport: v1alpha1.TransportFastUDP, MTU: 1500}
	})
	pod := masterOf(t, fast, "")
	args := strings.Join(pod.Spec.Containers[0].Args, " ")
	const want = "-L fast+udp:host=$(POD_IP),port=12300 --advertise tcp:host=$(POD_IP),port=12100"
	if !strings.Contains(args, want) {
		t.Errorf("arguments are %s", args)
	}
	if len(pod.Finalizers) > 0 || pod.Annotations[network.AnnotationNetworks] != "" {
		t.Errorf("finalizers %v, annotations %v", pod.Finalizers, pod.Annotations)
	}
	tcp := onPorts(func(n *v1alpha1.NetworkSpec) {
		*n = v1alpha1.NetworkSpec{Transport: v1alpha1.TransportTCP, Provider: "Kernel", MTU: 1500}
	})
	inputs := resources.InputsFor(tcp, v1alpha1.ComponentMaster, "store:1", v1alpha1.StateMemory)
	text, err := inputs.Encode()
	if err != nil || strings.Contains(text, "network") {
		t.Errorf("a pod is made from %s: %v", text, err)
	}
	args = strings.Join(masterOf(t, tcp, "").Spec.Containers[0].Args, " ")
	if strings.Contains(args, "fast") || !strings.Contains(args, "--advertise tcp:host=$(POD_IP),port=12100") {
		t.Errorf("arguments are %s", args)
	}
}

// DPDK's buffers come from somewhere: huge pages of their own, or the master's memory, which the log then has less of.
func TestMemoryOfBuffers(t *testing.T) {
	memory := func(change func(*v1alpha1.NetworkSpec)) int64 {
		return resources.StoreMemoryMiB(resources.InputsFor(onPorts(change), v1alpha1.ComponentMaster, "store:1", v1alpha1.StateMemory))
	}
	none := memory(func(n *v1alpha1.NetworkSpec) { *n = v1alpha1.NetworkSpec{} })
	if huge := memory(func(*v1alpha1.NetworkSpec) {}); huge != none {
		t.Errorf("with huge pages the log has %d MiB, without a port %d", huge, none)
	}
	if ordinary := memory(func(n *v1alpha1.NetworkSpec) { n.Hugepages = nil }); ordinary != none-240 {
		t.Errorf("without huge pages the log has %d MiB, without a port %d", ordinary, none)
	}
}

// Huge pages for the log and for packets add up.
func TestHugePagesOfBoth(t *testing.T) {
	limit := func(pages v1alpha1.HugePages, change func(*v1alpha1.NetworkSpec)) int64 {
		store := onPorts(change)
		store.Spec.Masters.HugePages = pages
		quantity := (*masterOf(t, store, "10.0.0.1,10.1.0.1").Spec.Containers[0].Resources.Limits)["hugepages-2Mi"]
		return quantity.Value()
	}
	none := func(n *v1alpha1.NetworkSpec) { *n = v1alpha1.NetworkSpec{} }
	log := limit(v1alpha1.HugePagesReserved, none)
	packets := limit("", func(*v1alpha1.NetworkSpec) {})
	if both := limit(v1alpha1.HugePagesReserved, func(*v1alpha1.NetworkSpec) {}); log == 0 || packets == 0 || both != log+packets {
		t.Errorf("%d for the log, %d for packets, %d for both", log, packets, both)
	}
}

func TestDiffOfNetworks(t *testing.T) {
	have := resources.InputsFor(onPorts(func(n *v1alpha1.NetworkSpec) { *n = v1alpha1.NetworkSpec{} }), v1alpha1.ComponentMaster, "a", "")
	want := resources.InputsFor(onPorts(func(n *v1alpha1.NetworkSpec) { n.EALArguments = nil }), v1alpha1.ComponentMaster, "a", "")
	const text = "network: none -> DPDK over VF a (intel.com/rcbox) and nets/b (intel.com/rcbox), mtu 9000, 128Mi of 2Mi pages, [IPC_LOCK]"
	if got := resources.Diff(have, want); got != text {
		t.Errorf("differs by %s", got)
	}
	encoded, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if decoded, err := resources.DecodeInputs(encoded); err != nil || resources.Diff(decoded, want) != "" {
		t.Errorf("after a round trip it differs by %s: %v", resources.Diff(decoded, want), err)
	}
}

// Clients of a ClusterPerf have ports as masters do, with addresses that are set apart for them; beyond these they do without.
func TestClientsWithPorts(t *testing.T) {
	store := onPorts(func(n *v1alpha1.NetworkSpec) {
		n.EALArguments = nil
		for i := range n.Attachments {
			n.Attachments[i].Addresses.Clients = 1
		}
	})
	run := &v1alpha1.ClusterPerf{ObjectMeta: metav1.ObjectMeta{Name: "run", Namespace: "shop", UID: "run-uid"}}
	run.Spec.Clients.Replicas = 2
	run.Status.Environment = &v1alpha1.PerfEnvironment{ClientImage: "store:1"}
	first, err := resources.PerfClient(run, store, 0)
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Join(first.Spec.Containers[0].Args, " ")
	const want = "-L fast+dpdk:host=10.0.0.254,port=0,mtu=9000,prefix=24 -L fast+dpdk:host=10.1.255.254,port=0,mtu=9000,prefix=16"
	if !strings.Contains(args, want) || !strings.Contains(first.Annotations[network.AnnotationNetworks], "10.1.255.254/16") {
		t.Errorf("arguments %s, annotations %v", args, first.Annotations)
	}
	if devices := (*first.Spec.Containers[0].Resources.Limits)["intel.com/rcbox"]; devices.Value() != 2 || len(first.Finalizers) > 0 {
		t.Errorf("resources %+v, finalizers %v", first.Spec.Containers[0].Resources, first.Finalizers)
	}
	checkRights(t, first, "IPC_LOCK")
	second, err := resources.PerfClient(run, store, 1)
	if err != nil || strings.Contains(strings.Join(second.Spec.Containers[0].Args, " "), "fast") {
		t.Errorf("the second client has %v: %v", second.Spec.Containers[0].Args, err)
	}
	checkRights(t, second)
}

// A volume that a pod on the pod network has written is used by one with ports, which is another user of the same group, and the other way
// round: so the group may write to all of it, whoever made it.
func TestVolumeOfAnotherUser(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.NetworkSpec){
		"ports": func(*v1alpha1.NetworkSpec) {}, "none": func(n *v1alpha1.NetworkSpec) { *n = v1alpha1.NetworkSpec{} },
	} {
		store := onPorts(change)
		store.Spec.Replication = v1alpha1.ReplicationSpec{Factor: new(int32(1)), Durability: v1alpha1.Buffered}
		store.Spec.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageVolume, Size: new(resource.MustParse("4Gi"))}
		context := masterOf(t, store, "10.0.0.1,10.1.0.1").Spec.SecurityContext
		if *context.FSGroup != 65532 || *context.RunAsGroup != 65532 || *context.FSGroupChangePolicy != corev1.FSGroupChangeAlways {
			t.Errorf("%s: %+v", name, context)
		}
	}
}
