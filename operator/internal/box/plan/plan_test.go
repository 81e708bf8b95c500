package plan_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// Nothing changes in a status while nothing happens, however often it is planned.
func TestNothingIsWrittenWhileNothingHappens(t *testing.T) {
	for _, power := range []bmc.Power{bmc.PowerOn, bmc.PowerOff} {
		s := newScene(power)
		for range 30 {
			before := s.made
			s.pass(2 * time.Second)
			if len(s.made.Steps) > 0 || !isSame(before, s.made) {
				t.Fatalf("%s: something is written, or done: %v", power, s.made.Steps)
			}
		}
		before := s.made
		for i := range s.Servers { // the operator is started anew
			s.Servers[i] = plan.Server{Object: s.Servers[i].Object}
		}
		for i := range s.Managers {
			s.Managers[i] = plan.Manager{Address: s.Managers[i].Address}
		}
		s.plan()
		if !isSame(before, s.made) {
			t.Errorf("an operator that has seen nothing yet writes something: %+v", s.made.Servers["atom003"])
		}
	}
}

func isSame(a, b plan.Plan) bool {
	return reflect.DeepEqual(a.Servers, b.Servers) && reflect.DeepEqual(a.Chassis, b.Chassis)
}

func TestOrders(t *testing.T) {
	for name, test := range map[string]struct {
		power  bmc.Power
		action v1alpha1.PowerAction
		change func(s *scene)
		steps  string
		says   string
	}{
		"on":         {bmc.PowerOff, v1alpha1.ActionOn, nil, "On atom003", "Running: the server was told to switch on"},
		"is on":      {bmc.PowerOn, v1alpha1.ActionOn, nil, "", "Done: the server is on already"},
		"is off":     {bmc.PowerOff, v1alpha1.ActionOff, nil, "", "Done: the server is off already"},
		"soft":       {bmc.PowerOn, v1alpha1.ActionSoft, nil, "Soft atom003", "Running: it is asked to shut down"},
		"off":        {bmc.PowerOn, v1alpha1.ActionOff, nil, "Off atom003", "Running: the server is being switched off"},
		"cycle":      {bmc.PowerOn, v1alpha1.ActionCycle, nil, "Off atom003", "Running"},
		"cycle off":  {bmc.PowerOff, v1alpha1.ActionCycle, nil, "On atom003", "Running: the server was told to switch on"},
		"reset":      {bmc.PowerOn, v1alpha1.ActionReset, nil, "Reset atom003", "Running"},
		"reset off":  {bmc.PowerOff, v1alpha1.ActionReset, nil, "", "Refused: the server is off: order On"},
		"wanted on":  {bmc.PowerOn, v1alpha1.ActionOff, want(v1alpha1.WantOn), "", "Refused: spec.power is On"},
		"wanted off": {bmc.PowerOff, v1alpha1.ActionOn, want(v1alpha1.WantOff), "", "Refused: spec.power is Off"},
		"members": {
			bmc.PowerOn,
			v1alpha1.ActionSoft,
			members,
			"",
			"Refused: db-3 of Store default/db runs on it: drain it; and 1 more members; force loses 12 objects",
		},
		"forced": {
			bmc.PowerOn,
			v1alpha1.ActionSoft,
			func(s *scene) { members(s); s.Servers[2].Object.Spec.Order.Force = true },
			"Soft atom003",
			"Running",
		},
		"silent": {
			bmc.PowerUnknown,
			v1alpha1.ActionOff,
			silent,
			"",
			"Waiting: waiting for BMC 192.168.5.3, which does not answer",
		},
		"not asked": {
			bmc.PowerUnknown,
			v1alpha1.ActionOff,
			func(s *scene) { s.Servers[2].MMC = plan.Contact{} },
			"",
			"Waiting: waiting for the BMC, which has not answered yet",
		},
		"password": {bmc.PowerOn, v1alpha1.ActionOff, func(s *scene) {
			s.Servers[2].MMC.Err = &bmc.RefusedError{Reason: bmc.RefusedCredentials}
		}, "", "Failed: its BMC 192.168.5.3 refuses: user name or password is wrong"},
		"contradiction": {
			bmc.PowerOn,
			v1alpha1.ActionOff,
			func(s *scene) { s.see(2, bmc.PowerOff, bmc.PowerOn) },
			"Off atom003",
			"Running",
		},
		"unknown on": {
			bmc.PowerOn,
			v1alpha1.ActionOn,
			func(s *scene) { s.see(2, bmc.PowerOff, bmc.PowerOn) },
			"",
			"whether the server is on is not known: the power reading of its slot says On, and its BMC says Off",
		},
		"refused chassis": {bmc.PowerOn, v1alpha1.ActionOff, func(s *scene) {
			s.Layout.Problems = []layout.Problem{{Field: "spec.slots", Text: "is wrong"}}
		}, "", "Refused: its Chassis mercury1 is not accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(test.power)
			s.order(2, test.action)
			if test.change != nil {
				test.change(s)
			}
			expect(t, steps(s.plan()), test.steps)
			expect(t, s.orderOf(2), test.says)
			if again := steps(s.plan()); again != "" {
				t.Errorf("what is on record is done again: %s", again)
			}
		})
	}
}

