package e2e

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const (
	// onBlades is the test whose Store is that of config/samples/box.yaml, on emulated blades.
	onBlades = "TestOnBlades"
	// boxManifest is the sample as it fits the emulated rack, on a cluster that hack/box-up.sh has prepared.
	boxManifest = "RCBOX_BOX_MANIFEST"
	// boxHostLabel is that of the nodes that are containers; the others are emulated machines, with a clock of their own.
	boxHostLabel = "node-restriction.kubernetes.io/rcbox-boxhost"
	// bladeDeadline is ten times what a blade takes on two busy processors.
	bladeDeadline = 40 * time.Minute
)

// blades is what one step leaves for the next.
type blades struct {
	clients *clients
	// member is that of the blade that was pulled, and boot the start of its system before that.
	member, boot string
}

// bootOf is the start of a node's system: its condition Ready may be from before.
func bootOf(t *testing.T, node string) string {
	t.Helper()
	return kubectl(t, "get", "node", node, "-o", "jsonpath={.status.nodeInfo.bootID}")
}

// TestOnBlades: from bare chassis to a Store by one command. Blades are pulled out while clients use the Store, also while no box host
// runs.
func TestOnBlades(t *testing.T) {
	if os.Getenv(boxManifest) == "" {
		t.Skipf("there are no emulated blades: run `make test-box`, which sets %s", boxManifest)
	}
	b := &blades{}
	inOrder(t, []step{
		{"OneCommandMakesAStore", oneCommandMakesAStore},
		{"VolumesAreOnTheBlades", volumesAreOnTheBlades},
		{"VirtualFunctionsAreHandedOut", virtualFunctionsAreHandedOut},
		{"ClusterPerfBasic", clusterPerfBasicOnBlades},
		{"ClientsRun", func(step *testing.T) { b.clients = startClientsOn(step, t, boxHostLabel) }},
		{"BladeIsPulled", b.bladeIsPulled},
		{"BladeIsPlugged", b.bladeIsPlugged},
		{"BoxHostsAreGone", boxHostsAreGone},
		{"BladeIsPulledWithoutBoxHosts", b.bladeIsPulled},
		{"BladeStartsFromItsDisk", b.bladeIsPlugged},
		{"BoxHostsAreBack", boxHostsAreBack},
		{"ClientsSawNothingWrong", func(t *testing.T) { b.clients.end(t) }},
	})
}

// oneCommandMakesAStore, with the clock.
func oneCommandMakesAStore(t *testing.T) {
	started := time.Now()
	kubectl(t, "apply", "-f", os.Getenv(boxManifest))
	for _, of := range []struct{ what, object, condition string }{
		{"box hosts serve", "chassis", v1alpha1.ConditionServicesReady},
		{"all blades are nodes", "chassis", v1alpha1.ConditionInstalled},
		{"the Store serves, with its copies", "store/" + storeName, v1alpha1.ConditionReady},
	} {
		eventually(t, of.what, bladeDeadline, func() error {
			arguments := []string{"wait", of.object, "--for=condition=" + of.condition, "--timeout=1s"}
			if of.object == "chassis" {
				arguments = append(arguments, "--all")
			}
			got, err := run(settings.kubectl, "", arguments...)
			if err != nil || got.exitCode != 0 {
				conditions, _ := run(settings.kubectl, "", "get", of.object, "-o", "jsonpath={..status.conditions}")
				return fmt.Errorf("%w %s: %s", err, got.stderr, conditions.stdout)
			}
			return nil
		})
		t.Logf("%4.0f s after kubectl apply: %s", time.Since(started).Seconds(), of.what)
	}
}

func volumesAreOnTheBlades(t *testing.T) {
	for member, pod := range storePods(t, storeName) {
		if !strings.Contains(member, "-master-") {
			continue
		}
		claim, _ := get[struct {
			Spec struct {
				VolumeName string `json:"volumeName"`
			} `json:"spec"`
		}](t, "persistentvolumeclaim", namespaceOf(t), member+"-copies")
		if want := pod.Spec.NodeName + "-backups"; claim.Spec.VolumeName != want || !strings.HasPrefix(want, "atom") {
			t.Errorf("%s is on %s, and has the volume %q", member, pod.Spec.NodeName, claim.Spec.VolumeName)
		}
	}
}

