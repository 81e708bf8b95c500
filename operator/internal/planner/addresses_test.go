package planner_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// With ports: nobody gets an address under which somebody else may still send, whatever happens to pods, nodes and the operator itself, and
// be it removed by force; and in the end everybody has his.
func TestPortsWorld(t *testing.T) { rapid.Check(t, anyPortsWorld) }

func anyPortsWorld(t *rapid.T) {
	w := newPortsWorld(rapid.Int32Range(2, 4).Draw(t, "replicas"), rapid.SampledFrom([]string{"", "10.0.0.16/29"}).Draw(t, "range"))
	disturb(t, w, 2)
}

func addressesOf(w *world) []string {
	var list []string
	for i := range w.store.Status.Masters.Members {
		for _, address := range w.store.Status.Masters.Members[i].Addresses {
			list = append(list, address.IP)
		}
	}
	return list
}

func readyOf(w *world) string {
	condition := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionNetworkReady)
	return string(condition.Status) + " " + condition.Reason + ": " + condition.Message
}

func settled(t *testing.T, w *world) {
	t.Helper()
	if plan, _, settled := w.settle(200); !settled {
		t.Fatalf("does not settle: %+v", plan.Steps)
	}
	if len(w.broken) > 0 {
		t.Fatal(w.broken)
	}
}

// Whatever restarts a member, its addresses stay.
func TestAddressesAreKept(t *testing.T) {
	w := newPortsWorld(3, "")
	settled(t, w)
	before := addressesOf(w)
	if want := []string{"10.0.0.1", "10.1.0.1", "10.0.0.2", "10.1.0.2", "10.0.0.3", "10.1.0.3"}; !slices.Equal(before, want) {
		t.Fatalf("addresses are %v", before)
	}
	if got := readyOf(w); got != "True Attached: 3 masters have their ports; 251 of 254 addresses of 10.0.0.0/24 are free; "+
		"251 of 254 addresses of 10.1.0.0/24 are free" {
		t.Error(got)
	}
	first := w.store.Status.Masters.Members[0].Addresses[0]
	if first.MAC != "02:52:0a:00:00:01" || first.Interface != "net1" || first.PCI != "0000:3b:02.0" || first.Pod == "" {
		t.Errorf("the first address is %+v", first)
	}
	w.store.Spec.Image = "store:2" // all restart, one after the other
	settled(t, w)
	for _, name := range w.masters() {
		w.end(w.podOf(name))
	}
	settled(t, w)
	w.cordoned[w.podOf("box-master-1").Node] = true
	settled(t, w)
	if after := addressesOf(w); !slices.Equal(before, after) {
		t.Errorf("addresses were %v and are %v", before, after)
	}
	for name, pod := range w.pods {
		if pod.Terminating() {
			t.Errorf("pod %s was not let go", name)
		}
	}
}

// A member whose node does not answer gets fresh ones; the former are nobody's until somebody knows that the machine is off.
func TestAddressesOfLostNode(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*world, *fakePod)
		free bool
	}{
		"nothing":                {func(*world, *fakePod) {}, false},
		"the node is back":       {func(w *world, pod *fakePod) { w.reviveNode(pod.Node) }, true},
		"somebody says so":       {func(w *world, pod *fakePod) { w.released = []string{pod.Name} }, true},
		"another pod is named":   {func(w *world, _ *fakePod) { w.released = []string{"box-master-0-xyz"} }, false},
		"fenced by its own word": {func(w *world, pod *fakePod) { w.fenceBySelf(pod.Node) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPortsWorld(3, "")
			settled(t, w)
			lost := w.podOf("box-master-1")
			w.killNode(lost.Node)
			settled(t, w)
			if got := addressesOf(w); !slices.Equal(got[2:4], []string{"10.0.0.4", "10.1.0.4"}) {
				t.Fatalf("addresses are %v", got)
			}
			quarantined := w.store.Status.Network.Quarantined
			if len(quarantined) != 2 || quarantined[0].IP != "10.0.0.2" || quarantined[0].Pod != lost.Name ||
				quarantined[0].Reason != "its node does not answer" || w.store.Status.Network.Pools[0].Free != 250 {
				t.Fatalf("network is %+v", w.store.Status.Network)
			}
			test.end(w, lost)
			settled(t, w)
			if isFree := len(w.store.Status.Network.Quarantined) == 0; isFree != test.free {
				t.Errorf("quarantined are %+v", w.store.Status.Network.Quarantined)
			}
			if test.free && w.store.Status.Network.Pools[0].Free != 251 {
				t.Errorf("pools are %+v", w.store.Status.Network.Pools)
			}
		})
	}
}

