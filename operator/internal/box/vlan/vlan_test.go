package vlan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/box/vlan"
)

const (
	before, wanted = 4092, vlan.Native
	manyMMCs       = 9
	simSeeds       = 150
)

var errLost = errors.New("no answer")

// mmc is a BMC of the world.
type mmc struct {
	vlan, dead int
	lies       bool
	record     vlan.Record
	answer     *vlan.Answer
	silent     time.Time
	confirmed  bool
}

// world is a chassis. The machine that speaks with the BMCs reaches those of one VLAN: the old one until the switch boards are configured.
type world struct {
	random   *rand.Rand
	now      time.Time
	mmcs     []*mmc
	isMerged bool
	bug      bug
	wrong    []string
	quiet    bool
}

type bug struct {
	name     string
	before   func(*vlan.Observed)
	eager    bool
	reported string
}

func newWorld(seed uint64, b bug) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), bug: b}
	for range manyMMCs {
		m := &mmc{vlan: before, lies: w.random.IntN(40) == 0}
		if w.random.IntN(8) == 0 {
			m.vlan = wanted // somebody has moved it already
		}
		w.mmcs = append(w.mmcs, m)
	}
	return w
}

func (w *world) reached(m *mmc) bool { return m.dead == 0 && (m.vlan == wanted) == w.isMerged }

// look is one reconciliation; it may be killed between any two writes or commands.
func (w *world) look() {
	o := &vlan.Observed{Wanted: wanted}
	for i, m := range w.mmcs {
		seen := vlan.MMC{Name: fmt.Sprintf("atom%03dm", i+1), Record: m.record, Answer: m.answer, Confirmed: m.confirmed}
		if w.reached(m) {
			m.silent = time.Time{}
			seen.Answers, seen.VLAN = true, m.vlan
		} else if m.silent.IsZero() {
			m.silent = w.now
		}
		seen.SilentSince = m.silent
		o.MMCs = append(o.MMCs, seen)
	}
	if w.bug.before != nil {
		w.bug.before(o)
	}
	made := vlan.Make(w.now, o)
	for i, record := range made.Records {
		if !w.quiet && w.random.IntN(40) == 0 {
			return // killed
		}
		w.mmcs[i].record = record
	}
	for _, i := range made.Tell {
		if !w.quiet && w.random.IntN(10) == 0 {
			return // killed
		}
		w.tell(w.mmcs[i])
	}
	if (made.MaySwitch() || w.bug.eager) && !w.isMerged {
		w.mergeSwitch()
	}
	w.confirm(&made)
}

func (w *world) tell(m *mmc) {
	if !w.reached(m) {
		m.answer = &vlan.Answer{TriedAt: m.record.TriedAt, Err: errLost}
		return
	}
	if !m.lies {
		m.vlan = wanted
	}
	m.answer = &vlan.Answer{TriedAt: m.record.TriedAt}
	if !w.quiet && w.random.IntN(8) == 0 { // the answer is lost, or the BMC has moved before it could answer
		m.answer.Err = errLost
	}
}

// mergeSwitch is what somebody does once he is told that he may.
func (w *world) mergeSwitch() {
	for i, m := range w.mmcs {
		if m.vlan != wanted {
			w.wrong = append(w.wrong, fmt.Sprintf("the switch boards were configured while atom%03dm was in VLAN %d", i+1, m.vlan))
		}
	}
	w.isMerged = true
}

// confirm is what somebody does who asks through the chassis manager, as he is told: he says only what is so.
func (w *world) confirm(made *vlan.Plan) {
	if made.Phase != vlan.PhaseBlocked || w.random.IntN(4) > 0 {
		return
	}
	for i, m := range w.mmcs {
		if strings.Contains(made.Message, fmt.Sprintf("atom%03dm", i+1)) && m.vlan == wanted {
			m.confirmed = true
		}
	}
}

func run(seed uint64, b bug) *world {
	w := newWorld(seed, b)
	for range 150 {
		w.now = w.now.Add(time.Duration(w.random.IntN(15_000)) * time.Millisecond)
		m := w.mmcs[w.random.IntN(manyMMCs)]
		if w.random.IntN(12) == 0 && !m.lies { // one that says yes, stays, and dies then is told from no other by anybody
			m.dead = 1 + w.random.IntN(10)
		}
		for _, m := range w.mmcs {
			m.dead = max(0, m.dead-1)
		}
		w.look()
	}
	w.quiet = true
	for range 200 {
		for _, m := range w.mmcs {
			m.dead, m.lies = 0, false
			if m.record.Stage == vlan.Stuck { // somebody has corrected it by hand
				m.vlan = wanted
			}
		}
		w.now = w.now.Add(10 * time.Second)
		w.look()
	}
	for i, m := range w.mmcs {
		if !w.reached(m) {
			w.wrong = append(w.wrong, fmt.Sprintf("atom%03dm is out of reach at the end: it is in VLAN %d, switch boards are merged: %v",
				i+1, m.vlan, w.isMerged))
		}
		if m.vlan != wanted {
			w.wrong = append(w.wrong, fmt.Sprintf("atom%03dm is in VLAN %d at the end", i+1, m.vlan))
		}
	}
	return w
}

// TestSimulation: killed at any moment, it resumes; the switch boards never come first; no BMC is out of reach at the end.
func TestSimulation(t *testing.T) {
	for seed := range uint64(simSeeds) {
		if w := run(seed, bug{}); len(w.wrong) > 0 {
			t.Fatalf("seed %d: %s", seed, w.wrong[0])
		}
	}
}

