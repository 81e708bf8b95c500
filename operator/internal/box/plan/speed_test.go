package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// newMeasured has servers whose systems have measured them: each a little faster than the one before.
func newMeasured() *scene {
	s := newScene(bmc.PowerOn)
	for i := range s.Nodes {
		s.Nodes[i].BootID = thisBoot
		s.Nodes[i].Found = &plan.Found{
			Boot: thisBoot, CPU: hardware.Processor{Model: "Atom", Threads: 8},
			Disks: []hardware.Disk{{Name: "sda", Model: "SSD"}},
			Ports: []hardware.Port{{Name: "eth0", Driver: "igb", Mbps: 2500}, {Name: "eth1", Driver: "igb"}},
			Measured: &hardware.Measured{
				ChecksumMBps: int64(1000 + i), CopyMBps: int64(6000 + i), Disk: "sda", ReadMBps: int64(400 + i),
			},
		}
	}
	return s
}

// said is a condition of atom003; empty if it has none of that name.
func (s *scene) said(kind string) string {
	if meta.FindStatusCondition(s.made.Servers["atom003"].Conditions, kind) == nil {
		return ""
	}
	return s.condition(kind)
}

// TestQualified: parts are compared with those of other servers of their kind.
func TestQualified(t *testing.T) {
	t.Parallel()
	const fine = "True AsItsPeers: not slower than half of what other servers have: "
	const tooHot = "False SlowProcessor: its processor ran slower for more than 16 % of the last hour, because it was too hot"
	const slow = "False SlowProcessor: its slowest processor thread computes checksums at 499 MB/s; the median of 4 other servers is " +
		"1001 MB/s"
	for name, test := range map[string]struct {
		change             func(s *scene, own *plan.Found)
		qualified, healthy string
	}{
		"as the others": {
			func(*scene, *plan.Found) {}, fine + "processor, memory, disk, eth0", "True",
		},
		"a busy thread": {
			func(_ *scene, own *plan.Found) { own.Measured.ChecksumMBps = 499 },
			slow, slow + `. To take it out of use: kubectl rcbox isolate-server atom003 --reason "slow processor"`,
		},
		"half as fast": {func(_ *scene, own *plan.Found) { own.Measured.ChecksumMBps = 500 }, "True AsItsPeers", "True"},
		"half of its memory channels": {
			func(_ *scene, own *plan.Found) { own.Measured.CopyMBps = 2900 },
			"False SlowMemory: its memory is copied at 2900 MB/s; the median of 4 other servers is 6001 MB/s", "False SlowMemory",
		},
		"a throttled disk": {
			func(_ *scene, own *plan.Found) { own.Measured.ReadMBps = 12 },
			"False SlowDisk: its disk sda is read at 12 MB/s; the median of 4 other servers is 401 MB/s", "False SlowDisk",
		},
		"a link of 1 Gbit/s": {
			func(_ *scene, own *plan.Found) { own.Ports[0].Mbps = 1000 },
			"False SlowLink: the link of its port eth0 has 1000 Mbit/s; the median of 4 other servers is 2500 Mbit/s", "False SlowLink",
		},
		"no link": {
			func(_ *scene, own *plan.Found) { own.Ports[0].Mbps = 0 },
			fine + "processor, memory, disk", "True",
		},
		"too hot": {
			func(_ *scene, own *plan.Found) { own.CPU.ThrottledPercent = 32 },
			tooHot, tooHot,
		},
		"warm": {func(_ *scene, own *plan.Found) { own.CPU.ThrottledPercent = 16 }, "True AsItsPeers", "True"},
		"a processor of its own": {
			func(_ *scene, own *plan.Found) { own.CPU.Model, own.Measured.ChecksumMBps = "Xeon", 10 },
			fine + "disk, eth0; too few others to compare: processor, memory", "True",
		},
		"a disk that spins": {
			func(_ *scene, own *plan.Found) { own.Disks[0].Spins, own.Measured.ReadMBps = true, 10 },
			fine + "processor, memory, eth0; too few others to compare: disk", "True",
		},
		"two others": {
			func(s *scene, own *plan.Found) {
				own.Measured.ChecksumMBps = 1
				s.Nodes[0].Found, s.Nodes[1].Found = nil, nil
			},
			"Unknown TooFewPeers: measured, but fewer than 3 other servers of its kind have figures", "True",
		},
		"others that are of an earlier start": {
			func(s *scene, own *plan.Found) {
				own.Measured.ChecksumMBps = 1
				s.Nodes[0].Found.Boot, s.Nodes[1].Found.Boot = "b0", "b0"
			},
			"Unknown TooFewPeers", "True",
		},
		"one that lies": {
			func(s *scene, _ *plan.Found) { s.Nodes[0].Found.Measured.ChecksumMBps = 1 << 60 }, "True AsItsPeers", "True",
		},
		"figures that are none": {
			func(_ *scene, own *plan.Found) { own.Measured.ChecksumMBps, own.Measured.CopyMBps = -1, 0 },
			fine + "disk, eth0", "True",
		},
		"nothing measured": {
			func(_ *scene, own *plan.Found) { own.Measured = nil },
			"Unknown NotMeasured: its system has measured nothing at its start: rcbox-measure.service of the blade says why", "True",
		},
		"a disk that fails": {
			func(_ *scene, own *plan.Found) { own.Measured.Failed = []string{"disk sda: input/output error"} },
			"False NotMeasured: not measured: disk sda: input/output error", "True",
		},
		"of an earlier start": {
			func(_ *scene, own *plan.Found) { own.Boot = "b0" },
			"Unknown NotReported: its system has reported nothing since it was started last", "True",
		},
		"not usable": {func(_ *scene, own *plan.Found) { own.Unusable = "annotation: no JSON" }, "False NotMeasured: annotation", "True"},
		"no report":  {func(s *scene, _ *plan.Found) { s.Nodes[2].Found = nil }, "", "True"},
		"no report, of a boot image": {
			func(s *scene, _ *plan.Found) { s.Nodes[2].Found, s.Chassis.Spec.Boot.Image = nil, "v1" }, "Unknown NotReported", "True",
		},
	} {
		s := newMeasured()
		test.change(s, s.Nodes[2].Found)
		s.plan()
		if got := s.said(v1alpha1.ConditionQualified); !strings.HasPrefix(got, test.qualified) || test.qualified == "" && got != "" {
			t.Errorf("%s: Qualified is %s", name, got)
		}
		if got := s.condition(v1alpha1.ConditionHealthy); !strings.HasPrefix(got, test.healthy) {
			t.Errorf("%s: Healthy is %s", name, got)
		}
	}
}