// Somebody else's word that the node is off is proof; the Store's own is not.
func TestNodeOutOfServiceFreesAddresses(t *testing.T) {
	w := newPortsWorld(3, "")
	settled(t, w)
	lost := w.podOf("box-master-1")
	w.killNode(lost.Node)
	settled(t, w)
	o := w.observe()
	o.Nodes[lost.Node] = facts.Node{OutOfService: true}
	if plan := planner.Make(o); len(plan.Addresses.Quarantined) > 0 {
		t.Errorf("quarantined are %+v", plan.Addresses.Quarantined)
	}
	o.Store.Status.Fences = []v1alpha1.FenceStatus{{Node: lost.Node, Type: v1alpha1.FencingOutOfServiceTaint}}
	o.Fences[lost.Node] = facts.FenceState{Requested: true, Done: true}
	if plan := planner.Make(o); len(plan.Addresses.Quarantined) != 2 {
		t.Errorf("by its own word: quarantined are %+v", plan.Addresses.Quarantined)
	}
	o.Store.Status.Fences[0].Type = v1alpha1.FencingRemediation
	o.Nodes[lost.Node] = facts.Node{}
	if plan := planner.Make(o); len(plan.Addresses.Quarantined) > 0 {
		t.Errorf("after a remediation: quarantined are %+v", plan.Addresses.Quarantined)
	}
}

// A pod that is removed by force is on record.
func TestPodRemovedByForce(t *testing.T) {
	w := newPortsWorld(3, "")
	settled(t, w)
	removed := w.podOf("box-master-2")
	w.removeByForce(removed)
	settled(t, w)
	if got := addressesOf(w); !slices.Equal(got[4:], []string{"10.0.0.4", "10.1.0.4"}) {
		t.Errorf("addresses are %v", got)
	}
	if q := w.store.Status.Network.Quarantined; len(q) != 2 || q[0].Reason != "the pod was removed by force, and nobody saw it end" {
		t.Errorf("quarantined are %+v", q)
	}
}

// The range is told to be small before somebody waits for an address; who waits is told, too, and gets one when there is one.
func TestAddressesRunOut(t *testing.T) {
	w := newPortsWorld(3, "10.0.0.0/29")
	w.store.Spec.Network.Attachments[0].Addresses.Exclude = []string{"10.0.0.5", "10.0.0.6/31"}
	settled(t, w)
	if got := readyOf(w); !strings.HasPrefix(got, "True Attached: 3 masters have their ports; 1 of 4 addresses of 10.0.0.0/29 are free") {
		t.Error(got)
	}
	lost := w.podOf("box-master-0")
	w.killNode(lost.Node)
	settled(t, w)
	got := readyOf(w)
	for _, part := range []string{
		"True AddressesLow: members that are lost with their nodes may need 1 addresses of each range: make addresses.range larger",
		"0 of 4 addresses of 10.0.0.0/29 are free",
		"kubectl rcbox net release -n default box " + lost.Name,
	} {
		if !strings.Contains(got, part) {
			t.Errorf("%q does not say %q", got, part)
		}
	}
	w.removeByForce(w.podOf("box-master-1"))
	for range 30 {
		w.reconcile(false)
		w.tick()
	}
	if got := readyOf(w); w.podOf("box-master-1") != nil ||
		!strings.HasPrefix(got, "False AddressesExhausted: make addresses.range larger: box-master-1 waits for a free address of "+
			"10.0.0.0/29; or release those of pods whose machine is off (in quarantine: 4, such as") {
		t.Errorf("%v: %s", w.podOf("box-master-1"), got)
	}
	w.store.Spec.Network.Attachments[0].Addresses.Exclude = nil
	settled(t, w)
	if got := addressesOf(w)[2]; got != "10.0.0.5" {
		t.Errorf("box-master-1 has %s", got)
	}
}

