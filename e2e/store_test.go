package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// readStore with what its StoreMembers say.
func readStore(t *testing.T) v1alpha1.Store {
	t.Helper()
	store, found := get[v1alpha1.Store](t, "store", namespaceOf(t), storeName)
	if !found {
		t.Fatalf("no Store %s", storeName)
	}
	// As the operator has it in memory: all masters in one list, by their numbers.
	store.Status.Masters.Members = nil
	for _, member := range list[v1alpha1.StoreMember](t, "storemembers", namespaceOf(t), "-l", v1alpha1.LabelStore+"="+storeName) {
		if metav1.IsControlledBy(&member, &store) {
			store.Status.Masters.Members = append(store.Status.Masters.Members, v1alpha1.MemberStatus{
				Name: member.Name, MemberFigures: member.Status, MemberRecord: member.Record,
			})
		}
	}
	slices.SortFunc(store.Status.Masters.Members, func(a, b v1alpha1.MemberStatus) int {
		first, _ := v1alpha1.MasterOrdinal(storeName, a.Name)
		second, _ := v1alpha1.MasterOrdinal(storeName, b.Name)
		return cmp.Compare(first, second)
	})
	return store
}

// waitForStore waits until the Store's status is about its present spec and the check finds nothing to complain about.
func waitForStore(t *testing.T, what string, deadline time.Duration, check func(v1alpha1.Store) error) v1alpha1.Store {
	t.Helper()
	var last v1alpha1.Store
	eventually(t, what, deadline, func() error {
		last = readStore(t)
		if last.Status.ObservedGeneration != last.Generation {
			return fmt.Errorf("generation %d is not observed yet", last.Generation)
		}
		return check(last)
	})
	return last
}

// conditionIs checks a condition's status, and its reason unless that is empty.
func conditionIs(store v1alpha1.Store, kind string, status metav1.ConditionStatus, reason string) error {
	condition := meta.FindStatusCondition(store.Status.Conditions, kind)
	if condition == nil {
		return fmt.Errorf("no condition %s", kind)
	}
	if condition.Status != status || reason != "" && condition.Reason != reason {
		return fmt.Errorf("%s=%s, %s: %s", kind, condition.Status, condition.Reason, condition.Message)
	}
	return nil
}

// unchanged checks that every process of before still runs.
func unchanged(t *testing.T, before, after map[string]string) {
	t.Helper()
	kept := maps.Clone(after)
	for member := range kept {
		if _, was := before[member]; !was {
			delete(kept, member)
		}
	}
	if !maps.Equal(before, kept) {
		t.Errorf("a process of the store was restarted:\nbefore %v\nafter  %v", before, kept)
	}
}

func podUIDs(t *testing.T, in string) []string {
	t.Helper()
	var uids []string
	for _, pod := range list[podObject](t, "pods", in) {
		uids = append(uids, pod.Metadata.UID)
	}
	return uids
}

// crash ends a master's process as a fault would, with signal 9 from its node: no handler runs, and Kubernetes is not
// asked. The process is found by the pod's name, which it has in its environment.
func crash(t *testing.T, pod podObject) {
	t.Helper()
	must(t, setting("RCBOX_DOCKER", "docker"), "", "exec", pod.Spec.NodeName, "kill", "-KILL", processOf(t, pod))
}

// processOf is the id that a pod's only process has on its node.
func processOf(t *testing.T, pod podObject) string {
	t.Helper()
	found := must(t, setting("RCBOX_DOCKER", "docker"), "", "exec", pod.Spec.NodeName, "sh", "-c",
		"for p in /proc/[0-9]*; do if tr '\\0' '\\n' < $p/environ 2>/dev/null | grep -qx HOSTNAME="+pod.Metadata.Name+
			"; then echo ${p#/proc/}; fi; done")
	processes := strings.Fields(found)
	if len(processes) != 1 {
		t.Fatalf("pod %s has the processes %v, want one", pod.Metadata.Name, processes)
	}
	return processes[0]
}
