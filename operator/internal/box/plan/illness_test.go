package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// thisBoot is the start of the system that runs on each node.
const thisBoot = "b1"

// ill has servers with a report of the running system, and lets the controller isolate them.
func newIll() *scene {
	s := newScene(bmc.PowerOn)
	s.Chassis.Spec.Isolation = v1alpha1.ChassisIsolation{
		Automatic: []v1alpha1.UnhealthyReason{v1alpha1.UnhealthyMemoryErrors, v1alpha1.UnhealthyLinkLost, v1alpha1.UnhealthySlowDisk},
		AtMost:    1,
	}
	for i := range s.Nodes {
		s.Nodes[i].BootID = thisBoot
		s.reports(i, 0, 0)
	}
	s.plan()
	return s
}

// reports is what a blade's system says of its port and its disk.
func (s *scene) reports(i, losses, serviceMillis int) {
	s.Nodes[i].Found = &plan.Found{
		Boot: thisBoot, Ports: []hardware.Port{{Name: "eth0", LinkLosses: losses}},
		Disks: []hardware.Disk{{Name: "sda", ServiceMillis: serviceMillis}},
	}
}

// memoryFails has the BMC's log record that.
func (s *scene) memoryFails(i int) {
	s.Servers[i].Log = []bmc.LogEntry{{At: s.now, Asserted: true, Memory: bmc.UncorrectedError}}
}

// isolated are the orders of the last plan; they are put on record.
func (s *scene) isolated() string {
	var all []string
	for _, order := range s.made.Orders {
		for i := range s.Servers {
			if object := s.Servers[i].Object.DeepCopy(); object.Name == order.Server {
				object.Spec.Isolated = order.Isolate
				s.Servers[i].Object = object
			}
		}
		all = append(all, order.Server+": "+order.Isolate.Reason)
	}
	return strings.Join(all, ", ")
}

// What the running system of a blade reports speaks against its health. Reports of an earlier start do not.
func TestReportsOfIllness(t *testing.T) {
	const within = "True WithinLimits"
	const command = ". To take it out of use: kubectl rcbox isolate-server atom003 --reason "
	for name, test := range map[string]struct {
		change func(*scene)
		says   string
	}{
		"link": {
			func(s *scene) { s.reports(2, 5, 0) },
			"False LinkLost: its port eth0 has lost its link 5 times in the last 24 hours" + command + `"link lost"`,
		},
		"restarts of a switch": {func(s *scene) { s.reports(2, 4, 0) }, within},
		"disk": {
			func(s *scene) { s.reports(2, 0, 128) },
			"False SlowDisk: its disk sda was busy for more than 64 ms with each read or write, on average of the last hour" + command,
		},
		"a disk that spins":     {func(s *scene) { s.reports(2, 0, 64) }, within},
		"memory comes first":    {func(s *scene) { s.reports(2, 9, 128); s.memoryFails(2) }, "False MemoryErrors"},
		"of the start before":   {func(s *scene) { s.reports(2, 9, 128); s.Nodes[2].BootID = "b2" }, within},
		"of no start":           {func(s *scene) { s.reports(2, 9, 128); s.Nodes[2].BootID = ""; s.Nodes[2].Found.Boot = "" }, within},
		"the node is not ready": {func(s *scene) { s.reports(2, 9, 128); s.Nodes[2].Ready = false }, within},
		"it is off":             {func(s *scene) { s.reports(2, 9, 128); s.see(2, bmc.PowerOff, bmc.PowerUnknown) }, within},
		"not usable":            {func(s *scene) { s.reports(2, 9, 128); s.Nodes[2].Found.Unusable = "no" }, within},
	} {
		s := newIll()
		s.Chassis.Spec.Isolation.Automatic = nil
		test.change(s)
		s.plan()
		if got := s.condition(v1alpha1.ConditionHealthy); !strings.HasPrefix(got, test.says) {
			t.Errorf("%s: %s", name, got)
		}
		expect(t, s.isolated(), "")
	}
}

