package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// A volume that is kept waits for its claim by name. The scheduler has counted on a new one, and has placed the pod elsewhere.
func TestPodsThatCannotUseTheirVolumes(t *testing.T) {
	waiting := corev1.ContainerStatus{
		Name: v1alpha1.ComponentMaster, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
	}
	restarting := corev1.ContainerStatus{Name: v1alpha1.ComponentMaster, State: waiting.State, RestartCount: 1}
	anywhere := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	for name, test := range map[string]struct {
		volume    *corev1.PersistentVolume
		host      string
		container corev1.ContainerStatus
		isDeleted bool
	}{
		"placed elsewhere":                     {volumeOn("pv-1", "b"), "a", waiting, true},
		"placed where it is":                   {volumeOn("pv-1", "a"), "a", waiting, false},
		"a volume for all nodes":               {anywhere, "a", waiting, false},
		"a volume that is not there":           {volumeOn("pv-2", "b"), "a", waiting, false},
		"a process has run":                    {volumeOn("pv-1", "b"), "a", restarting, false},
		"a node whose host is not called so":   {volumeOn("pv-1", "b"), "b", waiting, false},
		"a volume for two hosts, neither here": {volumeOn("pv-1", "b", "c"), "a", waiting, true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: "node-a", Labels: map[string]string{corev1.LabelHostname: test.host},
			}}
			h := newHarness(t, node, test.volume)
			replicated(h)
			h.mustReconcile()
			h.mustReconcile()
			claim := h.claims()["box-master-1-copies"]
			claim.Spec.VolumeName = "pv-1"
			if err := h.client.Update(t.Context(), &claim); err != nil {
				t.Fatal(err)
			}
			pod := h.pods()["box-master-1"]
			pod.Spec.NodeName, pod.CreationTimestamp = node.Name, metav1.NewTime(h.now)
			if err := h.client.Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodPending, []corev1.ContainerStatus{test.container}
			if err := h.client.Status().Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			h.mustReconcile()
			if err := h.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
				t.Fatalf("it is young: %v", err)
			}
			h.now = pod.CreationTimestamp.Add(misplacedAfter)
			h.takeEvents()
			h.mustReconcile()
			err := h.client.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})
			if isDeleted := client.IgnoreNotFound(err) == nil && err != nil; isDeleted != test.isDeleted {
				t.Errorf("deleted: %t", isDeleted)
			}
			const why = "volume pv-1 cannot be used on node node-a, where it was placed before its claim box-master-1-copies was bound"
			if events := strings.Join(h.takeEvents(), "\n"); strings.Contains(events, why) != test.isDeleted {
				t.Errorf("events are %s", events)
			}
		})
	}
}