// virtualFunctionsAreHandedOut: of the one blade whose NIC has some, the real device plugin hands them out, and a pod gets one.
func virtualFunctionsAreHandedOut(t *testing.T) {
	const blade, resource = "atom045", "intel.com/rcbox_vf"
	found := must(t, setting("RCBOX_PLUGIN", "kubectl-rcbox"), "", "inventory", "1,2,45", "-o", "csv")
	if strings.Count(found, "virtual functions") != 1 || !strings.Contains(found, "igb, 2 virtual functions") {
		t.Errorf("the inventory has\n%s", found)
	}
	kubectl(t, "apply", "-f", "../config/network/device-plugin.yaml")
	manifest, err := os.ReadFile("../images/network/sriov.yaml")
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer("IMAGE", os.Getenv("RCBOX_NETWORK_IMAGE"), "node-class: igb", "node-class: EmulatedRack")
	must(t, settings.kubectl, here.Replace(string(manifest)), "apply", "-f", "-")
	eventually(t, "that blade's node has two, and no other has any", bladeDeadline, func() error {
		const functions = `jsonpath={range .items[*]}{.metadata.name}={.status.allocatable.intel\.com/rcbox_vf} {end}`
		have := kubectl(t, "get", "nodes", "-o", functions)
		if !strings.Contains(have, blade+"=2 ") || strings.Count(have, "= ") != strings.Count(have, " ")-1 {
			return errors.New(have)
		}
		return nil
	})
	pod := podManifest(t, "function", settings.storeImage, []string{"rcbox", "--version"}, false)
	container, _ := pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	container["resources"] = map[string]any{"limits": map[string]string{resource: "1"}}
	create(t, pod)
	if got := finishClientPod(t, "function", bladeDeadline); got.exitCode != 0 {
		t.Errorf("exit code %d\n%s", got.exitCode, got.stdout)
	}
}

func clusterPerfBasicOnBlades(t *testing.T) {
	// Its usual 200 MB for each size of objects would take a blade of emulated processors half an hour.
	got := clientPod(t, "clusterperf", bladeDeadline, "clusterperf", "-C", locator(t), "--numClients", "1", "--fillMB", "2", "basic")
	t.Logf("on emulated processors, so that figures mean nothing:\n%s", got.stdout)
	if got.exitCode != 0 || !strings.Contains(got.stdout, "basic.write1M") {
		t.Errorf("exit code %d", got.exitCode)
	}
}

// bladeIsPulled has a blade with a master vanish from its slot.
func (b *blades) bladeIsPulled(t *testing.T) {
	leader := readStore(t).Status.Coordinator.Node
	f := &frozenNode{clients: b.clients, since: time.Now(), sinceClock: now(t)}
	for member, pod := range storePods(t, storeName) {
		if strings.Contains(member, "-master-") && pod.Spec.NodeName != leader {
			f.member, f.node = member, pod.Spec.NodeName
		}
	}
	if f.node == "" {
		t.Fatalf("no blade has a master and not the coordinator: %v", fingerprints(storePods(t, storeName)))
	}
	b.member, b.boot = f.member, bootOf(t, f.node)
	rack(t, "pull", f.node)
	b.clients.goOn(t, "clients go on, also at the tablets of the master that is away", 1)
	t.Logf("%s pulled: all keys are used again after %.1f s", f.node, time.Since(f.since).Seconds())
	waitForStore(t, "everything has its copies, on the masters that are left", startDeadline, f.copiesAreBack)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(kubectl(t, "get", "servers,nodes", "-o", "wide"))
		}
	})
}

// bladeIsPlugged puts it back, and a person switches it on.
func (b *blades) bladeIsPlugged(t *testing.T) {
	started := time.Now()
	node := storePods(t, storeName)[b.member].Spec.NodeName
	rack(t, "plug", node)
	must(t, setting("RCBOX_PLUGIN", "kubectl-rcbox"), "", "power", node, "on")
	eventually(t, node+" is a node again", bladeDeadline, func() error {
		got, err := run(settings.kubectl, "", "wait", "node/"+node, "--for=condition=Ready", "--timeout=1s")
		if err != nil || got.exitCode != 0 {
			return errors.Join(err, errors.New(got.stderr))
		}
		if bootOf(t, node) == b.boot {
			return errors.New("its kubelet has not reported since the restart")
		}
		return nil
	})
	t.Logf("%s plugged: Ready after %.0f s", node, time.Since(started).Seconds())
	waitUntilSafe(t, "all masters are up, and everything has its copies")
	t.Logf("%s plugged: all redundancy after %.0f s", node, time.Since(started).Seconds())
	b.clients.goOn(t, "clients go on", 1)
}

// rack does something to the blade that a server is, by the script that has started the rack.
func rack(t *testing.T, verb, server string) {
	t.Helper()
	number, err := strconv.Atoi(strings.TrimPrefix(server, "atom"))
	if err != nil {
		t.Fatal(err)
	}
	must(t, "../hack/rack.sh", "", verb, strconv.Itoa(number))
}

func boxHostsAreGone(t *testing.T) {
	kubectl(t, "scale", "-n", operatorNamespace, "deployment/rcbox-boxhost", "--replicas=0")
	kubectl(t, "wait", "-n", operatorNamespace, "pod", "-l", "app.kubernetes.io/name=rcbox-boxhost", "--for=delete", "--timeout=120s")
}

func boxHostsAreBack(t *testing.T) {
	kubectl(t, "scale", "-n", operatorNamespace, "deployment/rcbox-boxhost", "--replicas=2")
	kubectl(t, "wait", "chassis", "--all", "--for=condition="+v1alpha1.ConditionServicesReady, "--timeout=170s")
}
