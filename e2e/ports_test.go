package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Masters with ports of their own, on the second network of hack/second-network.sh. Multus and the IPAM plugin are real; ports, device
// plugin and CNI plugin are stand-ins (images/network/README.md), so nothing here says anything of NICs, vfio or speed.

const (
	standInResource = "stand-in.rcbox.dev/port"
	portsPerNode    = 4
	portsNetwork    = "192.168.103.0/24"

	portsDefinition = `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: ports, annotations: {k8s.v1.cni.cncf.io/resourceName: stand-in.rcbox.dev/port}}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "ports", "type": "standinport", "capabilities": {"mac": true, "ips": true},
     "ipam": {"type": "static"}}
`
	// With ordinary memory for DPDK's buffers: the nodes of a kind cluster share their machine's huge pages, if it has any.
	portsSpec = `apiVersion: rcbox.dev/v1alpha1
kind: Store
metadata: {name: box}
spec:
  masters: {replicas: 3, memory: 640Mi, cores: 1, cpuPolicy: Exclusive}
  replication: {factor: 1}
  backups: {storage: {size: 768Mi}}
  coordinator: {replicas: 2, state: {type: Kubernetes}}
  reclaimPolicy: Delete
  recovery: {rescheduleAfter: 10s}
  placement:
    tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
  network:
    transport: DPDK
    provider: DevicePlugin
    profile: Interface
    mtu: 1450
    attachments:
    - networkAttachmentDefinition: ports
      resourceName: stand-in.rcbox.dev/port
      addresses: {cidr: 192.168.103.0/24, range: 192.168.103.64/28, clients: 2}
`
)

// portsBox is what one step leaves for the next.
type portsBox struct {
	clients *clients
	// addresses of the members, as they were when all was well.
	addresses map[string]v1alpha1.MemberAddress
	// node that is lost, with this member; spare is the node without a master.
	node, member, spare string
	killed              time.Time
	isBack              bool
}

// TestPorts is the life of a Store whose masters have ports: attached, used by DPDK, kept, lost with a node, used up, returned.
func TestPorts(t *testing.T) {
	namespacesAreThere(t)
	b := &portsBox{}
	t.Cleanup(func() {
		if b.node != "" && !b.isBack {
			docker(t, killedNode.back, b.node)
		}
		setPodSecurity(t, namespaceOf(t), "restricted")
	})
	inOrder(t, []step{
		{"OperatorRuns", operatorRuns},
		{"RestrictedNamespaceRefusesThem", b.restrictedNamespaceRefuses},
		{"PortsAreAttached", b.portsAreAttached},
		{"PluginShowsThem", b.pluginShowsThem},
		{"ClusterPerfMeasuresOverDPDK", b.clusterPerfMeasures},
		{"ClientsRun", func(step *testing.T) { b.clients = startClients(step, t) }},
		{"DeletedPodKeepsItsAddress", b.deletedPodKeepsItsAddress},
		{"RestartOfTheDevicePluginIsNotNoticed", b.devicePluginRestarts},
		{"PulledCableIsTold", b.pulledCableIsTold},
		{"NodeIsLost", b.nodeIsLost},
		{"MemberWaitsForAPort", b.memberWaitsForAPort},
		{"AndGetsAFreshAddress", b.memberGetsAFreshAddress},
		{"NodeComesBack", b.nodeComesBack},
		{"ClientsSawNothingWrong", func(t *testing.T) { b.clients.end(t) }},
		{"NothingOfTheStoreIsLeft", nothingOfTheStoreIsLeft},
		{"AllPortsAreReturned", allPortsAreReturned},
	})
}

