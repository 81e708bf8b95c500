package plan_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// scene is a chassis in which everything is as it should be, for a test to change one thing.
type scene struct {
	*plan.Observed

	now  time.Time
	made plan.Plan
	// lastWhole is the last command to the chassis manager.
	lastWhole plan.Step
}

// newScene has five servers that are all on, or all off.
func newScene(power bmc.Power) *scene {
	s := &scene{now: at(1000)}
	chassis := newChassis()
	chassis.Spec.Power.StartsAtOnce = 2
	s.Observed = &plan.Observed{
		Times: plan.DefaultTimes, Chassis: chassis, Layout: layout.Of([]v1alpha1.Chassis{*chassis})[chassis.Name],
	}
	for i := range s.Layout.Servers {
		object := &v1alpha1.Server{}
		object.Name, object.Spec.Power = s.Layout.Servers[i].Name, v1alpha1.WantUnmanaged
		guid := fmt.Sprintf("%08d-1111-2222-3333-444444444444", i+1)
		s.Servers = append(s.Servers, plan.Server{
			Object: object, Sensors: []bmc.Sensor{}, IdentityAt: s.now,
			Identity: &bmc.Identity{
				SystemGUID: guid,
				Serial:     fmt.Sprint("S", i+1),
				Slot:       i + 1,
				MACs:       map[int]string{1: fmt.Sprintf("02:00:00:00:00:%02x", i)},
			},
		})
		s.Nodes = append(s.Nodes, plan.Node{
			Name: object.Name, SystemUUID: guid, Ready: power == bmc.PowerOn, SilentFrom: s.now.Add(time.Hour),
		})
	}
	for _, address := range chassis.Spec.Management.CMM {
		s.Managers = append(s.Managers, plan.Manager{Address: address})
	}
	for i := range s.Servers {
		s.see(i, power, power)
	}
	s.settle()
	return s
}

// grace is how long after a command was planned it may still take effect.
func (s *scene) grace() time.Duration {
	return s.Times.Given + s.Layout.Model.CommandTime(s.Times.Grace-s.Times.Given)
}

// see lets a server's BMC and the chassis manager say something now.
func (s *scene) see(i int, own, manager bmc.Power) {
	of := &s.Servers[i]
	of.MMC = plan.Contact{AskedAt: s.now, AnsweredAt: s.now}
	of.Power = plan.Sight{Power: own, At: s.now}
	watts := map[bmc.Power]float64{bmc.PowerOn: 22, bmc.PowerUnknown: 6}[manager]
	name := fmt.Sprintf("Slot %02d Power", i+1)
	for j := range s.Managers {
		m := &s.Managers[j]
		m.Contact, m.SensorsAt = plan.Contact{AskedAt: s.now, AnsweredAt: s.now}, s.now
		sensors := []bmc.Sensor{{Name: "In Charge", Value: float64(1 - j)}, {Name: name, Value: watts}}
		for n := range 4 {
			sensors = append(sensors, bmc.Sensor{Name: fmt.Sprint("Fan ", n+1), Value: 42})
		}
		for n := range 2 {
			sensors = append(sensors, bmc.Sensor{Name: fmt.Sprint("PSU ", n+1), Value: 120, Unit: "W"})
		}
		for _, sensor := range m.Sensors {
			if strings.HasPrefix(sensor.Name, "Slot") && sensor.Name != name {
				sensors = append(sensors, sensor)
			}
		}
		m.Sensors = sensors
	}
}

// plan plans, and puts what it says on record.
func (s *scene) plan() plan.Plan {
	s.made = plan.Make(s.now, s.Observed)
	for _, step := range s.made.Steps {
		if step.Manager != "" {
			s.lastWhole = step
		}
	}
	for i := range s.Servers {
		s.Servers[i].Object = s.Servers[i].Object.DeepCopy()
		s.Servers[i].Object.Status = *s.made.Servers[s.Servers[i].Object.Name].DeepCopy()
	}
	s.Chassis.Status = *s.made.Chassis.DeepCopy()
	return s.made
}

// settle lets enough time pass for nothing to count as starting.
func (s *scene) settle() {
	s.plan()
	s.pass(2 * time.Minute)
}

// pass lets time pass in which all say again what they said.
func (s *scene) pass(d time.Duration) {
	s.now = s.now.Add(d)
	for i := range s.Servers {
		of := &s.Servers[i]
		of.MMC.AskedAt = s.now
		if of.MMC.Err == nil {
			of.MMC.AnsweredAt, of.Power.At, of.IdentityAt = s.now, s.now, s.now
		}
	}
	for i := range s.Managers {
		of := &s.Managers[i]
		of.AskedAt = s.now
		if of.Err == nil {
			of.AnsweredAt, of.SensorsAt = s.now, s.now
		}
	}
	s.plan()
}

