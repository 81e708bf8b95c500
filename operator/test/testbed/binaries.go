// Package testbed is a Kubernetes control plane of real programs for tests of the operator: etcd, kube-apiserver, kube-scheduler and
// kube-controller-manager run as processes, and so does the operator. Nodes are kwok's: it plays their kubelets (Nodes). What there is no
// program for is a stand-in and named as one: the provisioner of local volumes, and the stores' processes (Stores). No container runs.
package testbed

import (
	"os"
	"path/filepath"
	"testing"
)

const (
	// EnvironmentPrograms names the folder that hack/control-plane.sh prints.
	EnvironmentPrograms = "RCBOX_CONTROL_PLANE"
	// EnvironmentKwok names the program that `hack/tool.sh kwok` prints.
	EnvironmentKwok = "RCBOX_KWOK"
)

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

// Kwok is the program that plays kubelets; a test that finds none is skipped, and says what to do.
func Kwok(t *testing.T) string {
	t.Helper()
	path := os.Getenv(EnvironmentKwok)
	if path == "" {
		t.Skipf("there is no kwok to play the nodes' kubelets: set %s=\"$(hack/tool.sh kwok)\"", EnvironmentKwok)
	}
	if _, err := os.Stat(path); err != nil { //nolint:gosec // whoever runs tests chooses
		t.Fatalf("%s is set to what is not there: %v; run hack/tool.sh kwok", EnvironmentKwok, err)
	}
	return path
}

// root is the folder of the project: that of its go.mod, above the test's package.
func root(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		above := filepath.Dir(folder)
		if above == folder {
			t.Fatal("there is no go.mod above this package")
		}
		folder = above
	}
}
