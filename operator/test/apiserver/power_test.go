package apiserver_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc/standin"
	"rcbox.dev/rcbox/operator/test/testbed"
)

const (
	chassisName = "mercury1"
	blades      = 6
	wattsOn     = 22
	// rackPause is how often the chassis manager's stand-in measures what slots draw.
	rackPause = 50 * time.Millisecond
)

// rackOfStandIns is a chassis whose controllers are stand-ins, and whose blades carry the nodes of the test bed.
type rackOfStandIns struct {
	blades  [blades]*standin.BMC
	manager *standin.BMC
	port    uint16
}

// TestPowerFencing: operator and box controller are the real programs with the rights of config; BMCs, kubelets and stores are stand-ins.
func TestPowerFencing(t *testing.T) {
	cluster := testbed.Start(t, testbed.Options{NodesPerChassis: []int{blades}, Heartbeat: 5 * time.Second})
	b := &bed{T: t, Cluster: cluster, program: testbed.BuildOperator(t)}
	rack := b.startRack()
	b.operator = cluster.StartOperator(b.program)
	box := cluster.StartBox(b.program)
	b.must(b.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "mercury1-bmc", Namespace: testbed.OperatorNamespace},
		Type:       v1alpha1.SecretTypeBMC,
		Data:       map[string][]byte{"username": []byte("admin"), "password": []byte("canary-7d1e")},
	}))
	b.must(b.Client.Create(t.Context(), rack.chassis()))
	b.Eventually(patience, func() string {
		for slot := range blades {
			if server := b.server(slot); server.Status.Node != nodeIn(slot) || server.Status.Power.State != v1alpha1.PowerOn {
				return fmt.Sprintf("%s: %+v", server.Name, server.Status)
			}
			node := &corev1.Node{}
			b.Get(node, "", nodeIn(slot))
			if node.Labels[v1alpha1.LabelChassis] != chassisName || node.Labels[v1alpha1.LabelSlot] != strconv.Itoa(slot+1) {
				return fmt.Sprintf("%s is labelled %v", node.Name, node.Labels)
			}
		}
		return ""
	})
	b.must(b.create("power", map[string]any{
		"masters": map[string]any{"replicas": int64(3)}, "replication": map[string]any{"factor": int64(1)},
		"recovery": map[string]any{
			"rescheduleAfter": "24h", "fencing": map[string]any{"type": "BMC", "after": "30s"},
		},
	}))
	b.settled("power")
	lost := b.masterAlone("power")
	member := lost.Labels[v1alpha1.LabelMember]
	slot := slices.IndexFunc(rack.nodes(), func(node string) bool { return node == lost.Spec.NodeName })

	// A member keeps its server on.
	b.orderOff(slot, "Refused", member+" of Store default/power runs on it")

	// The node freezes, and everything is in the way that can be.
	others := []int{(slot + 1) % blades, (slot + 2) % blades}
	b.must(rack.blades[slot].Swap("99999999-1111-4222-8333-444444444444"))
	rack.blades[slot].Fault(func(f *standin.Faults) { f.KeepsPower, f.SaysOff = true, true })
	for _, other := range others {
		rack.blades[other].Fault(func(f *standin.Faults) { f.Frozen = true })
	}
	rack.manager.Fault(func(f *standin.Faults) { f.Frozen = true })
	b.Nodes.Kill(lost.Spec.NodeName)

	b.saysOf(v1alpha1.ConditionProgressing, "needs rights on nodefences: docs/operator.md#fencing")
	b.giveFencingRights()
	b.saysOf(v1alpha1.ConditionDegraded, "spec.fencing.namespaces of Chassis mercury1 does not list namespace default")
	b.nameNamespace(metav1.NamespaceDefault)
	b.saysOf(v1alpha1.ConditionDegraded, "no Server's BMC reports "+testbed.SystemUUID(lost.Spec.NodeName))
	b.must(rack.blades[slot].Swap(testbed.SystemUUID(lost.Spec.NodeName)))
	b.saysOf(v1alpha1.ConditionDegraded,
		"2 of 6 BMCs of Chassis mercury1 do not answer, which points to a fault of the network, not of a server")
	if orders := rack.blades[slot].Seen().Orders; len(orders) > 0 {
		b.Fatalf("the BMC was told %v", orders)
	}
	for _, other := range others {
		rack.blades[other].Fault(func(f *standin.Faults) { f.Frozen = false })
	}
	// Its BMC says that the server is off, and nobody else: that proves nothing.
	b.saysOf(v1alpha1.ConditionDegraded, "is being switched off: the server is off")
	b.notFenced(lost)
	// The slot draws power: the BMC lies.
	rack.manager.Fault(func(f *standin.Faults) { f.Frozen = false })
	b.saysOf(v1alpha1.ConditionDegraded, "the power reading of its slot says On, and its BMC says Off")
	b.notFenced(lost)
	b.forgeIsRefused()

	// Now it is off.
	rack.blades[slot].Fault(func(f *standin.Faults) { f.KeepsPower, f.SaysOff = false, false })
	rack.blades[slot].SetPower(false)
	b.Eventually(patience, func() string {
		pod := b.Pods("power")[member]
		if pod == nil || pod.UID == lost.UID || pod.Spec.NodeName == "" || pod.Spec.NodeName == lost.Spec.NodeName {
			return fmt.Sprintf("%s has not moved: %+v", member, b.Store("power").Status.Fences)
		}
		return ""
	})
	// The machine is switched on again when nobody needs it to be off, and its node comes back.
	b.Eventually(patience, func() string {
		if !rack.blades[slot].On() {
			return fmt.Sprintf("the server is off: %+v", b.server(slot).Status)
		}
		return ""
	})
	b.Nodes.Revive(lost.Spec.NodeName)
	b.Eventually(patience, func() string {
		node, left := &corev1.Node{}, &v1alpha1.NodeFenceList{}
		b.Get(node, "", lost.Spec.NodeName)
		b.must(b.Client.List(b.Context(), left))
		if len(node.Spec.Taints) > 0 || len(left.Items) > 0 || len(b.Store("power").Status.Fences) > 0 {
			return fmt.Sprintf("taints %+v, NodeFences %+v, on record %+v", node.Spec.Taints, left.Items, b.Store("power").Status.Fences)
		}
		return ""
	})
	b.settled("power")
	b.isolates(rack)
	if strings.Contains(box.Log(), "canary-7d1e") || strings.Contains(b.operator.Log(), "canary-7d1e") {
		b.Error("a password is in a log")
	}
}

