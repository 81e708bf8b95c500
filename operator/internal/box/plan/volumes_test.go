package plan_test

import (
	"testing"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// TestVolumesOfNodes: only a server that has joined, and whose own node reports the partition, has a volume.
func TestVolumesOfNodes(t *testing.T) {
	const reported = 14<<30 + 12345
	for _, of := range []struct {
		what   string
		change func(s *scene, server *v1alpha1.Server)
		want   int
	}{
		{"all is well", func(*scene, *v1alpha1.Server) {}, 1},
		{"no class", func(s *scene, _ *v1alpha1.Server) { s.Chassis.Spec.Boot.StorageClassName = "" }, 0},
		{"not joined", func(_ *scene, server *v1alpha1.Server) { server.Status.Join.State = v1alpha1.JoinApproved }, 0},
		{"no report", func(s *scene, _ *v1alpha1.Server) { s.Nodes[2].Found = nil }, 0},
		{"no partition", func(s *scene, _ *v1alpha1.Server) { s.Nodes[2].Found = &plan.Found{} }, 0},
		{"a node of another name", func(s *scene, _ *v1alpha1.Server) { s.Nodes[2].Name = "elsewhere" }, 0},
	} {
		s := newScene(bmc.PowerOn)
		s.Chassis.Spec.Boot.StorageClassName = "rcbox-blades"
		s.Nodes[2].Found = &plan.Found{BackupBytes: reported}
		object := s.Servers[2].Object.DeepCopy()
		object.Status.Join = &v1alpha1.JoinStatus{State: v1alpha1.JoinJoined}
		s.Servers[2].Object = object
		of.change(s, object)
		got := s.plan().Volumes
		if len(got) != of.want {
			t.Errorf("%s: %+v", of.what, got)
		}
		if len(got) == 1 && (got[0].Server != object.Name || got[0].Bytes != 14<<30 || got[0].Slot != 3 || got[0].Class != "rcbox-blades") {
			t.Errorf("%+v", got[0])
		}
	}
}
