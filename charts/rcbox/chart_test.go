// Package rcbox_test renders the chart with Helm and looks at what comes out.
package rcbox_test

import (
	"bytes"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// The least version that the chart takes.
const kubeVersion = "1.31.0"

// helm is $RCBOX_HELM, or what hack/tool.sh gives (and builds, the first time).
func helm(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("RCBOX_HELM"); path != "" {
		return path
	}
	path, err := exec.CommandContext(t.Context(), "../../hack/tool.sh", "helm").Output()
	if err != nil {
		t.Fatalf("get helm: %v", err)
	}
	return strings.TrimSpace(string(path))
}

// render gives the chart's objects, or Helm's complaint.
func render(t *testing.T, options ...string) ([]unstructured.Unstructured, string) {
	t.Helper()
	return renderRelease(t, "rcbox", options...)
}

func renderRelease(t *testing.T, release string, options ...string) ([]unstructured.Unstructured, string) {
	t.Helper()
	arguments := append([]string{"template", release, ".", "--namespace", "rcbox-system", "--kube-version", kubeVersion}, options...)
	command := exec.CommandContext(t.Context(), helm(t), arguments...)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	text, err := command.Output()
	if err != nil {
		return nil, complaint.String()
	}
	var objects []unstructured.Unstructured
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if object.Object != nil {
			objects = append(objects, object)
		}
	}
	return objects, ""
}

func mustRender(t *testing.T, options ...string) []unstructured.Unstructured {
	t.Helper()
	objects, complaint := render(t, options...)
	if complaint != "" {
		t.Fatal(complaint)
	}
	return objects
}

// find converts the only object of a kind and name.
func find[T any](t *testing.T, objects []unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			typed := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			return typed
		}
	}
	t.Fatalf("the chart has no %s %s", kind, name)
	return nil
}

func kinds(objects []unstructured.Unstructured) []string {
	var list []string
	for _, object := range objects {
		list = append(list, object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
	}
	slices.Sort(list)
	return list
}

// generated reads a document of a generated file in config.
func generated[T any](t *testing.T, file string, document int) *T {
	t.Helper()
	text, err := os.ReadFile("../../config/" + file)
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(strings.TrimPrefix(string(text), "---\n"), "\n---\n")
	typed := new(T)
	if err := yaml.UnmarshalStrict([]byte(documents[document]), typed); err != nil {
		t.Fatal(err)
	}
	return typed
}

func TestSameSourceAsConfig(t *testing.T) {
	objects := mustRender(t)
	for _, kind := range []string{"stores", "storemembers", "clusterperfs", "storeoperations"} {
		crd := find[apiextensionsv1.CustomResourceDefinition](t, objects, "CustomResourceDefinition", kind+".rcbox.dev")
		want := generated[apiextensionsv1.CustomResourceDefinition](t, "crd/bases/rcbox.dev_"+kind+".yaml", 0)
		if !reflect.DeepEqual(crd.Spec, want.Spec) {
			t.Errorf("the CustomResourceDefinition of %s differs from the one in config", kind)
		}
	}
	stores := find[rbacv1.ClusterRole](t, objects, "ClusterRole", "rcbox-operator")
	if want := generated[rbacv1.ClusterRole](t, "rbac/role.yaml", 0); !reflect.DeepEqual(stores.Rules, want.Rules) {
		t.Error("the ClusterRole differs from the one in config")
	}
	operators := find[rbacv1.ClusterRole](t, objects, "ClusterRole", "rcbox-operator-store-operator")
	if want := generated[rbacv1.ClusterRole](t, "rbac/store_operator_role.yaml", 0); !reflect.DeepEqual(operators.Rules, want.Rules) {
		t.Error("the ClusterRole of those who give orders differs from the one in config")
	}
	election := find[rbacv1.Role](t, objects, "Role", "rcbox-operator-leader-election")
	if want := generated[rbacv1.Role](t, "rbac/role.yaml", 1); !reflect.DeepEqual(election.Rules, want.Rules) {
		t.Error("the Role differs from the one in config")
	}
}

// Both ways of installing run the same container: a difference between them is a setting that somebody forgot.
func TestSameContainerAsConfig(t *testing.T) {
	chart := find[appsv1.Deployment](t, mustRender(t), "Deployment", "rcbox-operator").Spec.Template.Spec.Containers[0]
	manager := generated[appsv1.Deployment](t, "manager/manager.yaml", 0).Spec.Template.Spec.Containers[0]
	for _, part := range []struct {
		name        string
		chart, want any
	}{
		{"environment", chart.Env, manager.Env},
		{"ports", chart.Ports, manager.Ports},
		{"resources", chart.Resources, manager.Resources},
		{"security context", chart.SecurityContext, manager.SecurityContext},
		{"liveness probe", chart.LivenessProbe, manager.LivenessProbe},
		{"readiness probe", chart.ReadinessProbe, manager.ReadinessProbe},
	} {
		if !reflect.DeepEqual(part.chart, part.want) {
			t.Errorf("%s: the chart has %+v, config/manager %+v", part.name, part.chart, part.want)
		}
	}
}

// Pod security "restricted" lets every pod of the chart in.
func TestPodsAreRestricted(t *testing.T) {
	objects := mustRender(t)
	for name, spec := range map[string]corev1.PodSpec{
		"Deployment": find[appsv1.Deployment](t, objects, "Deployment", "rcbox-operator").Spec.Template.Spec,
	} {
		pod, container := spec.SecurityContext, spec.Containers[0].SecurityContext
		if !*pod.RunAsNonRoot || *pod.RunAsUser != 65532 || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: the pod's security context is %+v", name, pod)
		}
		if *container.AllowPrivilegeEscalation || !*container.ReadOnlyRootFilesystem ||
			!reflect.DeepEqual(container.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: the container's security context is %+v", name, container)
		}
		if spec.Containers[0].Resources.Limits.Memory().IsZero() {
			t.Errorf("%s has no memory limit", name)
		}
	}
}