// masterAlone is the pod of a master on whose node no coordinator runs.
func (b *bed) masterAlone(store string) *corev1.Pod {
	b.Helper()
	pods := b.Pods(store)
	for member, pod := range pods {
		if pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentMaster &&
			pod.Spec.NodeName != pods[v1alpha1.CoordinatorMember(store)].Spec.NodeName {
			return pods[member]
		}
	}
	b.Fatalf("each master of %s shares its node with the coordinator: %+v", store, pods)
	return nil
}

func nodeIn(slot int) string { return testbed.NodeName(0, slot) }

func (r *rackOfStandIns) nodes() []string {
	var names []string
	for slot := range r.blades {
		names = append(names, nodeIn(slot))
	}
	return names
}

// startRack starts all controllers at one port, and lets the manager measure what slots draw.
func (b *bed) startRack() *rackOfStandIns {
	b.Helper()
	rack := &rackOfStandIns{}
	config := standin.Config{Username: "admin", Password: "canary-7d1e", Address: netip.MustParseAddrPort("127.5.0.201:0")}
	config.Sensors = append(config.Sensors, standin.Sensor{Name: "In Charge", Count: 1})
	for slot := range blades {
		config.Sensors = append(config.Sensors, standin.Sensor{
			Name: fmt.Sprintf("Slot %02d Power", slot+1), Type: types.SensorTypeOtherUnitsbased, Unit: types.SensorUnitType_Watts,
			Count: wattsOn,
		})
	}
	rack.manager = b.startStandIn(config)
	rack.port = rack.manager.Address().Port()
	for slot := range blades {
		rack.blades[slot] = b.startStandIn(standin.Config{
			Username: "admin", Password: "canary-7d1e", SystemGUID: testbed.SystemUUID(nodeIn(slot)), Serial: fmt.Sprint("MMS", slot),
			On: true, Custom: []string{fmt.Sprintf("SLOT=%d", slot+1)},
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 5, 0, byte(slot + 1)}), rack.port),
		})
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			rack.measure()
			select {
			case <-ctx.Done():
			case <-time.After(rackPause):
			}
		}
	}()
	b.Cleanup(func() { stop(); <-done })
	return rack
}

func (b *bed) startStandIn(config standin.Config) *standin.BMC {
	b.Helper()
	started, err := standin.Start(config)
	b.must(err)
	b.Cleanup(started.Close)
	return started
}

func (r *rackOfStandIns) measure() {
	for slot, blade := range r.blades {
		watts := uint8(0)
		if blade.On() {
			watts = wattsOn
		}
		r.manager.SetSensor(fmt.Sprintf("Slot %02d Power", slot+1), func(s *standin.Sensor) { s.Count = watts })
	}
}

func (r *rackOfStandIns) chassis() *v1alpha1.Chassis {
	return &v1alpha1.Chassis{
		ObjectMeta: metav1.ObjectMeta{Name: chassisName},
		Spec: v1alpha1.ChassisSpec{
			Model: "EmulatedRack", FirstServer: 1, Slots: fmt.Sprintf("1-%d", blades),
			Management: v1alpha1.ChassisManagement{
				CredentialsSecret: "mercury1-bmc", MMC: fmt.Sprintf("127.5.0.1+%d", blades), CMM: []string{"127.5.0.201"},
				Port: int32(r.port),
			},
		},
	}
}

