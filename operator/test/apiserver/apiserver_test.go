// Package apiserver_test runs the operator's real program, with the rights of config/rbac, against a real kube-apiserver, etcd, scheduler
// and controller manager. Nodes are kwok's; volumes and the stores' processes are stand-ins (package testbed): no container runs, no data
// is held.
package apiserver_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/testbed"
)

// patience is far beyond what anything here takes.
const patience = 2 * time.Minute

// bed is what the subtests share, one after the other; each has Stores of its own.
type bed struct {
	*testing.T
	*testbed.Cluster

	program  string
	operator *testbed.Operator
}

func TestOperator(t *testing.T) {
	cluster := testbed.Start(t, testbed.Options{NodesPerChassis: []int{2, 2, 2}, Heartbeat: 5 * time.Second})
	b := &bed{T: t, Cluster: cluster, program: testbed.BuildOperator(t)}
	b.operator = cluster.StartOperator(b.program)
	for _, test := range []struct {
		name string
		run  func(*bed)
	}{
		{"the schema's defaults and rules", schema},
		{"a Store comes to what its spec says", asSpecified},
		{"copies are on nodes of their own, in all chassis", replicated},
		{"what somebody changed is put back, what he added stays", drift},
		{"an object of somebody else is not touched", nameTaken},
		{"a pod that is deleted comes back under another name", podDeleted},
		{"writes of others at the same time", conflicts},
		{"scaling by the subresource", scaled},
		{"the operator is killed at any moment", killed},
		{"orders by annotation are carried over", ordersAreCarriedOver},
		{"a table is split by order", tablesAreSplit},
		{"orders take rights of their own", ordersTakeRights},
		{"nothing is written while nothing happens", steady},
		{"a Store that is deleted takes everything along but its volumes", deleted},
		{"pods with addresses get nodes when these are on record", ungated},
		{"a namespace is deleted with its Stores", namespaceDeleted},
		{"two operators do not manage one Store", twoOperators},
		{"copies by default, on one, two and three nodes", copiesByDefault},
		{"a namespace is deleted after the operator was uninstalled, with one command", withoutOperator},
		{"the operator's own namespace is deleted with its Stores", namespaceOfOperator}, // the last: it takes the operator along
	} {
		if !t.Run(test.name, func(t *testing.T) {
			mine := &bed{T: t, Cluster: cluster, program: b.program, operator: b.operator}
			test.run(mine)
			b.operator = mine.operator // some end the operator and start another
		}) {
			return // what follows finds the cluster as this one has left it
		}
	}
}

func (b *bed) create(name string, spec map[string]any) error {
	return b.Client.Create(b.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Store",
		"metadata": map[string]any{"name": name, "namespace": metav1.NamespaceDefault}, "spec": spec,
	}})
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) newStore(name string, masters int64) {
	b.Helper()
	b.must(b.create(name, map[string]any{
		"masters": map[string]any{"replicas": masters}, "replication": map[string]any{"factor": int64(0)},
	}))
}

// settled waits until the operator says of the present spec that everything is as it says.
func (b *bed) settled(name string) *v1alpha1.Store {
	b.Helper()
	var store *v1alpha1.Store
	b.Eventually(patience, func() string {
		store = b.Store(name)
		if store.Status.ObservedGeneration != store.Generation {
			return "the present spec was not seen yet"
		}
		for condition, status := range map[string]metav1.ConditionStatus{
			v1alpha1.ConditionAvailable: metav1.ConditionTrue, v1alpha1.ConditionProgressing: metav1.ConditionFalse,
		} {
			if got := meta.FindStatusCondition(store.Status.Conditions, condition); got == nil || got.Status != status {
				return fmt.Sprintf("%s is %+v", condition, got)
			}
		}
		return ""
	})
	return store
}

func (b *bed) condition(name, condition, reason string) {
	b.Helper()
	b.Eventually(patience, func() string {
		got := meta.FindStatusCondition(b.Store(name).Status.Conditions, condition)
		if got == nil || got.Reason != reason {
			return fmt.Sprintf("%s is %+v, not %s", condition, got, reason)
		}
		return ""
	})
}

