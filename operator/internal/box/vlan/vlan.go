// Package vlan moves the management controllers of a chassis from one VLAN to another: the servers' BMCs (MMCs) first, the switch boards
// second. The other order would cut off every BMC that was not moved yet. The package is pure: it is given the time and what was observed,
// and says what is to be on record and which BMC is told next. It also renders the configuration of switch boards.
//
// The caller writes the records first, on condition that they are still those that were observed, and only then tells a
// BMC.
package vlan

import (
	"fmt"
	"strings"
	"time"
)

// Native is the VLAN whose frames have no tag: a BMC is in it if its own VLAN is disabled.
const Native = 1

const (
	// Grace is how long after a command was planned it may still take effect.
	Grace = 30 * time.Second
	// maxTries is how often a BMC is told that says yes and stays where it is.
	maxTries = 3
	// atOnce is how many BMCs may have been told and be neither seen in their new VLAN nor missed in the old one. A mistake costs these,
	// not the whole chassis.
	atOnce = 4
	// maxNamed is how many BMCs a message names.
	maxNamed = 5
)

// Stage is how far one BMC is.
type Stage string

// Stages of a BMC.
const (
	// Unknown means that it has not answered yet.
	Unknown Stage = ""
	// Elsewhere means that it says that it is in another VLAN.
	Elsewhere Stage = "Elsewhere"
	// Told means that it was told to move, or that it may have been.
	Told Stage = "Told"
	// Moved means that it has said yes, and does not answer in the old VLAN any more.
	Moved Stage = "Moved"
	// Arrived means that it says that it is in the wanted VLAN.
	Arrived Stage = "Arrived"
	// Stuck means that it says yes, and stays where it is.
	Stuck Stage = "Stuck"
)

// Record is what is on record of one BMC.
type Record struct {
	// Wanted is the VLAN that the record is about.
	Wanted int
	Stage  Stage
	// TriedAt is when it was told last, and Tries how often.
	TriedAt time.Time
	Tries   int
	// Agreed: it has said yes to the last command.
	Agreed bool
}

// MMC is the BMC of a server, as it was last seen.
type MMC struct {
	Name   string
	Record Record
	// Answers says whether it answers now, and VLAN in which VLAN it then says that it is.
	Answers bool
	VLAN    int
	// SilentSince is since when it does not answer; zero: it answers, or was not asked yet.
	SilentSince time.Time
	// Answer is what it has said to the command of Record.TriedAt; nil: nothing is known.
	Answer *Answer
	// Confirmed: somebody has seen by other means, such as through the chassis manager, that it is in the wanted VLAN.
	Confirmed bool
}

// Answer is what a BMC has said to a command.
type Answer struct {
	TriedAt time.Time
	Err     error
}

// Observed is a chassis as it was last seen.
type Observed struct {
	Wanted int
	MMCs   []MMC
}

// Phase is how far the chassis is.
type Phase string

// Phases.
const (
	// PhaseMMCs means that BMCs are being moved.
	PhaseMMCs Phase = "MMCs"
	// PhaseBlocked means that somebody has to look at a BMC.
	PhaseBlocked Phase = "Blocked"
	// PhaseSwitch means that all BMCs have moved, and that the switch boards come next.
	PhaseSwitch Phase = "Switch"
	// PhaseDone means that all BMCs were seen in the wanted VLAN.
	PhaseDone Phase = "Done"
)

// Plan is what is to be on record, and who is told after that.
type Plan struct {
	// Records are those of all BMCs, in their order.
	Records []Record
	// Tell are the indexes of the BMCs that are told to move.
	Tell    []int
	Phase   Phase
	Message string
}

// MaySwitch says whether the switch boards may be configured for the wanted VLAN alone.
func (p *Plan) MaySwitch() bool { return p.Phase == PhaseSwitch || p.Phase == PhaseDone }

