package status_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
	"rcbox.dev/rcbox/operator/internal/status"
)

// waitsForNode is a master for which the scheduler finds no node.
func waitsForNode(s *scene, i int) {
	view := &s.plan.Masters[i]
	view.Up, view.Reported = false, nil
	view.Pod = &facts.Pod{
		Name: view.Name + "-1", Component: v1alpha1.ComponentMaster, CreatedAt: s.observed.Now.Add(-10 * time.Second),
		Trouble: "Unschedulable: 0/1 nodes", Unschedulable: "0/1 nodes are available: 1 node(s) didn't match pod " +
			"anti-affinity rules. preemption",
	}
	s.observed.Store.Status.FormedAt = nil
}

// summary is a state of a Store, and what tools that know no Store make of it.
type summary struct {
	name   string
	change func(*scene)
	want   kstatus.Status
	// a part of the message of Ready or, if it has failed, of Stalled
	says string
}

func withCopies(s *scene) { s.observed.Store.Spec.Replication.Factor = new(int32(1)) }

// summarizedStates are the states of TestReadyAndStalled.
func summarizedStates() []summary {
	return []summary{
		{"as specified, without copies by choice", func(*scene) {}, kstatus.CurrentStatus, "2 of 2 masters are up"},
		{"with copies", func(s *scene) {
			withCopies(s)
			s.observed.Cluster.State = v1alpha1.StateKubernetes
		}, kstatus.CurrentStatus, "as its spec says"},
		{"an upgrade that can be finalized", func(s *scene) {
			s.observed.Cluster.Format = facts.Format{Active: 1, Newest: 2}
		}, kstatus.CurrentStatus, "as its spec says"},
		{"forming", func(s *scene) {
			s.observed.Store.Status.FormedAt = nil
			s.noCoordinator()
			s.plan.Coordinator.Pod.Ready = false
		}, kstatus.InProgressStatus, "waiting for the coordinator"},
		{"short of copies", func(s *scene) {
			withCopies(s)
			s.plan.Shortfall = &planner.Shortfall{Reason: v1alpha1.ReasonUnderReplicated, Message: "not up: a"}
		}, kstatus.InProgressStatus, "not up: a"},
		{"rolling", func(s *scene) {
			s.plan.Masters[0].Pending, s.plan.Masters[0].Rolls = "memory: 1Gi -> 2Gi", true
		}, kstatus.InProgressStatus, "left to restart"},
		{"a master is down", func(s *scene) { s.down(0, 1) }, kstatus.InProgressStatus, "cannot be read or written"},
		{"applying", func(s *scene) {
			s.plan.Steps = []steps.Step{steps.CreatePod{Member: "box-master-2", Number: 1, Why: "it is new"}}
		}, kstatus.InProgressStatus, "box-master-2"},
		{"refused, and tried again", func(s *scene) { s.outcome.Failed = "timeout" }, kstatus.InProgressStatus, "timeout"},
		{"paused, with nothing to do", func(s *scene) { s.observed.Store.Spec.Paused = true }, kstatus.CurrentStatus, "2 of 2"},
		{"asleep", func(s *scene) {
			s.plan.Hibernation = &planner.Hibernation{Begun: true}
		}, kstatus.InProgressStatus, "the Store is hibernated"},
		{"refused for good", func(s *scene) {
			s.outcome.Failed, s.outcome.FailedForGood = "forbidden: exceeded quota", true
		}, kstatus.FailedStatus, "exceeded quota"},
		{"paused, with something to do", func(s *scene) {
			s.observed.Store.Spec.Paused = true
			s.plan.Withheld = []steps.Step{steps.CreatePod{Member: "box-master-2", Number: 1, Why: "it is new"}}
		}, kstatus.FailedStatus, "spec.paused is set; without it"},
		{
			"a name that another one has", func(s *scene) { s.outcome.NameTaken = "Service box is not this Store's" },
			kstatus.FailedStatus, "not this Store's",
		},
		{"a restart that is the user's", func(s *scene) {
			s.plan.Masters[0].Pending = "memory: 1Gi -> 2Gi"
			s.plan.Masters[0].Reported.Tablets = 1
		}, kstatus.FailedStatus, "outdated pods"},
		{"a coordinator must not lead", func(s *scene) {
			s.noCoordinator()
			s.observed.Refusal = "StateIncomplete: the root is missing"
		}, kstatus.FailedStatus, "refuses to lead"},
		{"one node for masters with copies", func(s *scene) {
			withCopies(s)
			waitsForNode(s, 1)
		}, kstatus.FailedStatus, "no node for box-master-1: with copies each master has a node of its own, and 0 of 2 " +
			"have one (0/1 nodes are " +
			"available: 1 node(s) didn't match pod anti-affinity rules). Add a node; or make the Store again with replication.factor: 0"},
		{"two nodes for three masters with copies", func(s *scene) {
			s.observed.Store.Spec.Replication.Factor, s.observed.Store.Spec.Masters.Replicas = new(int32(2)), 3
			third := s.plan.Masters[1]
			third.Name = "box-master-2"
			s.plan.Masters = append(s.plan.Masters, third)
			s.plan.Masters[0].Pod.Node, s.plan.Masters[1].Pod.Node = "a", "b"
			waitsForNode(s, 2)
		}, kstatus.FailedStatus, "2 of 3 have one (0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules). Add a " +
			"node; or set masters.replicas: 2 and replication.factor: 1"},
		{"no room, without copies", func(s *scene) { waitsForNode(s, 1) }, kstatus.FailedStatus, "no node has room for box-master-1"},
		{"a pod that the scheduler has looked at once", func(s *scene) {
			waitsForNode(s, 1)
			s.plan.Masters[1].Pod.CreatedAt = s.observed.Now.Add(-time.Second)
		}, kstatus.InProgressStatus, "1 of 2 masters are up"},
		{"no StorageClass", func(s *scene) {
			withCopies(s)
			waitsForNode(s, 1)
			s.plan.Masters[1].Claim = "box-master-1-copies"
			s.observed.Claims = map[string]facts.Claim{"box-master-1-copies": {Name: "box-master-1-copies", HasNoClass: true}}
		}, kstatus.FailedStatus, "volume claim box-master-1-copies has no StorageClass, because the cluster has no default one. " +
			"Make one the default, and the claim takes it; or delete the Store and its claims (kubectl delete pvc -l " +
			"rcbox.dev/store=box), and make it again with backups.storage.storageClassName or replication.factor: 0"},
		{"a StorageClass that does not exist", func(s *scene) {
			withCopies(s)
			waitsForNode(s, 1)
			s.plan.Masters[1].Claim = "box-master-1-copies"
			s.observed.Claims = map[string]facts.Claim{
				"box-master-1-copies": {Name: "box-master-1-copies", Class: "fsat", ClassMissing: true},
			}
		}, kstatus.FailedStatus, "volume claim box-master-1-copies waits for StorageClass fsat (backups.storage.storageClassName), which " +
			"does not exist. Make one of that name; or delete the Store and its claims (kubectl delete pvc -l rcbox.dev/store=box), " +
			"and make it again with another or replication.factor: 0"},
		{"an image that is nowhere", func(s *scene) {
			s.down(1, 0)
			s.plan.Masters[1].Pod.ImageUnusable, s.plan.Masters[1].Pod.Trouble = true, "image a cannot be pulled: set spec.image"
		}, kstatus.FailedStatus, "box-master-1 does not start: image a cannot be pulled: set spec.image"},
	}
}