func schema(b *bed) {
	b.must(b.create("defaults", map[string]any{}))
	store := b.Store("defaults")
	if store.Spec.Masters.Replicas != 3 || store.Spec.Masters.Memory.String() != "1Gi" || store.Spec.Recovery.RescheduleAfter != "5m" {
		b.Errorf("defaults: %+v", store.Spec)
	}
	b.must(b.Client.Delete(b.Context(), store))
	for _, test := range []struct {
		spec map[string]any
		says string
	}{
		{map[string]any{"masters": map[string]any{"replicas": int64(0)}}, "greater than or equal to 1"},
		{
			map[string]any{"masters": map[string]any{"replicas": int64(2)}, "replication": map[string]any{"factor": int64(2)}},
			"masters.replicas must be greater",
		},
		{map[string]any{"masters": map[string]any{"memory": "1GB"}}, "masters.memory must be an amount of bytes such as 1Gi"},
		{
			map[string]any{"recovery": map[string]any{"drill": map[string]any{"schedule": "@daily", "timeZone": "Mars/Phobos"}}},
			"recovery.drill.timeZone must be the name of a time zone",
		},
		{map[string]any{"recovery": map[string]any{"rescheduleAfter": "soon"}}, "rescheduleAfter must be"},
	} {
		if err := b.create("refused", test.spec); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.says) {
			b.Errorf("%v: %v, which does not say %q", test.spec, err, test.says)
		}
	}
}

// ungated: the scheduler minds the gate, and the API server takes the patch that opens it. Nobody attaches ports here.
func ungated(b *bed) {
	b.must(b.create("ported", map[string]any{
		"masters": map[string]any{"replicas": int64(2)}, "replication": map[string]any{"factor": int64(0)},
		"network": map[string]any{
			"transport": "FastUDP", "provider": "DevicePlugin", "profile": "Interface",
			"attachments": []any{map[string]any{
				"networkAttachmentDefinition": "a", "addresses": map[string]any{"cidr": "10.0.0.0/24"},
			}},
		},
	}))
	store := b.settled("ported")
	pods := b.Pods("ported")
	for i := range store.Status.Masters.Members {
		member := &store.Status.Masters.Members[i]
		pod := pods[member.Name]
		if pod == nil || pod.Spec.NodeName == "" || len(pod.Spec.SchedulingGates) > 0 {
			b.Errorf("the pod of %s is %+v", member.Name, pod)
			continue
		}
		if len(member.Addresses) != 1 || member.Addresses[0].Pod != pod.Name ||
			pod.Annotations[v1alpha1.AnnotationAddresses] != member.Addresses[0].IP {
			b.Errorf("on record are %+v, pod %s has %v", member.Addresses, pod.Name, pod.Annotations)
		}
	}
}

func asSpecified(b *bed) {
	b.newStore("box", 3)
	store := b.settled("box")
	if !slices.Contains(store.Finalizers, v1alpha1.Finalizer) || store.Status.Masters.Ready != 3 {
		b.Errorf("finalizers %v, %d masters are ready", store.Finalizers, store.Status.Masters.Ready)
	}
	for member, pod := range b.Pods("box") {
		if !metav1.IsControlledBy(pod, store) {
			b.Errorf("%s is owned by %+v", member, pod.OwnerReferences)
		}
		isApplied := func(f metav1.ManagedFieldsEntry) bool {
			return f.Manager == "rcbox-operator" && f.Operation == metav1.ManagedFieldsOperationApply
		}
		if !slices.ContainsFunc(pod.ManagedFields, isApplied) {
			b.Errorf("%s was not made by server-side apply: %+v", member, pod.ManagedFields)
		}
	}
	// A coordinator gets rights of its own, which the API server lets only those give who have them.
	if !b.Get(&rbacv1.Role{}, metav1.NamespaceDefault, "box-coordinator") {
		b.Error("the coordinator has no Role")
	}
}

