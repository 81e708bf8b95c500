package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/faults/history"
)

const (
	frozenSpec = `apiVersion: rcbox.dev/v1alpha1
kind: Store
metadata: {name: box}
spec:
  masters: {replicas: 3, memory: 256Mi, resources: {requests: {cpu: 100m}}}
  replication: {factor: 1}
  backups: {storage: {size: 512Mi}}
  coordinator: {replicas: 2, state: {type: Kubernetes}}
  reclaimPolicy: Delete
  recovery: {rescheduleAfter: 24h, fencing: {type: BMC, after: 0s}}
  placement:
    tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
`
	frozenChassis = `apiVersion: rcbox.dev/v1alpha1
kind: Chassis
metadata: {name: kind}
spec:
  model: EmulatedRack
  firstServer: 1
  slots: "1-%[1]d"
  management: {credentialsSecret: kind-bmc, mmc: %[2]s+%[1]d, cmm: ["%[3]s"], port: %[4]d}
  fencing: {namespaces: [%[5]s]}
`
	bmcPassword = "not-a-secret-16b"
	bmcPort     = 6230
	// emptySlots have controllers and no node: one silent controller is less than a quarter of all.
	emptySlots = 4
	// freezesVariable is how often a node freezes for figures, beside the one of the test.
	freezesVariable = "RCBOX_FREEZES"
)

// frozenNode is what one step leaves for the next.
type frozenNode struct {
	clients *clients
	rack    io.Writer
	// node that froze, with this member, since when.
	node, member string
	since        time.Time
	sinceClock   int64
}

