package rcbox_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The box controller is there only if it is asked for, with rights of its own, which are those of config/box.
func TestBox(t *testing.T) {
	for _, object := range mustRender(t) {
		if strings.Contains(object.GetName(), "rcbox-box") || strings.HasPrefix(object.GetName(), "chassis.") {
			t.Errorf("%s %s is there by default", object.GetKind(), object.GetName())
		}
	}
	objects := mustRender(t, "--set=box.enabled=true")
	for _, kind := range []string{"chassis", "servers", "nodefences"} {
		got := find[apiextensionsv1.CustomResourceDefinition](t, objects, "CustomResourceDefinition", kind+".rcbox.dev")
		want := generated[apiextensionsv1.CustomResourceDefinition](t, "crd/box/rcbox.dev_"+kind+".yaml", 0)
		if !reflect.DeepEqual(got.Spec, want.Spec) || got.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("the definition of %s differs from config/crd, or goes with the release", kind)
		}
	}
	role := find[rbacv1.ClusterRole](t, objects, "ClusterRole", "rcbox-box")
	if want := generated[rbacv1.ClusterRole](t, "box/role.yaml", 0); !reflect.DeepEqual(role.Rules, want.Rules) {
		t.Errorf("its rights are %+v, not %+v", role.Rules, want.Rules)
	}
	for _, rule := range role.Rules {
		if slices.Contains(rule.Resources, "secrets") {
			t.Error("it may read Secrets everywhere")
		}
	}
	local := find[rbacv1.Role](t, objects, "Role", "rcbox-box")
	for _, rule := range local.Rules {
		isTokens := slices.Equal(rule.ResourceNames, []string{joinTokens}) && slices.Equal(rule.Verbs, []string{"update"})
		if slices.Contains(rule.Resources, "secrets") && !slices.Equal(rule.Verbs, []string{"get"}) && !isTokens {
			t.Errorf("what it may do with Secrets: %v", rule.Verbs)
		}
	}
	deployment := find[appsv1.Deployment](t, objects, "Deployment", "rcbox-box")
	pod := &deployment.Spec.Template.Spec
	want := generated[appsv1.Deployment](t, "box/box.yaml", 0).Spec.Template.Spec.Containers[0]
	got := pod.Containers[0]
	if pod.ServiceAccountName != "rcbox-box" || !slices.Equal(got.Args, want.Args) || !reflect.DeepEqual(got.Env, want.Env) ||
		!reflect.DeepEqual(got.Ports, want.Ports) {
		t.Errorf("its pod is %+v, not %+v", pod, want)
	}
	policy := find[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", "rcbox-box")
	if len(policy.Spec.Ingress[0].Ports) != len(got.Ports) {
		t.Errorf("its ports are %+v, and those that are let in %+v", got.Ports, policy.Spec.Ingress)
	}
	if _, errs := render(t, "--set=box.enabled=true", "--set=watchNamespaces={team-a}"); !strings.Contains(errs, "the whole cluster's") {
		t.Errorf("in some namespaces only: %s", errs)
	}
}

// The front panel has no authentication: it is off, and where it is on, only the pod itself reaches it.
func TestPanel(t *testing.T) {
	const option = "--panel-bind-address="
	for value, want := range map[string][]string{"false": nil, "true": {option + "127.0.0.1:8090"}} {
		objects := mustRender(t, "--set=box.enabled=true", "--set=box.panel="+value)
		arguments := find[appsv1.Deployment](t, objects, "Deployment", "rcbox-box").Spec.Template.Spec.Containers[0].Args
		got := slices.DeleteFunc(slices.Clone(arguments), func(argument string) bool { return !strings.HasPrefix(argument, option) })
		if !slices.Equal(got, want) {
			t.Errorf("box.panel=%s: arguments are %v", value, arguments)
		}
	}
}

// Consoles are served behind an APIService; who may use them, and who may switch servers, is said by roles that imply nothing else.
func TestConsoles(t *testing.T) {
	objects := mustRender(t, "--set=box.enabled=true")
	role := func(name string) []rbacv1.PolicyRule {
		return find[rbacv1.ClusterRole](t, objects, "ClusterRole", name).Rules
	}
	for i, name := range []string{"viewer", "console", "editor"} {
		got, want := role("rcbox-box-"+name), generated[rbacv1.ClusterRole](t, "box/user_roles.yaml", i)
		if want.Name != "rcbox-box-"+name || !reflect.DeepEqual(got, want.Rules) {
			t.Errorf("%s may do %+v, not %+v", name, got, want.Rules)
		}
		for _, rule := range got {
			isConsole := slices.Contains(rule.Resources, "servers/console")
			isPower := slices.Contains(rule.Resources, "servers/power") || slices.Contains(rule.Resources, "servers/ipmi")
			if isConsole && name != "console" || isPower && name != "editor" {
				t.Errorf("%s has %+v", name, rule)
			}
		}
	}
	for _, name := range []string{"power.servers.rcbox.dev", "power.chassis.rcbox.dev"} {
		find[admissionv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy", name)
		find[admissionv1.ValidatingAdmissionPolicyBinding](t, objects, "ValidatingAdmissionPolicyBinding", name)
	}

	// In a release of another name, all of them find each other.
	const other = "lab-rcbox-box"
	objects, complaint := renderRelease(t, "lab", "--set=box.enabled=true")
	if complaint != "" {
		t.Fatal(complaint)
	}
	container := find[appsv1.Deployment](t, objects, "Deployment", other).Spec.Template.Spec.Containers[0]
	if !slices.Contains(container.Args, "--service="+other) {
		t.Errorf("arguments are %v", container.Args)
	}
	service := find[corev1.Service](t, objects, "Service", other)
	if len(service.Spec.Selector) > 0 || service.Spec.Ports[0].TargetPort.IntVal != 8443 {
		t.Errorf("the Service is %+v", service.Spec)
	}
	for _, object := range objects {
		name, _, _ := unstructured.NestedString(object.Object, "spec", "service", "name")
		if object.GetKind() == "APIService" && name != other {
			t.Errorf("the APIService leads to %s", name)
		}
	}
	for _, rule := range find[rbacv1.Role](t, objects, "Role", other).Rules {
		named := []string{other}
		if slices.Contains(rule.Resources, "configmaps") {
			// There is one box controller in a cluster, and box hosts find these by their names.
			named = []string{"rcbox-boxhost", "rcbox-boxhost-status"}
		}
		if slices.Contains(rule.Resources, "secrets") {
			named = []string{joinTokens}
		}
		if slices.ContainsFunc(rule.ResourceNames, func(name string) bool { return !slices.Contains(named, name) }) {
			t.Errorf("its rights are for %v", rule.ResourceNames)
		}
	}
	if binding := find[rbacv1.RoleBinding](t, objects, "RoleBinding", other+"-authentication-reader"); binding.Namespace != "kube-system" {
		t.Errorf("the binding is in %s", binding.Namespace)
	}
}
