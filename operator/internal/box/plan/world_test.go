package plan_test

import (
	"fmt"
	"math/rand/v2"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// The patience of the world, in seconds; the operator's is in times of sim_test.go.
const (
	blades       = 5
	chaosSeconds = 160
	calmSeconds  = 150
	maxDelay     = 4
	startSeconds = 5
	staggerBy    = 2
	serverWatts  = 20
	startWatts   = 30
	settle       = 15
)

// blade is a server as it really is.
type blade struct {
	number int
	on     bool
	// onSince is when it was switched on last, and selfStarted whether it did that by itself, after selfStartedAt.
	onSince       int
	selfStartedAt int
	history       [chaosSeconds + calmSeconds + 2]bool
	// offAt is when its operating system will have shut down; hangs: never.
	offAt     int
	deafSince int
	// swappedAt is when it came into its slot, and nodeBefore the node of the blade that was there before.
	swappedAt  int
	nodeBefore string
	frozen     bool
	guid       string
	node       string
	// isNameless: its BMC reports no system GUID. isSlotless: its hardware does not report its slot.
	isNameless, isSlotless bool
	resets                 int
	queue                  []effect
	faults                 bladeFaults
}

// effect is a command that was heard and is still to be obeyed.
type effect struct {
	at     int
	action bmc.Action
}

// bladeFaults last until a time.
type bladeFaults struct {
	deaf, slow, stuck, refuses, hangs int
	// lies: its BMC says the contrary; slotLies: the chassis manager does, of this slot; unplugged: its link is down.
	lies, slotLies, unplugged int
	liedUntil                 int
}

// manager is a chassis manager as it really is.
type manager struct {
	deadUntil int
	inCharge  bool
}

// world is what really is, and what really happens.
type world struct {
	now      int
	chance   *rand.Rand
	blades   [blades]*blade
	managers [2]manager
	// frozenUntil: the chassis manager shows what it saw when it froze.
	frozenUntil int
	frozenView  [blades]bool
	takesOverAt int
	log         []string
	violation   string
	// wasOffAt is when the machine of a node was off last.
	wasOffAt map[string]int
	// startsAtOnce and budget are what the operator is told to keep.
	startsAtOnce int
	budget       int
}

func newWorld(chance *rand.Rand) *world {
	w := &world{chance: chance, wasOffAt: map[string]int{}}
	w.managers[0].inCharge = true
	w.startsAtOnce = 1 + chance.IntN(5)
	w.budget = []int{0, 75, 95, 200}[chance.IntN(4)]
	for i := range w.blades {
		b := &blade{number: i, on: chance.IntN(2) == 0, onSince: -1000, selfStartedAt: -1000, offAt: -1}
		b.faults.liedUntil, b.swappedAt = -1000, -1000
		b.guid, b.node = fmt.Sprintf("%08d-1111-2222-3333-444444444444", i+1), fmt.Sprintf("atom%03d", i+1)
		w.blades[i] = b
	}
	if chance.IntN(4) == 0 { // somebody has mixed up two names
		w.blades[0].node, w.blades[1].node = w.blades[1].node, w.blades[0].node
	}
	if w.budget > 0 { // what is on to begin with is within the budget
		for i, b := range w.blades {
			b.on = b.on && i < w.budget/startWatts
		}
	}
	return w
}

func (w *world) happens(one int) bool { return w.chance.IntN(one) == 0 }

func (w *world) until(most int) int { return w.now + 1 + w.chance.IntN(most) }

func (w *world) violate(text string, values ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf("at %d: ", w.now) + fmt.Sprintf(text, values...)
	}
}

func (w *world) say(text string, values ...any) {
	w.log = append(w.log, fmt.Sprintf("%3d  ", w.now)+fmt.Sprintf(text, values...))
}

// calm ends all faults.
func (w *world) calm() {
	for _, b := range w.blades {
		b.faults = bladeFaults{liedUntil: b.faults.liedUntil}
	}
	w.frozenUntil = 0
	for i := range w.managers {
		w.managers[i].deadUntil = 0
	}
}

