package plan_test

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/layout"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// notGiven lets the operator see that the last command to a server waited too long and was not given.
func (s *scene) notGiven(i int) {
	at := s.Servers[i].Object.Status.Change.TriedAt.Time
	s.Servers[i].Answer = &plan.Answer{TriedAt: at, Err: &plan.NotGivenError{Err: errors.New("the command waited too long")}}
}

// A command that was never given does not count as an attempt. It is given again, each time after a longer while, until the patience of an
// order is over.
func TestCommandsThatWereNotGiven(t *testing.T) {
	s := newScene(bmc.PowerOff)
	s.order(2, v1alpha1.ActionOn)
	expect(t, steps(s.plan()), "On atom003")
	change := func() *v1alpha1.PowerChange { return s.Servers[2].Object.Status.Change }
	begun, given := s.now, 1
	for change() != nil && s.now.Sub(begun) < time.Hour {
		s.notGiven(2)
		expect(t, steps(s.plan()), "") // in the same second
		expect(t, s.orderOf(2), "Running: the command was not given, and will be repeated: the command waited too long")
		for s.pass(time.Second); len(s.made.Steps) == 0 && change() != nil; s.pass(time.Second) {
		}
		given += len(s.made.Steps)
		if change() != nil && change().Tries != 1 {
			t.Fatalf("%d attempts are on record", change().Tries)
		}
	}
	expect(t, s.orderOf(2), "Failed: the command was not given: the command waited too long")
	if took := s.now.Sub(begun); took < s.Times.Patience || took > s.Times.Patience+time.Minute || given < 20 || given > 100 {
		t.Errorf("in %s it was given %d times", took, given)
	}
}

// If the command to restart a server waited too long and was not given, it is given again.
func TestRestartThatWasNotGiven(t *testing.T) {
	s := newScene(bmc.PowerOn)
	s.order(2, v1alpha1.ActionReset)
	expect(t, steps(s.plan()), "Reset atom003")
	s.notGiven(2)
	s.pass(6 * time.Second)
	expect(t, steps(s.made), "Reset atom003")
}

// A command to the chassis manager that was never given is given to the manager again, and not to each server: soon, because it cannot
// start any of them any more.
func TestWholeChassisThatWasNotGiven(t *testing.T) {
	for action, power := range map[v1alpha1.PowerAction]bmc.Power{v1alpha1.ActionSoft: bmc.PowerOn, v1alpha1.ActionOn: bmc.PowerOff} {
		s := newScene(power)
		for i := range s.Servers {
			s.order(i, action)
		}
		want := string(action) + " all by 192.168.5.201"
		expect(t, steps(s.plan()), want)
		s.notGivenToAll(-1)
		s.pass(6 * time.Second)
		expect(t, steps(s.made), want)
	}
}

// A server that an earlier command may still start counts as starting, also if a later command to all servers was not given.
func TestEarlierStartIsNotTakenBack(t *testing.T) {
	s := newScene(bmc.PowerOff)
	s.Chassis.Spec.Power.StartsAtOnce = blades
	s.order(2, v1alpha1.ActionOn)
	expect(t, steps(s.plan()), "On atom003")
	before := s.Servers[2].Object.Status.Power.MayStartUntil
	s.pass(time.Second)
	for i := range s.Servers {
		s.order(i, v1alpha1.ActionOn)
	}
	expect(t, steps(s.plan()), "On all by 192.168.5.201")
	if s.made.Steps[0].IsOnlyStart {
		t.Error("an earlier command may start atom003")
	}
	s.notGivenToAll(-1)
	s.pass(6 * time.Second)
	if after := s.Servers[2].Object.Status.Power.MayStartUntil; after == nil || after.Before(before) {
		t.Errorf("it may start until %s, and earlier it was %s", after, before)
	}
}

// A member that was started after a command was planned is noticed right before the command is given.
func TestWhyNotGiven(t *testing.T) {
	for name, test := range map[string]struct {
		action v1alpha1.PowerAction
		change func(s *scene)
		why    string
	}{
		"nothing has changed":                {v1alpha1.ActionOff, func(*scene) {}, ""},
		"a member has come":                  {v1alpha1.ActionOff, members, "atom003: db-3 of Store default/db runs on it"},
		"and it is to shut down":             {v1alpha1.ActionSoft, members, "atom003: db-3 of Store default/db runs on it"},
		"and it is to restart":               {v1alpha1.ActionReset, members, "atom003: db-3 of Store default/db runs on it"},
		"it is forced":                       {v1alpha1.ActionOff, forced, ""},
		"another order was given":            {v1alpha1.ActionOff, forcedAnew, "atom003: another order was given"},
		"the order goes on without its spec": {v1alpha1.ActionOff, func(s *scene) { s.Servers[2].Object.Spec.Order = nil }, ""},
		"another command is on record": {v1alpha1.ActionOff, func(s *scene) {
			s.Servers[2].Object.Status.Change.TriedAt = &metav1.Time{Time: s.now.Add(time.Second)}
		}, "atom003: another command has taken the place of this one"},
		"nothing is on record": {
			v1alpha1.ActionOff, func(s *scene) { s.Servers[2].Object.Status.Change = nil },
			"atom003: another command has taken the place of this one",
		},
		"the Chassis is not accepted": {v1alpha1.ActionOff, func(s *scene) {
			s.Layout.Problems = []layout.Problem{{Field: "spec.slots", Text: "wrong"}}
		}, "Chassis mercury1 is not accepted any more"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(bmc.PowerOn)
			s.order(2, test.action)
			made := s.plan()
			if len(made.Steps) != 1 {
				t.Fatalf("%s: %s", steps(made), s.orderOf(2))
			}
			test.change(s)
			why := plan.WhyNotGiven(s.now, s.Observed, &made.Steps[0])
			expect(t, why, test.why)
		})
	}
	s := newScene(bmc.PowerOff)
	s.order(2, v1alpha1.ActionOn)
	made := s.plan()
	members(s)
	expect(t, plan.WhyNotGiven(s.now, s.Observed, &made.Steps[0]), "")
}

// Before a command that spec.power asks for, spec.power is looked at once more. An order and spec.power are no one command to the chassis.
func TestSpecIsNotWantedAnyMore(t *testing.T) {
	s := newScene(bmc.PowerOn)
	for i := range s.Servers {
		if i < 2 {
			s.order(i, v1alpha1.ActionSoft)
		} else {
			s.Servers[i].Object.Spec.Power = v1alpha1.WantOff
		}
	}
	made := s.plan()
	expect(t, steps(made), "Soft atom001, Soft atom002, Soft atom003, Soft atom004, Soft atom005")
	expect(t, plan.WhyNotGiven(s.now, s.Observed, &made.Steps[2]), "")
	s.Servers[2].Object.Spec.Power = v1alpha1.WantOn
	expect(t, plan.WhyNotGiven(s.now, s.Observed, &made.Steps[2]), "atom003: spec.power is not Off any more")
}

func forced(s *scene) {
	members(s)
	s.Servers[2].Object.Spec.Order.Force = true
}

// forcedAnew: the forced order is a new one; the order that is being carried out is not forced.
func forcedAnew(s *scene) {
	forced(s)
	s.Servers[2].Object.Spec.Order.ID = "another"
}