func want(power v1alpha1.WantedPower) func(*scene) {
	return func(s *scene) { s.Servers[2].Object.Spec.Power = power }
}

func members(s *scene) {
	s.Members = map[string][]plan.Blocker{"atom003": {
		{Store: "default/db", Member: "db-3", Why: "drain it", Loses: "12 objects"}, {Store: "default/db", Member: "db-4", Why: "drain it"},
	}}
}

func silent(s *scene) {
	s.Servers[2].MMC = plan.Contact{AskedAt: s.now, AnsweredAt: s.now.Add(-time.Hour), Err: bmc.ErrSilent}
	s.Servers[2].Power = plan.Sight{}
}

// A Cycle takes the power away, waits for proof, and gives it back; an operator that is started anew in between goes on.
func TestCycle(t *testing.T) {
	for _, isKilled := range []bool{false, true} {
		s := newScene(bmc.PowerOn)
		s.order(2, v1alpha1.ActionCycle)
		expect(t, steps(s.plan()), "Off atom003")
		s.pass(time.Second)
		expect(t, steps(s.made), "")
		s.see(2, bmc.PowerOff, bmc.PowerOn) // the chassis manager has not looked again yet
		s.pass(time.Second)
		expect(t, steps(s.made), "")
		if isKilled {
			seen := s.Servers[2]
			s.Servers[2] = plan.Server{Object: seen.Object}
			s.now = s.now.Add(time.Hour)
			expect(t, steps(s.plan()), "")
			s.Servers[2] = seen
		}
		s.see(2, bmc.PowerOff, bmc.PowerOff)
		expect(t, steps(s.plan()), "On atom003")
		if s.Servers[2].Object.Status.LastOff != nil {
			t.Error("lastOff is on record while it is switched on")
		}
		s.pass(time.Second)
		s.see(2, bmc.PowerOn, bmc.PowerOn)
		s.plan()
		expect(t, s.orderOf(2), "Done: the server is on again")
	}
}

