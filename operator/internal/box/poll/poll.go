// Package poll asks management controllers again and again, and keeps what each has said last. It decides nothing, and no controller waits
// for another one that is silent.
package poll

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
	"rcbox.dev/rcbox/operator/internal/bmc/pool"
	"rcbox.dev/rcbox/operator/internal/box/plan"
)

// Pool keeps sessions with controllers, and bounds how many are spoken with at once.
type Pool interface {
	// Read runs a call that changes nothing.
	Read(ctx context.Context, target pool.Target, call func(context.Context, bmc.BMC) error) error
	// Order runs a call that changes something, once.
	Order(ctx context.Context, target pool.Target, call func(context.Context, bmc.BMC) error) error
	// Forget closes the session with the controller of a name, and discards what is known of that controller, except refused passwords.
	Forget(ctx context.Context, name string) error
}

// Role is what a controller is asked for.
type Role int

const (
	// Server is a server's own BMC.
	Server Role = iota
	// Manager is a chassis manager.
	Manager
	// SwitchBoard is the controller of a switch board.
	SwitchBoard
)

// Intervals between two questions.
type Intervals struct {
	// Power of a server, and the sensors of a manager.
	Power time.Duration
	// Hurry is the same while something waits for the answer.
	Hurry time.Duration
	// Sensors of a server, and those of a manager that no model names.
	Sensors time.Duration
	// Identity of a server: it changes when a blade is swapped.
	Identity time.Duration
	// Timeout of one question.
	Timeout time.Duration
}

// DefaultIntervals are those of the controller.
var DefaultIntervals = Intervals{
	Power: 5 * time.Second, Hurry: time.Second, Sensors: time.Minute, Identity: 5 * time.Minute, Timeout: 10 * time.Second,
}

// Key is a controller of a chassis: the name of its server, or the address of a manager.
type Key struct{ Chassis, Name string }

// Seen is what a controller has said last.
type Seen struct {
	Contact plan.Contact
	Power   plan.Sight
	// Identity, as asked for at IdentityAt.
	Identity   *bmc.Identity
	IdentityAt time.Time
	Sensors    []bmc.Sensor
	SensorsAt  time.Time
	// Log has the newest entries of a server's event log, as asked for at LogAt; nil: they are not known, or there is no log.
	Log   []bmc.LogEntry
	LogAt time.Time
	// Answers to the last command of each kind.
	Answers [plan.Kinds]*plan.Answer
	// NotGiven are the last commands about power that it was never given. Several of them may be on record of different Servers.
	NotGiven []*plan.Answer
}

// maxNotGiven bounds Seen.NotGiven.
const maxNotGiven = 16

// answer records what became of a command.
func (s *Seen) answer(kind plan.Kind, answer *plan.Answer) {
	s.Answers[kind] = answer
	if _, isNotGiven := errors.AsType[*plan.NotGivenError](answer.Err); isNotGiven && kind == plan.KindPower {
		s.NotGiven = append(slices.Clone(s.NotGiven[max(0, len(s.NotGiven)-maxNotGiven+1):]), answer) // readers have the former slice
	}
}

// Poller asks.
type Poller struct {
	Pool      Pool
	Intervals Intervals
	Clock     *Clock
	// Changed is called for a chassis of which something new is known.
	Changed func(chassis string)

	mutex   sync.Mutex
	entries map[Key]*entry
	// jumps is the number of clock jumps before the readings in entries were taken.
	jumps   int
	running sync.WaitGroup
}

type entry struct {
	Want

	seen Seen
	// others are the sensors of a manager that are not named, as asked for at othersAt.
	others   []bmc.Sensor
	othersAt time.Time
	log      logProgress
	// isAsked: a question is under way. isHurried: something waits for the next answer.
	isAsked, isHurried bool
	// isDoubted: somebody has to know what it is now.
	isDoubted bool
}

// Want is a controller that is to be asked.
type Want struct {
	Role   Role
	Target pool.Target
	// Named are the sensors of a manager that are asked for each time, and before its others.
	Named []string
}

// equal compares how controllers are reached. It ignores recorded refusals, because these only follow from the readings.
func (w *Want) equal(other *Want) bool {
	return w.Role == other.Role && w.Target.SecretUID == other.Target.SecretUID && w.Target.SecretVersion == other.Target.SecretVersion &&
		w.Target.Access.Equal(other.Target.Access) && slices.Equal(w.Named, other.Named)
}

func (w *Want) isNamed(sensor string) bool { return slices.Contains(w.Named, sensor) }

