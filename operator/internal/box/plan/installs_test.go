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
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// installing is a chassis whose five servers are off and blank, and its box hosts.
type installing struct{ *scene }

func newInstalling() *installing {
	s := newScene(bmc.PowerUnknown)
	s.Nodes = nil
	s.Chassis.Spec.Networks = []v1alpha1.ChassisNetwork{{NIC: 1, CIDR: "192.168.3.0/24", Range: "192.168.3.1+5"}}
	s.Layout = layout.Of([]v1alpha1.Chassis{*s.Chassis})[s.Chassis.Name]
	s.Chassis.Spec.Boot.Install = v1alpha1.InstallNew
	s.BoxHosts = &plan.BoxHosts{Read: true, Hosts: []plan.BoxHost{{Name: "boxhost1", Ready: true, Image: "v1"}}}
	for i := range s.Servers {
		s.see(i, bmc.PowerOff, bmc.PowerOff)
	}
	i := &installing{s}
	for range 2 {
		i.pass(time.Second)
	}
	return i
}

// orders are what the last plan ordered, in words; they are put on record.
func (s *installing) orders() string {
	var all []string
	for _, order := range s.made.Orders {
		at := slices.IndexFunc(s.Servers, func(server plan.Server) bool { return server.Object.Name == order.Server })
		object := s.Servers[at].Object.DeepCopy()
		if order.Boot != nil {
			object.Spec.Boot = order.Boot
			all = append(all, fmt.Sprintf("%s boots %s", order.Boot.ID, order.Server))
		}
		if order.Power != nil {
			object.Spec.Order = order.Power
			all = append(all, fmt.Sprintf("%s %s %s", order.Power.ID, order.Power.Action, order.Server))
		}
		s.Servers[at].Object = object
	}
	return strings.Join(all, ", ")
}

func (s *installing) status(i int) *v1alpha1.ServerStatus { return &s.Servers[i].Object.Status }

// bootDone has a BMC say yes.
func (s *installing) bootDone(i int, state v1alpha1.OrderState) {
	object := s.Servers[i].Object.DeepCopy()
	object.Status.Boot = &v1alpha1.BootStatus{
		ID: object.Spec.Boot.ID, Device: v1alpha1.BootNetwork, State: state, Since: metav1.NewTime(s.now),
	}
	s.Servers[i].Object = object
}

// started has an order to switch it on be done.
func (s *installing) started(i int) {
	object := s.Servers[i].Object.DeepCopy()
	object.Status.Order = &v1alpha1.OrderStatus{
		ID: object.Spec.Order.ID, Action: object.Spec.Order.Action, State: v1alpha1.OrderDone, Since: new(metav1.NewTime(s.now)),
	}
	object.Status.Change = nil
	s.Servers[i].Object = object
	s.see(i, bmc.PowerOn, bmc.PowerOn)
}

func (s *installing) joins(i int) {
	object := s.Servers[i].Object.DeepCopy()
	object.Status.Join = &v1alpha1.JoinStatus{State: v1alpha1.JoinJoined}
	s.Servers[i].Object = object
}

func (s *installing) installed() string { return s.chassisCondition(v1alpha1.ConditionInstalled) }

func TestInstallsNewServers(t *testing.T) {
	s := newInstalling()
	first, second := s.Servers[0].Object.Name, s.Servers[1].Object.Name
	// Two start at once in this chassis.
	expect(t, s.orders(), fmt.Sprintf("install-1 boots %s, install-1 boots %s", first, second))
	expect(t, s.installed(), "False Installing: 0 of 5 servers are nodes; others are being installed: ")
	s.pass(time.Second)
	expect(t, s.orders(), "")
	s.bootDone(0, v1alpha1.OrderDone)
	s.pass(time.Second)
	expect(t, s.orders(), "install-1 On "+first)
	s.started(0)
	s.pass(time.Second)
	expect(t, s.orders(), "")
	s.joins(0)
	s.pass(time.Second)
	expect(t, s.orders(), "install-1 boots "+s.Servers[2].Object.Name)
	expect(t, s.installed(), "False Installing: 1 of 5")
}