func TestImages(t *testing.T) {
	for _, test := range []struct {
		options      []string
		image, store string
	}{
		{nil, "rcbox/operator:0.1.0", "rcbox/store:0.1.0"},
		{
			[]string{"--set", "image.repository=r/o,image.tag=1,storeImage.repository=r/s,storeImage.tag=2"},
			"r/o:1", "r/s:2",
		},
	} {
		objects := mustRender(t, test.options...)
		container := find[appsv1.Deployment](t, objects, "Deployment", "rcbox-operator").Spec.Template.Spec.Containers[0]
		if container.Image != test.image || !slices.Contains(container.Args, "--store-image="+test.store) {
			t.Errorf("image %s, arguments %v", container.Image, container.Args)
		}
	}
}

// With namespaces named, nothing of the operator's own rights spans the cluster.
func TestNamespaced(t *testing.T) {
	objects := mustRender(t, "--set", "watchNamespaces={a,b},rbac.clusterRoles=false")
	list := kinds(objects)
	for _, name := range list {
		if strings.HasPrefix(name, "ClusterRole") {
			t.Errorf("there is a %s", name)
		}
	}
	want := generated[rbacv1.ClusterRole](t, "rbac/role.yaml", 0).Rules
	for _, namespace := range []string{"a", "b"} {
		if !slices.Contains(list, "RoleBinding "+namespace+"/rcbox-operator") {
			t.Errorf("namespace %s has no RoleBinding: %v", namespace, list)
		}
	}
	if role := find[rbacv1.Role](t, objects, "Role", "rcbox-operator"); !reflect.DeepEqual(role.Rules, want) {
		t.Errorf("the Role's rules are %+v", role.Rules)
	}
	args := find[appsv1.Deployment](t, objects, "Deployment", "rcbox-operator").Spec.Template.Spec.Containers[0].Args
	if !slices.Contains(args, "--watch-namespaces=a,b") {
		t.Errorf("arguments are %v", args)
	}
}

