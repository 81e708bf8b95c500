// Package install_test installs the box controller as people do who do not use the chart.
package install_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/test/testbed"
)

const (
	// host is the address of the box controller's pod.
	host = "192.168.6.2"
	// patience is far beyond what anything here takes.
	patience = 2 * time.Minute
	slots    = 44
)

// TestKustomize: config/box installs the box controller beside the operator, and its parts fit one another: with the rights from there, it
// serves the API server through its Service, and makes Servers of a Chassis.
func TestKustomize(t *testing.T) {
	if os.Getenv("RCBOX_BOX_NETWORK") == "" {
		t.Skip("SKIPPED: it needs a network namespace of its own, where the box controller has an address: hack/box.sh")
	}
	build := testbed.StartBuild(t, "manager", "kubectl-rcbox")
	cluster := testbed.StartEmptyAPIServer(t)
	programs := build()
	s := testbed.NewShell(t, cluster, programs)
	run := func(line string) string {
		t.Helper()
		output, err := s.Run(t.Context(), line)
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, output)
		}
		return output
	}
	run("kubectl apply --server-side -k config/default")
	run("kubectl apply --server-side -k config/box")
	box, _ := cluster.StartDeployedBox(filepath.Join(programs, "manager"), host)
	cluster.Subresources(patience)
	// A Chassis whose Secret is not there is taken, and nobody is spoken with.
	chassis := &v1alpha1.Chassis{ObjectMeta: metav1.ObjectMeta{Name: "mercury1"}, Spec: v1alpha1.ChassisSpec{
		Model: "EmulatedRack", FirstServer: 1, Slots: fmt.Sprintf("1-%d", slots),
		Management: v1alpha1.ChassisManagement{CredentialsSecret: "none", MMC: fmt.Sprintf("192.168.5.1+%d", slots)},
	}}
	if err := cluster.Client.Create(t.Context(), chassis); err != nil {
		t.Fatal(err)
	}
	run("kubectl wait chassis mercury1 --for=condition=Accepted --timeout=2m")
	cluster.Eventually(patience, func() string {
		list := &v1alpha1.ServerList{}
		if err := cluster.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != slots {
			return fmt.Sprintf("there are %d Servers", len(list.Items))
		}
		return ""
	})
	if log := box.Log(); strings.Contains(log, "is forbidden") {
		t.Errorf("it lacks a right:\n%s", log)
	}
	// Once more changes nothing: the certificates that the controller has announced stay.
	before := run("kubectl get apiservice v1alpha1.subresources.rcbox.dev -o jsonpath={.spec}")
	run("kubectl apply --server-side -k config/box")
	after := run("kubectl get apiservice v1alpha1.subresources.rcbox.dev -o jsonpath={.spec}")
	if after != before || !strings.Contains(after, "caBundle") {
		t.Errorf("the APIService was\n%s\nand is\n%s", before, after)
	}
}