// TestFrozenNode: a node stands still and is not dead. Its power is taken away before Kubernetes says that it is not ready, and nothing
// moves before two witnesses have seen that it is off. Clients use the Store all the time.
func TestFrozenNode(t *testing.T) {
	namespacesAreThere(t)
	n := &frozenNode{}
	t.Cleanup(func() {
		if n.node != "" {
			_, _ = run(setting("RCBOX_DOCKER", "docker"), "", "start", n.node) // nothing is lost if it runs
		}
	})
	steps := []step{
		{"BoxControllerRuns", boxControllerRuns},
		{"NodesAreServers", func(step *testing.T) { n.nodesAreServers(step, t) }},
		{"StoreBecomesSafe", func(t *testing.T) { apply(t, frozenSpec); waitUntilSafeWithStandby(t) }},
		{"ClientsRun", func(step *testing.T) { n.clients = startClients(step, t) }},
		{"NodeFreezesAndNobodyCanProveThat", n.freezesWithoutProof},
		{"ProvedOffItsMemberMoves", n.provedOffItsMemberMoves},
		{"ServerIsSwitchedOnAgain", n.serverIsSwitchedOnAgain},
	}
	times, err := strconv.Atoi(setting(freezesVariable, "0"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range times {
		steps = append(steps,
			step{fmt.Sprintf("NodeFreezes%d", i+1), n.freezes},
			step{fmt.Sprintf("ServerIsSwitchedOnAgain%d", i+1), n.serverIsSwitchedOnAgain})
	}
	inOrder(t, append(steps,
		step{"ClientsSawNothingWrong", func(t *testing.T) { n.clients.end(t) }},
		step{"NothingOfTheStoreIsLeft", nothingOfTheStoreIsLeft}))
}

// boxControllerRuns beside the operator, on the one node that does not freeze.
func boxControllerRuns(t *testing.T) {
	installOrUpgrade(t, "--set", "box.enabled=true", "--set", "fencing.bmc=true",
		"--set-json", `nodeSelector={"node-role.kubernetes.io/control-plane":""}`,
		"--set-json", `box.nodeSelector={"node-role.kubernetes.io/control-plane":""}`,
		"--set-json", `tolerations=[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]`)
	kubectl(t, "wait", "--for=condition=Established", "crd/chassis.rcbox.dev", "crd/nodefences.rcbox.dev", "--timeout=60s")
}

// nodesAreServers gives each node a controller, at addresses of kind's network that this machine has for as long as the whole test takes.
func (n *frozenNode) nodesAreServers(t, whole *testing.T) {
	const format = `{{slice .Id 0 12}} {{range .IPAM.Config}}{{index . "Gateway"}} {{end}}` // one of IPv6 may have none
	network := strings.Fields(docker(t, "network", "inspect", "kind", "-f", format))
	isIPv4 := func(text string) bool { address, err := netip.ParseAddr(text); return err == nil && address.Is4() }
	at := slices.IndexFunc(network, isIPv4)
	if at < 1 {
		t.Fatalf("kind's network is %q", network)
	}
	prefix := strings.Join(strings.Split(network[at], ".")[:2], ".") + ".250."
	slots := n.slots(t)
	manager := prefix + "200"
	for _, address := range append(addressesFrom(prefix, len(slots)), manager) {
		must(t, "ip", "", "address", "replace", address+"/32", "dev", "br-"+network[0])
		whole.Cleanup(func() { _, _ = run("ip", "", "address", "delete", address+"/32", "dev", "br-"+network[0]) })
	}
	n.startRack(t, whole, append([]string{
		"--first", prefix + "1", "--manager", manager, "--port", strconv.Itoa(bmcPort), "--docker", setting("RCBOX_DOCKER", "docker"),
	}, slots...))
	kubectl(t, "create", "secret", "generic", "kind-bmc", "-n", operatorNamespace, "--type=rcbox.dev/bmc", "--from-literal=username=admin",
		"--from-literal=password="+bmcPassword)
	whole.Cleanup(func() {
		kubectl(whole, "delete", "chassis/kind", "--timeout=60s")
		kubectl(whole, "delete", "secret", "kind-bmc", "-n", operatorNamespace)
	})
	must(t, settings.kubectl, fmt.Sprintf(frozenChassis, len(slots), prefix+"1", manager, bmcPort, namespaceOf(t)), "create", "-f", "-")
	n.nodesAreKnown(t)
}

func (n *frozenNode) nodesAreKnown(t *testing.T) {
	t.Helper()
	nodes := strings.Fields(kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	eventually(t, "each node is known to be a server", startDeadline, func() error {
		shown := kubectl(t, "get", "servers", "-o", "jsonpath={range .items[*]}{.status.node} {.status.power.state}{\"\\n\"}{end}")
		for _, node := range nodes {
			if !strings.Contains(shown, node+" On\n") {
				return fmt.Errorf("%s is on no server that is on:\n%s", node, shown)
			}
		}
		return nil
	})
}

func addressesFrom(prefix string, count int) []string {
	var all []string
	for i := range count {
		all = append(all, prefix+strconv.Itoa(i+1))
	}
	return all
}

// slots are the nodes with what they say of their machines, and some slots without.
func (n *frozenNode) slots(t *testing.T) []string {
	var slots []string
	for _, node := range list[podObject](t, "nodes", "") {
		slots = append(slots, node.Metadata.Name+"="+identify(t, node.Metadata.Name))
	}
	for i := range emptySlots {
		slots = append(slots, fmt.Sprintf("0e0e0e0e-0000-4000-8000-%012d", i+1))
	}
	return slots
}

// identify has a node report the UUID that kind gave it. Where there is firmware, kind lets kubelets find the UUID there. Where there is
// none, a kubelet takes what is in /etc/machine-id, which is no UUID of a machine, and another one after each start.
func identify(t *testing.T, node string) (uuid string) {
	t.Helper()
	uuid = strings.TrimSpace(docker(t, "exec", node, "cat", "/kind/product_uuid"))
	reported := func() string { return kubectl(t, "get", "node", node, "-o", "jsonpath={.status.nodeInfo.systemUUID}") }
	if reported() == uuid {
		return uuid
	}
	docker(t, "exec", node, "sh", "-c", "cat /kind/product_uuid > /etc/machine-id && systemctl restart kubelet")
	eventually(t, node+" reports its UUID", startDeadline, func() error {
		if got := reported(); got != uuid {
			return fmt.Errorf("systemUUID %q", got)
		}
		return nil
	})
	return uuid
}

// startRack runs the stand-ins for controllers in a process of their own.
func (n *frozenNode) startRack(t, whole *testing.T, arguments []string) {
	program := whole.TempDir() + "/nodebmc"
	must(t, "go", "", "build", "-o", program, "../operator/test/box/nodebmc")
	rack := exec.CommandContext(whole.Context(), program, arguments...)
	rack.Env = append(os.Environ(), "NODEBMC_PASSWORD="+bmcPassword)
	rack.Stderr = os.Stderr
	input, err := rack.StdinPipe()
	output, err2 := rack.StdoutPipe()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := rack.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	whole.Cleanup(func() { _ = input.Close(); _ = rack.Wait() })
	if said, err := lines.ReadString('\n'); said != "ready\n" {
		t.Fatalf("nodebmc says %q: %v", said, err)
	}
	go func() { _, _ = io.Copy(os.Stderr, lines) }()
	n.rack = input
}

func (n *frozenNode) tell(t *testing.T, words ...string) {
	t.Helper()
	if _, err := fmt.Fprintln(n.rack, strings.Join(words, " ")); err != nil {
		t.Fatal(err)
	}
}

// choose picks a worker with a master, and without the coordinator that leads: where that fails over is another test's.
func (n *frozenNode) choose(t *testing.T) {
	pods := storePods(t, storeName)
	leader := readStore(t).Status.Coordinator.Node
	nodes := list[podObject](t, "nodes", "", "-l", "node-role.kubernetes.io/control-plane")
	n.node = ""
	for member, pod := range pods {
		if strings.Contains(member, "-master-") && pod.Spec.NodeName != nodes[0].Metadata.Name && pod.Spec.NodeName != leader {
			n.member, n.node = member, pod.Spec.NodeName
		}
	}
	if n.node == "" {
		t.Fatalf("no worker has a master and not the coordinator: %v", fingerprints(pods))
	}
}

// freeze has everything on the node stand still, and data be there all the same.
func (n *frozenNode) freeze(t *testing.T) {
	n.since, n.sinceClock = time.Now(), now(t)
	docker(t, "pause", n.node)
	// Processes stand still one after the other while Docker pauses a node, which takes seconds on a machine with much to do.
	paused := time.Since(n.since)
	n.clients.goOn(t, "clients go on, also at the tablets of the master that stands still", 1)
	t.Logf("%s frozen: Docker took %.2f s; all keys are used again after %.2f s; the longest that a client waited on another node: %.2f s",
		n.node, paused.Seconds(), n.clients.allUsedAfter(n.sinceClock).Seconds(), n.clients.slowest(n.sinceClock, n.node).Seconds())
	waitForStore(t, "everything has its copies, on the masters that are left", startDeadline, n.copiesAreBack)
	n.logReached(t, "everything has its copies, on the masters that are left")
}

// copiesAreBack: the member is declared dead, its recovery has ended, and no segment of another master lacks a copy. DataSafe names the
// missing member only when it has nothing more serious to report.
func (n *frozenNode) copiesAreBack(store v1alpha1.Store) error {
	isDead := slices.ContainsFunc(store.Status.Masters.Members, func(m v1alpha1.MemberStatus) bool {
		return m.Name == n.member && m.DeadSince != nil
	})
	if !isDead || store.Status.LossCount != 0 {
		return fmt.Errorf("members %+v, losses %+v", store.Status.Masters.Members, store.Status.Losses)
	}
	return says(store, v1alpha1.ConditionDataSafe, "masters that are not up, so the copies on them are missing: "+n.member)
}

// logReached says how long after the freeze something was seen.
func (n *frozenNode) logReached(t *testing.T, what string) {
	t.Helper()
	t.Logf("%s frozen: %5.1f s: %s", n.node, time.Since(n.since).Seconds(), what)
}

// reaches waits for a state that lasts once it is reached.
func (n *frozenNode) reaches(t *testing.T, what string, check func() error) {
	t.Helper()
	eventually(t, what, startDeadline, check)
	n.logReached(t, what)
}

// allUsedAfter is how long after a time the last key was used first, by an operation that began after that time.
func (c *clients) allUsedAfter(since int64) time.Duration {
	first := map[string]int64{}
	for _, file := range c.files {
		for _, operation := range file.Operations {
			at, isThere := first[operation.Key]
			if operation.Call >= since && operation.IsKnown() && (!isThere || operation.Return < at) {
				first[operation.Key] = operation.Return
			}
		}
	}
	var last int64
	for key := range sharedKeys {
		last = max(last, first[history.SharedKey(key)]-since)
	}
	return time.Duration(last)
}

// freezesWithoutProof: neither its own controller answers nor the chassis manager.
func (n *frozenNode) freezesWithoutProof(t *testing.T) {
	n.choose(t)
	n.tell(t, "silence", n.node)
	n.tell(t, "silence", "manager")
	n.freeze(t)
	waitForStore(t, "the condition says what is waited for", startDeadline, func(store v1alpha1.Store) error {
		return says(store, v1alpha1.ConditionDegraded, "fencing (BMC) is under way: the BMC of atom")
	})
	t.Logf("%s frozen: a NodeFence waits after %.1f s", n.node, time.Since(n.since).Seconds())
	// Its own controller alone is no proof: it takes the power away, and says so.
	n.tell(t, "hear", n.node)
	waitForStore(t, "its power is taken away", startDeadline, func(store v1alpha1.Store) error {
		return says(store, v1alpha1.ConditionDegraded, "is being switched off: the server is off")
	})
	if running := docker(t, "inspect", "-f", "{{.State.Running}}", n.node); strings.TrimSpace(running) != "false" {
		t.Errorf("running is %q: its power was not taken away", running)
	}
	pod := storePods(t, storeName)[n.member]
	if fences := readStore(t).Status.Fences; pod.Spec.NodeName != n.node || len(fences) != 1 || fences[0].Done {
		t.Fatalf("without proof: its pod is on %q, on record %+v", pod.Spec.NodeName, fences)
	}
}

func says(store v1alpha1.Store, condition, text string) error {
	for _, c := range store.Status.Conditions {
		if c.Type == condition && strings.Contains(c.Message, text) {
			return nil
		}
	}
	return fmt.Errorf("conditions %+v, fences %+v", store.Status.Conditions, store.Status.Fences)
}

func (n *frozenNode) provedOffItsMemberMoves(t *testing.T) {
	proved := time.Now()
	n.tell(t, "hear", "manager")
	n.memberMoves(t)
	t.Logf("the second witness is back: all copies again after %.1f s", time.Since(proved).Seconds())
}

// freezes and is proved off without anything in the way.
func (n *frozenNode) freezes(t *testing.T) {
	identify(t, n.node) // it was started again
	n.nodesAreKnown(t)
	n.choose(t)
	n.freeze(t)
	n.memberMoves(t)
}

// memberMoves follows the member until all redundancy is back, and logs when each step was seen. Each state lasts until the member is up,
// or is implied by the next one, so that no step is missed.
func (n *frozenNode) memberMoves(t *testing.T) {
	n.reaches(t, "its power is taken away", func() error {
		if got := docker(t, "inspect", "-f", "{{.State.Running}}", n.node); strings.TrimSpace(got) != "false" {
			return errors.New("it runs")
		}
		return nil
	})
	n.reaches(t, "its node is out of service", func() error {
		taints := kubectl(t, "get", "node", n.node, "-o", "jsonpath={.spec.taints}")
		if !strings.Contains(taints, "out-of-service") && n.podElsewhere(t) == nil {
			return fmt.Errorf("taints %s", taints)
		}
		return nil
	})
	n.reaches(t, "its member has another pod", func() error {
		if n.podElsewhere(t) == nil {
			return errors.New("it has none")
		}
		return nil
	})
	n.reaches(t, "that pod has a node and a volume", func() error {
		if pod := n.podElsewhere(t); pod == nil || pod.Spec.NodeName == "" {
			return fmt.Errorf("pod %+v", pod)
		}
		return nil
	})
	n.reaches(t, "that pod runs", func() error {
		if pod := n.podElsewhere(t); pod == nil || pod.Status.Phase != "Running" {
			return fmt.Errorf("pod %+v", pod)
		}
		return nil
	})
	waitForStore(t, "all masters are up, and everything has its copies", startDeadline, func(store v1alpha1.Store) error {
		if store.Status.Masters.Ready != 3 || store.Status.LossCount != 0 {
			return fmt.Errorf("%d masters, losses %+v", store.Status.Masters.Ready, store.Status.Losses)
		}
		return conditionIs(store, v1alpha1.ConditionDataSafe, metav1.ConditionTrue, v1alpha1.ReasonReplicated)
	})
	n.logReached(t, "all redundancy")
}

// podElsewhere is the member's pod if it is not on the node that froze; nil if there is none.
func (n *frozenNode) podElsewhere(t *testing.T) *podObject {
	t.Helper()
	pod, found := storePods(t, storeName)[n.member]
	if !found || pod.Spec.NodeName == n.node {
		return nil
	}
	return &pod
}

// serverIsSwitchedOnAgain by policy, and its node takes pods again.
func (n *frozenNode) serverIsSwitchedOnAgain(t *testing.T) {
	eventually(t, "the server is on again", startDeadline, func() error {
		if got := docker(t, "inspect", "-f", "{{.State.Running}}", n.node); strings.TrimSpace(got) != "true" {
			return errors.New("it is off")
		}
		return nil
	})
	kubectl(t, "wait", "--for=condition=Ready", "node/"+n.node, "--timeout=150s")
	eventually(t, "nothing of the fence is left", startDeadline, func() error {
		taints := kubectl(t, "get", "node", n.node, "-o", "jsonpath={.spec.taints}")
		fences := kubectl(t, "get", "nodefences", "-A", "-o", "name")
		if strings.Contains(taints, "out-of-service") || strings.TrimSpace(fences) != "" {
			return fmt.Errorf("taints %s, NodeFences %s", taints, fences)
		}
		return nil
	})
	t.Logf("%s frozen: a node like any other after %.1f s", n.node, time.Since(n.since).Seconds())
	waitUntilSafeWithStandby(t)
}