// breakSomething lets something fail. Of each blade at most one witness lies at a time.
func (w *world) breakSomething() {
	for _, b := range w.blades {
		f := &b.faults
		switch w.chance.IntN(160) {
		case 0:
			f.deaf = w.until(25)
		case 1:
			f.slow = w.until(30)
		case 2:
			f.stuck = w.until(25)
		case 3:
			f.refuses = w.until(20)
		case 4:
			f.hangs = w.until(60)
		case 5:
			f.lies = w.lieUntil(b, 20)
		case 6:
			f.slotLies = w.lieUntil(b, 20)
		case 7:
			f.unplugged = w.lieUntil(b, 20)
		case 8: // it restarts by itself
			if b.on {
				w.say("%s restarts by itself", name(b))
				b.onSince, b.selfStartedAt, b.offAt = w.now, w.now, -1
			}
		case 9: // its operating system shuts down by itself
			if b.on {
				b.offAt = w.until(3)
			}
		case 10:
			b.frozen = b.frozen || b.on
		case 11:
			f.deaf, f.slow = w.until(10), w.until(10) // its BMC restarts
		case 12: // somebody presses its button
			if !b.on {
				w.say("%s is switched on by hand", name(b))
				b.on, b.onSince, b.selfStartedAt = true, w.now, w.now
			}
		}
	}
	w.breakManagers()
}

func (w *world) breakManagers() {
	switch w.chance.IntN(90) {
	case 0:
		w.managers[w.chance.IntN(2)].deadUntil = w.until(30)
	case 1:
		w.managers[0].deadUntil, w.managers[1].deadUntil = w.until(25), w.until(25)
	case 2:
		isLying := false
		for _, b := range w.blades {
			isLying = isLying || w.mayBeLied(b)
		}
		if !isLying && w.now >= w.frozenUntil {
			w.frozenUntil = w.until(15)
			for i, b := range w.blades {
				w.frozenView[i] = b.on
				b.faults.liedUntil = w.frozenUntil
			}
			w.say("the chassis manager freezes until %d", w.frozenUntil)
		}
	}
}

// mayBeLied: what a witness said of it wrongly may still count.
func (w *world) mayBeLied(b *blade) bool { return w.now <= b.faults.liedUntil+freshSeconds }

func (w *world) lieUntil(b *blade, most int) int {
	if w.mayBeLied(b) {
		return 0
	}
	b.faults.liedUntil = w.until(most)
	w.say("a witness of %s lies until %d", name(b), b.faults.liedUntil)
	return b.faults.liedUntil
}

// pass lets a second pass.
func (w *world) pass() {
	w.now++
	w.takeOver()
	for _, b := range w.blades {
		if w.now >= b.faults.deaf {
			b.deafSince = w.now + 1
		}
		if b.offAt >= 0 && w.now >= b.offAt {
			w.switchOff(b, "its operating system has shut down")
		}
		for len(b.queue) > 0 && b.queue[0].at <= w.now {
			action := b.queue[0].action
			b.queue = b.queue[1:]
			w.obey(b, action)
		}
		b.history[w.now] = b.on
		if !b.on {
			w.wasOffAt[b.node] = w.now
		}
	}
}

// takeOver: a chassis manager that is not in charge takes over some seconds after the other one died.
func (w *world) takeOver() {
	for i := range w.managers {
		if w.managers[i].inCharge && w.now < w.managers[i].deadUntil {
			w.managers[i].inCharge = false
			w.takesOverAt = w.now + 3
		}
	}
	if w.managers[0].inCharge || w.managers[1].inCharge || w.now < w.takesOverAt {
		return
	}
	for i := range w.managers {
		if w.now >= w.managers[i].deadUntil {
			w.managers[i].inCharge = true
			w.say("manager %d takes over", i)
			return
		}
	}
}

func name(b *blade) string { return fmt.Sprintf("atom%03d", b.number+1) }

// swap puts two blades into each other's slots, which takes their power away.
func (w *world) swap(a, b *blade) {
	w.switchOff(a, "it is pulled out")
	w.switchOff(b, "it is pulled out")
	w.wasOffAt[a.node], w.wasOffAt[b.node] = w.now, w.now
	a.history[w.now], b.history[w.now] = false, false
	a.swappedAt, a.nodeBefore, b.swappedAt, b.nodeBefore = w.now, a.node, w.now, b.node
	a.guid, b.guid, a.node, b.node, a.isNameless, b.isNameless = b.guid, a.guid, b.node, a.node, b.isNameless, a.isNameless
	a.isSlotless, b.isSlotless = b.isSlotless, a.isSlotless
	w.say("%s is %s now, and %s is %s", name(a), a.node, name(b), b.node)
}

func (w *world) switchOff(b *blade, why string) {
	if b.on {
		w.say("%s is off: %s", name(b), why)
	}
	b.on, b.offAt, b.frozen = false, -1, false
}

