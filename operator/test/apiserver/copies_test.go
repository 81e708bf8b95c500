package apiserver_test

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/testbed"
)

// copiesByDefault: a short spec on clusters of one, two and three nodes, the last also without a default StorageClass. Nodes are kept apart
// by a label; what the message asks for is done, and the Store comes to be.
func copiesByDefault(b *bed) {
	const label = "rcbox.dev/few"
	nodes := []string{testbed.NodeName(0, 0), testbed.NodeName(1, 0), testbed.NodeName(2, 0)}
	labelNode := func(name string) {
		node := &corev1.Node{}
		node.Name = name
		b.must(b.Client.Patch(b.Context(), node, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"labels":{%q:"true"}}}`, label))))
	}
	create := func(name string, masters int64) {
		b.must(b.create(name, map[string]any{
			"masters":   map[string]any{"replicas": masters, "resources": map[string]any{"requests": map[string]any{"cpu": "100m"}}},
			"placement": map[string]any{"nodeSelector": map[string]any{label: "true"}},
		}))
	}
	waitFor := func(name, reason string, says ...string) {
		b.Helper()
		since := time.Now()
		b.condition(name, v1alpha1.ConditionProgressing, reason)
		b.condition(name, v1alpha1.ConditionStalled, reason)
		b.Logf("%s says %s after %s", name, reason, time.Since(since).Round(time.Millisecond))
		message := meta.FindStatusCondition(b.Store(name).Status.Conditions, v1alpha1.ConditionProgressing).Message
		for _, part := range says {
			if !strings.Contains(message, part) || len(message) > 300 {
				b.Errorf("%s says %q, and not %q", name, message, part)
			}
		}
	}
	defaultClass := func(is string) {
		class := &storagev1.StorageClass{}
		class.Name = testbed.StorageClass
		b.must(b.Client.Patch(b.Context(), class, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":%q}}}`, is))))
	}

	labelNode(nodes[0])
	create("few", 3)
	waitFor("few", v1alpha1.ReasonTooFewNodes, "1 of 3 have one", "Add a node", "replication.factor: 0")
	decided := b.Store("few").Status.Replication.Decided
	if decided == nil || decided.Factor != 2 || decided.StorageSize.String() != "4Gi" {
		b.Errorf("decided was %+v", decided)
	}
	labelNode(nodes[1])
	b.Eventually(patience, func() string {
		message := meta.FindStatusCondition(b.Store("few").Status.Conditions, v1alpha1.ConditionProgressing).Message
		if !strings.Contains(message, "set masters.replicas: 2 and replication.factor: 1") {
			return message
		}
		return ""
	})
	labelNode(nodes[2])
	b.settled("few")
	b.condition("few", v1alpha1.ConditionReady, v1alpha1.ReasonServing)
	b.must(b.Client.Delete(b.Context(), b.Store("few")))

	defaultClass("false")
	create("classless", 3)
	waitFor("classless", v1alpha1.ReasonNoStorageClass, "no default one", "backups.storage.storageClassName")
	defaultClass("true") // Kubernetes gives it to the claims that wait
	b.settled("classless")
	defaultClass("false")
	b.goesWithItsClaims("classless")
	b.must(b.create("classless", map[string]any{
		"masters": map[string]any{"replicas": int64(3)},
		"backups": map[string]any{"storage": map[string]any{"storageClassName": testbed.StorageClass}},
	}))
	b.settled("classless")
	b.condition("classless", v1alpha1.ConditionDataSafe, v1alpha1.ReasonReplicated)
	b.must(b.Client.Delete(b.Context(), b.Store("classless")))

	b.must(b.create("mistyped", map[string]any{
		"masters": map[string]any{"replicas": int64(3)},
		"backups": map[string]any{"storage": map[string]any{"storageClassName": "mistyped"}},
	}))
	waitFor("mistyped", v1alpha1.ReasonNoStorageClass, "StorageClass mistyped (backups.storage.storageClassName), which does not exist")
	b.must(b.Client.Delete(b.Context(), b.Store("mistyped")))
	defaultClass("true")
	b.mistypedDomain()
}

// goesWithItsClaims deletes a Store and what outlives it.
func (b *bed) goesWithItsClaims(name string) {
	b.Helper()
	b.must(b.Client.Delete(b.Context(), b.Store(name)))
	b.Eventually(patience, func() string {
		if b.Get(&v1alpha1.Store{}, metav1.NamespaceDefault, name) {
			return "it is still there"
		}
		return ""
	})
	b.must(b.Client.DeleteAllOf(b.Context(), &corev1.PersistentVolumeClaim{}, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{v1alpha1.LabelStore: name}))
}

// mistypedDomain: a label that no node has is told of also where there are no copies, and no pod needs it.
func (b *bed) mistypedDomain() {
	b.Helper()
	b.must(b.create("mistyped-domain", map[string]any{
		"masters":     map[string]any{"replicas": int64(2)},
		"replication": map[string]any{"factor": int64(0)},
		"placement":   map[string]any{"failureDomain": testbed.LabelChassis + "is"},
	}))
	b.condition("mistyped-domain", v1alpha1.ConditionDegraded, v1alpha1.ReasonNoFailureDomain)
	b.must(b.Client.Delete(b.Context(), b.Store("mistyped-domain")))
}