func (s *scene) order(i int, action v1alpha1.PowerAction) {
	object := s.Servers[i].Object.DeepCopy()
	object.Spec.Order = &v1alpha1.PowerOrder{ID: fmt.Sprint(s.now.Unix(), action), Action: action}
	s.Servers[i].Object = object
}

func (s *scene) orderOf(i int) string {
	order := s.Servers[i].Object.Status.Order
	if order == nil {
		return ""
	}
	return string(order.State) + ": " + order.Message
}

func (s *scene) condition(name string) string {
	c := meta.FindStatusCondition(s.Servers[2].Object.Status.Conditions, name)
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

func (s *scene) chassisCondition(name string) string {
	c := meta.FindStatusCondition(s.Chassis.Status.Conditions, name)
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

func steps(made plan.Plan) string {
	var all []string
	for _, step := range made.Steps {
		to := strings.Join(step.Servers, " ")
		if step.Manager != "" {
			to = "all by " + step.Manager
		}
		all = append(all, step.Action.String()+" "+to)
	}
	return strings.Join(all, ", ")
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) || want == "" && got != "" {
		t.Errorf("%q does not say %q", got, want)
	}
}

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

// frozen is a node that Kubernetes calls Ready still, and from which nobody hears any more.
func frozen(s *scene) {
	s.Nodes[2].Ready, s.Nodes[2].SilentFrom, s.Requests[0].ProvedDead = true, s.now, true
}

func TestFencing(t *testing.T) {
	request := plan.FenceRequest{Namespace: "default", Store: "db", Node: "atom003"}
	for name, test := range map[string]struct {
		change func(s *scene)
		state  plan.FenceState
		says   string
		steps  string
	}{
		"lost": {nil, plan.FenceRunning, "atom003 is being switched off: the server is on", "Off atom003"},
		"forbidden": {
			func(s *scene) { s.Chassis.Spec.Fencing.Namespaces = []string{"other"} },
			plan.FenceRefused,
			"spec.fencing.namespaces of Chassis mercury1 does not list namespace default",
			"",
		},
		"ready": {
			func(s *scene) { s.Nodes[2].Ready, s.Nodes[2].SilentFrom = true, s.now },
			plan.FenceWaiting, "node atom003 is Ready, and the status of Store db does not say that its member there is proved dead", "",
		},
		"dead": {frozen, plan.FenceRunning, "switched off", "Off atom003"},
		"heard": {
			func(s *scene) { frozen(s); s.Nodes[2].SilentFrom = s.now.Add(time.Second) },
			plan.FenceWaiting, "node atom003 is Ready, and its kubelet renews its Lease", "",
		},
		"cordoned": {
			func(s *scene) { frozen(s); s.Nodes[2].Cordoned = true },
			plan.FenceWaiting, "node atom003 is Ready, and cordoned: somebody may be working on it", "",
		},
		"never heard": {
			func(s *scene) { frozen(s); s.Nodes[2].SilentFrom = time.Time{} },
			plan.FenceWaiting, "node atom003 is Ready, and its kubelet renews its Lease", "",
		},
		"others": {
			func(s *scene) { frozen(s); s.Nodes[2].Alive = []string{"other-1 of Store default/other"} },
			plan.FenceWaiting, "node atom003 is Ready, and other-1 of Store default/other there is not declared dead", "",
		},
		"another Store serves": {
			func(s *scene) { s.Nodes[2].Serving = []plan.Process{{Store: "default/other", Name: "other-master-1"}} },
			plan.FenceWaiting, "node atom003 is not Ready, and other-master-1 of Store default/other there serves", "",
		},
		"the Store itself serves": {
			func(s *scene) { s.Nodes[2].Serving = []plan.Process{{Store: "default/db", Name: "db-master-1"}} },
			plan.FenceRunning, "switched off", "Off atom003",
		},
		"another Store serves, and asks": {
			func(s *scene) {
				s.Nodes[2].Serving = []plan.Process{{Store: "default/other", Name: "other-master-1"}}
				s.asks("default", "other", 2)
			},
			plan.FenceRunning, "switched off", "Off atom003",
		},
		"another Store serves, and asks for another node": {
			func(s *scene) {
				s.Nodes[2].Serving = []plan.Process{{Store: "default/other", Name: "other-master-1"}}
				s.asks("default", "other", 3)
			},
			plan.FenceWaiting, "other-master-1 of Store default/other there serves", "",
		},
		"a stranger serves, and asks": {
			func(s *scene) {
				s.Nodes[2].Serving = []plan.Process{{Store: "stranger/other", Name: "other-master-1"}}
				s.asks("stranger", "other", 2)
			},
			plan.FenceWaiting, "other-master-1 of Store stranger/other there serves", "",
		},
		"silent kubelets": {
			func(s *scene) { frozen(s); s.Nodes[0].SilentFrom, s.Nodes[1].SilentFrom = s.now, s.now },
			plan.FenceWaiting, "other Ready nodes are not heard either (2), which points to a fault of the network", "",
		},
		"kubelets not heard yet": {
			func(s *scene) { frozen(s); s.Nodes[0].SilentFrom, s.Nodes[1].SilentFrom = time.Time{}, time.Time{} },
			plan.FenceWaiting, "other Ready nodes are not heard either (2), which points to a fault of the network", "",
		},
		"one more silent kubelet": {
			func(s *scene) { frozen(s); s.Nodes[0].SilentFrom = s.now },
			plan.FenceRunning, "switched off", "Off atom003",
		},
		"no GUID": {
			func(s *scene) { s.Servers[2].Identity.SystemGUID = "" },
			plan.FenceWaiting,
			"no BMC of Chassis mercury1 reports the system GUID of node atom003",
			"",
		},
		"unset GUID": {func(s *scene) { s.setGUID(2, "00000000-0000-0000-0000-000000000000") }, plan.FenceWaiting, "no BMC", ""},
		"GUID twice": {
			func(s *scene) {
				s.Servers[3].Identity.SystemGUID = s.Servers[2].Identity.SystemGUID
				s.Requests[0].SystemUUID = s.Nodes[2].SystemUUID
			},
			plan.FenceWaiting, "the BMCs of atom003 and atom004 report the same system GUID", "",
		},
		"GUID twice on record": {
			func(s *scene) {
				s.Servers[3].Identity = nil
				s.Servers[3].Object.Status.MMC.SystemGUID = s.Servers[2].Identity.SystemGUID
			},
			plan.FenceWaiting, "the BMCs of atom003 and atom004 report the same system GUID", "",
		},
		"GUID elsewhere": {
			func(s *scene) {
				s.ElsewhereGUIDs = []plan.GUIDOf{{Server: "atom077", SystemGUID: s.Nodes[2].SystemUUID}}
			},
			plan.FenceWaiting,
			"the BMCs of atom003 and atom077 report the same system GUID 00000003-1111-2222-3333-444444444444, so which of them " +
				"node atom003 runs on is not known", "",
		},
		"another GUID elsewhere": {
			func(s *scene) {
				s.ElsewhereGUIDs = []plan.GUIDOf{{Server: "atom077", SystemGUID: s.Nodes[1].SystemUUID}}
			},
			plan.FenceRunning, "atom003 is being switched off", "Off atom003",
		},
		"swapped bytes": {func(s *scene) {
			s.Servers[2].Identity.SystemGUID = "33221100-5544-7766-8899-aabbccddeeff"
			s.Nodes[2].SystemUUID = "00112233-4455-6677-8899-AABBCCDDEEFF"
		}, plan.FenceRunning, "switched off", "Off atom003"},
		"slot not named": {
			func(s *scene) { s.Servers[2].Identity.Slot = 0 }, plan.FenceWaiting,
			"atom003 has no second witness: the server's hardware does not report its slot", "",
		},
		"another slot": {func(s *scene) { s.Servers[2].Identity.Slot = 4 }, plan.FenceWaiting, "reports slot 4, not slot 3", ""},
		"another name": {
			func(s *scene) { s.Nodes[2].Name, s.Nodes[3].Name, s.Nodes[3].Ready = "atom004", "atom003", false },
			plan.FenceRunning,
			"atom004 is being switched off",
			"Off atom004",
		},
		"silent BMC": {silent, plan.FenceRunning, "the server is on", ""},
		"silent network": {func(s *scene) {
			silent(s)
			s.Servers[0].MMC.AnsweredAt = s.now.Add(-time.Hour)
		}, plan.FenceWaiting, "2 of 5 BMCs of Chassis mercury1 do not answer", ""},
		"another machine": {
			func(s *scene) { s.Requests[0].SystemUUID = "99999999-1111-2222-3333-444444444444" }, plan.FenceRefused,
			"node atom003 was machine 99999999-1111-2222-3333-444444444444 when Store db asked", "",
		},
		"two nodes": {func(s *scene) { s.Nodes[3].SystemUUID = s.Nodes[2].SystemUUID }, plan.FenceWaiting, "no BMC", ""},
		"old identity": {
			func(s *scene) { s.Servers[2].IdentityAt = s.now.Add(-time.Minute) }, plan.FenceWaiting,
			"the BMC of atom003 is asked for the system GUID once more", "",
		},
		"no witness": {func(s *scene) { s.Managers = nil }, plan.FenceWaiting, "atom003 has no second witness", ""},
		"refused":    {func(s *scene) { s.Layout.Problems = []layout.Problem{{Text: "wrong"}} }, plan.FenceRefused, "is not accepted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.Nodes[2].Ready = false
			s.Requests = []plan.FenceRequest{request}
			s.Requests[0].Since = s.now
			if test.change != nil {
				test.change(s)
			}
			expect(t, steps(s.plan()), test.steps)
			verdict := s.made.Fences[0]
			if expect(t, verdict.Message, test.says); verdict.State != test.state {
				t.Errorf("%s: %s", verdict.State, verdict.Message)
			}
		})
	}
}

