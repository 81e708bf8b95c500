package resources_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// isGuaranteed is what kubelet makes of a pod: CPU and memory of each container are limited to what they request.
func isGuaranteed(pod *coreac.PodApplyConfiguration) bool {
	if len(pod.Spec.InitContainers) > 0 {
		return false // none has been looked at here
	}
	for i := range pod.Spec.Containers {
		wanted := pod.Spec.Containers[i].Resources
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if wanted.Limits == nil || wanted.Requests == nil {
				return false
			}
			limit, limited := (*wanted.Limits)[name]
			request, requested := (*wanted.Requests)[name]
			if !limited || !requested || limit.IsZero() || limit.Cmp(request) != 0 {
				return false
			}
		}
	}
	return true
}

// exclusiveCPUs are those that a kubelet with the static CPU manager gives to the pod alone.
func exclusiveCPUs(pod *coreac.PodApplyConfiguration) int64 {
	cpu := (*pod.Spec.Containers[0].Resources.Requests)[corev1.ResourceCPU]
	if !isGuaranteed(pod) || cpu.MilliValue()%1000 != 0 {
		return 0
	}
	return cpu.Value()
}

func TestExclusiveCPUs(t *testing.T) {
	for name, test := range map[string]struct {
		component string
		change    func(*v1alpha1.StoreSpec)
		want      int64
	}{
		"shared":    {v1alpha1.ComponentMaster, func(*v1alpha1.StoreSpec) {}, 0},
		"said so":   {v1alpha1.ComponentMaster, func(s *v1alpha1.StoreSpec) { s.Masters.CPUPolicy = v1alpha1.CPUShared }, 0},
		"exclusive": {v1alpha1.ComponentMaster, func(s *v1alpha1.StoreSpec) { s.Masters.CPUPolicy = v1alpha1.CPUExclusive }, 2},
		"with copies in memory": {v1alpha1.ComponentMaster, func(s *v1alpha1.StoreSpec) {
			s.Masters.CPUPolicy = v1alpha1.CPUExclusive
			s.Replication = v1alpha1.ReplicationSpec{Factor: new(int32(2))}
			s.Backups.Storage = v1alpha1.BackupStorage{Type: v1alpha1.StorageMemory, Size: new(resource.MustParse("4Gi"))}
		}, 2},
		"beside other resources": {v1alpha1.ComponentMaster, func(s *v1alpha1.StoreSpec) {
			s.Masters.CPUPolicy = v1alpha1.CPUExclusive
			s.Masters.Resources = &v1alpha1.ComputeResources{Requests: corev1.ResourceList{"ephemeral-storage": resource.MustParse("1Gi")}}
		}, 2},
		"one more, by resources": {v1alpha1.ComponentMaster, func(s *v1alpha1.StoreSpec) {
			three := corev1.ResourceList{"cpu": resource.MustParse("3")}
			s.Masters.Resources = &v1alpha1.ComputeResources{Requests: three, Limits: three}
		}, 3},
		"coordinator": {v1alpha1.ComponentCoordinator, func(s *v1alpha1.StoreSpec) { s.Masters.CPUPolicy = v1alpha1.CPUExclusive }, 0},
		"coordinator that asks": {v1alpha1.ComponentCoordinator, func(s *v1alpha1.StoreSpec) {
			all := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("512Mi")}
			s.Coordinator.Resources = v1alpha1.ComputeResources{Requests: all, Limits: all}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			test.change(&store.Spec)
			if got := exclusiveCPUs(pod(t, store, test.component)); got != test.want {
				t.Errorf("%d CPUs of its own", got)
			}
		})
	}
}

// It is a change like any other, and what the user has written stays as it is.
func TestExclusiveCPUsOutdatePods(t *testing.T) {
	store := newStore()
	store.Spec.Masters.Resources = &v1alpha1.ComputeResources{Requests: corev1.ResourceList{"ephemeral-storage": resource.MustParse("1Gi")}}
	before := resources.InputsFor(store, v1alpha1.ComponentMaster, "i", "")
	store.Spec.Masters.CPUPolicy = v1alpha1.CPUExclusive
	after := resources.InputsFor(store, v1alpha1.ComponentMaster, "i", "")
	want := "resources.requests: ephemeral-storage=1Gi -> cpu=2 ephemeral-storage=1Gi, resources.limits: none -> cpu=2"
	if got := resources.Diff(before, after); got != want {
		t.Errorf("it differs by %q", got)
	}
	if len(store.Spec.Masters.Resources.Requests) != 1 || store.Spec.Masters.Resources.Limits != nil {
		t.Errorf("the spec has become %+v", store.Spec.Masters.Resources)
	}
}

// A standby that goes with the leader's rack is none.
func TestCoordinatorsAreSpread(t *testing.T) {
	for domain, want := range map[string][]string{
		"kubernetes.io/hostname":      {"kubernetes.io/hostname"},
		"topology.kubernetes.io/zone": {"kubernetes.io/hostname", "topology.kubernetes.io/zone"},
	} {
		store := newStore()
		store.Spec.Coordinator = v1alpha1.CoordinatorSpec{Replicas: 2, State: v1alpha1.StateSpec{Type: v1alpha1.StateKubernetes}}
		store.Spec.Placement = v1alpha1.PlacementSpec{
			FailureDomain: domain, PriorityClassName: "high",
			Tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}},
		}
		spec := pod(t, store, v1alpha1.ComponentCoordinator).Spec
		var got []string
		for _, constraint := range spec.TopologySpreadConstraints {
			got = append(got, *constraint.TopologyKey)
			if *constraint.WhenUnsatisfiable != corev1.ScheduleAnyway ||
				constraint.LabelSelector.MatchLabels[v1alpha1.LabelComponent] != v1alpha1.ComponentCoordinator {
				t.Errorf("%s: the constraint is %+v", domain, constraint)
			}
		}
		if !slices.Equal(got, want) || *spec.PriorityClassName != "high" || len(spec.Tolerations) != 1 {
			t.Errorf("%s: spread over %v, with priority and tolerations %+v", domain, got, spec)
		}
	}
}