// Make plans.
func Make(now time.Time, o *Observed) Plan {
	p := Plan{Records: make([]Record, len(o.MMCs))}
	underWay := 0
	by := map[Stage][]string{}
	var uncertain []string
	for i := range o.MMCs {
		m := &o.MMCs[i]
		p.Records[i] = m.next(now, o.Wanted)
		record := &p.Records[i]
		by[record.Stage] = append(by[record.Stage], m.Name)
		if record.Stage != Told {
			continue
		}
		underWay++
		if m.isUncertain(now, record) {
			uncertain = append(uncertain, m.Name)
		}
	}
	if len(uncertain) == 0 && len(by[Stuck]) == 0 { // what has gone wrong with one goes wrong with others, too
		for i := range o.MMCs {
			record := &p.Records[i]
			if record.Stage == Elsewhere && underWay < atOnce {
				record.Stage, record.TriedAt, record.Agreed = Told, now.Truncate(time.Second), false
				record.Tries++
				p.Tell = append(p.Tell, i)
				underWay++
			}
		}
	}
	p.judge(o, by, uncertain)
	return p
}

// next is the record of a BMC after what was seen of it.
func (m *MMC) next(now time.Time, wanted int) Record {
	r := m.Record
	if r.Wanted != wanted {
		r = Record{Wanted: wanted}
	}
	if m.Answer != nil && r.Stage == Told && m.Answer.TriedAt.Equal(r.TriedAt) && m.Answer.Err == nil {
		r.Agreed = true
	}
	isOver := now.Sub(r.TriedAt) > Grace || r.TriedAt.After(now) // or the clock was set back
	if m.Answers {
		r.Stage = m.stageOfAnswer(&r, isOver)
		return r
	}
	switch {
	case m.Confirmed:
		r.Stage = Moved
	case r.Stage == Told && r.Agreed && isOver && !m.SilentSince.IsZero():
		r.Stage = Moved
	case r.Stage == Elsewhere:
		r.Stage = Unknown
	}
	return r
}

// stageOfAnswer is the stage of a BMC that answers.
func (m *MMC) stageOfAnswer(r *Record, isOver bool) Stage {
	switch {
	case m.VLAN == r.Wanted:
		return Arrived
	case r.Stage == Stuck: // until somebody has another VLAN wanted, or has moved it
		return Stuck
	case r.Stage == Told && !isOver:
		return Told
	case r.Stage == Told && r.Tries >= maxTries:
		return Stuck
	}
	return Elsewhere
}

// isUncertain: it was told, did not say yes, and does not answer any more: it may be in either VLAN.
func (m *MMC) isUncertain(now time.Time, r *Record) bool {
	return !m.Answers && !r.Agreed && now.Sub(r.TriedAt) > Grace
}

// judge says how far the chassis is.
func (p *Plan) judge(o *Observed, by map[Stage][]string, uncertain []string) {
	wanted := fmt.Sprintf("VLAN %d", o.Wanted)
	silent := by[Unknown]
	switch {
	case len(uncertain) > 0:
		p.Phase = PhaseBlocked
		p.Message = fmt.Sprintf("%s: told to move to %s, gave no answer, and %s silent since. Ask the chassis manager in which VLAN "+
			"(ipmitool -t ADDRESS lan print 1); if it is %s: kubectl rcbox vlan --moved",
			named(uncertain), wanted, isAre(uncertain), wanted)
	case len(by[Stuck]) > 0:
		p.Phase = PhaseBlocked
		p.Message = fmt.Sprintf("%s: told %d times to move to %s, and still in another VLAN: see the BMC's own pages or newer firmware",
			named(by[Stuck]), maxTries, wanted)
	case len(by[Elsewhere])+len(by[Told]) > 0:
		p.Phase = PhaseMMCs
		p.Message = fmt.Sprintf("%d of %d BMCs have moved to %s", len(by[Moved])+len(by[Arrived]), len(o.MMCs), wanted)
	case len(silent) > 0:
		p.Phase = PhaseBlocked
		p.Message = fmt.Sprintf("%s: %s silent, so the VLAN is not known. A switch board with %s alone would cut off a BMC in another one",
			named(silent), isAre(silent), wanted)
	case len(by[Moved]) > 0:
		p.Phase = PhaseSwitch
		p.Message = fmt.Sprintf("all BMCs have moved to %s, and %d of them do not answer before the switch boards are configured: "+
			"kubectl rcbox vlan CHASSIS --config noVLAN", wanted, len(by[Moved]))
	default:
		p.Phase, p.Message = PhaseDone, "all BMCs answer in "+wanted
	}
}

func isAre(names []string) string {
	if len(names) == 1 {
		return "is"
	}
	return "are"
}

func named(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