// Of two Stores that take addresses from the same range, the older one has the word.
func TestPoolsOverlap(t *testing.T) {
	w := newPortsWorld(3, "")
	w.foreigners = []facts.Foreign{{Store: "other/store", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}}
	settled(t, w)
	if got := addressesOf(w); !slices.Equal(got, []string{"10.0.0.1", "10.1.0.1", "10.0.0.3", "10.1.0.2", "10.0.0.4", "10.1.0.3"}) {
		t.Errorf("addresses are %v", got)
	}
	if got := readyOf(w); !strings.HasPrefix(got, "True Attached") {
		t.Error(got)
	}
	w = newPortsWorld(3, "")
	w.foreigners = []facts.Foreign{{Store: "other/store", IsOlder: true, Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/26")}}}
	settled(t, w)
	if got := addressesOf(w)[0]; got != "10.0.0.64" {
		t.Errorf("the first address is %s", got)
	}
	if got := readyOf(w); got != "False PoolsOverlap: Store other/store (10.0.0.0/26) is older and takes addresses from the same range; "+
		"give this one another addresses.range" {
		t.Error(got)
	}
}

// A kubelet that refuses every pod is asked less and less often, and the addresses stay.
func TestRefusedPods(t *testing.T) {
	w := newPortsWorld(2, "")
	settled(t, w)
	before, pods := addressesOf(w), w.uids
	const text = "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for intel.com/rcbox"
	for range 600 {
		if pod := w.podOf("box-master-0"); pod != nil {
			w.stop(pod)
			pod.Process, pod.Refused = facts.ProcessEnded, text
		}
		w.reconcile(false)
		w.tick()
	}
	if made := w.uids - pods; made < 4 || made > 8 {
		t.Errorf("in ten minutes %d pods were made", made)
	}
	if got := readyOf(w); !strings.HasPrefix(got, "False DeviceRefused: node ") || !strings.Contains(got, text) {
		t.Error(got)
	}
	settled(t, w)
	if after := addressesOf(w); !slices.Equal(before, after) || w.store.Status.Masters.Members[0].Refusals != nil {
		t.Errorf("addresses were %v and are %v, refusals %+v", before, after, w.store.Status.Masters.Members[0].Refusals)
	}
}

// What Multus attached is compared with what was asked for.
func TestConflicts(t *testing.T) {
	w := newPortsWorld(2, "")
	settled(t, w)
	w.podOf("box-master-1").Attached[0].IPs = []netip.Addr{netip.MustParseAddr("10.0.0.77")}
	w.reconcile(false)
	if got := readyOf(w); !strings.HasPrefix(got, "False AddressConflict: pod box-master-1-") ||
		!strings.Contains(got, "net1 has the address 10.0.0.77, not 10.0.0.2") {
		t.Error(got)
	}
}

// A whole port keeps the hardware address that it was made with, and nothing is wrong if Multus reports it.
func TestWholePortsKeepTheirHardwareAddresses(t *testing.T) {
	w := newPortsWorld(2, "")
	capabilities := []v1alpha1.NetworkCapability{v1alpha1.CapabilityIPCLock, v1alpha1.CapabilitySysRawIO, v1alpha1.CapabilitySysAdmin}
	w.store.Spec.Network.Profile, w.store.Spec.Network.Capabilities = v1alpha1.NetworkWholePort, capabilities
	w.allowed = facts.Allowed{
		NetworkProfiles: []string{"WholePort"}, Capabilities: []string{"IPC_LOCK", "SYS_RAWIO", "SYS_ADMIN"},
	}
	settled(t, w)
	w.podOf("box-master-1").Attached[0].MAC = "00:08:a2:0b:11:22"
	w.reconcile(false)
	if got := readyOf(w); !strings.HasPrefix(got, "True Attached") {
		t.Error(got)
	}
	// The spec asks for virtual functions from now on; pods that have whole ports have what they asked for.
	w.store.Spec.Network.Profile, w.store.Spec.UpdateStrategy = v1alpha1.NetworkVF, v1alpha1.UpdateOnDelete
	w.reconcile(false)
	if got := readyOf(w); !strings.HasPrefix(got, "True Attached") {
		t.Error(got)
	}
	w.store.Spec.Network.Profile = v1alpha1.NetworkWholePort
	pod := w.podOf("box-master-1")
	w.killNode(pod.Node)
	w.end(pod)
	w.now = w.now.Add(time.Hour)
	w.reconcile(false)
	entries := w.store.Status.Network.Quarantined
	if len(entries) != 2 || entries[0].MAC != "" {
		t.Errorf("in quarantine are %+v, whose hardware addresses nobody knows", entries)
	}
}

// fenceBySelf: the Store itself has put the node out of service.
func (w *world) fenceBySelf(node string) {
	w.store.Spec.Recovery.Fencing = v1alpha1.FencingSpec{Type: v1alpha1.FencingOutOfServiceTaint, After: "4s"}
	w.store.Status.Fences = append(w.store.Status.Fences, v1alpha1.FenceStatus{Node: node, Type: v1alpha1.FencingOutOfServiceTaint})
	w.fenced[node] = true
}

// TestPodsAreLetGoWithTheirNamespace: Kubernetes deletes pods before Stores, and waits for them; nobody hears of pods on a node that is
// dead.
func TestPodsAreLetGoWithTheirNamespace(t *testing.T) {
	w := newPortsWorld(3, "")
	if _, _, settled := w.settle(100); !settled {
		t.Fatal("does not settle")
	}
	pod := w.podOf("box-master-1")
	w.killNode(pod.Node)
	w.end(pod)
	if planned := planner.MakeForEnd(w.observe()); len(planned) > 0 {
		t.Errorf("while its time is not up: %v", planned)
	}
	w.now = w.now.Add(time.Minute)
	planned := planner.MakeForEnd(w.observe())
	if len(planned) != 1 || planned[0].(steps.ReleasePod).Pod.Name != pod.Name {
		t.Errorf("steps are %v", planned)
	}
}

// Records of members are written one by one, so that two operators may have given two members the same addresses. One of them keeps these,
// and the one whose pod was started first of all.
func TestSameAddressesOnRecord(t *testing.T) {
	for name, started := range map[string]bool{"neither was started": false, "the second one was started": true} {
		t.Run(name, func(t *testing.T) {
			w := newPortsWorld(2, "")
			if started {
				settled(t, w)
				w.end(w.podOf("box-master-0"))
			}
			for range 200 {
				if pod := w.podOf("box-master-0"); pod != nil && pod.Gated && w.podOf("box-master-1") != nil {
					break
				}
				w.reconcile(false)
				w.tick()
			}
			first, second := w.podOf("box-master-0"), w.podOf("box-master-1")
			if !first.Gated || second.Gated == started {
				t.Fatalf("gated: %v, %v", first.Gated, second.Gated)
			}
			same := func(member string, pod *fakePod) {
				for i := range w.store.Status.Masters.Members {
					if recorded := &w.store.Status.Masters.Members[i]; recorded.Name == member {
						recorded.Addresses = nil
						for _, ip := range second.Addresses {
							recorded.Addresses = append(recorded.Addresses, v1alpha1.MemberAddress{IP: ip.String(), Pod: pod.Name})
						}
					}
				}
			}
			first.Addresses = slices.Clone(second.Addresses)
			same("box-master-0", first)
			same("box-master-1", second)
			settled(t, w)
			after := addressesOf(w)
			slices.Sort(after)
			if len(slices.Compact(after)) != 4 {
				t.Errorf("addresses are %v", after)
			}
			if kept := w.podOf("box-master-1"); started && kept.UID != second.UID {
				t.Errorf("%s, which was started, is not there any more", second.Name)
			}
		})
	}
}