func TestSwitches(t *testing.T) {
	for _, test := range []struct {
		option string
		object string
		there  bool
	}{
		{"crds.install=false", "CustomResourceDefinition /stores.rcbox.dev", false},
		{"crds.install=false", "CustomResourceDefinition /clusterperfs.rcbox.dev", false},
		{"crds.install=false", "CustomResourceDefinition /storeoperations.rcbox.dev", false},
		{"crds.install=false", "CustomResourceDefinition /storemembers.rcbox.dev", false},
		{"rbac.operationPolicy=false", "ValidatingAdmissionPolicy /operations.rcbox-operator.rcbox-system.rcbox.dev", false},
		{"rbac.clusterRoles=false", "ClusterRole /rcbox-operator-store-operator", false},
		{"networkPolicy.enabled=false", "NetworkPolicy rcbox-system/rcbox-operator", false},
		{"rbac.clusterRoles=false", "ClusterRole /rcbox-operator-store-editor", false},
		{"podMonitor.enabled=true", "PodMonitor rcbox-system/rcbox-operator-stores", true},
		{"prometheusRule.enabled=true", "PrometheusRule rcbox-system/rcbox-operator", true},
	} {
		before := slices.Contains(kinds(mustRender(t)), test.object)
		after := slices.Contains(kinds(mustRender(t, "--set", test.option)), test.object)
		if before == test.there || after != test.there {
			t.Errorf("%s: %s was there: %v, is there: %v", test.option, test.object, before, after)
		}
	}
}

// Rights to change nodes and remediations are there only if they are asked for.
func TestFencingRights(t *testing.T) {
	for _, rule := range find[rbacv1.ClusterRole](t, mustRender(t), "ClusterRole", "rcbox-operator").Rules {
		if slices.Contains(rule.Resources, "nodes") && !slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
			t.Errorf("by default: %+v", rule)
		}
	}
	objects := mustRender(t, "--set", "fencing.outOfServiceTaint=true", "--set", "fencing.remediations[0].apiGroup=a.example",
		"--set", "fencing.remediations[0].resources={reboots,reboottemplates}")
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"a.example"}, Resources: []string{"reboots", "reboottemplates"}, Verbs: []string{"get", "create", "delete"}},
	}
	if got := find[rbacv1.ClusterRole](t, objects, "ClusterRole", "rcbox-operator-fencing").Rules; !reflect.DeepEqual(got, want) {
		t.Errorf("rules are %+v", got)
	}
	find[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", "rcbox-operator-fencing")
}

// Power is asked for in the namespaces that are watched, and no others.
func TestPowerFencingRights(t *testing.T) {
	rule := rbacv1.PolicyRule{
		APIGroups: []string{"rcbox.dev"}, Resources: []string{"nodefences"}, Verbs: []string{"get", "create", "delete"},
	}
	isIt := func(r rbacv1.PolicyRule) bool { return reflect.DeepEqual(r, rule) }
	everywhere := find[rbacv1.ClusterRole](t, mustRender(t, "--set", "fencing.bmc=true"), "ClusterRole", "rcbox-operator-fencing")
	if !slices.ContainsFunc(everywhere.Rules, isIt) {
		t.Errorf("rules are %+v", everywhere.Rules)
	}
	objects := mustRender(t, "--set", "fencing.bmc=true", "--set", "watchNamespaces={a}")
	if rules := find[rbacv1.ClusterRole](t, objects, "ClusterRole", "rcbox-operator-fencing").Rules; slices.ContainsFunc(rules, isIt) {
		t.Errorf("in all namespaces: %+v", rules)
	}
	if rules := find[rbacv1.Role](t, objects, "Role", "rcbox-operator-fencing").Rules; !slices.ContainsFunc(rules, isIt) {
		t.Errorf("in the namespace: %+v", rules)
	}
	find[rbacv1.RoleBinding](t, objects, "RoleBinding", "rcbox-operator-fencing")
	// Leases are read of nodes alone, and by nobody who was not given the right.
	for role, rendered := range map[string][]unstructured.Unstructured{
		"rcbox-operator-node-leases": objects, "rcbox-box-node-leases": mustRender(t, "--set", "box.enabled=true"),
	} {
		leases := find[rbacv1.Role](t, rendered, "Role", role)
		if leases.Namespace != "kube-node-lease" || len(leases.Rules) != 1 ||
			!slices.Equal(leases.Rules[0].Resources, []string{"leases"}) ||
			find[rbacv1.RoleBinding](t, rendered, "RoleBinding", role).Namespace != leases.Namespace {
			t.Errorf("%s: %+v", role, leases)
		}
	}
	if slices.ContainsFunc(kinds(mustRender(t)), func(kind string) bool { return strings.Contains(kind, "node-leases") }) {
		t.Error("by default Leases of nodes are read")
	}
}

