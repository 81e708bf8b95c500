package quota_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/operator/internal/quota"
)

func leaving() *corev1.Pod {
	amounts := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "master", Resources: corev1.ResourceRequirements{Requests: amounts("1", "1Gi"), Limits: amounts("2", "1Gi")}},
			{Name: "agent", Resources: corev1.ResourceRequirements{Requests: amounts("100m", "64Mi")}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func TestIsEnoughWithout(t *testing.T) {
	const head = `pods "box-master-0-bcdfg" is forbidden: exceeded quota: team, `
	for message, want := range map[string]bool{
		head + "requested: pods=1, used: pods=4, limited: pods=4":                                                          true,
		head + "requested: count/pods=1, used: count/pods=4, limited: count/pods=4":                                        true,
		head + "requested: pods=1, used: pods=5, limited: pods=4":                                                          false,
		head + "requested: pods=2, used: pods=5, limited: pods=4":                                                          false,
		head + "requested: requests.cpu=1100m, used: requests.cpu=4, limited: requests.cpu=4":                              true,
		head + "requested: requests.cpu=1101m, used: requests.cpu=4, limited: requests.cpu=4":                              false,
		head + "requested: cpu=1,memory=1Gi, used: cpu=4,memory=4Gi, limited: cpu=4,memory=4Gi":                            true,
		head + "requested: cpu=1,memory=2Gi, used: cpu=4,memory=4Gi, limited: cpu=4,memory=4Gi":                            false,
		head + "requested: limits.memory=1280Mi, used: limits.memory=4Gi, limited: limits.memory=4Gi":                      false,
		head + "requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1": false,
		head + "requested: pods=1, used: cpu=4, limited: pods=4":                                                           false,
		head + "requested: pods=some, used: pods=4, limited: pods=4":                                                       false,
		head + "requested: pods=1, used: pods=4, limited: pods=4, and more":                                                false,
		`pods "box-master-0-bcdfg" is forbidden: violates PodSecurity "restricted:latest": host namespaces`:                false,
		"": false,
	} {
		if got := quota.IsEnoughWithout(message, leaving()); got != want {
			t.Errorf("%s: %v", message, got)
		}
	}
	const full = head + "requested: pods=1, used: pods=4, limited: pods=4"
	ended := leaving()
	ended.Status.Phase = corev1.PodFailed
	if quota.IsEnoughWithout(full, ended) || quota.IsEnoughWithout(full, nil) {
		t.Error("a pod that a quota does not count leaves room")
	}
}