func replicated(b *bed) {
	b.must(b.create("copies", map[string]any{
		"masters":     map[string]any{"replicas": int64(6)},
		"replication": map[string]any{"factor": int64(2)},
		"placement":   map[string]any{"failureDomain": testbed.LabelChassis},
	}))
	b.settled("copies")
	b.condition("copies", v1alpha1.ConditionDataSafe, v1alpha1.ReasonReplicated)
	nodes, domains := map[string]bool{}, map[string]int{}
	for member, pod := range b.Pods("copies") {
		if pod.Labels[v1alpha1.LabelComponent] != v1alpha1.ComponentMaster {
			continue
		}
		nodes[pod.Spec.NodeName] = true
		domains[pod.Annotations[v1alpha1.AnnotationDomain]]++
		if node := (&corev1.Node{}); !b.Get(node, "", pod.Spec.NodeName) ||
			node.Labels[testbed.LabelChassis] != pod.Annotations[v1alpha1.AnnotationDomain] {
			b.Errorf("%s was told that it is in %q", member, pod.Annotations[v1alpha1.AnnotationDomain])
		}
	}
	if len(nodes) != 6 || len(domains) != 3 {
		b.Errorf("masters are on the nodes %v, in %v", nodes, domains)
	}
}

func drift(b *bed) {
	service := &corev1.Service{}
	if !b.Get(service, metav1.NamespaceDefault, "box") {
		b.Fatal("there is no Service box")
	}
	wanted := service.Spec.Ports[0].Port
	patch := fmt.Sprintf(`{"metadata":{"labels":{"of":"somebody"}},"spec":{"ports":[{"name":%q,"port":%d,"protocol":"TCP"}]}}`,
		service.Spec.Ports[0].Name, wanted+1)
	b.must(b.Client.Patch(b.Context(), service, client.RawPatch(types.MergePatchType, []byte(patch))))
	b.Eventually(patience, func() string {
		b.Get(service, metav1.NamespaceDefault, "box")
		if len(service.Spec.Ports) == 0 || service.Spec.Ports[0].Port != wanted {
			return fmt.Sprintf("the ports are %+v", service.Spec.Ports)
		}
		return ""
	})
	if service.Labels["of"] != "somebody" {
		b.Errorf("the labels are %v", service.Labels)
	}
}

func nameTaken(b *bed) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "taken", Namespace: metav1.NamespaceDefault},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	b.must(b.Client.Create(b.Context(), service))
	b.newStore("taken", 1)
	b.condition("taken", v1alpha1.ConditionProgressing, v1alpha1.ReasonNameTaken)
	after := &corev1.Service{}
	if b.Get(after, metav1.NamespaceDefault, "taken"); after.ResourceVersion != service.ResourceVersion {
		b.Errorf("the Service was changed: %+v", after)
	}
	b.must(b.Client.Delete(b.Context(), service))
	b.settled("taken")
	b.must(b.Client.Delete(b.Context(), b.Store("taken")))
}

func podDeleted(b *bed) {
	before := b.Pods("box")["box-master-1"]
	b.must(b.Client.Delete(b.Context(), before))
	b.Eventually(patience, func() string {
		if after := b.Pods("box")["box-master-1"]; after == nil || after.Name == before.Name {
			return "it has no other pod"
		}
		return ""
	})
	b.settled("box")
}

