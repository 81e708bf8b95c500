// Package testbed is a Kubernetes control plane of real programs for tests of the operator: etcd, kube-apiserver, kube-scheduler and
// kube-controller-manager run as processes, and so does the operator. What there is no real one of is a stand-in and named as one: the
// nodes' kubelets (Kubelets), the provisioner of local volumes (Provisioner), and the stores' processes (Stores). No container runs.
package testbed

import (
	"os"
	"path/filepath"
	"testing"
)

// EnvironmentPrograms names the folder that hack/control-plane.sh prints.
const EnvironmentPrograms = "RCBOX_CONTROL_PLANE"

// programs are those that a control plane is made of.
var programs = []string{"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"}

// Programs is the folder that has them; a test that finds none is skipped, and says what to do.
func Programs(t *testing.T) string {
	t.Helper()
	folder := os.Getenv(EnvironmentPrograms)
	if folder == "" {
		t.Skipf("there is no Kubernetes control plane to test against: set %s=\"$(hack/control-plane.sh)\"", EnvironmentPrograms)
	}
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(folder, program)); err != nil { //nolint:gosec // whoever runs tests chooses
			t.Fatalf("%s is set to %s, which lacks a program: %v; run hack/control-plane.sh", EnvironmentPrograms, folder, err)
		}
	}
	return folder
}

// root is the folder of the project, from that of a test package two levels below operator.
func root(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return folder
}
