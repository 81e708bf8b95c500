package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Only a kubelet's last word, or a pod that never ran, is proof that a pod sends nothing any more.
func TestProofOfEnd(t *testing.T) {
	ended := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	runs := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	waits := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	status := func(phase corev1.PodPhase, reason string, containers ...corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{Phase: phase, Reason: reason, ContainerStatuses: containers}
	}
	for _, test := range []struct {
		name    string
		node    string
		isTold  bool
		status  corev1.PodStatus
		want    bool
		refused string
	}{
		{"runs", "a", false, status(corev1.PodRunning, "", runs), false, ""},
		{"its container has ended, its kubelet is not done with it", "a", true, status(corev1.PodRunning, "", ended), false, ""},
		{"has ended", "a", true, status(corev1.PodFailed, "", ended), true, ""},
		{"has ended well", "a", true, status(corev1.PodSucceeded, "", ended), true, ""},
		{"was evicted", "a", false, status(corev1.PodFailed, "Evicted", ended), true, ""},
		{"given up with its node", "a", true, status(corev1.PodFailed, "NodeLost", runs), false, ""},
		{"given up with its node before it began", "a", true, status(corev1.PodFailed, "", waits), false, ""},
		{"given up, and nothing is known of it", "a", true, status(corev1.PodFailed, ""), false, ""},
		{"without a node", "", false, status(corev1.PodPending, ""), false, ""},
		{"without a node, and gets none any more", "", true, status(corev1.PodPending, ""), true, ""},
		{"no device", "a", false, status(corev1.PodFailed, "UnexpectedAdmissionError"), true, "UnexpectedAdmissionError"},
		{"no NUMA node", "a", false, status(corev1.PodFailed, "TopologyAffinityError"), true, "TopologyAffinityError"},
		{"no CPUs", "a", false, status(corev1.PodFailed, "OutOfcpu"), true, "OutOfcpu"},
		{"refused, and has run", "a", false, status(corev1.PodFailed, "OutOfcpu", runs), false, ""},
	} {
		pod := &corev1.Pod{Status: test.status}
		pod.Spec.NodeName = test.node
		if test.isTold {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		if got := hasEnded(pod); got != test.want {
			t.Errorf("%s: it has ended: %v", test.name, got)
		}
		if got := refusalOf(pod); got != test.refused {
			t.Errorf("%s: refused with %q", test.name, got)
		}
	}
}

// withPorts is a harness whose Store has a port for each master.
func withPorts(t *testing.T) *harness {
	t.Helper()
	other := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{
		Name: "elder", Namespace: "default", UID: "another", CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
	}}
	other.Spec.Network = portsOfSimulation()
	other.Spec.Network.Attachments[0].Addresses.Range = "10.0.0.0/28"
	other.Spec.Network.Attachments[1].Addresses = v1alpha1.AddressPool{CIDR: "10.2.0.0/24"}
	other.Status.Masters.Members = []v1alpha1.MemberStatus{
		{MemberRecord: v1alpha1.MemberRecord{Addresses: []v1alpha1.MemberAddress{{IP: "10.0.0.17"}}}},
	}
	h := newHarness(t, other, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	h.change(func(store *v1alpha1.Store) {
		store.CreationTimestamp = metav1.NewTime(time.Unix(2, 0))
		store.Spec.Network = portsOfSimulation()
		store.Spec.Network.Attachments[0].Addresses.Range = ""
	})
	for range 3 {
		h.mustReconcile()
		h.run()
	}
	h.mustReconcile()
	return h
}

// The controller sees other Stores' pools, gives pods addresses, and lets pods go that have ended.
func TestPortsThroughAPI(t *testing.T) {
	h := withPorts(t)
	pods := h.pods()
	first := pods["box-master-0"]
	if got := first.Annotations[v1alpha1.AnnotationAddresses]; got != "10.0.0.16,10.1.0.1" {
		t.Fatalf("the first master has %s", got)
	}
	if got := pods["box-master-1"].Annotations[v1alpha1.AnnotationAddresses]; got != "10.0.0.18,10.1.0.2" {
		t.Errorf("the second master has %s", got)
	}
	h.want(v1alpha1.ConditionNetworkReady, metav1.ConditionFalse, v1alpha1.ReasonPoolsOverlap)
	if members := h.store().Status.Masters.Members; members[0].Addresses[0].Pod != first.Name || members[0].Addresses[0].IP != "10.0.0.16" {
		t.Errorf("the status has %+v", members[0].Addresses)
	}
	if err := h.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	h.mustReconcile()
	if again := h.pods()["box-master-0"]; again != nil {
		t.Fatalf("%s was made while %s may send", again.Name, first.Name)
	}
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil {
		t.Fatalf("the pod did not wait: %v", err)
	}
	first.Status.Phase = corev1.PodSucceeded
	first.Status.ContainerStatuses = []corev1.ContainerStatus{
		{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
	}
	if err := h.client.Status().Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h.mustReconcile()
		h.run()
	}
	again := h.pods()["box-master-0"]
	if again == nil || again.Annotations[v1alpha1.AnnotationAddresses] != "10.0.0.16,10.1.0.1" {
		t.Fatalf("the next pod is %+v", again)
	}
	if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(first), first); err == nil {
		t.Errorf("pod %s is still there: %v", first.Name, first.Finalizers)
	}
	if isNoted := slices.Contains(first.Finalizers, v1alpha1.FinalizerAddresses); !isNoted {
		t.Error("the pod had no finalizer: this test proves nothing")
	}
}