// A Cycle is done only if the server was off, according to both witnesses if there are two. Its power is given back in any case. An
// operator that is restarted in between still knows whether the server was seen off.
func TestCycleWithoutProof(t *testing.T) {
	for name, test := range map[string]struct {
		model  string
		second bmc.Power
		says   string
	}{
		"the second witness does not know": {
			"EmulatedRack", bmc.PowerUnknown, "Failed: the server is on, but no second witness has seen within 1m0s",
		},
		"the second witness has seen it, too": {"EmulatedRack", bmc.PowerOff, "Done: the server is on again"},
		"there is no second witness":          {"Generic", bmc.PowerUnknown, "Done: the server is on again"},
	} {
		s := newScene(bmc.PowerOn)
		s.Chassis.Spec.Model = test.model
		s.Layout = layout.Of([]v1alpha1.Chassis{*s.Chassis})[s.Chassis.Name]
		s.order(2, v1alpha1.ActionCycle)
		expect(t, steps(s.plan()), "Off atom003")
		s.now = s.now.Add(time.Second)
		s.see(2, bmc.PowerOff, test.second)
		given := ""
		for range 120 {
			s.pass(time.Second)
			if given += steps(s.made); given != "" {
				break
			}
		}
		if given != "On atom003" {
			t.Errorf("%s: it is told %q, and the order is %s", name, given, s.orderOf(2))
		}
		seen := s.Servers[2]
		s.Servers[2] = plan.Server{Object: seen.Object} // the operator is started anew
		s.plan()
		object := s.Servers[2].Object
		s.Servers[2] = seen
		s.Servers[2].Object = object
		s.pass(time.Second)
		s.see(2, bmc.PowerOn, bmc.PowerOn)
		s.plan()
		if order := s.orderOf(2); !strings.HasPrefix(order, test.says) {
			t.Errorf("%s: %s", name, order)
		}
	}
}

// An order to switch off is given again, but not for ever.
func TestServerThatStaysOn(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.order(2, v1alpha1.ActionOff)
	s.plan()
	given := len(s.made.Steps)
	for range 100 {
		s.pass(5 * time.Second)
		given += len(s.made.Steps)
	}
	expect(t, s.orderOf(2), "Failed: the BMC was told 3 times to switch the server off, and the server is on")
	if given != 3 {
		t.Errorf("it was told %d times", given)
	}
}

// Shutting down is waited for; only force, or spec.power, takes the power away after that.
// A model says how long a BMC takes to carry out a command: after that, and not before, the command is given again.
func TestCommandTime(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{0: 30 * time.Second, 2: 17 * time.Second, 60: 75 * time.Second} {
		s := newScene(bmc.PowerOn)
		model := *s.Layout.Model
		model.Server.CommandSeconds = seconds
		s.Layout.Model = &model
		s.order(2, v1alpha1.ActionOff)
		var told []time.Time
		for range 100 {
			s.pass(time.Second) // and plans
			if len(s.made.Steps) > 0 {
				told = append(told, s.now)
			}
		}
		if len(told) < 2 || told[1].Sub(told[0]) <= want || told[1].Sub(told[0]) > want+3*time.Second {
			t.Errorf("of a BMC that takes %d s, its commands were given at %v, not %s apart", seconds, told, want)
		}
	}
}

func TestShutdownThatHangs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*scene)
		steps  string
		says   string
	}{
		"order": {
			func(s *scene) { s.order(2, v1alpha1.ActionSoft) },
			"Soft atom003",
			"Failed: the server is on after 5m0s; to take its power away, order Off",
		},
		"force": {
			func(s *scene) { s.order(2, v1alpha1.ActionSoft); s.Servers[2].Object.Spec.Order.Force = true },
			"Soft atom003, Off atom003",
			"Running",
		},
		"spec": {want(v1alpha1.WantOff), "Soft atom003, Off atom003", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			test.change(s)
			s.plan()
			var all []string
			for range 63 {
				if text := steps(s.made); text != "" {
					all = append(all, text)
				}
				for i := range s.Servers { // its BMC has said yes
					if change := s.Servers[i].Object.Status.Change; change != nil {
						s.Servers[i].Answer = &plan.Answer{TriedAt: change.TriedAt.Time}
					}
				}
				s.pass(5 * time.Second)
			}
			if got := strings.Join(all, ", "); got != test.steps {
				t.Errorf("%s, not %s", got, test.steps)
			}
			expect(t, s.orderOf(2), test.says)
		})
	}
}