func TestKeepDefinition(t *testing.T) {
	const policy = "helm.sh/resource-policy"
	// By default as well: with the definitions all Stores would go. A hook would not guard them, for --no-hooks and GitOps skip hooks.
	for option, want := range map[string]string{"crds.keep=false": "", "replicas=1": "keep"} {
		objects := mustRender(t, "--set", option)
		for _, name := range []string{"stores.rcbox.dev", "storemembers.rcbox.dev", "clusterperfs.rcbox.dev", "storeoperations.rcbox.dev"} {
			crd := find[apiextensionsv1.CustomResourceDefinition](t, objects, "CustomResourceDefinition", name)
			if got := crd.Annotations[policy]; got != want {
				t.Errorf("with %s, %s of %s is %q", option, policy, name, got)
			}
		}
	}
}

// The operator acts on StoreMembers, so nobody else gets the right to write them.
func TestOnlyTheOperatorWritesMembers(t *testing.T) {
	writers := 0
	for _, object := range mustRender(t, "--set", "box.enabled=true") {
		if object.GetKind() != "ClusterRole" {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
			t.Fatal(err)
		}
		reads := []string{"get", "list", "watch"}
		for _, rule := range role.Rules {
			isAbout := slices.Contains(rule.APIGroups, "rcbox.dev") && slices.Contains(rule.Resources, "storemembers")
			isWritten := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains(reads, verb) })
			switch {
			case isAbout && isWritten && role.Name == "rcbox-operator":
				writers++
			case isAbout && isWritten:
				t.Errorf("%s may %v StoreMembers", role.Name, rule.Verbs)
			case slices.Contains(rule.APIGroups, "rcbox.dev") && slices.Contains(rule.Resources, "*"):
				t.Errorf("%s has %v for every kind", role.Name, rule.Verbs)
			}
		}
	}
	if writers != 1 {
		t.Errorf("%d rules let the operator write StoreMembers", writers)
	}
}

// What is hooked to the uninstall can refuse it, and then the release can be neither used nor upgraded.
func TestNothingIsHooked(t *testing.T) {
	for _, object := range mustRender(t) {
		if hook := object.GetAnnotations()["helm.sh/hook"]; hook != "" {
			t.Errorf("%s %s is a hook: %s", object.GetKind(), object.GetName(), hook)
		}
	}
}

// NOTES.txt says what `helm uninstall` does with these values, and where a Store can be.
func TestNotes(t *testing.T) {
	for option, want := range map[string]string{
		"crds.keep=true":           "Uninstalling ends the operator alone",
		"crds.install=false":       "Uninstalling ends the operator alone",
		"watchNamespaces={team-a}": "Make a store, in one of the namespaces that the operator watches (team-a):",
		"crds.keep=false":          "WARNING: crds.keep is false. `helm uninstall rcbox` deletes the CustomResourceDefinitions",
	} {
		if notes := notesWith(t, option); !strings.Contains(notes, want) {
			t.Errorf("with %s, the notes are:\n%s", option, notes)
		}
	}
}

