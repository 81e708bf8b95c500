package plan_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// These tests cover faults that users of other systems reported: docs/box.md, "What went wrong elsewhere".

// fence makes a Store, which has lost a node, request that the node's server, the third one, be off.
func (s *scene) fence() {
	s.Nodes[2].Ready = false
	s.Requests = []plan.FenceRequest{{Namespace: "default", Store: "db", Node: "atom003", Since: s.now}}
}

// A server that is already off is fenced without a command, so that a BMC that refuses to switch off such a server delays no fence.
func TestFenceOfServerThatIsOff(t *testing.T) {
	s := newScene(bmc.PowerOff)
	s.fence()
	s.now = s.now.Add(time.Second)
	for i := range s.Servers {
		s.see(i, bmc.PowerOff, bmc.PowerOff)
	}
	for range 3 {
		if text := steps(s.plan()); text != "" {
			t.Errorf("a server that is off was told: %s", text)
		}
	}
	if verdict := s.made.Fences[0]; verdict.State != plan.FenceDone || verdict.Proof == nil {
		t.Errorf("%s: %s", verdict.State, verdict.Message)
	}
}

// A fence is never done because only the BMC that got the command reports that the server is off, however often and however long it does.
func TestFenceWithoutProof(t *testing.T) {
	const most = 15 // commands in an hour
	s := newScene(bmc.PowerOn)
	s.fence()
	given := 0
	for begun := s.now; s.now.Sub(begun) < time.Hour; s.pass(5 * time.Second) {
		given += len(s.made.Steps)
		if change := s.Servers[2].Object.Status.Change; change != nil && change.TriedAt != nil {
			s.Servers[2].Answer = &plan.Answer{TriedAt: change.TriedAt.Time} // yes
			s.see(2, bmc.PowerOff, bmc.PowerOn)
		}
		if verdict := s.made.Fences; len(verdict) > 0 && verdict[0].State != plan.FenceRunning {
			t.Fatalf("after %s, %s: %s", s.now.Sub(begun), verdict[0].State, verdict[0].Message)
		}
		if s.Servers[2].Object.Status.LastOff != nil {
			t.Fatalf("after %s, lastOff is on record", s.now.Sub(begun))
		}
	}
	expect(t, s.made.Fences[0].Message, "atom003 is being switched off: the power reading of its slot says On, and its BMC says Off")
	if given == 0 || given > most {
		t.Errorf("%d commands", given)
	}
	s.see(2, bmc.PowerOff, bmc.PowerOff)
	s.pass(time.Second)
	s.pass(time.Second)
	if verdict := s.made.Fences[0]; verdict.State != plan.FenceDone {
		t.Errorf("two witnesses, and %s: %s", verdict.State, verdict.Message)
	}
}

// told counts the events between two statuses: one for each condition with another status, and one for each state of an order.
func told(before, now *v1alpha1.ServerStatus) int {
	events := 0
	for i := range now.Conditions {
		was := meta.FindStatusCondition(before.Conditions, now.Conditions[i].Type)
		if was == nil || was.Status != now.Conditions[i].Status {
			events++
		}
	}
	if now.Order != nil && (before.Order == nil || before.Order.ID != now.Order.ID || before.Order.State != now.Order.State) {
		events++
	}
	return events
}

// A lasting problem is reported once, not at each attempt, and the pauses between attempts grow.
func TestTroubleIsToldOnce(t *testing.T) {
	const (
		mostEvents   = 4 // such as Reachable, PoweredOn, and the order that waits and has failed
		mostCommands = 15
	)
	refuses := &bmc.RefusedError{Reason: bmc.RefusedPrivilege}
	for name, test := range map[string]struct {
		power bmc.Power
		begin func(*scene)
		// answer is the BMC's answer to each command.
		answer error
		says   string
	}{
		"a BMC refuses": {bmc.PowerOff, want(v1alpha1.WantOn), refuses, "the server was told to switch on"},
		"a BMC says yes, and the blade stays off": {bmc.PowerOff, want(v1alpha1.WantOn), nil, "the server was told to switch on"},
		"a blade does not shut down":              {bmc.PowerOn, want(v1alpha1.WantOff), nil, "the server was switched off"},
		"a BMC is silent": {
			bmc.PowerOff, func(s *scene) { silent(s); want(v1alpha1.WantOn)(s) }, nil, "two witnesses have seen that it is off",
		},
		"witnesses disagree": {
			bmc.PowerOn, func(s *scene) { s.see(2, bmc.PowerOff, bmc.PowerOn); want(v1alpha1.WantOff)(s) }, nil,
			"and its BMC says Off",
		},
		"there is no power": {
			bmc.PowerOff, func(s *scene) { s.Chassis.Spec.Power.BudgetWatts = 10; want(v1alpha1.WantOn)(s) }, nil, "less is left of 10 W",
		},
		"an order is not done": {bmc.PowerOn, func(s *scene) { s.order(2, v1alpha1.ActionOff) }, nil, "says that the server is on"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(test.power)
			test.begin(s)
			events, commands := 0, 0
			for begun := s.now; s.now.Sub(begun) < time.Hour; {
				before := s.Servers[2].Object.Status.DeepCopy()
				s.pass(5 * time.Second)
				events += told(before, &s.Servers[2].Object.Status)
				commands += len(s.made.Steps)
				if change := s.Servers[2].Object.Status.Change; change != nil && change.TriedAt != nil {
					s.Servers[2].Answer = &plan.Answer{TriedAt: change.TriedAt.Time, Err: test.answer}
				}
			}
			if events > mostEvents || commands > mostCommands {
				t.Errorf("%d events and %d commands in an hour", events, commands)
			}
			expect(t, s.condition("PoweredOn"), test.says)
		})
	}
}

// A time-out in a message is the one that has expired.
func TestTimesInMessages(t *testing.T) {
	const look = 5 * time.Second
	for name, test := range map[string]struct {
		set    func(*plan.Times, time.Duration)
		action v1alpha1.PowerAction
		see    func(*scene)
		says   string
	}{
		"shutting down": {
			func(times *plan.Times, d time.Duration) { times.Shutdown = d }, v1alpha1.ActionSoft, func(*scene) {},
			"the server is on after 7m13s; to take its power away, order Off",
		},
		"proof": {
			func(times *plan.Times, d time.Duration) { times.Proof = d }, v1alpha1.ActionOff,
			func(s *scene) { s.see(2, bmc.PowerOff, bmc.PowerUnknown) },
			"its BMC says that the server is off, and no second witness has confirmed that within 7m13s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			const patience = 7*time.Minute + 13*time.Second
			s := newScene(bmc.PowerOn)
			test.set(&s.Times, patience)
			s.order(2, test.action)
			s.plan()
			begun := s.now
			for strings.HasPrefix(s.orderOf(2), "Running") && s.now.Sub(begun) < time.Hour {
				s.pass(look)
				if s.now.Sub(begun) == look {
					test.see(s)
				}
			}
			expect(t, s.orderOf(2), "Failed: "+test.says)
			if took := s.now.Sub(begun); took < patience || took > patience+3*look {
				t.Errorf("that was after %s", took)
			}
		})
	}
}
