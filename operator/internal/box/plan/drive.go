package plan

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	// maxTries is how often the command of an order is given.
	maxTries = 3
	// maxDoublings bounds the time between two commands on behalf of the spec: Grace, doubled so often.
	maxDoublings = 5
	// maxNotGivenWait is the longest time until a command that was not given is given again.
	maxNotGivenWait = 10 * time.Second
)

// outcome is what became of a change.
type outcome int

const (
	pending outcome = iota
	reached
	failed
)

// begin puts a stage on record.
func (m *machine) begin(reason v1alpha1.ChangeReason, stage v1alpha1.ChangeStage) {
	m.next.Change = &v1alpha1.PowerChange{For: reason, Stage: stage, Since: *stamp(m.now)}
}

// drive goes on with the change on record, and says what it waits for or what became of it.
func (m *machine) drive() (outcome, string) {
	if notGiven := m.notGiven(); notGiven != nil {
		return pending, fmt.Sprintf("the command was not given, and will be repeated: %s", notGiven)
	}
	switch m.next.Change.Stage {
	case v1alpha1.StageSwitchingOn:
		return m.driveOn()
	case v1alpha1.StageShuttingDown:
		return m.driveShutdown()
	case v1alpha1.StageRestarting:
		return m.driveRestart()
	case v1alpha1.StageSwitchingOff:
	}
	return m.driveOff()
}

func (m *machine) driveOn() (outcome, string) {
	change := m.next.Change
	switch {
	case m.isSeen(v1alpha1.PowerOn, bmc.PowerOn):
		return reached, "the server is on"
	case change.Tries == 0 && m.power == v1alpha1.PowerOff && m.canBeTold():
		return m.want()
	case change.Tries > 0 && m.hasRefused() != "" && change.For == v1alpha1.ForOrder:
		return failed, "the server was not switched on: " + m.hasRefused()
	case change.Tries > 0 && !m.isDue():
		return pending, "the server was told to switch on, and has not been seen on yet"
	case m.power == v1alpha1.PowerUnknown:
		return m.waitForSight("whether the server is on is not known")
	case m.hasTriedEnough():
		return failed, fmt.Sprintf("the server was told %d times to switch on, and is off", change.Tries)
	case !m.canBeTold():
		return m.waitForSight("the server is off")
	}
	return m.want()
}

func (m *machine) driveShutdown() (outcome, string) {
	change := m.next.Change
	isStanding := change.For == v1alpha1.ForSpec || change.For == v1alpha1.ForIsolation
	isForced := isStanding || m.isForced()
	switch {
	case change.Tries == 0 && m.power != v1alpha1.PowerOff && m.canBeTold():
		return m.try(bmc.ActionSoft, "it is asked to shut down")
	case m.isSeen(v1alpha1.PowerOff, bmc.PowerOff):
		return m.settleOff()
	case m.elapsed(change.Since.Time) > m.Times.Shutdown:
		if !isForced {
			return failed, fmt.Sprintf("%s after %s; to take its power away, order Off", m.whatIsSeen(), m.Times.Shutdown)
		}
		if isStanding {
			if held := m.held(); held.why != "" {
				return pending, held.why
			}
		}
		m.begin(change.For, v1alpha1.StageSwitchingOff)
		return m.driveOff()
	case change.Tries > 0 && m.hasRefused() != "" && !isForced:
		return failed, "the server was not asked to shut down: " + m.hasRefused()
	case !m.isDue() || m.isAnswered() || change.Tries >= maxTries || !m.canBeTold() || m.power != v1alpha1.PowerOn:
		return pending, "it was asked to shut down"
	}
	return m.try(bmc.ActionSoft, "the server is asked to shut down once more, because the BMC has not confirmed the first command")
}

func (m *machine) driveOff() (outcome, string) {
	change := m.next.Change
	switch {
	case m.isSeen(v1alpha1.PowerOff, bmc.PowerOff):
		return m.settleOff()
	case change.Tries > 0 && m.hasRefused() != "" && change.For == v1alpha1.ForOrder:
		return failed, "the server was not switched off: " + m.hasRefused()
	case change.Tries > 0 && !m.isDue():
		return pending, "the server was switched off, and has not been seen off yet"
	case !m.canBeTold():
		return m.waitForSight("whether the server is off is not known")
	case m.hasTriedEnough() && m.power == v1alpha1.PowerUnknown && m.disagree == "":
		return m.waitForSight("whether the server is off is not known")
	case m.hasTriedEnough():
		return failed, fmt.Sprintf("the BMC was told %d times to switch the server off, and %s", change.Tries, m.whatIsSeen())
	}
	return m.try(bmc.ActionOff, "the server is being switched off")
}