// restrictedNamespaceRefuses: rights for raw frames are not for everybody, and the status says why there is no pod.
func (b *portsBox) restrictedNamespaceRefuses(t *testing.T) {
	apply(t, portsDefinition)
	apply(t, portsSpec)
	waitForStore(t, "the status says what the namespace refuses", changeDeadline, func(store v1alpha1.Store) error {
		condition := meta.FindStatusCondition(store.Status.Conditions, v1alpha1.ConditionProgressing)
		if condition == nil || condition.Reason != v1alpha1.ReasonApplyFailed ||
			!strings.Contains(condition.Message, "violates PodSecurity") || !strings.Contains(condition.Message, "NET_RAW") {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
}

// addressesOf are the members' first ports.
func addressesOf(store v1alpha1.Store) map[string]v1alpha1.MemberAddress {
	addresses := map[string]v1alpha1.MemberAddress{}
	for _, member := range store.Status.Masters.Members {
		for _, address := range member.Addresses {
			addresses[member.Name] = address
		}
	}
	return addresses
}

func portsAre(store v1alpha1.Store, status metav1.ConditionStatus, reason string) error {
	return conditionIs(store, v1alpha1.ConditionNetworkReady, status, reason)
}

func (b *portsBox) portsAreAttached(t *testing.T) {
	setPodSecurity(t, namespaceOf(t), "privileged")
	waitUntilSafe(t, "the Store is safe")
	store := waitForStore(t, "the ports are attached", startDeadline, func(store v1alpha1.Store) error {
		return portsAre(store, metav1.ConditionTrue, v1alpha1.ReasonAttached)
	})
	b.addresses = addressesOf(store)
	seen := map[string]bool{}
	network := netip.MustParsePrefix(portsNetwork)
	pods := storePods(t, storeName)
	for member, address := range b.addresses {
		ip, err := netip.ParseAddr(address.IP)
		if err != nil || !network.Contains(ip) || seen[address.IP] || address.Interface != "net1" || address.MAC == "" {
			t.Errorf("%s has %+v", member, address)
		}
		seen[address.IP] = true
		told := kubectl(t, "get", "pod", pods[member].Metadata.Name, "-n", namespaceOf(t), "-o",
			`jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
		if !strings.Contains(told, address.IP) || !strings.Contains(told, address.MAC) {
			t.Errorf("%s should have %+v, and Multus says %s", member, address, told)
		}
	}
	if len(b.addresses) != 3 {
		t.Errorf("addresses %+v", b.addresses)
	}
}

// rcboxPlugin runs the kubectl plugin.
func rcboxPlugin(t *testing.T, arguments ...string) result {
	t.Helper()
	got, err := run(setting("RCBOX_PLUGIN", "kubectl-rcbox"), "", append(arguments, "-n", namespaceOf(t))...)
	if err != nil {
		t.Fatalf("kubectl rcbox %v: %v", arguments, err)
	}
	return got
}

func (b *portsBox) pluginShowsThem(t *testing.T) {
	var shown result
	// Masters tell how their ports are, and whom they reach, some seconds after their start.
	eventually(t, "everything is told", changeDeadline, func() error {
		shown = rcboxPlugin(t, "net", storeName)
		if told := strings.Count(shown.stdout, "net_af_packet  up"); shown.exitCode != 0 || told != len(b.addresses) ||
			strings.Contains(shown.stdout, "not told") {
			return fmt.Errorf("exit code %d: %s%s", shown.exitCode, shown.stdout, shown.stderr)
		}
		return nil
	})
	t.Log(shown.stdout)
	for member, address := range b.addresses {
		for _, want := range []string{member, address.IP, address.MAC, "net1"} {
			if !strings.Contains(shown.stdout, want) {
				t.Errorf("`kubectl rcbox net` does not show %s of %s:\n%s", want, member, shown.stdout)
			}
		}
	}
	if checked := rcboxPlugin(t, "net", "check", storeName); checked.exitCode != 0 {
		t.Errorf("`kubectl rcbox net check`: exit code %d\n%s%s", checked.exitCode, checked.stdout, checked.stderr)
	}
}

// clusterPerfMeasures: with a port of the client's own, and the masters' ports carry it.
func (b *portsBox) clusterPerfMeasures(t *testing.T) {
	before := b.framesAt(t)
	applyRun(t, "over-ports", "{storeRef: {name: box}, tests: [readDist], clients: {resources: {requests: {cpu: 500m, memory: 640Mi}, "+
		"limits: {cpu: 500m, memory: 640Mi}}}, options: {count: 1000, numObjects: 1000}}")
	run := completeRun(t, "over-ports")
	if len(run.Status.Results) == 0 {
		t.Errorf("results %+v", run.Status)
	}
	for _, result := range run.Status.Results {
		t.Logf("over DPDK's af_packet, on a loaded machine: %s %s %s", result.Name, result.Value, result.Unit)
	}
	// 1000 reads and more, which went to the table's master.
	most := 0
	for node, frames := range b.framesAt(t) {
		most = max(most, frames-before[node])
	}
	if most < 1000 {
		t.Errorf("the ports of no node have carried more than %d frames meanwhile", most)
	}
	kubectl(t, "delete", "rcperf", "over-ports", "-n", namespaceOf(t), "--timeout=60s")
}

// framesAt is how many frames have come from the ports of each node.
func (b *portsBox) framesAt(t *testing.T) map[string]int {
	t.Helper()
	frames := map[string]int{}
	for _, node := range nodeNames(t) {
		for word := range strings.FieldsSeq(docker(t, "exec", node, "sh", "-c", "cat /sys/class/net/rcpeer*/statistics/rx_packets")) {
			var count int
			if _, err := fmt.Sscan(word, &count); err != nil {
				t.Fatal(err)
			}
			frames[node] += count
		}
	}
	return frames
}

func nodeNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, node := range list[podObject](t, "nodes", "") {
		names = append(names, node.Metadata.Name)
	}
	return names
}

// newPodOf waits until a member has another pod than this, and it is ready.
func newPodOf(t *testing.T, member string, old podObject) podObject {
	t.Helper()
	var next podObject
	eventually(t, member+" has a new pod that is ready", startDeadline, func() error {
		next = storePods(t, storeName)[member]
		if statuses := next.Status.ContainerStatuses; next.Metadata.UID == old.Metadata.UID || len(statuses) == 0 || !statuses[0].Ready {
			return fmt.Errorf("pod %q, phase %q", next.Metadata.Name, next.Status.Phase)
		}
		return nil
	})
	return next
}

func (b *portsBox) deletedPodKeepsItsAddress(t *testing.T) {
	const member = "box-master-1"
	old := storePods(t, storeName)[member]
	kubectl(t, "delete", "pod", old.Metadata.Name, "-n", namespaceOf(t), "--wait=false")
	newPodOf(t, member, old)
	waitUntilSafe(t, "the Store is safe again")
	store := waitForStore(t, "its port is attached", changeDeadline, func(store v1alpha1.Store) error {
		return portsAre(store, metav1.ConditionTrue, v1alpha1.ReasonAttached)
	})
	had, has := b.addresses[member], addressesOf(store)[member]
	if has.IP != had.IP || has.MAC != had.MAC || has.Pod == old.Metadata.Name {
		t.Errorf("%s had %+v, and has %+v", member, had, has)
	}
	b.clients.goOn(t, "clients go on", 10)
}

func (b *portsBox) devicePluginRestarts(t *testing.T) {
	before, uids := fingerprints(storePods(t, storeName)), podUIDs(t, "second-network")
	kubectl(t, "delete", "pods", "-n", "second-network", "-l", "app=stand-in-ports", "--wait=false")
	eventually(t, "the device plugin is another process on all nodes", changeDeadline, func() error {
		ready := 0
		for _, pod := range list[podObject](t, "pods", "second-network", "-l", "app=stand-in-ports") {
			statuses := pod.Status.ContainerStatuses
			if !slices.Contains(uids, pod.Metadata.UID) && len(statuses) > 0 && statuses[0].Ready {
				ready++
			}
		}
		if want := len(nodeNames(t)); ready != want {
			return fmt.Errorf("%d of %d", ready, want)
		}
		return nil
	})
	eventually(t, "nodes offer their ports again", changeDeadline, func() error {
		return errors.Join(nodesOffer(t, nodeNames(t)...)...)
	})
	unchanged(t, before, fingerprints(storePods(t, storeName)))
	b.clients.goOn(t, "clients go on", 10)
}

// nodesOffer complains of each node that has fewer ports than it was made with.
func nodesOffer(t *testing.T, nodes ...string) []error {
	t.Helper()
	var problems []error
	for _, node := range nodes {
		offered := kubectl(t, "get", "node", node, "-o", `jsonpath={.status.allocatable.stand-in\.rcbox\.dev/port}`)
		if offered != strconv.Itoa(portsPerNode) {
			problems = append(problems, fmt.Errorf("node %s offers %q ports", node, offered))
		}
	}
	return problems
}

// pulledCableIsTold: the master goes on over the pod network, and the status says so until it need not any more.
func (b *portsBox) pulledCableIsTold(t *testing.T) {
	const member = "box-master-2"
	before := fingerprints(storePods(t, storeName))
	pod := storePods(t, storeName)[member]
	peer := otherEndOf(t, pod)
	isPlugged := false
	plug := func() {
		docker(t, "exec", pod.Spec.NodeName, "ip", "link", "set", peer, "up")
		isPlugged = true
	}
	t.Cleanup(func() {
		if !isPlugged {
			plug()
		}
	})
	docker(t, "exec", pod.Spec.NodeName, "ip", "link", "set", peer, "down")
	pulled := time.Now()
	b.clients.goOn(t, "clients go on, and copies are sent over the pod network", 10)
	t.Logf("cable pulled: all keys are used again after %.1f s", time.Since(pulled).Seconds())
	store := waitForStore(t, "the status says whose port is of no use", changeDeadline, func(store v1alpha1.Store) error {
		condition := meta.FindStatusCondition(store.Status.Conditions, v1alpha1.ConditionNetworkReady)
		reasons := []string{v1alpha1.ReasonLinkDown, v1alpha1.ReasonPeersUnreached}
		if condition == nil || condition.Status != metav1.ConditionFalse || !slices.Contains(reasons, condition.Reason) {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
	t.Log(meta.FindStatusCondition(store.Status.Conditions, v1alpha1.ConditionNetworkReady).Message)
	waitForStore(t, "the Store is available without that port", changeDeadline, func(store v1alpha1.Store) error {
		return errors.Join(portsAre(store, metav1.ConditionFalse, ""),
			conditionIs(store, v1alpha1.ConditionAvailable, metav1.ConditionTrue, ""))
	})
	plug()
	waitForStore(t, "all is well again", changeDeadline, func(store v1alpha1.Store) error {
		return portsAre(store, metav1.ConditionTrue, v1alpha1.ReasonAttached)
	})
	unchanged(t, before, fingerprints(storePods(t, storeName)))
}

// otherEndOf is the interface of the node that the port of a pod is plugged into.
func otherEndOf(t *testing.T, pod podObject) string {
	t.Helper()
	var index int
	inPod := docker(t, "exec", pod.Spec.NodeName, "nsenter", "-t", processOf(t, pod), "-n", "ip", "-o", "link", "show", "net1")
	_, after, _ := strings.Cut(inPod, "net1@if")
	if _, err := fmt.Sscanf(after, "%d:", &index); err != nil {
		t.Fatalf("%v in %s", err, inPod)
	}
	onNode := docker(t, "exec", pod.Spec.NodeName, "ip", "-o", "link")
	for line := range strings.Lines(onNode) {
		if rest, isIt := strings.CutPrefix(line, fmt.Sprintf("%d: ", index)); isIt {
			name, _, _ := strings.Cut(rest, "@")
			return name
		}
	}
	t.Fatalf("no interface %d on the node: %s", index, onNode)
	return ""
}

// nodeIsLost: first somebody takes all ports of the only node that could take its member.
func (b *portsBox) nodeIsLost(t *testing.T) {
	control := list[podObject](t, "nodes", "", "-l", "node-role.kubernetes.io/control-plane")[0].Metadata.Name
	hosts := map[string]string{}
	for member, pod := range storePods(t, storeName) {
		if !strings.Contains(member, "-master-") {
			continue
		}
		hosts[pod.Spec.NodeName] = member
		if pod.Spec.NodeName != control {
			b.member, b.node = member, pod.Spec.NodeName
		}
	}
	for _, node := range nodeNames(t) {
		if hosts[node] == "" {
			b.spare = node
		}
	}
	takeAllPorts(t, b.spare)
	node := b.node
	docker(t, killedNode.away, node)
	b.killed = time.Now()
	b.clients.goOn(t, "clients go on, also at the tablets of the master that is away", 10)
	t.Logf("node killed: all keys are used again after %.1f s", time.Since(b.killed).Seconds())
}

func takeAllPorts(t *testing.T, node string) {
	t.Helper()
	pod := podManifest(t, "takes-all-ports", settings.storeImage, []string{"rcbox", "-C", "tcp:host=127.0.0.1,port=1", "shell"}, true)
	spec := pod["spec"].(map[string]any)                        //nolint:forcetypeassert // made a line above
	container := spec["containers"].([]any)[0].(map[string]any) //nolint:forcetypeassert // made above
	container["resources"] = map[string]any{"limits": map[string]string{standInResource: strconv.Itoa(portsPerNode)}}
	spec["nodeName"] = node
	create(t, pod)
	kubectl(t, "wait", "--for=condition=Ready", "pod/takes-all-ports", "-n", namespaceOf(t), "--timeout=120s")
}

func (b *portsBox) memberWaitsForAPort(t *testing.T) {
	waitForStore(t, "the status says that there is no port", startDeadline, func(store v1alpha1.Store) error {
		condition := meta.FindStatusCondition(store.Status.Conditions, v1alpha1.ConditionNetworkReady)
		if err := portsAre(store, metav1.ConditionFalse, v1alpha1.ReasonNoDevice); err != nil {
			return err
		}
		if !strings.Contains(condition.Message, b.member) || !strings.Contains(condition.Message, "Insufficient "+standInResource) {
			return errors.New(condition.Message)
		}
		return nil
	})
	why := rcboxPlugin(t, "why", storePods(t, storeName)[b.member].Metadata.Name)
	if !strings.Contains(why.stdout, standInResource) {
		t.Errorf("`kubectl rcbox why` does not name the resource: exit code %d\n%s%s", why.exitCode, why.stdout, why.stderr)
	}
	b.clients.goOn(t, "clients go on", 10)
}

func (b *portsBox) memberGetsAFreshAddress(t *testing.T) {
	kubectl(t, "delete", "pod", "takes-all-ports", "-n", namespaceOf(t), "--wait=false")
	freed := time.Now()
	store := waitUntilSafe(t, "the Store is safe again")
	t.Logf("a port is free: safe after %.1f s", time.Since(freed).Seconds())
	pod := storePods(t, storeName)[b.member]
	if pod.Spec.NodeName != b.spare {
		t.Errorf("%s is on node %s, not on %s", b.member, pod.Spec.NodeName, b.spare)
	}
	// Nobody knows whether the node that does not answer still sends under the former one.
	former := b.addresses[b.member]
	if got := addressesOf(store)[b.member]; got.IP == former.IP || got.IP == "" {
		t.Errorf("%s had %+v, and has %+v", b.member, former, got)
	}
	inQuarantine := func(q v1alpha1.QuarantinedAddress) bool { return q.IP == former.IP && q.Node == b.node }
	if store.Status.Network == nil || !slices.ContainsFunc(store.Status.Network.Quarantined, inQuarantine) {
		t.Errorf("%s is not in quarantine: %+v", former.IP, store.Status.Network)
	}
	for member, address := range addressesOf(store) {
		if member != b.member && address.IP != b.addresses[member].IP {
			t.Errorf("%s had %+v, and has %+v", member, b.addresses[member], address)
		}
	}
}

func (b *portsBox) nodeComesBack(t *testing.T) {
	before := fingerprints(storePods(t, storeName))
	docker(t, killedNode.back, b.node)
	b.isBack = true
	kubectl(t, "wait", "--for=condition=Ready", "node/"+b.node, "--timeout=150s")
	ready := time.Now()
	waitForStore(t, "nothing is in quarantine any more", startDeadline, func(store v1alpha1.Store) error {
		if store.Status.Network == nil || len(store.Status.Network.Quarantined) > 0 {
			return fmt.Errorf("network %+v", store.Status.Network)
		}
		return portsAre(store, metav1.ConditionTrue, v1alpha1.ReasonAttached)
	})
	t.Logf("the node is back: its address is free after %.1f s", time.Since(ready).Seconds())
	eventually(t, "the node offers its ports again", changeDeadline, func() error { return errors.Join(nodesOffer(t, b.node)...) })
	waitUntilSafe(t, "the Store is safe")
	now := fingerprints(storePods(t, storeName))
	for member, former := range before {
		if strings.Contains(member, "-master-") && now[member] != former {
			t.Errorf("%s was %s, and is %s", member, former, now[member])
		}
	}
}

// allPortsAreReturned: each is on its node, under its own name.
func allPortsAreReturned(t *testing.T) {
	for _, node := range nodeNames(t) {
		eventually(t, "all ports of "+node+" are there", changeDeadline, func() error {
			there := docker(t, "exec", node, "sh", "-c", "ls -d /sys/class/net/rcport*")
			if count := len(strings.Fields(there)); count != portsPerNode {
				return fmt.Errorf("%d: %s", count, there)
			}
			return nil
		})
	}
}