// What kubectl wait, Flux and others make of a Store, by the library that they share: kstatus.
func TestReadyAndStalled(t *testing.T) {
	for _, test := range summarizedStates() {
		t.Run(test.name, func(t *testing.T) {
			s := newScene()
			test.change(s)
			store := s.observed.Store.DeepCopy()
			store.APIVersion, store.Kind = v1alpha1.GroupVersion.String(), "Store"
			store.Status = status.Compute(s.observed, s.plan, s.outcome)
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(store)
			if err != nil {
				t.Fatal(err)
			}
			got, err := kstatus.Compute(&unstructured.Unstructured{Object: fields})
			if err != nil {
				t.Fatal(err)
			}
			which := v1alpha1.ConditionReady
			if test.want == kstatus.FailedStatus {
				which = v1alpha1.ConditionStalled
			}
			message := meta.FindStatusCondition(store.Status.Conditions, which).Message
			if got.Status != test.want || !strings.Contains(message, test.says) || len(message) > 300 {
				t.Errorf("kstatus says %s (%s), not %s; %s says %q, not %q", got.Status, got.Message, test.want, which, message, test.says)
			}
			fields["metadata"].(map[string]any)["generation"] = store.Generation + 1
			got, err = kstatus.Compute(&unstructured.Unstructured{Object: fields})
			if err != nil || got.Status != kstatus.InProgressStatus {
				t.Errorf("of a spec that was not seen yet, kstatus says %+v (%v)", got, err)
			}
		})
	}
}

// A label that is on no node is not passed over in silence.
func TestNoFailureDomain(t *testing.T) {
	s := newScene()
	s.observed.Store.Spec.Placement.FailureDomain = "topology.kubernetes.io/zoen"
	s.observed.Store.Spec.Replication.Factor = new(int32(1))
	degraded := func() string {
		got := meta.FindStatusCondition(status.Compute(s.observed, s.plan, s.outcome).Conditions, v1alpha1.ConditionDegraded)
		return got.Reason + ": " + got.Message
	}
	for i := range s.plan.Masters {
		pod := s.plan.Masters[i].Pod
		pod.DomainKnown = true
		pod.Inputs = resources.Inputs{Image: "a", FailureDomain: "topology.kubernetes.io/zoen"}
		pod.Inputs.Replication = &resources.Replication{Factor: 1}
	}
	want := "NoFailureDomain: none of the masters' nodes has the label topology.kubernetes.io/zoen, which placement.failureDomain names"
	if got := degraded(); !strings.HasPrefix(got, want) {
		t.Errorf("Degraded is %s", got)
	}
	s.plan.Masters[1].Pod.Domain = "a"
	if got := degraded(); !strings.HasPrefix(got, v1alpha1.ReasonAsExpected) {
		t.Errorf("with one node that has it, Degraded is %s", got)
	}
	// Without copies, no pod is told its domain: what the nodes' labels say counts.
	s.observed.Store.Spec.Replication.Factor = new(int32(0))
	for i := range s.plan.Masters {
		pod := s.plan.Masters[i].Pod
		pod.DomainKnown, pod.Domain, pod.Inputs.Replication, pod.Node = false, "", nil, "node-"+pod.Name
	}
	if got := degraded(); !strings.HasPrefix(got, v1alpha1.ReasonAsExpected) {
		t.Errorf("with nodes that nobody could read, Degraded is %s", got)
	}
	s.observed.Domains = map[string]string{"node-box-master-0-1": "", "node-box-master-1-1": ""}
	if got := degraded(); !strings.HasPrefix(got, want+": masters are not spread by it") {
		t.Errorf("without copies, Degraded is %s", got)
	}
	s.observed.Domains = map[string]string{"node-box-master-0-1": "a"}
	if got := degraded(); !strings.HasPrefix(got, v1alpha1.ReasonAsExpected) {
		t.Errorf("with one node that has it, Degraded is %s", got)
	}
}