// A server that is ill is isolated, and the reason is on record. Once it is, the next one waits.
func TestTheIllAreIsolated(t *testing.T) {
	s := newIll()
	s.memoryFails(2)
	s.plan()
	expect(t, s.condition(v1alpha1.ConditionHealthy), "memory errors that could not be corrected: 1. It is isolated automatically; once it")
	expect(t, s.isolated(), "atom003: automatically: MemoryErrors: in the log of its BMC, of the last 24 hours: memory errors that")
	s.pass(time.Second)
	expect(t, s.isolated(), "")
	if isolation := s.Servers[2].Object.Status.Isolation; isolation == nil || !strings.HasPrefix(isolation.Reason, "automatically") {
		t.Errorf("%+v", isolation)
	}
	s.reports(4, 0, 256)
	s.pass(time.Second)
	expect(t, s.isolated(), "")
	if got := healthOf(s, 4); !strings.HasSuffix(got, "It is not isolated automatically: 1 servers of the chassis are isolated already "+
		"(spec.isolation.atMost: 1)") {
		t.Error(got)
	}
	// It is brought back although nothing was repaired: that counts until it was healthy once.
	s.isolate(false)
	s.pass(time.Second)
	s.pass(time.Second)
	expect(t, s.isolated(), "")
	s.reports(4, 0, 0)
	s.pass(time.Minute)
	expect(t, s.condition(v1alpha1.ConditionHealthy), "It is not isolated automatically: it was brought back with this")
	expect(t, s.isolated(), "")
	s.Servers[2].Log = []bmc.LogEntry{}
	s.pass(time.Minute)
	s.memoryFails(2)
	s.pass(time.Minute)
	expect(t, s.isolated(), "atom003: automatically")
}

func healthOf(s *scene, i int) string {
	for _, c := range s.Servers[i].Object.Status.Conditions {
		if c.Type == v1alpha1.ConditionHealthy {
			return c.Message
		}
	}
	return ""
}

func TestTheIllAreNotIsolated(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*scene)
		why    string
	}{
		"not asked for": {
			func(s *scene) { s.Chassis.Spec.Isolation.Automatic = s.Chassis.Spec.Isolation.Automatic[1:] }, "To take it out of use",
		},
		"too many": {func(s *scene) { s.reports(0, 9, 0) }, "2 of 5 servers are not healthy"},
		"silent BMCs": {func(s *scene) {
			s.Servers[0].MMC.AnsweredAt = s.now.Add(-time.Hour)
			s.Servers[1].MMC = s.Servers[0].MMC
		}, "2 of 5 BMCs are silent"},
		"an order":     {func(s *scene) { s.order(2, v1alpha1.ActionReset) }, "an order or a fence comes first"},
		"not accepted": {func(s *scene) { s.Layout.Problems = append(s.Layout.Problems, layout.Problem{}) }, "the Chassis is not accepted"},
		"one by hand": {func(s *scene) {
			object := s.Servers[0].Object.DeepCopy()
			object.Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "by hand"}
			s.Servers[0].Object = object
		}, "1 servers of the chassis are isolated already"},
	} {
		s := newIll()
		s.memoryFails(2)
		test.change(s)
		s.plan()
		if got := healthOf(s, 2); len(s.made.Orders) > 0 || !strings.Contains(got, test.why) {
			t.Errorf("%s: %v %s", name, s.made.Orders, got)
		}
	}
	// A sensor was beyond its limits when another operator has read it.
	s := newIll()
	s.Chassis.Spec.Isolation.Automatic = []v1alpha1.UnhealthyReason{v1alpha1.UnhealthyBeyondLimits}
	s.Servers[2].Sensors = []bmc.Sensor{{Name: "CPU", Beyond: true}}
	s.plan()
	expect(t, s.made.Orders[0].Server, "atom003")
	s.Servers[2].Sensors = nil
	s.plan()
	if len(s.made.Orders) > 0 {
		t.Errorf("%+v", s.made.Orders)
	}
}

const (
	illSeeds = 60
	illSteps = 200
)

// illWorld has servers that fall ill and become healthy, and users who isolate servers and bring them back, at random. Rules are checked
// after each plan. It says which is broken; empty: none.
func illWorld(seed uint64, bug func(*plan.Plan, *scene), counts map[string]int) string {
	random := rand.New(rand.NewPCG(seed, 12))
	s := newIll()
	s.Chassis.Spec.Isolation.AtMost = int32(1 + random.IntN(2))
	// illSince and returnedAt are steps; -1: never, or not.
	illSince, returnedAt := slices.Repeat([]int{-1}, len(s.Servers)), slices.Repeat([]int{-1}, len(s.Servers))
	for step := range illSteps {
		for i := range s.Servers {
			s.liveIll(i, step, random, illSince, returnedAt)
		}
		s.pass(time.Second)
		if bug != nil {
			bug(&s.made, s)
		}
		if broken := s.brokenIll(illSince, returnedAt); broken != "" {
			return fmt.Sprintf("step %d: %s", step, broken)
		}
		counts["isolated"] += len(s.made.Orders)
		s.isolated()
	}
	// In the end one server alone is ill, and nobody is isolated.
	for i := range s.Servers {
		object := s.Servers[i].Object.DeepCopy()
		object.Spec.Isolated, object.Status.Isolation, object.Status.ReturnedAt = nil, nil, nil
		s.Servers[i].Object, s.Servers[i].Log = object, []bmc.LogEntry{}
		s.reports(i, 0, 0)
	}
	s.pass(time.Minute)
	s.reports(1, 7, 0)
	s.pass(time.Minute)
	if bug != nil {
		bug(&s.made, s)
	}
	if got := s.isolated(); !strings.HasPrefix(got, "atom002") {
		return "one server is ill, and is not isolated: " + got
	}
	return ""
}

