package apiserver_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/testbed"
)

// withPorts is a Store all of whose kinds of finalizers there are: its own, that of pods with addresses, and that of its coordinator's
// state.
var withPorts = map[string]any{
	"masters":     map[string]any{"replicas": int64(2)},
	"replication": map[string]any{"factor": int64(0)}, // with copies, pods may take minutes to end, and Kubernetes waits for half of that
	"network": map[string]any{
		"transport": "FastUDP", "provider": "DevicePlugin", "profile": "Interface",
		"attachments": []any{map[string]any{
			"networkAttachmentDefinition": "a", "addresses": map[string]any{"cidr": "10.1.0.0/24"},
		}},
	},
}

// newStoreIn makes a Store in a namespace, and what its coordinator would: a stand-in keeps no state.
func (b *bed) newStoreIn(namespace, name string) {
	b.Helper()
	b.must(b.Client.Create(b.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Store",
		"metadata": map[string]any{"name": name, "namespace": namespace}, "spec": withPorts,
	}}))
	b.must(b.Client.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.StateRoot(name), Namespace: namespace, Finalizers: []string{v1alpha1.FinalizerState},
		Labels: map[string]string{v1alpha1.LabelStore: name, v1alpha1.LabelState: "root"},
	}}))
	b.Eventually(patience, func() string {
		store := &v1alpha1.Store{}
		b.Get(store, namespace, name)
		if !meta.IsStatusConditionTrue(store.Status.Conditions, v1alpha1.ConditionAvailable) {
			return fmt.Sprintf("Store %s/%s is %+v", namespace, name, store.Status.Conditions)
		}
		return ""
	})
}

func (b *bed) newNamespace(name string) {
	b.Helper()
	b.must(b.Client.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (b *bed) deleteNamespace(name string) {
	b.Helper()
	b.must(b.Client.Delete(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// namespaceGoes waits until there is no such namespace any more. Kubernetes looks at it again only after half of its pods' longest grace
// period.
func (b *bed) namespaceGoes(name string) {
	b.Helper()
	b.Eventually(3*patience, func() string {
		namespace := &corev1.Namespace{}
		if !b.Get(namespace, "", name) {
			return ""
		}
		pods, stores := &corev1.PodList{}, &v1alpha1.StoreList{}
		b.must(b.Client.List(b.Context(), pods, client.InNamespace(name)))
		b.must(b.Client.List(b.Context(), stores, client.InNamespace(name)))
		return fmt.Sprintf("namespace %s is still there, with %d pods and %d Stores: %+v",
			name, len(pods.Items), len(stores.Items), namespace.Status.Conditions)
	})
}

// namespaceDeleted: with the default reclaimPolicy, and the operator elsewhere.
func namespaceDeleted(b *bed) {
	b.newNamespace("team-a")
	b.newStoreIn("team-a", "goes")
	b.deleteNamespace("team-a")
	b.namespaceGoes("team-a")
}

// withoutOperator: it was uninstalled, and the definitions stayed.
func withoutOperator(b *bed) {
	b.newNamespace("team-b")
	b.newStoreIn("team-b", "left")
	b.operator.Kill()
	b.deleteNamespace("team-b")
	b.Eventually(patience, func() string {
		pods := &corev1.PodList{}
		b.must(b.Client.List(b.Context(), pods, client.InNamespace("team-b")))
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.DeletionTimestamp == nil || !slices.Contains(pod.Finalizers, v1alpha1.FinalizerAddresses) {
				return fmt.Sprintf("pod %s is not kept by its finalizer alone", pod.Name)
			}
		}
		return ""
	})
	if !b.Get(&v1alpha1.Store{}, "team-b", "left") {
		b.Fatal("the Store has gone without its operator")
	}
	command := exec.CommandContext(b.Context(), testbed.Build(b.T, "kubectl-rcbox"),
		"unmanage", "--all-namespaces", "--kubeconfig", b.AdminKubeconfig())
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "Store team-b/left: released") {
		b.Fatalf("kubectl rcbox unmanage: %v\n%s", err, output)
	}
	b.namespaceGoes("team-b")
	b.operator = b.StartOperator(b.program)
}

// namespaceOfOperator is the last that happens to this cluster: the operator's own namespace is deleted, with a Store in it. The test is
// the kubelet of the operator's pod.
func namespaceOfOperator(b *bed) {
	b.newStoreIn(testbed.OperatorNamespace, "inside")
	grace, yes, no := int64(30), true, false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "rcbox-operator-0", Namespace: testbed.OperatorNamespace},
		Spec: corev1.PodSpec{
			NodeName: "a-node-of-the-test", TerminationGracePeriodSeconds: &grace,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "manager", Image: "stand-in", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
	b.must(b.Client.Create(b.Context(), pod))
	b.deleteNamespace(testbed.OperatorNamespace)
	b.Eventually(patience, func() string {
		if !b.Get(pod, pod.Namespace, pod.Name) {
			b.Fatal("the operator's pod has gone before its process was told to end")
		}
		if pod.DeletionTimestamp == nil {
			return "the operator's pod was not told to end"
		}
		return ""
	})
	b.operator.Terminate()
	now := int64(0)
	b.must(client.IgnoreNotFound(b.Client.Delete(b.Context(), pod, &client.DeleteOptions{GracePeriodSeconds: &now})))
	b.namespaceGoes(testbed.OperatorNamespace)
}
