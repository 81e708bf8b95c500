package apiserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/testbed"
)

// TestPodSettings changes what pods are made from: the API server's own admission decides what is refused, and nothing that runs is
// restarted for a pod that is.
func TestPodSettings(t *testing.T) {
	cluster := testbed.Start(t, testbed.Options{NodesPerChassis: []int{4}, Heartbeat: 5 * time.Second})
	b := &bed{T: t, Cluster: cluster, program: testbed.BuildOperator(t)}
	b.operator = cluster.StartOperator(b.program)
	b.must(b.create("pods", map[string]any{
		"masters":     map[string]any{"replicas": int64(3), "resources": map[string]any{"requests": map[string]any{"cpu": "100m"}}},
		"replication": map[string]any{"factor": int64(2)},
	}))
	b.settled("pods")
	b.condition("pods", v1alpha1.ConditionDataSafe, v1alpha1.ReasonReplicated)
	b.Stores.Get("pods").Tablets(2)
	b.aQuotaThatIsFull()
	b.aQuotaThatIsTooSmall()
	b.aClassThatIsMissing()
	b.overlays()
}

// setPods changes the settings of masters' pods, or other fields of masters.
func (b *bed) setMasters(fields map[string]any) {
	b.Helper()
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"masters": fields}})
	b.must(err)
	b.must(b.Client.Patch(b.Context(), b.Store("pods"), client.RawPatch(types.MergePatchType, text)))
}

// rolled waits until all masters have other pods than before.
func (b *bed) rolled(before map[string]*corev1.Pod) map[string]*corev1.Pod {
	b.Helper()
	b.Eventually(patience, func() string {
		now := b.Pods("pods")
		for member, pod := range before {
			if pod.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentMaster && (now[member] == nil || now[member].UID == pod.UID) {
				progressing := meta.FindStatusCondition(b.Store("pods").Status.Conditions, v1alpha1.ConditionProgressing)
				return fmt.Sprintf("%s has no other pod: %+v", member, progressing)
			}
		}
		return ""
	})
	b.settled("pods")
	return b.Pods("pods")
}

// refused waits until the operator says that the API server refuses pods, in these words, and sees to it that none was ended.
func (b *bed) refused(before map[string]*corev1.Pod, reason string, says ...string) {
	b.Helper()
	b.condition("pods", v1alpha1.ConditionProgressing, reason)
	message := meta.FindStatusCondition(b.Store("pods").Status.Conditions, v1alpha1.ConditionProgressing).Message
	for _, part := range says {
		if !strings.Contains(message, part) || len(message) > 300 {
			b.Errorf("it says %q, and not %q", message, part)
		}
	}
	for member, pod := range b.Pods("pods") {
		if before[member] == nil || before[member].UID != pod.UID {
			b.Errorf("%s has another pod, %s", member, pod.Name)
		}
	}
}

func (b *bed) quota(name string, hard corev1.ResourceList) *corev1.ResourceQuota {
	b.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}}
	quota.Spec.Hard = hard
	b.must(b.Client.Create(b.Context(), quota))
	b.Eventually(patience, func() string {
		if !b.Get(quota, metav1.NamespaceDefault, name) || len(quota.Status.Used) != len(hard) {
			return fmt.Sprintf("the quota is %+v", quota.Status)
		}
		return ""
	})
	return quota
}

// aQuotaThatIsFull has no room for one more pod, and none is needed: a pod goes before the next one comes.
func (b *bed) aQuotaThatIsFull() {
	b.Helper()
	before := b.Pods("pods")
	requests := resource.MustParse("0")
	for _, pod := range before {
		requests.Add(*pod.Spec.Containers[0].Resources.Requests.Cpu())
	}
	quota := b.quota("full", corev1.ResourceList{
		corev1.ResourcePods: *resource.NewQuantity(int64(len(before)), resource.DecimalSI), corev1.ResourceRequestsCPU: requests,
	})
	b.setMasters(map[string]any{"pod": map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": "shop"}}}})
	for member, pod := range b.rolled(before) {
		if isMaster := strings.Contains(member, "-master-"); isMaster != (pod.Labels["team"] == "shop") {
			b.Errorf("%s has the labels %v", member, pod.Labels)
		}
	}
	b.must(b.Client.Delete(b.Context(), quota))
}

// aQuotaThatIsTooSmall has no room for larger pods, also when one has gone.
func (b *bed) aQuotaThatIsTooSmall() {
	b.Helper()
	before := b.Pods("pods")
	limits := resource.MustParse("0")
	for _, pod := range before {
		limits.Add(*pod.Spec.Containers[0].Resources.Limits.Memory())
	}
	quota := b.quota("small", corev1.ResourceList{corev1.ResourceLimitsMemory: limits})
	b.setMasters(map[string]any{"memory": "1280Mi"})
	b.refused(before, v1alpha1.ReasonPodRefused, "pods-master-0 keeps its pod", "exceeded quota: small", "limits.memory=1280Mi")
	b.must(b.Client.Delete(b.Context(), quota))
	b.rolled(before)
}

func (b *bed) aClassThatIsMissing() {
	b.Helper()
	before := b.Pods("pods")
	b.setMasters(map[string]any{"pod": map[string]any{"runtimeClassName": "missing"}})
	b.refused(before, v1alpha1.ReasonPodRefused, "pods-master-0 keeps its pod", `RuntimeClass "missing" not found`)
	b.condition("pods", v1alpha1.ConditionStalled, v1alpha1.ReasonPodRefused)
	b.setMasters(map[string]any{"pod": map[string]any{"runtimeClassName": nil}})
	b.settled("pods")
	for member, pod := range b.Pods("pods") {
		if before[member].UID != pod.UID {
			b.Errorf("%s has another pod, %s", member, pod.Name)
		}
	}
}

// overlays: the installation has to allow them, and they change nothing that is the operator's.
func (b *bed) overlays() {
	b.Helper()
	before := b.Pods("pods")
	setOverlay := func(overlay map[string]any) {
		b.Helper()
		b.setMasters(map[string]any{"pod": map[string]any{"overlay": overlay}})
	}
	agent := map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "agent", "image": "agent:1"}}, "hostAliases": []any{map[string]any{"ip": "10.0.0.1"}},
	}}
	setOverlay(agent)
	b.refused(before, v1alpha1.ReasonNotAllowed, "spec.masters.pod.overlay", "allow.overlays")
	b.operator.Terminate()
	b.operator = b.StartOperator(b.program, "--allow-overlays")
	for member, pod := range b.rolled(before) {
		if !strings.Contains(member, "-master-") {
			continue
		}
		containers := pod.Spec.Containers
		if len(containers) != 2 || containers[0].Name != "master" || containers[1].Name != "agent" || len(pod.Spec.HostAliases) != 1 {
			b.Errorf("%s has %+v", member, pod.Spec)
		}
	}
	before = b.Pods("pods")
	agent["spec"].(map[string]any)["hostNetwork"] = true
	setOverlay(agent)
	b.refused(before, v1alpha1.ReasonNotAllowed, "spec.hostNetwork must not be changed")
	setOverlay(nil)
	for member, pod := range b.rolled(before) {
		if len(pod.Spec.Containers) != 1 {
			b.Errorf("%s has %+v", member, pod.Spec.Containers)
		}
	}
}
