package plan_test

import (
	"fmt"
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

// asks adds a request of another Store.
func (s *scene) asks(namespace, store string, i int) {
	s.Requests = append(s.Requests, plan.FenceRequest{
		Namespace: namespace, Store: store, Node: s.Nodes[i].Name, SystemUUID: s.Nodes[i].SystemUUID, Since: s.now,
	})
}

func (s *scene) setGUID(i int, guid string) {
	s.Servers[i].Identity.SystemGUID, s.Nodes[i].SystemUUID = guid, guid
}