// obey does what a command says.
func (w *world) obey(b *blade, action bmc.Action) {
	switch action {
	case bmc.ActionOff:
		w.switchOff(b, "the server is being switched off")
	case bmc.ActionSoft:
		if b.on && !b.frozen && w.now >= b.faults.hangs && b.offAt < 0 {
			b.offAt = w.until(8)
		}
	case bmc.ActionOn, bmc.ActionReset:
		if action == bmc.ActionReset {
			b.resets++
		}
		if b.on == (action == bmc.ActionOn) {
			return
		}
		w.say("%s is on: it was told %s", name(b), action)
		b.on, b.onSince, b.offAt, b.frozen, b.selfStartedAt = true, w.now, -1, false, -1000
		w.checkLoad(b)
	case bmc.ActionCycle:
		w.violate("%s was told Cycle, in which nobody sees that it is off", name(b))
	}
}

// checkLoad: what was started by command keeps the budget. What started by itself, or was lied about, could not be known of.
func (w *world) checkLoad(started *blade) {
	starting, watts := 0, 0
	for _, b := range w.blades {
		isKnown := b == started || w.now > b.faults.liedUntil+settle && b.selfStartedAt < w.now-settle
		switch {
		case !b.on || !isKnown:
		case w.now-b.onSince < startSeconds:
			starting++
			watts += startWatts
		default:
			watts += serverWatts
		}
	}
	if starting > w.startsAtOnce {
		w.violate("%d servers are starting, and %d may", starting, w.startsAtOnce)
	}
	if w.budget > 0 && watts > w.budget {
		w.violate("servers take %d W of %d W", watts, w.budget)
	}
}

// tell gives a command to a BMC, and gives its answer.
func (w *world) tell(b *blade, action bmc.Action) error {
	f := &b.faults
	w.say("%s is told %s", name(b), action)
	isHeard := true
	var err error
	switch {
	case w.now < f.refuses:
		return &bmc.RefusedError{Reason: bmc.RefusedCredentials}
	case w.now < f.deaf:
		isHeard, err = w.happens(2), bmc.ErrSilent // the answer may be lost, or the command
	case w.now < f.stuck:
		isHeard = false
	case w.now < f.slow && w.happens(3):
		return &bmc.BusyError{What: "power"}
	}
	if isHeard {
		at := w.now
		if w.now < f.slow {
			at += w.chance.IntN(maxDelay)
		}
		if n := len(b.queue); n > 0 { // one after the other
			at = max(at, b.queue[n-1].at)
		}
		b.queue = append(b.queue, effect{at, action})
	}
	return err
}

// tellAll gives a command to a chassis manager: it switches servers on one after the other.
func (w *world) tellAll(of int, action bmc.Action) error {
	m := &w.managers[of]
	w.say("manager %d is told %s", of, action)
	if w.now < m.deadUntil {
		return bmc.ErrSilent
	}
	if !m.inCharge {
		return &bmc.UnsupportedError{What: "power of the chassis"}
	}
	for i, b := range w.blades {
		at := w.now
		if action == bmc.ActionOn {
			at += i * staggerBy
		}
		b.queue = append(b.queue, effect{at, action})
	}
	return nil
}

// power is what the BMC of a blade says.
func (w *world) power(b *blade) (bmc.Power, error) {
	switch {
	case w.now < b.faults.refuses:
		return bmc.PowerUnknown, &bmc.RefusedError{Reason: bmc.RefusedCredentials}
	case w.now < b.faults.deaf:
		return bmc.PowerUnknown, bmc.ErrSilent
	}
	return powerOf(b.on != (w.now < b.faults.lies)), nil
}

// sensors are what a chassis manager shows.
func (w *world) sensors(of int) ([]bmc.Sensor, error) {
	if w.now < w.managers[of].deadUntil {
		return nil, bmc.ErrSilent
	}
	charge := 0.0
	if w.managers[of].inCharge {
		charge = 1
	}
	sensors := []bmc.Sensor{{Name: "In Charge", Value: charge}}
	for i, b := range w.blades {
		on := b.on != (w.now < b.faults.slotLies)
		if w.now < w.frozenUntil {
			on = w.frozenView[i]
		}
		state, watts := 1.0, 0.0
		if on {
			state, watts = 2, serverWatts
		}
		sensors = append(sensors, bmc.Sensor{Name: fmt.Sprintf("Slot %02d State", i+1), Value: state, Discrete: true},
			bmc.Sensor{Name: fmt.Sprintf("Slot %02d Power", i+1), Value: watts, Unit: "W"})
	}
	return sensors, nil
}

func (w *world) link(b *blade) bmc.Power {
	return powerOf(b.on && w.now >= b.faults.unplugged)
}

func powerOf(on bool) bmc.Power {
	if on {
		return bmc.PowerOn
	}
	return bmc.PowerOff
}

func (w *world) isReady(b *blade) bool { return b.on && !b.frozen && w.now-b.onSince > startSeconds }
