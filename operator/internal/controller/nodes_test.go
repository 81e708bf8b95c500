package controller

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/admin"
)

// volumeOn is a volume that can be used on these hosts only.
func volumeOn(name string, hosts ...string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: hosts,
			}}}},
		}}},
	}
}

// setReady says what node-a's kubelet does.
func (h *harness) setReady(status corev1.ConditionStatus) {
	h.t.Helper()
	node := &corev1.Node{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Name: "node-a"}, node); err != nil {
		h.t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	if err := h.client.Status().Update(h.t.Context(), node); err != nil {
		h.t.Fatal(err)
	}
}

// withALostNode is a settled Store one of whose masters is away, on a node that is not ready, with its volume.
func withALostNode(t *testing.T) *harness {
	t.Helper()
	h := settledWithCopies(t)
	for _, object := range []client.Object{volumeOn("pv-1", "node-a"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}} {
		if err := h.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	claim := h.claims()["box-master-1-copies"]
	claim.Spec.VolumeName = "pv-1"
	if err := h.client.Update(t.Context(), &claim); err != nil {
		t.Fatal(err)
	}
	h.change(func(s *v1alpha1.Store) { s.Spec.Recovery.RescheduleAfter = "12s" })
	h.setReady(corev1.ConditionUnknown)
	h.lose("box-master-1")
	return h
}

func TestMemberMovesWithANewVolume(t *testing.T) {
	h := withALostNode(t)
	old := h.pods()["box-master-1"]
	for range 3 {
		h.mustReconcile()
		if len(h.claims()) != 3 || h.pods()["box-master-1"].UID != old.UID {
			t.Fatalf("it has moved at once: %v", h.claims())
		}
	}
	lost := h.store().Status.Masters.Members[1].Lost
	if lost == nil || lost.Node != "node-a" || lost.Cause != v1alpha1.NodeNotReady || lost.ProvenAt == nil {
		t.Fatalf("on record: %+v", lost)
	}
	h.want(v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonNodeLost)
	h.mustReconcile()
	if _, there := h.claims()["box-master-1-copies-2"]; !there || h.pods()["box-master-1"] != nil {
		t.Fatalf("it has not moved: %v, pod %v", h.claims(), h.pods()["box-master-1"])
	}
	h.mustReconcile()
	h.run()
	next := h.pods()["box-master-1"]
	if got := claimOf(next); got != "box-master-1-copies-2" || next.Name == old.Name {
		t.Fatalf("%s has the claim %s", next.Name, got)
	}
	h.coordinator.Change(func(r *adminv1.GetClusterStatusResponse) {
		for _, member := range r.GetMembers() {
			member.State = adminv1.MemberState_MEMBER_STATE_UP
		}
	})
	h.withCopies()
	h.mustReconcile()
	h.mustReconcile()
	if _, there := h.claims()["box-master-1-copies"]; there {
		t.Error("the claim of the volume that was lost is still there")
	}
	if status := h.store().Status.Masters.Members[1]; status.Lost != nil || status.Claim != "box-master-1-copies-2" {
		t.Errorf("status is %+v", status)
	}
}

// secondLook is a coordinator that has changed its mind when it is asked for the second time in a reconcile.
type secondLook struct {
	admin.Client
	asked  int
	change func(*adminv1.GetClusterStatusResponse)
}

func (c *secondLook) Status(ctx context.Context) (*adminv1.GetClusterStatusResponse, error) {
	response, err := c.Client.Status(ctx)
	if c.asked++; err == nil && c.asked > 1 {
		c.change(response)
	}
	return response, err
}

// Everything is looked at once more right before: here, the master is back.
func TestNothingMovesWhenTheMasterIsBack(t *testing.T) {
	h := withALostNode(t)
	dial := h.reconciler.Dial
	h.reconciler.Dial = func(ip string, port int) (admin.Client, error) {
		connection, err := dial(ip, port)
		if err != nil {
			return nil, err
		}
		return &secondLook{Client: connection, change: func(r *adminv1.GetClusterStatusResponse) {
			for _, member := range r.GetMembers() {
				member.State = adminv1.MemberState_MEMBER_STATE_UP
			}
		}}, nil
	}
	for range 6 {
		h.mustReconcile()
	}
	if len(h.claims()) != 3 || h.pods()["box-master-1"] == nil {
		t.Errorf("it has moved: %v, %v", h.claims(), h.pods())
	}
}

// Where nodes cannot be read, nobody moves, and what else there is to do is done.
func TestNothingMovesWhereNodesCannotBeRead(t *testing.T) {
	h := withALostNode(t)
	h.reconciler.Live, h.reconciler.Nodes = forbidden{h.client}, nodesByReader{forbidden{h.client}}
	for range 6 {
		h.mustReconcile()
	}
	if lost := h.store().Status.Masters.Members[1].Lost; lost != nil || len(h.claims()) != 3 {
		t.Errorf("on record %+v, claims %v", lost, h.claims())
	}
}

// forbidden has no right to read nodes and volumes.
type forbidden struct{ client.Reader }

func (f forbidden) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	switch object.(type) {
	case *corev1.Node, *corev1.PersistentVolume:
		return apierrors.NewForbidden(corev1.Resource("nodes"), key.Name, nil)
	}
	return f.Reader.Get(ctx, key, object, options...)
}

func TestHowNodesAreLost(t *testing.T) {
	node := func(status corev1.ConditionStatus, taints ...string) *corev1.Node {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
		for _, taint := range taints {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: taint})
		}
		return node
	}
	if nodeOf(node(corev1.ConditionTrue, "other"), false).OutOfService ||
		!nodeOf(node(corev1.ConditionTrue, corev1.TaintNodeOutOfService), false).OutOfService {
		t.Error("a node is out of service when somebody has said so by the taint, and not otherwise")
	}
	if nodeOf(node(corev1.ConditionUnknown), false).Ready || !nodeOf(node(corev1.ConditionTrue), false).Ready {
		t.Error("a node is ready when its kubelet says so, and not otherwise")
	}
	if !nodeOf(&corev1.Node{}, true).Deleted {
		t.Error("a node that is not there is deleted")
	}
	zone := volumeOn("v", "a")
	zone.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = corev1.LabelTopologyZone
	for want, volume := range map[string]*corev1.PersistentVolume{"a": volumeOn("v", "a"), "": zone} {
		if got := hostOf(volume); got != want {
			t.Errorf("the volume is on %q, not %q", got, want)
		}
	}
}