// liveIll is what happens to a server in a second.
func (s *scene) liveIll(i, step int, random *rand.Rand, illSince, returnedAt []int) {
	object := s.Servers[i].Object.DeepCopy()
	switch what := random.IntN(60); {
	case what == 0 && illSince[i] < 0:
		illSince[i] = step
		if random.IntN(2) == 0 {
			s.memoryFails(i)
		} else {
			s.reports(i, 5+random.IntN(9), 0)
		}
	case what < 4 && illSince[i] >= 0:
		illSince[i] = -1
		s.Servers[i].Log = []bmc.LogEntry{}
		s.reports(i, 0, 0)
	case what == 4 && object.Spec.Isolated == nil:
		object.Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "by hand"}
	case what < 8 && object.Spec.Isolated != nil:
		object.Spec.Isolated, object.Status.Isolation = nil, nil
		object.Status.ReturnedAt = new(metav1.NewTime(s.now))
		returnedAt[i] = step
	}
	s.Servers[i].Object = object
}

// brokenIll is a rule that the orders of this plan break.
func (s *scene) brokenIll(illSince, returnedAt []int) string {
	ill, isolated := 0, 0
	for i := range s.Servers {
		switch {
		case s.Servers[i].Object.Spec.Isolated != nil || s.Servers[i].Object.Status.Isolation != nil:
			isolated++
		case illSince[i] >= 0:
			ill++
		}
	}
	for _, order := range s.made.Orders {
		i := slices.IndexFunc(s.Servers, func(of plan.Server) bool { return of.Object.Name == order.Server })
		isolated++
		switch {
		case illSince[i] < 0:
			return order.Server + " is healthy, and is isolated"
		case s.Servers[i].Object.Spec.Isolated != nil:
			return order.Server + " is isolated already"
		case returnedAt[i] >= illSince[i]:
			return order.Server + " was brought back with this illness, and is isolated again"
		case ill > 1:
			return fmt.Sprintf("%d of %d are ill, and %s is isolated", ill, len(s.Servers), order.Server)
		case isolated > int(s.Chassis.Spec.Isolation.AtMost):
			return fmt.Sprintf("%d are isolated", isolated)
		}
	}
	return ""
}

func TestIllWorld(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	for seed := range uint64(illSeeds) {
		if broken := illWorld(seed, nil, counts); broken != "" {
			t.Errorf("seed %d: %s", seed, broken)
		}
	}
	if counts["isolated"] < illSeeds {
		t.Errorf("%d isolations in %d worlds: they test nothing", counts["isolated"], illSeeds)
	}
}

// TestPlantedBugsOfIllness: each of them is found.
func TestPlantedBugsOfIllness(t *testing.T) {
	isolateIf := func(is func(s *scene, i int) bool) func(*plan.Plan, *scene) {
		return func(made *plan.Plan, s *scene) {
			for i := range s.Servers {
				if object := s.Servers[i].Object; object.Spec.Isolated == nil && is(s, i) && len(made.Orders) == 0 {
					made.Orders = []plan.ServerOrder{{Server: object.Name, Isolate: &v1alpha1.ServerIsolationSpec{Reason: "planted"}}}
				}
			}
		}
	}
	for name, bug := range map[string]func(*plan.Plan, *scene){
		"so many as are ill": isolateIf(func(s *scene, i int) bool { return strings.Contains(healthOf(s, i), "are isolated already") }),
		"all have an illness": isolateIf(func(s *scene, i int) bool {
			return strings.Contains(healthOf(s, i), "servers are not healthy")
		}),
		"what a user has brought back": isolateIf(func(s *scene, i int) bool {
			return strings.Contains(healthOf(s, i), "brought back with this")
		}),
		"who was ill": isolateIf(func(s *scene, i int) bool { return s.Servers[i].Log != nil }),
		"nobody":      func(made *plan.Plan, _ *scene) { made.Orders = nil },
	} {
		seed := uint64(0)
		for seed < illSeeds && illWorld(seed, bug, map[string]int{}) == "" {
			seed++
		}
		if seed == illSeeds {
			t.Errorf("the planted bug is not found: %s is isolated", name)
		}
	}
}