// A fenced server is done once that is proved and on record, stays off while somebody asks for that, and comes back by spec.power after it.
func TestFencingEnds(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.Nodes[2].Ready = false
	s.Servers[2].Object.Spec.Power = v1alpha1.WantOn
	s.Requests = []plan.FenceRequest{{Namespace: "default", Store: "db", Node: "atom003", Since: s.now}}
	expect(t, steps(s.plan()), "Off atom003")
	s.pass(time.Second)
	s.see(2, bmc.PowerOff, bmc.PowerOn)
	s.pass(time.Second)
	if s.made.Fences[0].State != plan.FenceRunning {
		t.Error(s.made.Fences)
	}
	s.see(2, bmc.PowerOff, bmc.PowerOff)
	s.plan()
	if s.made.Fences[0].State != plan.FenceRunning { // it is not on record yet
		t.Error(s.made.Fences)
	}
	s.pass(time.Minute)
	if s.made.Fences[0].State != plan.FenceDone {
		t.Error(s.made.Fences)
	}
	expect(t, steps(s.made), "")
	s.order(2, v1alpha1.ActionOn)
	s.plan()
	expect(t, s.orderOf(2), "Refused: Store default/db keeps the server off, because its node is lost")
	s.Requests = nil
	expect(t, steps(s.plan()), "On atom003")
}