func (m *machine) driveRestart() (outcome, string) {
	change := m.next.Change
	switch {
	case change.Tries == 0 && m.power == v1alpha1.PowerOff:
		return failed, "the server is off: order On"
	case change.Tries == 0 && !m.canBeTold():
		return m.waitForSight("it was not restarted")
	case change.Tries == 0:
		return m.want()
	case m.isAnswered():
		return reached, "the BMC says that it has restarted the server, which is no proof"
	case m.hasRefused() != "":
		return failed, "it was not restarted: " + m.hasRefused()
	case !m.isDue():
		return pending, "it is being restarted"
	}
	return failed, "whether the server was restarted is not known; the command is not repeated, because it could restart the server twice"
}

// settleOff: it is off as far as is seen. It is waited for proof where there can be one.
func (m *machine) settleOff() (outcome, string) {
	by, _ := m.proof()
	change := m.next.Change
	waitsSince := change.Since.Time
	if since := m.next.Power.Since; since.After(waitsSince) {
		waitsSince = since.Time
	}
	switch {
	case len(by) > 0:
		var all []string
		for _, witness := range by {
			all = append(all, string(witness))
		}
		return reached, "the server is off, as " + strings.Join(all, " and ") + " say"
	case !m.isProvable():
		return reached, "the server is off according to " + whoIs(m.next.Power.Source) + "; there is no second witness: " + m.whyNoWitness()
	case m.elapsed(waitsSince) <= m.Times.Proof || !m.isSettled(m.now.Add(-m.Times.Fresh)):
		return pending, whoIs(m.next.Power.Source) + " says that the server is off; waiting for a second witness"
	case m.next.Order != nil && m.next.Order.Action == v1alpha1.ActionCycle:
		change.Unproved = true // go on, so that the server is not left off
		return reached, "only " + whoIs(m.next.Power.Source) + " says that the server is off; the server is switched on again all the same"
	}
	return failed, fmt.Sprintf("%s says that the server is off, and no second witness has confirmed that within %s",
		whoIs(m.next.Power.Source), m.Times.Proof)
}

// want asks for the power that a start takes; grant gives it.
func (m *machine) want() (outcome, string) {
	m.wanted = append(m.wanted, m)
	return pending, "waiting for enough power to start the server"
}

// try gives a command, and puts that on record.
func (m *machine) try(action bmc.Action, why string) (outcome, string) {
	change := m.next.Change
	if isOf(m.Answer, m.second()) {
		return pending, why // in the next second
	}
	change.Tries++
	change.TriedAt, change.By = stamp(m.now), v1alpha1.WitnessMMC
	if action == bmc.ActionOn || action == bmc.ActionReset {
		m.next.Power.MayStartUntil, m.next.LastOff = stamp(m.now.Add(m.grace()+time.Second)), nil
		if action == bmc.ActionReset { // nobody sees when it starts
			m.next.Power.MayStartUntil = stamp(m.next.Power.MayStartUntil.Add(m.model.StartTime(m.Times.Start)))
		}
	}
	m.commands = append(m.commands, command{m, action})
	return pending, why
}

// waitForSight waits for a BMC that is silent, with patience that begins when it fell silent.
func (m *machine) waitForSight(known string) (outcome, string) {
	why := m.whyNobody()
	if why == "" {
		why = fmt.Sprintf("BMC %s does not answer", m.layout.MMC)
		if m.answers(&m.MMC) {
			why = m.whatIsSeen()
		}
	}
	since := m.next.Change.Since.Time
	if silent := m.next.MMC.SilentSince; silent != nil && silent.After(since) {
		since = silent.Time
	}
	hasLooked := m.hasLooked(&m.MMC)
	if m.next.Change.For == v1alpha1.ForOrder && hasLooked && m.elapsed(since) > m.Times.Patience {
		return failed, known + ": " + why
	}
	return pending, known + ": " + why
}

// hasLooked: this operator has asked a controller for long enough to know whether it is silent.
func (p *planning) hasLooked(c *Contact) bool {
	return !c.AskedAt.IsZero() && (c.Err != nil || p.answers(c))
}