func (b *bed) server(slot int) *v1alpha1.Server {
	b.Helper()
	server := &v1alpha1.Server{}
	b.Get(server, "", fmt.Sprintf("atom%03d", slot+1))
	return server
}

// orderOff waits until an order to switch off has ended, and says how.
func (b *bed) orderOff(slot int, state, says string) {
	b.Helper()
	server := b.server(slot)
	before := server.DeepCopy()
	server.Spec.Order = &v1alpha1.PowerOrder{ID: "1", Action: v1alpha1.ActionOff}
	b.must(b.Client.Patch(b.Context(), server, client.MergeFrom(before)))
	b.Eventually(patience, func() string {
		order := b.server(slot).Status.Order
		if order == nil || string(order.State) != state || !strings.Contains(order.Message, says) {
			return fmt.Sprintf("the order is %+v", order)
		}
		return ""
	})
}

// saysOf waits until a condition of the Store says something.
func (b *bed) saysOf(condition, says string) {
	b.Helper()
	b.Eventually(patience, func() string {
		got := meta.FindStatusCondition(b.Store("power").Status.Conditions, condition)
		if got == nil || !strings.Contains(got.Message, says) {
			return fmt.Sprintf("%s is %+v, and does not say %q; on record %+v", condition, got, says, b.Store("power").Status.Fences)
		}
		return ""
	})
}

// notFenced: without proof nothing moves, and Kubernetes is told nothing.
func (b *bed) notFenced(lost *corev1.Pod) {
	b.Helper()
	pod, node := b.Pods("power")[lost.Labels[v1alpha1.LabelMember]], &corev1.Node{}
	b.Get(node, "", lost.Spec.NodeName)
	isOff := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	if fences := b.Store("power").Status.Fences; len(fences) != 1 || fences[0].Done || isOff || pod != nil && pod.UID != lost.UID {
		b.Fatalf("without proof: on record %+v, taints %+v, the pod is %+v", fences, node.Spec.Taints, pod)
	}
}

// giveFencingRights gives the operator what docs/operator.md says, and no more.
func (b *bed) giveFencingRights() {
	b.Helper()
	named := metav1.ObjectMeta{Name: "rcbox-fencing"}
	b.must(b.Client.Create(b.Context(), &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"rcbox.dev"}, Resources: []string{"nodefences"}, Verbs: []string{"get", "create", "delete"}},
	}}))
	b.must(b.Client.Create(b.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "rcbox-operator", Namespace: testbed.OperatorNamespace}},
	}))
}

func (b *bed) nameNamespace(namespace string) {
	b.Helper()
	chassis := &v1alpha1.Chassis{}
	b.Get(chassis, "", chassisName)
	before := chassis.DeepCopy()
	chassis.Spec.Fencing.Namespaces = []string{namespace}
	b.must(b.Client.Patch(b.Context(), chassis, client.MergeFrom(before)))
}

// forgeIsRefused: the operator itself cannot write a proof, nor change what it has asked for; whoever makes a NodeFence makes no proof.
func (b *bed) forgeIsRefused() {
	b.Helper()
	operator := b.As("system:serviceaccount:" + testbed.OperatorNamespace + ":rcbox-operator")
	list := &v1alpha1.NodeFenceList{}
	b.must(b.Client.List(b.Context(), list))
	if len(list.Items) != 1 {
		b.Fatalf("there are %+v", list.Items)
	}
	forged := list.Items[0].DeepCopy()
	forged.Status.State, forged.Status.Message = v1alpha1.NodeFenceDone, "forged"
	if err := operator.Status().Update(b.Context(), forged); !apierrors.IsForbidden(err) {
		b.Errorf("the operator writes a proof: %v", err)
	}
	changed := list.Items[0].DeepCopy()
	changed.Spec.Node = nodeIn(0) + "x"
	if err := b.Client.Update(b.Context(), changed); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec cannot be changed") {
		b.Errorf("spec is changed: %v", err)
	}
	made := &v1alpha1.NodeFence{
		ObjectMeta: metav1.ObjectMeta{Name: "forged", Namespace: metav1.NamespaceDefault}, Spec: list.Items[0].Spec, Status: forged.Status,
	}
	b.must(b.Client.Create(b.Context(), made))
	b.Get(made, made.Namespace, made.Name)
	if made.Status.State == v1alpha1.NodeFenceDone {
		b.Errorf("a NodeFence is made with its proof: %+v", made.Status)
	}
	b.must(b.Client.Delete(b.Context(), made))
}