// A server comes back once nobody asks for it to be off any more, unless the Chassis, its spec or the slot says otherwise; one that was off
// before stays off.
func TestReturnAfterFencing(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(s *scene)
		steps         string
	}{
		"by default":        {nil, nil, "On atom003"},
		"the Chassis":       {func(s *scene) { s.Chassis.Spec.Fencing.Afterwards = v1alpha1.FencedStaysOff }, nil, ""},
		"spec.power":        {func(s *scene) { s.Servers[2].Object.Spec.Power = v1alpha1.WantOff }, nil, ""},
		"it was off before": {func(s *scene) { s.see(2, bmc.PowerOff, bmc.PowerOff) }, nil, ""},
		"another blade":     {nil, func(s *scene) { s.Servers[2].Identity.SystemGUID = "99999999-1111-2222-3333-444444444444" }, ""},
		"another Store": {nil, func(s *scene) {
			s.Requests = []plan.FenceRequest{{Namespace: "default", Store: "other", Node: "atom003", Since: s.now}}
		}, ""},
		"not looked yet": {nil, func(s *scene) { s.Servers[2].Identity = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.Nodes[2].Ready = false
			if test.before != nil {
				test.before(s)
			}
			s.Requests = []plan.FenceRequest{{Namespace: "default", Store: "db", Node: "atom003", Since: s.now}}
			s.plan()
			s.pass(time.Second)
			s.see(2, bmc.PowerOff, bmc.PowerOff)
			s.plan()
			s.pass(time.Second)
			if verdict := s.made.Fences[0]; verdict.State != plan.FenceDone || verdict.Proof == nil || verdict.SystemGUID == "" {
				t.Fatalf("%+v", verdict)
			}
			s.Requests = nil
			if test.after != nil {
				test.after(s)
			}
			expect(t, steps(s.plan()), test.steps)
			if test.steps == "" {
				return
			}
			s.pass(time.Second)
			s.see(2, bmc.PowerOn, bmc.PowerOn)
			if s.plan(); s.Servers[2].Object.Status.Change != nil {
				t.Errorf("%+v", s.Servers[2].Object.Status.Change)
			}
		})
	}
}

// asks adds a request of another Store.
func (s *scene) asks(namespace, store string, i int) {
	s.Requests = append(s.Requests, plan.FenceRequest{
		Namespace: namespace, Store: store, Node: s.Nodes[i].Name, SystemUUID: s.Nodes[i].SystemUUID, Since: s.now,
	})
}

func (s *scene) setGUID(i int, guid string) {
	s.Servers[i].Identity.SystemGUID, s.Nodes[i].SystemUUID = guid, guid
}
