package resources_test

import (
	"slices"
	"strings"
	"testing"

	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// ofKubernetes is a Store whose coordinators keep their state in the API server.
func ofKubernetes() *v1alpha1.Store {
	store := newStore()
	store.Spec.Coordinator.Replicas, store.Spec.Coordinator.State.Type = 2, v1alpha1.StateKubernetes
	return store
}

func TestCoordinatorOfKubernetes(t *testing.T) {
	built := pod(t, ofKubernetes(), v1alpha1.ComponentCoordinator)
	container := built.Spec.Containers[0]
	want := "--logFormat json --state kubernetes --stateName box --services box,box-coordinator"
	if got := strings.Join(container.Args, " "); !strings.HasSuffix(got, want) {
		t.Errorf("arguments are\n%s, and do not end with\n%s", got, want)
	}
	if !slices.ContainsFunc(container.Env, func(e coreac.EnvVarApplyConfiguration) bool {
		return *e.Name == "RCBOX_CANDIDATE" && *e.ValueFrom.FieldRef.FieldPath == "metadata.name"
	}) {
		t.Errorf("environment is %+v", container.Env)
	}
	spec := built.Spec
	if *spec.ServiceAccountName != "box-coordinator" || !*spec.AutomountServiceAccountToken || len(spec.Volumes) > 0 {
		t.Errorf("account %s, token %v, volumes %v", *spec.ServiceAccountName, *spec.AutomountServiceAccountToken, spec.Volumes)
	}
	spread := spec.TopologySpreadConstraints
	if len(spread) != 1 || *spread[0].TopologyKey != "kubernetes.io/hostname" || *spread[0].WhenUnsatisfiable != "ScheduleAnyway" {
		t.Errorf("spread is %+v", spread)
	}
	// Nobody else gets a token.
	master := pod(t, ofKubernetes(), v1alpha1.ComponentMaster).Spec
	if *master.AutomountServiceAccountToken || master.ServiceAccountName != nil {
		t.Error("a master gets a token of the API server")
	}
}

func TestRebalancing(t *testing.T) {
	off := false
	for _, c := range []struct {
		spec v1alpha1.RebalancingSpec
		want string
	}{
		{v1alpha1.RebalancingSpec{}, ""},
		{v1alpha1.RebalancingSpec{MaxMBps: 50}, ""},
		{v1alpha1.RebalancingSpec{MaxMBps: 200}, " --rebalanceMBps 200"},
		{v1alpha1.RebalancingSpec{Enabled: &off, MaxMBps: 200}, " --rebalance off"},
	} {
		store := newStore()
		before := strings.Join(pod(t, store, v1alpha1.ComponentCoordinator).Spec.Containers[0].Args, " ")
		store.Spec.Rebalancing = c.spec
		args := strings.Join(pod(t, store, v1alpha1.ComponentCoordinator).Spec.Containers[0].Args, " ")
		if args != before+c.want {
			t.Errorf("with %+v the arguments are\n%s, not\n%s%s", c.spec, args, before, c.want)
		}
	}
}

// The leader writes itself into the slices of exactly the Services that select nobody.
func TestServicesOfKubernetes(t *testing.T) {
	store := ofKubernetes()
	var services []string
	for _, service := range resources.Services(store, v1alpha1.StateKubernetes) {
		if len(service.Spec.Selector) > 0 {
			t.Errorf("%s selects %v", *service.Name, service.Spec.Selector)
		}
		services = append(services, *service.Name)
	}
	var sliced []string
	for _, slice := range resources.EndpointSlices(store) {
		service := slice.Labels["kubernetes.io/service-name"]
		if *slice.Name != service+"-leader" || slice.Endpoints != nil || slice.Ports != nil {
			t.Errorf("slice is %+v", slice)
		}
		sliced = append(sliced, service)
	}
	if !slices.Equal(services, sliced) {
		t.Errorf("Services are %v, those with slices %v", services, sliced)
	}
	for _, state := range []v1alpha1.StateType{v1alpha1.StateVolume, v1alpha1.StateMemory} {
		for _, service := range resources.Services(store, state) {
			if service.Spec.Selector[v1alpha1.LabelComponent] != v1alpha1.ComponentCoordinator {
				t.Errorf("%s: %s selects %v", state, *service.Name, service.Spec.Selector)
			}
		}
	}
}

// What a coordinator may do is said once, here: a right more is a decision.
func TestRights(t *testing.T) {
	var got []string
	for _, rule := range resources.Role(ofKubernetes()).Rules {
		got = append(got, strings.Join(rule.Resources, ",")+" "+strings.Join(rule.Verbs, ",")+" "+strings.Join(rule.ResourceNames, ","))
	}
	want := []string{
		"configmaps create,list,get,delete ",
		"configmaps patch box-state-root",
		"leases get,update box-coordinator",
		"endpointslices get,update box-leader,box-coordinator-leader",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rights are\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	binding := resources.RoleBinding(ofKubernetes())
	if *binding.RoleRef.Name != "box-coordinator" || *binding.Subjects[0].Name != *resources.ServiceAccount(ofKubernetes()).Name {
		t.Errorf("binding is %+v", binding)
	}
	if *resources.Lease(ofKubernetes()).Name != "box-coordinator" {
		t.Error("the program looks for the lease box-coordinator")
	}
}
