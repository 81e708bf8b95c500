package apiserver_test

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin/standin"
)

// isolates has a server isolated on which a master runs: the operator drains the master, the box controller takes the power away once the
// master has left, and gives both back.
func (b *bed) isolates(rack *rackOfStandIns) {
	b.Helper()
	pod := b.masterAlone("power")
	member, node := pod.Labels[v1alpha1.LabelMember], pod.Spec.NodeName
	slot := slices.Index(rack.nodes(), node)
	told := len(rack.blades[slot].Seen().Orders)
	b.setIsolated(slot, &v1alpha1.ServerIsolationSpec{Reason: "ECC errors"})
	b.isolationSays(slot, "False MembersLeave: ECC errors; waiting for "+member+" of Store default/power to leave node "+node)
	cordoned := &corev1.Node{}
	b.Get(cordoned, "", node)
	if by := cordoned.Annotations[v1alpha1.AnnotationCordonedFor]; !cordoned.Spec.Unschedulable || by != b.server(slot).Name {
		b.Errorf("node %s is %+v, %v", node, cordoned.Spec, cordoned.Annotations)
	}
	coordinator := b.Stores.Get("power").Coordinator
	b.Eventually(patience, func() string {
		isDraining := false
		coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
			isDraining = slices.ContainsFunc(r.GetMembers(), func(m *adminv1.Member) bool {
				return m.GetName() == member && m.GetDraining() != nil
			})
		})
		if !isDraining {
			return member + " is not being drained"
		}
		return ""
	})
	if orders := rack.blades[slot].Seen().Orders[told:]; len(orders) > 0 || !rack.blades[slot].On() {
		b.Fatalf("%s is on %s, and its BMC was told %v", member, node, orders)
	}
	coordinator.Change(func(r *adminv1.GetClusterStatusResponse) { standin.SetDrained(r, member) })
	b.isolationSays(slot, "True Isolated: ECC errors; it is off, as two witnesses say")
	if now := b.Pods("power")[member]; now == nil || now.Spec.NodeName == node {
		b.Fatalf("%s has not moved: %+v", member, now)
	}
	if rack.blades[slot].On() {
		b.Fatalf("%s is on", b.server(slot).Name)
	}
	b.Nodes.Kill(node)

	b.setIsolated(slot, nil)
	b.Eventually(patience, func() string {
		if !rack.blades[slot].On() {
			return fmt.Sprintf("the server is off: %+v", b.server(slot).Status)
		}
		return ""
	})
	b.Nodes.Revive(node)
	b.Eventually(patience, func() string {
		b.Get(cordoned, "", node)
		isMarked := cordoned.Annotations[v1alpha1.AnnotationCordonedFor] != ""
		if isolation := b.server(slot).Status.Isolation; isolation != nil || cordoned.Spec.Unschedulable || isMarked {
			return fmt.Sprintf("%+v, unschedulable %v, %v", isolation, cordoned.Spec.Unschedulable, cordoned.Annotations)
		}
		return ""
	})
	b.settled("power")
}

func (b *bed) setIsolated(slot int, isolated *v1alpha1.ServerIsolationSpec) {
	b.Helper()
	server := b.server(slot)
	before := server.DeepCopy()
	server.Spec.Isolated = isolated
	b.must(b.Client.Patch(b.Context(), server, client.MergeFrom(before)))
}

// isolationSays waits until the condition Isolated of a Server says something.
func (b *bed) isolationSays(slot int, says string) {
	b.Helper()
	b.Eventually(patience, func() string {
		server := b.server(slot)
		got := meta.FindStatusCondition(server.Status.Conditions, v1alpha1.ConditionIsolated)
		if got == nil || !strings.HasPrefix(string(got.Status)+" "+got.Reason+": "+got.Message, says) {
			return fmt.Sprintf("%s: %+v, %+v", server.Name, got, server.Status.Isolation)
		}
		return ""
	})
}
