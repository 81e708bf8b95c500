package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// hindrance is why a command to all servers is not given.
type hindrance int

const (
	// conflict: somebody changes one of the Servers while the command is being put on record.
	conflict hindrance = iota
	// late: the command waits too long for its session.
	late
	hindrances
)

// trial is one order to all servers in a calm world, of which the command to the chassis manager cannot be given at first. It has to be
// given again soon, and to the manager again. Some worlds have a trial.
type trial struct {
	chance    *rand.Rand
	hindrance hindrance
	// left is how often the command is still hindered.
	left  int
	order string
	// victim is the server that is changed each time; blades: another one each time.
	victim int
	// hinderedAt is when the command was not given last; 0: not yet. givenAt is when it was.
	hinderedAt, givenAt int
}

const (
	// trialAt is when the order is given: what the chaos has left to be done is done.
	trialAt = chaosSeconds + 75
	// trialPatience is more than an operator needs, and less than the time after which a command that may have been given is repeated.
	trialPatience = 15
	// mostHindered is how often a command is hindered at most. The operator waits longer each time.
	mostHindered = 6
)

func newTrial(seed uint64) *trial {
	if seed%4 != 3 {
		return nil
	}
	chance := rand.New(rand.NewPCG(seed, 10))
	t := &trial{chance: chance, hindrance: hindrance(chance.IntN(int(hindrances))), left: 1 + chance.IntN(mostHindered)}
	t.victim = min(chance.IntN(2*blades), blades)
	return t
}

// try begins the trial, and checks that it ends.
func (s *sim) try() {
	t := s.trial
	switch {
	case t == nil:
	case s.now == trialAt && len(s.requests) == 0:
		s.orderTrial()
	case t.hinderedAt > 0 && t.givenAt == 0 && s.now > t.hinderedAt+trialPatience:
		s.violate("the command to all servers was not given at %d, and not again within %d s", t.hinderedAt, trialPatience)
	}
}

// orderTrial lets a user give all servers one order that the chassis manager can carry out.
func (s *sim) orderTrial() {
	on := 0
	for _, b := range s.blades {
		if b.on {
			on++
		}
	}
	action := v1alpha1.ActionOn
	if on > blades/2 {
		action = v1alpha1.ActionSoft
	}
	if s.budget = 0; s.layout.Model.Manager.StaggersStarts == nil { // otherwise the chassis manager starts them one after the other
		s.startsAtOnce = blades
	}
	s.chassis = s.chassis.DeepCopy()
	s.chassis.Spec.Power = v1alpha1.ChassisPower{StartsAtOnce: int32(s.startsAtOnce)}
	s.ids++
	s.trial.order = strconv.Itoa(s.ids)
	for i := range s.servers {
		s.servers[i].blockersSince = -1
		order := &v1alpha1.PowerOrder{ID: s.trial.order, Action: action, Servers: blades}
		s.write(i, func(object *v1alpha1.Server) { object.Spec.Order, object.Spec.Power = order, v1alpha1.WantUnmanaged })
	}
	s.say("trial %d: order %s of all: %s", s.trial.hindrance, s.trial.order, action)
}

// isTrial: the step is that of the trial's order to all servers.
func (s *sim) isTrial(step *plan.Step) bool {
	if s.trial == nil || s.trial.order == "" || step.Manager == "" {
		return false
	}
	return slices.ContainsFunc(s.servers[:], func(of *stored) bool {
		order := of.object.Spec.Order
		return order != nil && order.ID == s.trial.order
	})
}

// meddle changes a Server while the command of the trial is being put on record.
func (s *sim) meddle(steps []plan.Step) {
	isHindered := s.trial != nil && s.trial.hindrance == conflict && s.trial.left > 0
	if !isHindered || !slices.ContainsFunc(steps, func(step plan.Step) bool { return s.isTrial(&step) }) {
		return
	}
	i := s.trial.victim
	if i == blades {
		i = s.trial.chance.IntN(blades)
	}
	s.trial.hinderedAt = s.now
	s.trial.left--
	s.say("somebody changes atom%03d", i+1)
	s.write(i, func(object *v1alpha1.Server) { object.Labels = map[string]string{"of": "somebody"} })
}

// isHindered: the command is that of the trial, and it waits too long for its session.
func (s *sim) isHindered(step *plan.Step) bool {
	if !s.isTrial(step) || s.trial.hindrance != late || s.trial.left == 0 {
		return false
	}
	s.trial.hinderedAt = s.now
	s.trial.left--
	return true
}

// checkTrial: after the command to all was not given, no server is told the same alone.
func (s *sim) checkTrial(i int, step *plan.Step) {
	t, order := s.trial, s.servers[i].object.Status.Order
	if t == nil || t.hinderedAt == 0 || t.givenAt > 0 || order == nil || order.ID != t.order {
		return
	}
	if step.Manager == "" {
		s.violate("atom%03d is told %s alone after the command to all was not given", i+1, step.Action)
		return
	}
	t.givenAt = s.now
	s.counts["given again"]++
}