func TestInstallTriesThreeTimes(t *testing.T) {
	s := newInstalling()
	s.orders()
	for n := range 3 {
		s.bootDone(0, v1alpha1.OrderDone)
		s.pass(time.Second)
		got, want := s.orders(), fmt.Sprintf("install-%d ", n+1)
		if !strings.Contains(got, want) || strings.Contains(got, "On") != (n == 0) {
			t.Fatalf("attempt %d: %q", n+1, got)
		}
		s.started(0)
		s.pass(29 * time.Minute)
		if got := s.orders(); strings.Contains(got, s.Servers[0].Object.Name) {
			t.Fatalf("too early: %q", got)
		}
		s.pass(2 * time.Minute)
		if got := s.orders(); strings.Contains(got, fmt.Sprintf("install-%d boots %s", n+2, s.Servers[0].Object.Name)) != (n < 2) {
			t.Fatalf("after attempt %d: %q", n+1, got)
		}
	}
	expect(t, s.installed(), "False Failed: 0 of 5 servers are nodes; these did not become nodes: "+s.Servers[0].Object.Name+
		" (it is no node 30m0s after it was started); look at the console")
	// The others have their turn.
	s.pass(time.Second)
	if !strings.Contains(s.installed(), "Failed") {
		t.Error(s.installed())
	}
}

// A BMC that does not take the order what to boot from is told again later, and the server is not started.
func TestInstallWaitsForTheBootOrder(t *testing.T) {
	s := newInstalling()
	s.orders()
	s.bootDone(0, v1alpha1.OrderFailed)
	s.pass(time.Minute)
	expect(t, s.orders(), "")
	s.pass(2 * time.Minute)
	expect(t, s.orders(), "install-2 boots "+s.Servers[0].Object.Name)
}

func TestWhatSpeaksAgainstInstalling(t *testing.T) {
	for _, of := range []struct {
		what   string
		change func(s *installing, server *v1alpha1.Server)
		want   string
	}{
		{"isolated", func(_ *installing, server *v1alpha1.Server) {
			server.Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "broken"}
		}, "True AllAreNodes: 0 of 0"},
		{"wanted off", func(_ *installing, server *v1alpha1.Server) { server.Spec.Power = v1alpha1.WantOff }, "True AllAreNodes: 0 of 0"},
		{"by hand", func(_ *installing, server *v1alpha1.Server) {
			server.Spec.Boot = &v1alpha1.BootOrder{ID: "somebody", Device: v1alpha1.BootDisk}
		}, "False Held: 0 of 5 servers are nodes; these are not installed: "},
		{"ordered off", func(_ *installing, server *v1alpha1.Server) {
			server.Spec.Order = &v1alpha1.PowerOrder{ID: "somebody", Action: v1alpha1.ActionSoft}
		}, "False Held"},
		{"joined", func(_ *installing, server *v1alpha1.Server) {
			server.Status.Join = &v1alpha1.JoinStatus{State: v1alpha1.JoinJoined}
		}, "True AllAreNodes: 5 of 5"},
		{"a node", func(s *installing, server *v1alpha1.Server) {
			s.Nodes = append(s.Nodes, plan.Node{Name: server.Name, SystemUUID: "x"})
		}, "True AllAreNodes: 5 of 5"},
		{"another blade", func(_ *installing, server *v1alpha1.Server) { server.Spec.AcceptedSerial = "another" }, "False Held"},
		{
			"no image", func(s *installing, _ *v1alpha1.Server) { s.BoxHosts.Hosts[0].Image = "" },
			"False Waits: 0 of 5 servers are nodes; others wait, because box hosts do not serve: box host boxhost1 serves no boot image",
		},
		{
			"another image", func(s *installing, _ *v1alpha1.Server) { s.Chassis.Spec.Boot.Image = "v2" },
			"False Waits: 0 of 5 servers are nodes; others wait, because box hosts do not serve: box host boxhost1 serves the boot " +
				"image v1, and spec.boot.image is v2",
		},
		{"no box hosts", func(s *installing, _ *v1alpha1.Server) { s.BoxHosts = nil }, "False Waits"},
	} {
		s := newInstalling()
		for i := range s.Servers {
			object := s.Servers[i].Object.DeepCopy()
			of.change(s, object)
			s.Servers[i].Object = object
		}
		for range 2 { // one to see it, one to be sure
			s.pass(time.Second)
		}
		if got := s.orders(); got != "" {
			t.Errorf("%s: %s", of.what, got)
		}
		if got := s.installed(); !strings.HasPrefix(got, of.want) {
			t.Errorf("%s: %s", of.what, got)
		}
	}
	s := newInstalling()
	for i := range s.Servers {
		s.see(i, bmc.PowerOn, bmc.PowerOn)
	}
	s.pass(time.Second)
	expect(t, s.orders(), "")
	expect(t, s.installed(), "False Held")
	s.Chassis.Spec.Boot.Install = v1alpha1.InstallNever
	s.pass(time.Second)
	for _, condition := range s.Chassis.Status.Conditions {
		if condition.Type == v1alpha1.ConditionInstalled {
			t.Error("a condition of what is not wanted")
		}
	}
}

