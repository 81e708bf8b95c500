package rcbox_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// joinTokens is the Secret that box hosts mount, and that the box controller writes.
const joinTokens = "rcbox-join-tokens"

// Machines become nodes only if somebody says where they reach the API server. A token's user may ask for certificates, and the box
// controller may make no other Secrets of kube-system than tokens: both also under another name, in another namespace.
func TestJoin(t *testing.T) {
	const option = "--join-api-server="
	arguments := func(objects []unstructured.Unstructured, name string) []string {
		return find[appsv1.Deployment](t, objects, "Deployment", name).Spec.Template.Spec.Containers[0].Args
	}
	if got := arguments(mustRender(t, "--set=box.enabled=true"), "rcbox-box"); slices.ContainsFunc(got, func(argument string) bool {
		return strings.HasPrefix(argument, option)
	}) {
		t.Errorf("by default, its arguments are %v", got)
	}
	const server = "https://192.168.3.254:6443"
	options := []string{"--set=box.enabled=true", "--set=box.join.apiServer=" + server}
	objects := mustRender(t, options...)
	if got := arguments(objects, "rcbox-box"); !slices.Contains(got, option+server) {
		t.Errorf("its arguments are %v", got)
	}
	role := find[rbacv1.ClusterRole](t, objects, "ClusterRole", "rcbox-box-bootstrapper")
	want := []rbacv1.PolicyRule{{
		APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"},
		Verbs: []string{"create", "get", "list", "watch"},
	}}
	if !reflect.DeepEqual(role.Rules, want) {
		t.Errorf("a token is good for %+v", role.Rules)
	}
	binding := find[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", "rcbox-box-bootstrapper")
	subject := binding.Subjects[0]
	if len(binding.Subjects) != 1 || subject.Kind != "Group" || subject.Name != v1alpha1.GroupBootstrappers {
		t.Errorf("the rights of a token are those of %+v", binding.Subjects)
	}
	find[corev1.Secret](t, objects, "Secret", joinTokens)

	others, errs := renderRelease(t, "blue", append(options, "--namespace=metal")...)
	if errs != "" {
		t.Fatal(errs)
	}
	const user = "system:serviceaccount:metal:blue-rcbox-box"
	for _, name := range []string{"blue-rcbox-box-tokens", "blue-rcbox-box-approvals"} {
		policy := find[admissionv1.ValidatingAdmissionPolicy](t, others, "ValidatingAdmissionPolicy", name)
		if !strings.Contains(policy.Spec.MatchConditions[0].Expression, `"`+user+`"`) {
			t.Errorf("%s is for %s", name, policy.Spec.MatchConditions[0].Expression)
		}
	}
	if _, errs := render(t, "--set=box.enabled=true", "--set=box.join.apiServer=http://192.168.3.254"); errs == "" {
		t.Error("a URL without TLS is accepted")
	}
}