// Set says which controllers a chassis has. Readings of a controller are kept unless the way to reach it has changed. The session with a
// controller that was removed is closed, because controllers allow only a few sessions.
func (p *Poller) Set(chassis string, wanted map[string]Want) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.entries == nil {
		p.entries = map[Key]*entry{}
	}
	for key, one := range p.entries {
		want, isWanted := wanted[key.Name]
		if key.Chassis != chassis || isWanted && want.equal(&one.Want) {
			continue
		}
		delete(p.entries, key)
		if gone := one.Target.Name; !isWanted {
			p.running.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), p.Intervals.Timeout)
				defer cancel()
				_ = p.Pool.Forget(ctx, gone) // a pool that is closed has no sessions
			})
		}
	}
	for name, want := range wanted {
		key := Key{chassis, name}
		if p.entries[key] == nil {
			p.entries[key] = &entry{Want: want}
		}
	}
}

// Hurry has controllers asked soon, until they have answered.
func (p *Poller) Hurry(chassis string, names []string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, name := range names {
		if one := p.entries[Key{chassis, name}]; one != nil {
			one.isHurried = true
		}
	}
}

// Identify has controllers asked soon what they are, whatever they have said before.
func (p *Poller) Identify(chassis string, names []string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, name := range names {
		if one := p.entries[Key{chassis, name}]; one != nil {
			one.isHurried, one.isDoubted = true, true
		}
	}
}

// Seen gives what the controllers of a chassis have said last.
func (p *Poller) Seen(chassis string) map[string]Seen {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.forgetAfterJump()
	all := map[string]Seen{}
	for key, one := range p.entries {
		if key.Chassis == chassis {
			all[key.Name] = one.seen
		}
	}
	return all
}

// Counts gives how many controllers are asked, and how many of them did not answer last.
func (p *Poller) Counts() (all, silent int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, one := range p.entries {
		if one.seen.Contact.Err != nil {
			silent++
		}
	}
	return len(p.entries), silent
}

// Start asks until the context ends, and waits for what is under way.
func (p *Poller) Start(ctx context.Context) error {
	defer p.running.Wait()
	const pulse = 200 * time.Millisecond
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for {
		p.Round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Round asks each controller whose time has come.
func (p *Poller) Round(ctx context.Context) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	now := p.forgetAfterJump().Wall
	for key, one := range p.entries {
		if one.isAsked || !p.isDue(one, now) {
			continue
		}
		one.isAsked = true
		questions := p.questions(one, now)
		p.running.Go(func() { p.ask(ctx, key, one, questions) })
	}
}

func (p *Poller) isDue(one *entry, now time.Time) bool {
	pause := p.Intervals.Power
	if one.isHurried {
		pause = p.Intervals.Hurry
	}
	return one.seen.Contact.AskedAt.IsZero() || now.Sub(one.seen.Contact.AskedAt) >= pause
}

// questions are what a controller is asked for this time.
type questions struct{ power, identity, named, sensors, log bool }

func (p *Poller) questions(one *entry, now time.Time) questions {
	isOld := func(at time.Time, limit time.Duration) bool { return at.IsZero() || now.Sub(at) >= limit }
	if one.Role == SwitchBoard {
		return questions{sensors: true}
	}
	if one.Role == Manager {
		return questions{named: true, sensors: isOld(one.othersAt, p.Intervals.Sensors) && !one.isHurried}
	}
	return questions{
		// A blade that was swapped did not answer for a while.
		power: true, identity: one.isDoubted || one.seen.Contact.Err != nil || isOld(one.seen.IdentityAt, p.Intervals.Identity),
		sensors: isOld(one.seen.SensorsAt, p.Intervals.Sensors) && !one.isHurried,
		log:     isOld(one.seen.LogAt, p.Intervals.Sensors) && !one.isHurried,
	}
}

// ask asks one controller, and notes what it says. What was seen counts from when it was asked for.
func (p *Poller) ask(ctx context.Context, key Key, one *entry, what questions) {
	ctx, cancel := context.WithTimeout(ctx, p.Intervals.Timeout)
	defer cancel()
	begun := p.Clock.Look()
	asked, jumps := begun.Wall, begun.Jumps
	p.note(key, one, jumps, func(seen *Seen) { seen.Contact.AskedAt = asked })
	err := p.Pool.Read(ctx, one.Target, func(ctx context.Context, session bmc.BMC) error {
		if what.power {
			at := p.Clock.Now() // after the wait for a session
			reading, err := session.Power(ctx)
			if err != nil {
				return err
			}
			p.note(key, one, jumps, func(seen *Seen) {
				seen.Power = plan.Sight{Power: reading.Power, At: at}
				seen.Contact.AnsweredAt, seen.Contact.Err = p.Clock.Now(), nil
			})
		}
		if what.identity {
			at := p.Clock.Now()
			identity, err := session.Identity(ctx)
			if err != nil {
				return err
			}
			p.note(key, one, jumps, func(seen *Seen) { seen.Identity, seen.IdentityAt, one.isDoubted = &identity, at, false })
		}
		if what.named {
			return p.askManager(ctx, key, one, jumps, session, what.sensors)
		}
		if what.sensors {
			at := p.Clock.Now()
			sensors, err := session.Sensors(ctx, nil)
			if err != nil {
				return err
			}
			p.note(key, one, jumps, func(seen *Seen) { seen.Sensors, seen.SensorsAt = sensors, at })
		}
		return nil
	})
	if err == nil && what.log {
		p.askLog(ctx, key, one, jumps)
	}
	p.note(key, one, jumps, func(seen *Seen) {
		_, isSlow := errors.AsType[*bmc.SlowError](err)
		seen.Contact.Refused = refusedLogin(&one.Target, err, asked)
		if seen.Contact.Err = err; err == nil || isSlow {
			seen.Contact.AnsweredAt = p.Clock.Now()
		}
		one.isHurried = err != nil && (one.isHurried || isSlow && one.Role == Manager) // the next question goes on where this one ended
	})
	p.mutex.Lock()
	one.isAsked = false
	p.mutex.Unlock()
	p.Changed(key.Chassis)
}

// askManager asks for the sensors that are named, which are witnesses, and then for the others, where a slow manager has the time for them.
func (p *Poller) askManager(ctx context.Context, key Key, one *entry, jumps int, session bmc.BMC, withOthers bool) error {
	at := p.Clock.Now()
	named, err := session.Sensors(ctx, one.isNamed)
	if err != nil {
		return err
	}
	p.note(key, one, jumps, func(seen *Seen) {
		seen.Sensors, seen.SensorsAt = slices.Concat(named, one.others), at
		seen.Contact.AnsweredAt, seen.Contact.Err = p.Clock.Now(), nil
	})
	if !withOthers {
		return nil
	}
	others, err := session.Sensors(ctx, func(name string) bool { return !one.isNamed(name) })
	if _, isSlow := errors.AsType[*bmc.SlowError](err); err != nil && !isSlow {
		return err
	}
	p.note(key, one, jumps, func(seen *Seen) {
		if one.othersAt = at; err == nil {
			one.others, seen.Sensors = others, slices.Concat(named, others)
		}
	})
	return nil
}

// note stores a controller's answer to a question, unless the clock has jumped since the question began.
func (p *Poller) note(key Key, one *entry, jumps int, change func(*Seen)) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.forgetAfterJump()
	if p.entries[key] == one && p.jumps == jumps { // otherwise the controller was replaced, or the clock has jumped
		change(&one.seen)
	}
}