// TestTheSlowAreIsolated: a reason of slowness can be named for isolation, and counts as the others do.
func TestTheSlowAreIsolated(t *testing.T) {
	t.Parallel()
	s := newMeasured()
	s.Chassis.Spec.Isolation = v1alpha1.ChassisIsolation{Automatic: []v1alpha1.UnhealthyReason{v1alpha1.UnhealthySlowMemory}, AtMost: 1}
	s.Nodes[2].Found.Measured.ChecksumMBps = 1
	s.plan()
	expect(t, s.isolated(), "")
	s.Nodes[2].Found.Measured.ChecksumMBps, s.Nodes[2].Found.Measured.CopyMBps = 1000, 1
	s.plan()
	expect(t, s.isolated(), "atom003: automatically: SlowMemory: its memory is copied at 1 MB/s; the median of 4 other servers is 6001")
}

// returns has atom003 isolated, off, taken back, and on again, with the start that its node has reported last.
func returns(t *testing.T, s *scene) {
	t.Helper()
	s.isolate(true)
	s.pass(time.Second)
	s.carryOut()
	s.pass(time.Second)
	expect(t, steps(s.made), "Soft atom003")
	// The user takes it back as soon as it is off, and the API server calls the node Ready still.
	for s.see(2, bmc.PowerOff, bmc.PowerOff); s.Servers[2].Object.Status.Isolation.Stage != v1alpha1.StageIsolated; {
		s.pass(time.Second)
	}
	s.isolate(false)
	s.pass(time.Second)
	expect(t, steps(s.made), "On atom003")
	s.see(2, bmc.PowerOn, bmc.PowerOn)
	s.pass(time.Second)
}