func TestPlantedBugs(t *testing.T) {
	for _, b := range []bug{
		{name: "the switch boards first", eager: true, reported: "the switch boards were configured while"},
		{
			name: "silence counts as yes", reported: "the switch boards were configured while",
			before: func(o *vlan.Observed) {
				for i := range o.MMCs {
					o.MMCs[i].Record.Agreed = true
				}
			},
		},
		{
			name: "who was never heard has moved", reported: "the switch boards were configured while",
			before: func(o *vlan.Observed) {
				for i := range o.MMCs {
					if m := &o.MMCs[i]; !m.Answers && m.Record.Stage == vlan.Unknown {
						m.Confirmed = true
					}
				}
			},
		},
		{
			name: "a yes is taken for proof", reported: "the switch boards were configured while",
			before: func(o *vlan.Observed) {
				for i := range o.MMCs {
					if m := &o.MMCs[i]; m.Answer != nil && m.Answer.Err == nil {
						m.Confirmed, m.Answers = true, false
					}
				}
			},
		},
	} {
		t.Run(b.name, func(t *testing.T) {
			for seed := range uint64(simSeeds) {
				for _, text := range run(seed, b).wrong {
					if strings.Contains(text, b.reported) {
						t.Logf("seed %d: %s", seed, text)
						return
					}
				}
			}
			t.Errorf("not found in %d worlds", simSeeds)
		})
	}
}

// TestKilledAtEachStep: without any other fault, killed after each write and each command in turn.
func TestKilledAtEachStep(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for killedAt := range 40 {
		w := newWorld(1, bug{})
		for _, m := range w.mmcs {
			m.vlan, m.lies = before, false
		}
		steps := 0
		isKilled := func() bool { steps++; return steps == killedAt }
		for range 80 {
			now = now.Add(10 * time.Second)
			o := &vlan.Observed{Wanted: wanted}
			for i, m := range w.mmcs {
				seen := vlan.MMC{Name: strconv.Itoa(i), Record: m.record, Answer: m.answer, Answers: w.reached(m), VLAN: m.vlan}
				if !seen.Answers {
					seen.SilentSince = now
				}
				o.MMCs = append(o.MMCs, seen)
			}
			made := vlan.Make(now, o)
			if len(made.Tell) > 4 {
				t.Fatalf("%d BMCs are told at once", len(made.Tell))
			}
			isOver := false
			for i := 0; i < len(made.Records) && !isOver; i++ {
				w.mmcs[i].record = made.Records[i]
				isOver = isKilled()
			}
			for _, i := range made.Tell {
				if isOver {
					break
				}
				w.quiet = true
				w.tell(w.mmcs[i])
				isOver = isKilled()
			}
			if !isOver && made.MaySwitch() && !w.isMerged {
				w.mergeSwitch()
			}
			if made.Phase == vlan.PhaseDone {
				break
			}
		}
		for i, m := range w.mmcs {
			if !w.reached(m) || !w.isMerged {
				t.Errorf("killed at step %d: BMC %d is in VLAN %d: %+v", killedAt, i, m.vlan, m.record)
			}
		}
		if len(w.wrong) > 0 {
			t.Errorf("killed at step %d: %s", killedAt, w.wrong[0])
		}
	}
}

// TestMessages: who is in the way is named, with what to do.
func TestMessages(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	told := vlan.Record{Wanted: wanted, Stage: vlan.Told, TriedAt: now.Add(-time.Minute), Tries: 3}
	agreed := told
	agreed.Agreed = true
	arrived := vlan.Record{Wanted: wanted, Stage: vlan.Arrived}
	for name, test := range map[string]struct {
		mmc   vlan.MMC
		phase vlan.Phase
		says  string
		tells int
	}{
		"never heard":           {vlan.MMC{}, vlan.PhaseBlocked, "x: is silent, so the VLAN is not known", 0},
		"elsewhere":             {vlan.MMC{Answers: true, VLAN: before}, vlan.PhaseMMCs, "1 of 2 BMCs have moved to VLAN 1", 1},
		"told, silent":          {vlan.MMC{Record: told, SilentSince: now}, vlan.PhaseBlocked, "x: told to move to VLAN 1", 0},
		"agreed, silent":        {vlan.MMC{Record: agreed, SilentSince: now}, vlan.PhaseSwitch, "vlan CHASSIS --config noVLAN", 0},
		"agreed, there":         {vlan.MMC{Record: agreed, Answers: true, VLAN: before}, vlan.PhaseBlocked, "x: told 3 times", 0},
		"told, seen by another": {vlan.MMC{Record: told, Confirmed: true}, vlan.PhaseSwitch, "all BMCs have moved", 0},
		"arrived":               {vlan.MMC{Answers: true, VLAN: wanted}, vlan.PhaseDone, "all BMCs answer in VLAN 1", 0},
		"arrived, silent":       {vlan.MMC{Record: arrived, SilentSince: now}, vlan.PhaseDone, "all BMCs answer", 0},
		"another was wanted": {
			vlan.MMC{Record: vlan.Record{Wanted: 7, Stage: vlan.Arrived}, SilentSince: now}, vlan.PhaseBlocked, "x: is silent", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.mmc.Name = "x"
			made := vlan.Make(now, &vlan.Observed{Wanted: wanted, MMCs: []vlan.MMC{test.mmc, {Name: "y", Record: arrived}}})
			if made.Phase != test.phase || !strings.Contains(made.Message, test.says) || len(made.Tell) != test.tells {
				t.Errorf("%s, tells %v: %s", made.Phase, made.Tell, made.Message)
			}
			if len(made.Message) > 300 {
				t.Errorf("the message has %d bytes", len(made.Message))
			}
		})
	}
}