// notWritten lets the operator see that a step was not given, because a status could not be written.
func (s *sim) notWritten(step *plan.Step) {
	if s.bug == nil || !s.bug.forgetsConflicts {
		s.answer(step, &plan.NotGivenError{Err: errors.New("a Server was changed meanwhile")})
	}
}

// newOrderOfAll is a scene in which one order to all servers is on record, and not begun.
func newOrderOfAll(action v1alpha1.PowerAction) *scene {
	power := bmc.PowerOn
	if action == v1alpha1.ActionOn {
		power = bmc.PowerOff
	}
	s := newScene(power)
	s.Chassis.Spec.Power.StartsAtOnce = blades
	for i := range s.Servers {
		s.order(i, action)
		s.Servers[i].Object.Spec.Order.Servers = blades
	}
	s.plan()
	return s
}

// Whichever server's status cannot be written, and however often: the command to the chassis manager goes out as one command, soon after
// all statuses are written.
func TestWholeChassisAfterConflicts(t *testing.T) {
	for _, action := range []v1alpha1.PowerAction{v1alpha1.ActionSoft, v1alpha1.ActionOn} {
		for victim := range blades {
			s := newOrderOfAll(action)
			for range 3 {
				before := s.Servers[victim].Object
				s.pass(2 * time.Second)
				expect(t, steps(s.made), string(action)+" all by 192.168.5.201")
				s.Servers[victim].Object = before // the API server has refused the new status
				s.notGivenToAll(victim)
				s.pass(0)
				expect(t, steps(s.made), "")
			}
		}
	}
}

// Nobody knows whether a controller answers that was not asked lately. The servers with an order of all wait until that is known, before
// the first command to the chassis manager and before it is repeated.
func TestWholeChassisWhileAControllerIsNotAsked(t *testing.T) {
	long := at(1000).Add(-time.Minute)
	contacts := map[string]plan.Contact{"never": {}, "a while ago": {AskedAt: long, AnsweredAt: long}}
	waits := map[string]func(s *scene, contact plan.Contact){
		"the BMC of atom003": func(s *scene, contact plan.Contact) { s.Servers[2].MMC = contact },
		"chassis manager 192.168.5.201": func(s *scene, contact plan.Contact) {
			s.Managers[0].Contact, s.Managers[1].Contact = contact, contact
		},
	}
	for _, action := range []v1alpha1.PowerAction{v1alpha1.ActionSoft, v1alpha1.ActionOn} {
		for asked, contact := range contacts {
			for who, set := range waits {
				for _, isRepeated := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s asked %s, repeated %v", action, who, asked, isRepeated), func(t *testing.T) {
						s := newOrderOfAll(action)
						whole := string(action) + " all by 192.168.5.201"
						if isRepeated {
							s.pass(2 * time.Second)
							expect(t, steps(s.made), whole)
							s.notGivenToAll(-1)
						}
						s.now = s.now.Add(6 * time.Second)
						set(s, contact)
						expect(t, steps(s.plan()), "")
						expect(t, s.orderOf(0), "waiting until it is known whether "+who+" answers")
						s.pass(time.Second)
						expect(t, steps(s.made), whole)
					})
				}
			}
		}
	}
}

// Servers are told alone once a BMC is known to be silent, or nobody knew for too long whether it answers.
func TestWholeChassisWithoutABMC(t *testing.T) {
	for name, change := range map[string]func(s *scene){
		"silent": func(s *scene) {
			s.Servers[2].MMC = plan.Contact{AskedAt: s.now, AnsweredAt: s.now.Add(-time.Minute), Err: bmc.ErrSilent}
		},
		"not asked for too long": func(s *scene) {
			s.Servers[2].MMC = plan.Contact{}
			for i := range s.Servers {
				s.Servers[i].Object.Status.Order.Since = &metav1.Time{Time: s.now.Add(-s.Times.Patience - time.Second)}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOrderOfAll(v1alpha1.ActionSoft)
			s.now = s.now.Add(2 * time.Second)
			change(s)
			expect(t, steps(s.plan()), "Soft atom001, Soft atom002, Soft atom004, Soft atom005")
		})
	}
}

// notGivenToAll lets the operator see that its last command to the chassis manager was not given. The status of one server is not on
// record.
func (s *scene) notGivenToAll(but int) {
	for i := range s.Servers {
		if i == but {
			continue
		}
		s.notGiven(i)
		if s.lastWhole.IsOnlyStart {
			s.Managers[0].NotGiven = append(s.Managers[0].NotGiven, s.Servers[i].Answer.TriedAt)
		}
	}
}