func (m *machine) whatIsSeen() string {
	switch {
	case m.disagree != "":
		return m.disagree
	case m.power == v1alpha1.PowerUnknown:
		return "no witness says whether the server is on"
	}
	return "the server is " + strings.ToLower(string(m.power))
}

// isDue: the last command has had its time.
func (m *machine) isDue() bool {
	change := m.next.Change
	if change.TriedAt == nil {
		return true
	}
	wait := m.graceOf(change)
	if change.For != v1alpha1.ForOrder {
		wait <<= min(change.Tries-1, maxDoublings)
	}
	if change.By == v1alpha1.WitnessCMM && m.answerErr() != nil && isHarmless(m.answerErr()) {
		return true
	}
	return m.elapsed(change.TriedAt.Time) > wait+time.Second
}

// grace is how long after a command was planned it may still take effect.
func (p *planning) grace() time.Duration {
	return p.Times.Given + p.model.CommandTime(p.Times.Grace-p.Times.Given)
}

func (p *planning) graceOf(change *v1alpha1.PowerChange) time.Duration {
	if change.By == v1alpha1.WitnessCMM {
		return max(p.grace(), p.Times.WholeGrace)
	}
	return p.grace()
}

func (m *machine) hasTriedEnough() bool {
	return m.next.Change.For == v1alpha1.ForOrder && m.next.Change.Tries >= maxTries
}

// answerErr is what the controller said to the last command, if that was no yes.
func (m *machine) answerErr() error {
	if change := m.next.Change; m.Answer != nil && change.TriedAt != nil && m.Answer.TriedAt.Equal(change.TriedAt.Time) {
		return m.Answer.Err
	}
	return nil
}

// isAnswered: the controller said yes to the last command.
func (m *machine) isAnswered() bool {
	change := m.next.Change
	return m.Answer != nil && change.TriedAt != nil && m.Answer.TriedAt.Equal(change.TriedAt.Time) && m.Answer.Err == nil
}

// hasRefused says why the server's own BMC will never do what it was told; empty if it may.
func (m *machine) hasRefused() string {
	if err := m.answerErr(); err != nil && isHarmless(err) && m.next.Change.By == v1alpha1.WitnessMMC {
		return err.Error()
	}
	return ""
}

// notGiven is why the last command was never given; nil if it may have been.
func (m *machine) notGiven() *NotGivenError {
	var notGiven *NotGivenError
	if m.next.Change == nil || !errors.As(m.answerErr(), &notGiven) {
		return nil
	}
	return notGiven
}

// takeBack removes a command that was never given from the status, so that it is given again. It waits longer each time, since what keeps
// commands from being given is often too much work.
func (m *machine) takeBack() {
	change, notGiven := m.next.Change, m.notGiven()
	if notGiven == nil || change.Tries == 0 {
		return
	}
	wait := min(max(change.TriedAt.Sub(change.Since.Time)/2, time.Second), maxNotGivenWait)
	if m.elapsed(change.TriedAt.Time) < wait {
		return
	}
	change.Tries--
	change.TriedAt, change.By = nil, ""
	if change.For == v1alpha1.ForOrder && m.elapsed(change.Since.Time) > m.Times.Patience {
		m.endOrder(v1alpha1.OrderFailed, "the command was not given: %s", notGiven)
	}
}

// startsUntil is how long a command to the chassis manager to start all servers may take effect.
func (p *planning) startsUntil(triedAt time.Time) *metav1.Time {
	return stamp(triedAt.Add(max(p.grace(), p.Times.WholeGrace) + time.Second))
}

// takeBackStarts: a command to start all servers that was never given starts none of them.
func (p *planning) takeBackStarts() {
	for i := range p.Managers {
		for _, triedAt := range p.Managers[i].NotGiven {
			for _, m := range p.machines {
				if until := m.next.Power.MayStartUntil; until != nil && until.Equal(p.startsUntil(triedAt)) {
					m.next.Power.MayStartUntil = nil
				}
			}
		}
	}
	for _, m := range p.machines {
		until := m.next.Power.MayStartUntil
		m.mayStart = until != nil && !m.now.After(until.Time)
	}
}

// isHarmless: the controller says that the command had no effect, and will have none.
func isHarmless(err error) bool {
	if _, isNotGiven := errors.AsType[*NotGivenError](err); isNotGiven {
		return false
	}
	var refused *bmc.RefusedError
	var unsupported *bmc.UnsupportedError
	return errors.As(err, &refused) || errors.As(err, &unsupported)
}
