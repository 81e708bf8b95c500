package rcbox_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

var hostValues = []string{
	"--set=box.enabled=true", "--set=box.host.enabled=true", "--set=box.host.interface=eth7",
	"--set=box.host.hosts[0].name=boxhost1", "--set=box.host.hosts[0].address=192.168.3.253",
}

// TestBoxHosts: off by default; with the least rights, and settings that the programs read.
func TestBoxHosts(t *testing.T) {
	t.Parallel()
	for _, off := range [][]string{{"--set=box.enabled=true"}, {"--set=box.host.enabled=true"}} {
		objects, complaint := renderRelease(t, "rcbox", off...)
		for _, object := range objects {
			if strings.HasPrefix(object.GetName(), "rcbox-boxhost") {
				t.Errorf("%v: there is %s %s", off, object.GetKind(), object.GetName())
			}
		}
		if complaint != "" {
			t.Error(complaint)
		}
	}
	objects, complaint := renderRelease(t, "rcbox", hostValues...)
	if complaint != "" {
		t.Fatal(complaint)
	}
	pod := find[appsv1.Deployment](t, objects, "Deployment", "rcbox-boxhost").Spec.Template.Spec
	// A kubelet may not give its node a label with this prefix (admission plugin NodeRestriction).
	if restricted := "node-restriction.kubernetes.io/rcbox-boxhost"; len(pod.NodeSelector) != 1 || pod.NodeSelector[restricted] != "true" {
		t.Errorf("a server can have the pod come to itself: %v", pod.NodeSelector)
	}
	if !pod.HostNetwork || !slices.Contains(pod.Containers[0].Args, "--interface=eth7") {
		t.Errorf("%+v", pod)
	}
	outside := corev1.NodeSelectorRequirement{Key: "rcbox.dev/chassis", Operator: corev1.NodeSelectorOpDoesNotExist}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || len(terms[0].MatchExpressions) != 1 || !reflect.DeepEqual(terms[0].MatchExpressions[0], outside) {
		t.Errorf("%+v", terms)
	}
	least := []corev1.Capability{"NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE", "SETUID", "SETGID", "KILL"}
	if security := pod.Containers[0].SecurityContext; !slices.Equal(security.Capabilities.Add, least) ||
		!*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation || security.Privileged != nil {
		t.Errorf("%+v", security)
	}
	for _, rule := range find[rbacv1.Role](t, objects, "Role", "rcbox-boxhost").Rules {
		if !slices.Equal(rule.Resources, []string{"configmaps"}) || len(rule.ResourceNames) != 1 || slices.Contains(rule.Verbs, "*") {
			t.Errorf("%+v", rule)
		}
	}
	for _, object := range objects {
		if object.GetKind() == "ClusterRoleBinding" && strings.Contains(object.GetName(), "boxhost") {
			t.Errorf("it has rights in the whole cluster: %s", object.GetName())
		}
	}
	box := find[appsv1.Deployment](t, objects, "Deployment", "rcbox-box").Spec.Template.Spec
	if !slices.Contains(box.Containers[0].Args, "--host-settings=/etc/rcbox/boxhost/settings.json") ||
		box.Containers[0].VolumeMounts[0].MountPath != "/etc/rcbox/boxhost" || box.Volumes[0].ConfigMap.Name != "rcbox-boxhost-settings" {
		t.Errorf("%+v", box)
	}
}

// Every value reaches the settings, in the form that the box controller reads (TestSettingsOfTheChart in operator/internal/boxhost).
func TestBoxHostSettings(t *testing.T) {
	t.Parallel()
	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1lCN3yYVY2GqHT0qVZb2kJH2b2kz0yP8mQkz1l8Qwz somebody@example"
	objects, complaint := renderRelease(t, "rcbox", append(slices.Clone(hostValues),
		"--set=box.host.management[0]=192.168.5.0/24", "--set=box.host.forwardTo[0]=10.0.0.0/8", "--set=box.host.tcpPorts[0]=6443",
		"--set=box.host.udpPorts[0]=8472", "--set=box.host.router=192.168.3.250", "--set=box.host.resolvers[0]=10.0.0.1",
		"--set=box.host.exports[0].name=/home", "--set=box.host.authorizedKeys[0]="+key,
		"--set=box.host.nis.domain=box", "--set=box.host.nis.users[0].name=alice", "--set=box.host.nis.users[0].uid=2000",
		"--set=box.host.nis.groups[0].name=lab", "--set=box.host.nis.groups[0].gid=3000",
		"--set=box.host.nis.groups[0].members[0]=alice")...)
	if complaint != "" {
		t.Fatal(complaint)
	}
	text := find[corev1.ConfigMap](t, objects, "ConfigMap", "rcbox-boxhost-settings").Data["settings.json"]
	if want, err := os.ReadFile("testdata/boxhost-settings.json"); err != nil || text+"\n" != string(want) {
		t.Errorf("testdata/boxhost-settings.json, which operator/internal/boxhost reads in a test, differs (%v):\n%s", err, text)
	}
	pod := find[appsv1.Deployment](t, objects, "Deployment", "rcbox-boxhost").Spec.Template.Spec
	mounts := pod.Containers[0].VolumeMounts
	at := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == "exports" })
	if at < 0 || mounts[at].MountPath != "/var/lib/rcbox-boxhost/exports" || mounts[at].MountPropagation == nil ||
		*mounts[at].MountPropagation != corev1.MountPropagationHostToContainer {
		t.Errorf("a file system for exports is not seen: %+v", mounts)
	}
	capabilities := pod.Containers[0].SecurityContext.Capabilities
	sorted := slices.Clone(capabilities.Add)
	slices.Sort(sorted)
	if profile := pod.Containers[0].SecurityContext.SeccompProfile; profile == nil || profile.Type != corev1.SeccompProfileTypeUnconfined {
		t.Errorf("with NFS, the profile is %+v", profile)
	}
	isDoubled := len(slices.Compact(slices.Clone(sorted))) != len(sorted)
	if isDoubled || !slices.Contains(sorted, "SYS_CHROOT") || slices.Contains(sorted, "SYS_ADMIN") {
		t.Errorf("%v", capabilities.Add)
	}
	for _, hostile := range []string{
		"box.host.interface=eth0;reboot", "box.host.exports[0].name=../etc", "box.host.domain=Box",
		"box.host.authorizedKeys[0]=command=reboot ssh-ed25519 AAAA", "box.host.surprise=1",
		"box.host.bootArguments[0]=rcbox.wipe=1", "box.host.nis.domain=../etc", "box.host.nis.users[0].password=x",
	} {
		if _, complaint := renderRelease(t, "rcbox", append(slices.Clone(hostValues), "--set="+hostile)...); complaint == "" {
			t.Errorf("%s is accepted", hostile)
		}
	}
}
