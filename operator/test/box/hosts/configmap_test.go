package hosts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"rcbox.dev/rcbox/operator/internal/boxhost"
	"rcbox.dev/rcbox/operator/internal/boxhost/supervisor"
	"rcbox.dev/rcbox/operator/test/testbed"
)

const (
	namespace = "rcbox-system"
	account   = "rcbox-boxhost"
)

// TestConfigMaps: with the rights of the chart (charts/rcbox/templates/boxhost.yaml) and a real API server, a box host sees each change of
// what it is to serve, reports, and may do nothing else.
func TestConfigMaps(t *testing.T) {
	if os.Getenv("RCBOX_CONTROL_PLANE") == "" {
		t.Skip("SKIPPED: there is no Kubernetes control plane (RCBOX_CONTROL_PLANE; hack/box.sh sets it)")
	}
	cluster := testbed.StartEmptyAPIServer(t)
	admin, ctx := cluster.Clientset, t.Context()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	rule := func(name string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}, Verbs: verbs}
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err := admin.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
	errs := []error{err}
	for _, name := range []string{boxhost.ConfigMap, boxhost.StatusConfigMap, "other"} {
		_, err = admin.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta(name)}, metav1.CreateOptions{})
		errs = append(errs, err)
	}
	_, err = admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta(account), Rules: []rbacv1.PolicyRule{
		rule(boxhost.ConfigMap, "get", "list", "watch"), rule(boxhost.StatusConfigMap, "patch"),
	}}, metav1.CreateOptions{})
	errs = append(errs, err)
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta(account), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	config, noConfig := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig("system:serviceaccount:"+namespace+":"+account))
	if err := errors.Join(append(errs, err, noConfig)...); err != nil {
		t.Fatal(err)
	}
	own, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	follow(ctx, t, admin, own)
	report := &boxhost.Report{Network: netip.MustParsePrefix("192.168.3.0/24"), Rendering: "a", Ready: true}
	for _, host := range []string{"gate1", "gate2"} {
		if err := supervisor.ToConfigMap(own, namespace, host)(ctx, report); err != nil {
			t.Fatal(err)
		}
	}
	reported, err := admin.CoreV1().ConfigMaps(namespace).Get(ctx, boxhost.StatusConfigMap, metav1.GetOptions{})
	if err != nil || len(reported.Data) != 2 {
		t.Fatalf("%v: %v", err, reported.Data)
	}
	if read, err := boxhost.DecodeReport([]byte(reported.Data["gate2"])); err != nil || read.Rendering != "a" {
		t.Errorf("%v: %+v", err, read)
	}
	mayNot(ctx, t, own)
}

// follow: each change shows, and nothing is said without one.
func follow(ctx context.Context, t *testing.T, admin, own kubernetes.Interface) {
	t.Helper()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan string, 16)
	go supervisor.FromConfigMap(own, namespace)(ctx, func(data []byte) { seen <- string(data) })
	for i := range 3 {
		want := fmt.Sprintf(`{"version":%d}`, i)
		written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: boxhost.ConfigMap}}
		written.Data = map[string]string{boxhost.Key: want}
		if _, err := admin.CoreV1().ConfigMaps(namespace).Update(ctx, written, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		var last string
		eventually(t, "change "+want+" shows", func() error {
			select {
			case last = <-seen:
			default:
			}
			if last != want {
				return fmt.Errorf("it has %q", last)
			}
			return nil
		})
	}
}

func mayNot(ctx context.Context, t *testing.T, own kubernetes.Interface) {
	t.Helper()
	maps := own.CoreV1().ConfigMaps(namespace)
	_, other := maps.Get(ctx, "other", metav1.GetOptions{})
	_, all := maps.List(ctx, metav1.ListOptions{})
	_, secrets := own.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
	_, desired := maps.Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: boxhost.ConfigMap}}, metav1.UpdateOptions{})
	for what, err := range map[string]error{
		"read another ConfigMap": other, "list all ConfigMaps": all, "list Secrets": secrets, "write what it is to serve": desired,
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("a box host may %s: %v", what, err)
		}
	}
}