// TestReturnAfterQualification: a node gets pods again once the start of its system has measured the server, and nothing is slow.
func TestReturnAfterQualification(t *testing.T) {
	t.Parallel()
	s := newMeasured()
	returns(t, s)
	// The API server may say Ready although the kubelet has not spoken since the start.
	s.Nodes[2].Ready = true
	s.pass(time.Second)
	expect(t, cordons(s.made), "")
	expect(t, s.condition(v1alpha1.ConditionIsolated), "False Returning: ECC errors; waiting for another start of node atom003: the one "+
		"that it reports is from before the server was off. If it was never off: kubectl rcbox isolate-server atom003 --undo --force")
	s.Nodes[2].BootID = "b2"
	s.pass(time.Second)
	expect(t, cordons(s.made), "")
	expect(t, s.condition(v1alpha1.ConditionIsolated), "False Returning: ECC errors; waiting for what its system measures and reports "+
		"after its start; kubectl rcbox isolate-server atom003 --undo --force uses it all the same")
	found := *s.Nodes[2].Found
	found.Boot, found.Measured = "b2", &hardware.Measured{ChecksumMBps: 1000, CopyMBps: 1, ReadMBps: 400, Disk: "sda"}
	s.Nodes[2].Found = &found
	s.pass(time.Second)
	expect(t, cordons(s.made), "")
	expect(t, s.condition(v1alpha1.ConditionIsolated), "False NotQualified: ECC errors; its memory is copied at 1 MB/s; the median of 4 "+
		"other servers is 6001 MB/s; kubectl rcbox isolate-server atom003 --undo --force uses it all the same")
	found.Measured.CopyMBps = 6000
	s.pass(time.Second)
	expect(t, cordons(s.made), "atom003 for atom003 undo true")
	s.carryOut()
	s.pass(time.Second)
	expect(t, s.said(v1alpha1.ConditionIsolated), "")
}

// TestReturnAtOnce: a user may waive that, and nothing waits for a system that never reports, or for peers.
func TestReturnAtOnce(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*scene){
		"waived": func(s *scene) {
			object := s.Servers[2].Object.DeepCopy()
			object.Spec.Qualification = v1alpha1.QualificationWaived
			s.Servers[2].Object = object
		},
		"no report": func(s *scene) { s.Nodes[2].Found = nil },
		"too few peers": func(s *scene) {
			s.Nodes[0].Found, s.Nodes[1].Found = nil, nil
			found := *s.Nodes[2].Found
			found.Boot = "b2"
			s.Nodes[2].Found = &found
		},
		"measured": func(s *scene) {
			found := *s.Nodes[2].Found
			found.Boot = "b2"
			s.Nodes[2].Found = &found
		},
	} {
		s := newMeasured()
		returns(t, s)
		s.Nodes[2].Ready, s.Nodes[2].BootID = true, "b2"
		change(s)
		s.pass(time.Second)
		if got := cordons(s.made); got != "atom003 for atom003 undo true" {
			t.Errorf("%s: %q; %s", name, got, s.said(v1alpha1.ConditionIsolated))
		}
	}
}

// TestManyFigures: whatever blades report, messages are bounded, and planning ends.
func TestManyFigures(t *testing.T) {
	t.Parallel()
	s := newMeasured()
	for i := range s.Nodes {
		for n := range 400 {
			s.Nodes[i].Found.Ports = append(s.Nodes[i].Found.Ports, hardware.Port{Name: fmt.Sprint(strings.Repeat("x", n), n), Mbps: n})
		}
		s.Nodes[i].Found.Measured.Disk = strings.Repeat("\x00y", 4000)
	}
	s.Nodes[2].Found.Measured.Failed = []string{strings.Repeat("z\n", 6000)}
	s.plan()
	if got := s.said(v1alpha1.ConditionQualified); len(got) > 400 || strings.Contains(got, "\n") {
		t.Error(got)
	}
}

// TestQualifiedStays: an operator that was started anew knows of no node yet, and leaves what the one before has found out.
func TestQualifiedStays(t *testing.T) {
	t.Parallel()
	s := newMeasured()
	s.plan()
	before := s.said(v1alpha1.ConditionQualified)
	expect(t, before, "True AsItsPeers")
	for i := range s.Servers {
		s.Servers[i].Identity = nil
	}
	s.plan()
	expect(t, s.said(v1alpha1.ConditionQualified), before)
}