// forgetAfterJump discards all readings from before a clock jump, as if this process had just been started. The caller holds the mutex.
func (p *Poller) forgetAfterJump() Moment {
	now := p.Clock.Look()
	if now.Jumps != p.jumps {
		p.jumps = now.Jumps
		for _, one := range p.entries {
			one.seen, one.others, one.othersAt = Seen{}, nil, time.Time{}
		}
	}
	return now
}

// Do gives a command in a session, and notes in the answer what else it sees.
type Do func(ctx context.Context, session bmc.BMC, answer *plan.Answer) error

// Command gives a controller the command of a step that was planned at a moment. Seen returns the controller's answer later.
func (p *Poller) Command(ctx context.Context, key Key, planned Moment, step plan.Step, do Do) {
	p.mutex.Lock()
	one := p.entries[key]
	p.mutex.Unlock()
	if one == nil {
		return
	}
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, p.Intervals.Timeout)
		defer cancel()
		answer := &plan.Answer{TriedAt: step.TriedAt, IsOnlyStart: step.IsOnlyStart}
		answer.Err = p.Pool.Order(ctx, one.Target, func(ctx context.Context, session bmc.BMC) error {
			if isLate(planned, p.Clock.Look(), step.Until) {
				return &plan.NotGivenError{Err: errTooLate}
			}
			return do(ctx, session, answer)
		})
		p.note(key, one, planned.Jumps, func(seen *Seen) {
			seen.answer(step.Kind, answer)
			one.isHurried = true
		})
		p.Changed(key.Chassis)
	})
}

// NotGiven records that the command of a step was not given, because not all statuses of its servers could be written.
func (p *Poller) NotGiven(key Key, planned Moment, step plan.Step) {
	p.mutex.Lock()
	one := p.entries[key]
	p.mutex.Unlock()
	if one == nil {
		return
	}
	p.note(key, one, planned.Jumps, func(seen *Seen) {
		seen.answer(step.Kind, &plan.Answer{
			TriedAt: step.TriedAt, Err: &plan.NotGivenError{Err: errNotOnRecord}, IsOnlyStart: step.IsOnlyStart,
		})
	})
}

// errNotOnRecord: a command is given only once it is on record of all servers that it is meant for.
var errNotOnRecord = errors.New("a Server that it is meant for was changed meanwhile")

// errTooLate: a command that waited too long for its controller is planned again, from what is so by then.
var errTooLate = errors.New("the command waited too long for the controller and was not given")

// Target is how to reach a controller, for those who speak with it themselves.
func (p *Poller) Target(chassis, name string) (pool.Target, bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	one := p.entries[Key{chassis, name}]
	if one == nil {
		return pool.Target{}, false
	}
	return one.Target, true
}