// conflicts: the status is written with the resource version that was seen, and somebody else writes all the time.
func conflicts(b *bed) {
	b.Change("box", func(store *v1alpha1.Store) { store.Spec.Masters.Replicas = 5 })
	const writes = 200
	for i := range writes {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"of-somebody":"%d"}}}`, i)
		b.must(b.Client.Patch(b.Context(), b.Store("box"), client.RawPatch(types.MergePatchType, patch)))
	}
	if store := b.settled("box"); store.Status.Masters.Ready != 5 || store.Annotations["of-somebody"] != "199" {
		b.Errorf("%d masters are ready, annotations %v", store.Status.Masters.Ready, store.Annotations)
	}
}

func scaled(b *bed) {
	scale := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{"replicas": int64(2)},
		"metadata": map[string]any{"name": "box", "namespace": metav1.NamespaceDefault},
	}}
	b.Stores.Get("box").Tablets(0)
	b.must(b.Client.SubResource("scale").Update(b.Context(), b.Store("box"), client.WithSubResourceBody(scale)))
	b.Eventually(patience, func() string {
		if pods := b.Pods("box"); len(pods) != 3 {
			return fmt.Sprintf("there are pods of %v", slices.Sorted(maps.Keys(pods)))
		}
		return ""
	})
	b.settled("box")
	if removed := b.Stores.Get("box").Coordinator.Removed(); len(removed) != 3 {
		b.Errorf("the coordinator was asked to let go: %v", removed)
	}
}

// killed: the operator ends between any two of its writes, three times, and is started again.
func killed(b *bed) {
	names := map[types.UID]string{}
	b.newStore("often", 6)
	for kill := range 3 {
		// After a few more pods each time, whatever it is about then.
		b.Eventually(patience, func() string {
			if pods := b.Pods("often"); len(pods) < 2*kill+1 {
				return fmt.Sprintf("there are pods of %v", slices.Sorted(maps.Keys(pods)))
			}
			return ""
		})
		b.operator.Kill()
		if kill == 0 {
			b.must(b.Client.Delete(b.Context(), b.Pods("often")[v1alpha1.CoordinatorMember("often")]))
		}
		b.operator = b.StartOperator(b.program)
	}
	b.settled("often")
	list := &corev1.PodList{}
	b.must(b.Client.List(b.Context(), list, client.MatchingLabels{v1alpha1.LabelStore: "often"}))
	members := map[string]int{}
	for i := range list.Items {
		pod := &list.Items[i]
		names[pod.UID] = pod.Name
		if pod.DeletionTimestamp == nil {
			members[pod.Labels[v1alpha1.LabelMember]]++
		}
	}
	if len(members) != 7 || slices.Max(slices.Collect(maps.Values(members))) != 1 {
		b.Errorf("pods by member: %v (%v)", members, names)
	}
	b.must(b.Client.Delete(b.Context(), b.Store("often")))
}

// steady counts what the API server was asked for: from when the last Store has settled, nothing but the operator's Lease is written.
func steady(b *bed) {
	b.Eventually(patience, func() string {
		list := &corev1.PodList{}
		b.must(b.Client.List(b.Context(), list))
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp != nil {
				return list.Items[i].Name + " is ending"
			}
		}
		stores := &v1alpha1.StoreList{}
		b.must(b.Client.List(b.Context(), stores))
		if len(stores.Items) != 2 {
			return fmt.Sprintf("there are %d Stores", len(stores.Items))
		}
		return ""
	})
	const quiet = 15 * time.Second
	b.Eventually(patience, func() string {
		to := time.Now()
		if writes := b.Calls.WritesBut(to.Add(-quiet), to, "leases"); len(writes) > 0 {
			return fmt.Sprintf("in %s it wrote %v", quiet, writes)
		}
		return ""
	})
	// A Store's Lease is applied by a patch: what is applied for the second time must count as the same.
	for _, verb := range []string{"patch", "create"} {
		if again := b.Calls.Count(time.Now().Add(-quiet), time.Now())[testbed.Call{Verb: verb, Resource: "leases"}]; again > 0 {
			b.Errorf("in %s it applied Leases %d times (%s)", quiet, again, verb)
		}
	}
	const looks = 2 * 2 // of two Stores, each noted every 15 seconds
	if noted := b.Calls.Count(time.Now().Add(-quiet), time.Now())[testbed.Call{Verb: "patch", Resource: testbed.Looks}]; noted > looks {
		b.Errorf("in %s it noted %d looks", quiet, noted)
	}
	if leases := b.Calls.Count(time.Now().Add(-quiet), time.Now())[testbed.Call{Verb: "update", Resource: "leases"}]; leases == 0 {
		b.Error("nor did it renew its Lease: it does not run, or its calls are not counted")
	}
}

func deleted(b *bed) {
	for _, name := range []string{"box", "copies"} {
		b.must(b.Client.Delete(b.Context(), b.Store(name)))
		b.Eventually(patience, func() string {
			if b.Get(&v1alpha1.Store{}, metav1.NamespaceDefault, name) {
				return "it is still there"
			}
			return ""
		})
		if pods := b.Pods(name); len(pods) != 0 {
			b.Errorf("of %s there are pods of %v", name, slices.Sorted(maps.Keys(pods)))
		}
		// The garbage collector's.
		b.Eventually(patience, func() string {
			if b.Get(&corev1.Service{}, metav1.NamespaceDefault, name) {
				return "its Service is still there"
			}
			return ""
		})
	}
	claims := &corev1.PersistentVolumeClaimList{}
	b.must(b.Client.List(b.Context(), claims, client.MatchingLabels{v1alpha1.LabelStore: "copies"}))
	if len(claims.Items) != 6 {
		b.Errorf("%d volume claims were kept, not 6", len(claims.Items))
	}
}