// notesWith are the notes that Helm shows after an install. It renders them only in a cluster, so here they are a manifest.
func notesWith(t *testing.T, option string) string {
	t.Helper()
	chart := t.TempDir()
	if err := os.CopyFS(chart, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("templates/NOTES.txt")
	if err != nil {
		t.Fatal(err)
	}
	manifest := "notes: |\n  " + strings.ReplaceAll(string(text), "\n", "\n  ") + "\n"
	if err := os.WriteFile(chart+"/templates/notes.yaml", []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), helm(t), "template", "rcbox", chart, "--namespace", "rcbox-system",
		"--kube-version", kubeVersion, "--show-only", "templates/notes.yaml", "--set", option)
	notes, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, notes)
	}
	return string(notes)
}

// Rights on Stores are a namespace's editors' only if somebody says so: what a Store names, the operator runs.
func TestAggregation(t *testing.T) {
	for options, want := range map[string][2]bool{
		"replicas=1":                 {true, false},
		"rbac.aggregateToEdit=true":  {true, true},
		"rbac.aggregateToView=false": {false, false},
	} {
		objects := mustRender(t, "--set", options)
		labels := func(name string) map[string]string {
			return find[rbacv1.ClusterRole](t, objects, "ClusterRole", name).Labels
		}
		viewer, editor := labels("rcbox-operator-store-viewer"), labels("rcbox-operator-store-editor")
		aggregated := func(labels map[string]string, to string) bool {
			return labels["rbac.authorization.k8s.io/aggregate-to-"+to] == "true"
		}
		got := [2]bool{aggregated(viewer, "view"), aggregated(editor, "edit")}
		if got != want || aggregated(editor, "admin") != want[1] {
			t.Errorf("with %s: %v, %v", options, viewer, editor)
		}
	}
	if role := generated[rbacv1.ClusterRole](t, "rbac/store_editor_role.yaml", 0); len(role.Labels) > 0 {
		t.Errorf("config has the labels %v", role.Labels)
	}
}

// What Stores may have beyond an ordinary pod, somebody has named.
func TestAllowances(t *testing.T) {
	arguments := func(options ...string) []string {
		return find[appsv1.Deployment](t, mustRender(t, options...), "Deployment", "rcbox-operator").Spec.Template.Spec.Containers[0].Args
	}
	for _, argument := range arguments() {
		if strings.HasPrefix(argument, "--allow-") {
			t.Errorf("by default there is %s", argument)
		}
	}
	got := arguments("--set", "allow.capabilities={IPC_LOCK,NET_RAW},allow.networkProfiles={WholePort},allow.overlays=true",
		"--set-json", `allow.ealArguments=["--vdev=a,b=c","--log-level"]`)
	for _, want := range []string{
		"--allow-capabilities=IPC_LOCK,NET_RAW", "--allow-network-profiles=WholePort", "--allow-overlays",
		`--allow-eal-arguments="--vdev=a,b=c"`, `--allow-eal-arguments="--log-level"`, // one entry each: pflag reads them as CSV
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among %q", want, got)
		}
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for option, want := range map[string]string{
		"replicas=many":          "/replicas",
		"image.pullPolicy=Often": "/image/pullPolicy",
		"storeimage.tag=1":       "storeimage",
		"watchNamespaces=a":      "/watchNamespaces",
	} {
		if _, complaint := render(t, "--set", option); !strings.Contains(complaint, want) {
			t.Errorf("%s: Helm says %q", option, complaint)
		}
	}
}

// Names that look like numbers stay names.
func TestNumericNames(t *testing.T) {
	objects := mustRender(t, "--namespace", "1234", "--set-string", "watchNamespaces[0]=5678", "--set-string", "priorityClassName=9")
	if namespace := find[appsv1.Deployment](t, objects, "Deployment", "rcbox-operator").Namespace; namespace != "1234" {
		t.Errorf("the Deployment is in %q", namespace)
	}
	if role := find[rbacv1.RoleBinding](t, objects, "RoleBinding", "rcbox-operator"); role.Namespace != "5678" {
		t.Errorf("the RoleBinding is in %q", role.Namespace)
	}
}