// Without a second witness that can be there, the BMC's word is enough for an order, and no proof.
func TestProof(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.order(2, v1alpha1.ActionOff)
	s.plan()
	s.pass(time.Second)
	s.see(2, bmc.PowerOff, bmc.PowerUnknown)
	s.plan()
	expect(t, s.orderOf(2), "Running: its BMC says that the server is off; waiting for a second witness")
	expect(t, s.condition("PoweredOn"), "False Off: its BMC says that the server is off, which is no proof")
	s.Servers[2].Link = plan.Sight{Power: bmc.PowerOff, At: s.now}
	s.plan()
	expect(t, s.orderOf(2), "Done: the server is off, as MMC and SwitchLink say")
	expect(t, s.condition("PoweredOn"), "False ProvedOff: two witnesses")
	if last := s.Servers[2].Object.Status.LastOff; last == nil || !last.At.Time.Equal(s.now) {
		t.Errorf("lastOff is %v", last)
	}
	s.pass(time.Second)
	s.see(2, bmc.PowerUnknown, bmc.PowerOn)
	s.plan()
	if s.Servers[2].Object.Status.LastOff != nil {
		t.Error("lastOff is on record, and the slot draws power")
	}

	s = newScene(bmc.PowerOn)
	s.Managers = nil
	s.order(2, v1alpha1.ActionOff)
	s.plan()
	s.now = s.now.Add(time.Second)
	s.see(2, bmc.PowerOff, bmc.PowerUnknown)
	s.plan()
	expect(t, s.orderOf(2), "Done: the server is off according to its BMC; there is no second witness")
	if s.Servers[2].Object.Status.LastOff != nil {
		t.Error("lastOff is on record, and there is one witness")
	}
}

// All servers of a chassis by one command to its manager, and never one that nobody has asked for.
func TestWholeChassis(t *testing.T) {
	s := newScene(bmc.PowerOff)
	for i := range s.Servers {
		s.order(i, v1alpha1.ActionOn)
	}
	expect(t, steps(s.plan()), "On all by 192.168.5.201")

	s = newScene(bmc.PowerOff)
	for i := range s.Servers[:4] {
		s.order(i, v1alpha1.ActionOn)
	}
	expect(t, steps(s.plan()), "On atom001, On atom002")
	expect(t, s.orderOf(3), "waiting until fewer than 2 servers are starting (power.startsAtOnce)")

	s = newScene(bmc.PowerOn)
	for i := range s.Servers {
		s.order(i, v1alpha1.ActionSoft)
	}
	expect(t, steps(s.plan()), "Soft all by 192.168.5.201")
	for i := range s.Servers { // it cannot: each is told by itself
		s.Servers[i].Answer = &plan.Answer{TriedAt: s.now, Err: &bmc.UnsupportedError{What: "power"}}
	}
	s.pass(time.Second)
	expect(t, steps(s.made), "Soft atom001, Soft atom002, Soft atom003, Soft atom004, Soft atom005")

	s = newScene(bmc.PowerOn)
	for i := range s.Servers {
		s.order(i, v1alpha1.ActionSoft)
	}
	members(s)
	expect(t, steps(s.plan()), "Soft atom001, Soft atom002, Soft atom004, Soft atom005")
}

