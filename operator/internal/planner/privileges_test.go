package planner_test

import (
	"strings"
	"testing"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

func wantsAll(store *v1alpha1.Store) {
	store.Spec.Network = v1alpha1.NetworkSpec{
		Transport: v1alpha1.TransportDPDK, Provider: v1alpha1.NetworkDevicePlugin, Profile: v1alpha1.NetworkWholePort,
		Capabilities: []v1alpha1.NetworkCapability{"IPC_LOCK", "SYS_RAWIO", "SYS_ADMIN"},
		EALArguments: []string{"--log-level=8"},
		Attachments: []v1alpha1.NetworkAttachment{{
			NetworkAttachmentDefinition: "a", ResourceName: "a.example/port", Addresses: v1alpha1.AddressPool{CIDR: "10.0.0.0/24"},
		}},
	}
}

func creates(plan planner.Plan) int {
	count := 0
	for _, step := range plan.Steps {
		if _, isCreate := step.(steps.CreatePod); isCreate {
			count++
		}
	}
	return count
}

func TestANewStoreHasOnlyWhatIsAllowed(t *testing.T) {
	w := newWorld(2)
	wantsAll(w.store)
	for _, c := range []struct {
		name    string
		allowed facts.Allowed
		field   string
	}{
		{"nothing", facts.Allowed{}, "spec.network.profile: "},
		{"the profile", facts.Allowed{NetworkProfiles: []string{"WholePort"}}, "spec.network.capabilities: "},
		{
			"the profile and some capabilities",
			facts.Allowed{NetworkProfiles: []string{"WholePort"}, Capabilities: []string{"IPC_LOCK", "SYS_RAWIO"}},
			"does not allow SYS_ADMIN",
		},
		{
			"all but arguments",
			facts.Allowed{NetworkProfiles: []string{"WholePort"}, Capabilities: []string{"IPC_LOCK", "SYS_RAWIO", "SYS_ADMIN"}},
			"spec.network.ealArguments: ",
		},
		{"everything", facts.Allowed{
			NetworkProfiles: []string{"WholePort"}, Capabilities: []string{"IPC_LOCK", "SYS_RAWIO", "SYS_ADMIN"},
			EALArguments: []string{"--log-level"},
		}, ""},
	} {
		o := w.observe()
		o.Allowed = c.allowed
		plan := planner.Make(o)
		if c.field == "" {
			if plan.NotAllowed != "" || creates(plan) == 0 {
				t.Errorf("with %s: %q, %d pods", c.name, plan.NotAllowed, creates(plan))
			}
			continue
		}
		if !strings.Contains(plan.NotAllowed, c.field) || len(plan.NotAllowed) > 300 || len(plan.Steps) > 0 {
			t.Errorf("with %s: %q, steps %v", c.name, plan.NotAllowed, plan.Steps)
		}
	}
	// A short option takes its value without "=": the library's path is no part of a name.
	o := w.observe()
	o.Store.Spec.Network.EALArguments = []string{"-d/lib/evil.so"}
	o.Allowed = facts.Allowed{
		NetworkProfiles: []string{"WholePort"}, Capabilities: []string{"IPC_LOCK", "SYS_RAWIO", "SYS_ADMIN"}, EALArguments: []string{"-d"},
	}
	if plan := planner.Make(o); !strings.Contains(plan.NotAllowed, "-d/lib/evil.so") {
		t.Errorf("a library is loaded: %q", plan.NotAllowed)
	}
}

// TestAnExistingStoreKeepsItsPrivileges: an operator that knew no limits has made it; this one allows nothing.
func TestAnExistingStoreKeepsItsPrivileges(t *testing.T) {
	w := newWorld(2)
	wantsAll(w.store)
	w.store.Status.ObservedGeneration = w.store.Generation // by the operator before
	o := w.observe()
	plan := planner.Make(o)
	if plan.NotAllowed != "" || creates(plan) == 0 {
		t.Fatalf("its pods are not replaced: %q, steps %v", plan.NotAllowed, plan.Steps)
	}
	w.store.Status.Privileges = plan.Privileges
	w.store.Generation++ // any other change: what is on record counts
	if plan := planner.Make(w.observe()); plan.NotAllowed != "" || creates(plan) == 0 {
		t.Errorf("after a change: %q", plan.NotAllowed)
	}
	w.store.Spec.Network.EALArguments = append(w.store.Spec.Network.EALArguments, "-d", "evil.so")
	if plan := planner.Make(w.observe()); !strings.Contains(plan.NotAllowed, "does not allow -d") || len(plan.Steps) > 0 {
		t.Errorf("more than it had: %q, steps %v", plan.NotAllowed, plan.Steps)
	}
	// A spec that was changed while no operator looked is no record of what the Store had.
	w.store.Status.Privileges = nil
	if plan := planner.Make(w.observe()); plan.NotAllowed == "" {
		t.Error("a spec that no operator has seen counts as what the Store had")
	}
}