// What speaks against beginning speaks against going on.
func TestInstallStopsInTheMiddle(t *testing.T) {
	for what, change := range map[string]func(s *installing, server *v1alpha1.Server){
		"box hosts fail": func(s *installing, _ *v1alpha1.Server) { s.BoxHosts.Hosts[0].Ready = false },
		"another blade":  func(_ *installing, server *v1alpha1.Server) { server.Spec.AcceptedSerial = "another" },
		"ordered off": func(_ *installing, server *v1alpha1.Server) {
			server.Spec.Order = &v1alpha1.PowerOrder{ID: "somebody", Action: v1alpha1.ActionOff}
		},
		"isolated": func(_ *installing, server *v1alpha1.Server) {
			server.Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "broken"}
		},
	} {
		s := newInstalling()
		s.orders()
		s.bootDone(0, v1alpha1.OrderDone)
		object := s.Servers[0].Object.DeepCopy()
		change(s, object)
		s.Servers[0].Object = object
		s.plan() // its condition
		s.pass(time.Second)
		if got := s.orders(); strings.Contains(got, " On ") {
			t.Errorf("%s: %s", what, got)
		}
		if got := s.installed(); strings.HasPrefix(got, "True") {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// TestInstallWorld has blades that fail at random, and people who interfere at random. Rules are checked after each plan.
func TestInstallWorld(t *testing.T) {
	t.Parallel()
	for seed := range uint64(installSeeds) {
		if broken := installWorld(seed, nil); broken != "" {
			t.Errorf("seed %d: %s", seed, broken)
		}
	}
}

// TestPlantedBugsOfInstalls: each of them is found.
func TestPlantedBugsOfInstalls(t *testing.T) {
	for name, bug := range map[string]func(*plan.Plan, *installing){
		"a node is installed": func(made *plan.Plan, s *installing) {
			for i := range s.Servers {
				if s.status(i).Join != nil {
					made.Orders = append(made.Orders, plan.ServerOrder{
						Server: s.Servers[i].Object.Name, Boot: &v1alpha1.BootOrder{ID: "install-1", Device: v1alpha1.BootNetwork},
					})
				}
			}
		},
		"an order of a person is replaced": func(made *plan.Plan, s *installing) {
			for i := range s.Servers {
				if boot := s.Servers[i].Object.Spec.Boot; boot != nil && boot.ID == personsOrder {
					made.Orders = append(made.Orders, plan.ServerOrder{
						Server: s.Servers[i].Object.Name, Boot: &v1alpha1.BootOrder{ID: "install-1", Device: v1alpha1.BootNetwork},
					})
				}
			}
		},
		"an order to switch off is overridden": func(made *plan.Plan, s *installing) {
			for i := range s.Servers {
				if order := s.Servers[i].Object.Spec.Order; order != nil && order.ID == switchOff {
					made.Orders = append(made.Orders, plan.ServerOrder{
						Server: s.Servers[i].Object.Name, Power: &v1alpha1.PowerOrder{ID: "install-1", Action: v1alpha1.ActionOn},
					})
				}
			}
		},
		"it is tried for ever": func(made *plan.Plan, s *installing) {
			for i := range s.Servers {
				if boot := s.Servers[i].Object.Spec.Boot; boot != nil && boot.ID == "install-3" && len(made.Orders) == 0 {
					made.Orders = append(made.Orders, plan.ServerOrder{
						Server: s.Servers[i].Object.Name, Boot: &v1alpha1.BootOrder{ID: "install-4", Device: v1alpha1.BootNetwork},
					})
				}
			}
		},
		"all at once": func(made *plan.Plan, s *installing) {
			made.Orders = nil
			for i := range s.Servers {
				if s.Servers[i].Object.Spec.Boot == nil {
					made.Orders = append(made.Orders, plan.ServerOrder{
						Server: s.Servers[i].Object.Name, Boot: &v1alpha1.BootOrder{ID: "install-1", Device: v1alpha1.BootNetwork},
					})
				}
			}
		},
		"nobody is installed": func(made *plan.Plan, _ *installing) { made.Orders = nil },
	} {
		seed := uint64(0)
		for seed < installSeeds && installWorld(seed, bug) == "" {
			seed++
		}
		if seed == installSeeds {
			t.Errorf("the planted bug is not found: %s", name)
		}
	}
}

const (
	personsOrder = "person"
	switchOff    = "off"
	installSeeds = 40
	installSteps = 240
)

// installWorld says which rule is broken; empty: none.
func installWorld(seed uint64, bug func(*plan.Plan, *installing)) string {
	random := rand.New(rand.NewPCG(seed, 0))
	s := newInstalling()
	works, interferes := make([]bool, len(s.Servers)), make([]string, len(s.Servers))
	for i := range s.Servers {
		works[i], interferes[i] = random.IntN(3) > 0, []string{"", "", "isolate", personsOrder, switchOff}[random.IntN(5)]
	}
	at := random.IntN(60)
	for step := range installSteps {
		if step == at {
			for i, how := range interferes {
				s.interfere(i, how)
			}
		}
		s.pass(time.Minute)
		if bug != nil {
			bug(&s.made, s)
		}
		if broken := s.broken(); broken != "" {
			return fmt.Sprintf("step %d: %s", step, broken)
		}
		s.orders()
		for i := range s.Servers {
			s.live(i, works[i])
		}
	}
	for i := range s.Servers {
		if works[i] && interferes[i] == "" && s.status(i).Join == nil {
			return fmt.Sprintf("%s works, and is no node: %s", s.Servers[i].Object.Name, s.installed())
		}
	}
	return ""
}

// interfere is what a person does.
func (s *installing) interfere(i int, how string) {
	object := s.Servers[i].Object.DeepCopy()
	switch how {
	case "isolate":
		object.Spec.Isolated = &v1alpha1.ServerIsolationSpec{Reason: "broken"}
	case switchOff:
		object.Spec.Order = &v1alpha1.PowerOrder{ID: switchOff, Action: v1alpha1.ActionOff}
	case personsOrder:
		object.Spec.Boot = &v1alpha1.BootOrder{ID: personsOrder, Device: v1alpha1.BootNetwork}
	}
	s.Servers[i].Object = object
}

// live is what a blade and its BMC do in a minute.
func (s *installing) live(i int, works bool) {
	spec, status := &s.Servers[i].Object.Spec, s.status(i)
	switch {
	case spec.Boot != nil && (status.Boot == nil || status.Boot.ID != spec.Boot.ID || status.Boot.State != v1alpha1.OrderDone):
		s.bootDone(i, v1alpha1.OrderDone)
	case spec.Order != nil && (status.Order == nil || status.Order.ID != spec.Order.ID || status.Order.State != v1alpha1.OrderDone):
		s.started(i)
	case spec.Order != nil && works && status.Join == nil:
		s.joins(i)
	}
}

// broken is a rule that the orders of this plan break.
func (s *installing) broken() string {
	underWay := 0
	for i := range s.Servers {
		object := s.Servers[i].Object
		isOurs := object.Spec.Boot != nil && strings.HasPrefix(object.Spec.Boot.ID, "install-")
		isGivenUp := strings.Contains(s.installed(), object.Name+" (it is no node") ||
			object.Spec.Order != nil && object.Spec.Order.ID == switchOff
		if isOurs && object.Status.Join == nil && object.Spec.Isolated == nil && !isGivenUp {
			underWay++
		}
	}
	for _, order := range s.made.Orders {
		at := slices.IndexFunc(s.Servers, func(server plan.Server) bool { return server.Object.Name == order.Server })
		object := s.Servers[at].Object
		switch {
		case object.Status.Join != nil:
			return order.Server + " is a node, and is installed"
		case object.Spec.Isolated != nil:
			return order.Server + " is isolated, and gets an order"
		case object.Spec.Order != nil && object.Spec.Order.ID == switchOff:
			return order.Server + " was ordered off, and gets an order"
		case object.Spec.Boot != nil && object.Spec.Boot.ID == personsOrder:
			return order.Server + " has an order of a person, which is replaced"
		case order.Boot != nil && order.Boot.ID == "install-4":
			return order.Server + " is tried a fourth time"
		case order.Boot != nil && object.Spec.Boot == nil:
			underWay++
		}
	}
	if underWay > int(s.Chassis.Spec.Power.StartsAtOnce) {
		return fmt.Sprintf("%d are installed at once", underWay)
	}
	return ""
}