// An order that all servers of the chassis are given waits for the last of them to have it, and then is one command. It waits for nobody
// else: not for more servers than it is given to, and not for ever for a user who was killed while giving it.
func TestOrderThatComesBitByBit(t *testing.T) {
	for name, test := range map[string]struct {
		action  v1alpha1.PowerAction
		power   bmc.Power
		servers int32
		// steps after each server has the order but the last, then after that one has it, too, and after a look more.
		before, after, later string
	}{
		"up":           {v1alpha1.ActionOn, bmc.PowerOff, 5, "", "", "On all by 192.168.5.201"},
		"down":         {v1alpha1.ActionSoft, bmc.PowerOn, 5, "", "", "Soft all by 192.168.5.201"},
		"more chassis": {v1alpha1.ActionSoft, bmc.PowerOn, 132, "", "", "Soft all by 192.168.5.201"},
		"each by itself": {
			v1alpha1.ActionSoft, bmc.PowerOn, 0, "Soft atom001, Soft atom002, Soft atom003, Soft atom004", "Soft atom005", "",
		},
		"not all": {v1alpha1.ActionSoft, bmc.PowerOn, 4, "Soft atom001, Soft atom002, Soft atom003, Soft atom004", "Soft atom005", ""},
		"what no manager does": {
			v1alpha1.ActionOff, bmc.PowerOn, 5, "Off atom001, Off atom002, Off atom003, Off atom004", "Off atom005", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(test.power)
			give := func(i int) {
				s.order(i, test.action)
				s.Servers[i].Object.Spec.Order.ID, s.Servers[i].Object.Spec.Order.Servers = "together", test.servers
			}
			var before []string
			for i := range 4 {
				give(i)
				s.pass(time.Second)
				if text := steps(s.made); text != "" {
					before = append(before, text)
				}
			}
			expect(t, strings.Join(before, ", "), test.before)
			give(4)
			s.pass(time.Second)
			expect(t, steps(s.made), test.after)
			s.pass(time.Second)
			expect(t, steps(s.made), test.later)
		})
	}
	s := newScene(bmc.PowerOn)
	for i := range 3 {
		s.order(i, v1alpha1.ActionSoft)
		s.Servers[i].Object.Spec.Order.Servers = 5
	}
	for range 4 {
		expect(t, steps(s.plan()), "")
		expect(t, s.orderOf(2), "Waiting: waiting until all servers of the chassis have this order")
		s.now = s.now.Add(time.Second)
	}
	s.pass(0)
	expect(t, steps(s.made), "Soft atom001, Soft atom002, Soft atom003")
}

// A slot whose name is taken keeps no other from being switched, and no command to all has an effect on it.
func TestNamesThatAreTaken(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.Taken = []string{"atom006"}
	for i := range s.Servers {
		s.order(i, v1alpha1.ActionSoft)
	}
	expect(t, steps(s.plan()), "Soft atom001, Soft atom002, Soft atom003, Soft atom004, Soft atom005")
	expect(t, s.chassisCondition("Accepted"), "False NameTaken: there are Servers of these names which this Chassis does not own, so "+
		"these slots are not looked after: atom006; delete such a Server, or set another firstServer or namePrefix")
}

// No more start at once than may, and none without power for it.
func TestBudget(t *testing.T) {
	s := newScene(bmc.PowerOff)
	s.Chassis.Spec.Power.BudgetWatts = 50
	for i := range s.Servers {
		s.Servers[i].Object.Spec.Power = v1alpha1.WantOn
	}
	expect(t, steps(s.plan()), "On atom001, On atom002")
	s.pass(time.Second)
	s.see(0, bmc.PowerOn, bmc.PowerOn)
	s.see(1, bmc.PowerOn, bmc.PowerOn)
	for range 60 {
		s.pass(5 * time.Second)
		expect(t, steps(s.made), "")
	}
	expect(t, s.condition("PoweredOn"), "a start takes 22 W, and less is left of 50 W (power.budgetWatts)")
	s.Servers[0].Object.Spec.Power, s.Servers[1].Object.Spec.Power = v1alpha1.WantUnmanaged, v1alpha1.WantUnmanaged
	s.see(0, bmc.PowerUnknown, bmc.PowerUnknown) // it may be on
	s.plan()
	expect(t, steps(s.made), "")
	s.see(0, bmc.PowerOff, bmc.PowerOff)
	s.plan()
	expect(t, steps(s.made), "On atom003")
}