// prometheusRule is what the tests look at in an object of that kind.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

// Each alert has a runbook, a severity and a summary, and asks for metrics that somebody exposes.
func TestAlerts(t *testing.T) {
	objects := mustRender(t, "--set", "prometheusRule.enabled=true,prometheusRule.labels.team=stores",
		"--set", "prometheusRule.runbooks=https://docs.example/runbooks.md")
	rule := find[prometheusRule](t, objects, "PrometheusRule", "rcbox-operator")
	runbooks, err := os.ReadFile("../../docs/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	// Programs name metrics without their prefix and their unit.
	var sources strings.Builder
	for _, file := range []string{
		"../../operator/internal/controller/metrics.go", "../../operator/internal/box/controller/metrics.go",
		"../../images/store/crates/coordinatord/src/probe.rs",
		"../../images/store/crates/serverd/src/probe.rs",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(text)
	}
	alerts := 0
	for _, group := range rule.Spec.Groups {
		for _, alert := range group.Rules {
			alerts++
			if !strings.Contains(string(runbooks), "\n## "+alert.Alert+"\n") {
				t.Errorf("docs/runbooks.md has nothing on %s", alert.Alert)
			}
			want := "https://docs.example/runbooks.md#" + strings.ToLower(alert.Alert)
			if alert.Annotations["runbook_url"] != want || alert.Annotations["summary"] == "" || alert.Labels["severity"] == "" {
				t.Errorf("%s has labels %v and annotations %v", alert.Alert, alert.Labels, alert.Annotations)
			}
			for _, metric := range regexp.MustCompile("rcbox_[a-z_]+").FindAllString(alert.Expr, -1) {
				name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(metric, "rcbox_"), "_bytes"), "_total")
				known := strings.Contains(sources.String(), `"`+metric+`"`) || strings.Contains(sources.String(), `"`+name+`"`)
				if !known && metric != "rcbox_dev_store" {
					t.Errorf("%s: nobody exposes %s", alert.Alert, metric)
				}
			}
		}
	}
	if alerts < 10 || alerts != strings.Count(string(runbooks), "\n## ") {
		t.Errorf("%d alerts, %d runbooks", alerts, strings.Count(string(runbooks), "\n## "))
	}
}

// TestDashboard: Grafana's sidecar gets what is imported by hand, and nothing in it, or in the alerts, asks for a number that nobody has.
func TestDashboard(t *testing.T) {
	objects := mustRender(t, "--set", "dashboard.enabled=true", "--set", "dashboard.labels.team=stores")
	config := find[corev1.ConfigMap](t, objects, "ConfigMap", "rcbox-operator-dashboard")
	if config.Labels["grafana_dashboard"] != "1" || config.Labels["team"] != "stores" {
		t.Errorf("labels %v", config.Labels)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			GridPos struct{ H, W, X, Y int }
		}
	}
	if err := yaml.Unmarshal([]byte(config.Data["rcbox.json"]), &dashboard); err != nil {
		t.Fatal(err)
	}
	if len(dashboard.Panels) < 20 {
		t.Errorf("%d panels", len(dashboard.Panels))
	}
	taken := map[[2]int]int{}
	for _, panel := range dashboard.Panels {
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != 0 || x >= 24 {
					t.Fatalf("panel %d lies on panel %d, or beside the page", panel.ID, other)
				}
				taken[[2]int{x, y}] = panel.ID
			}
		}
	}
	known, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile("files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Not the labels: Prometheus makes those of the pods' labels.
	for _, name := range regexp.MustCompile(`rcbox_[a-z_]+`).FindAllString(config.Data["rcbox.json"]+string(alerts), -1) {
		if !strings.HasPrefix(name, "rcbox_dev_") && !strings.Contains(string(known), "| `"+name+"` |") {
			t.Errorf("docs/metrics.md has no %s", name)
		}
	}
}
