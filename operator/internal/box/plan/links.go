package plan

import (
	"fmt"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// linksUp: each uplink of the spec, and each link of a server that is on, is up at the switch board that has it, as far as the boards see
// that.
func (p *planning) linksUp() verdict {
	boards := p.model.SwitchBoards
	switch {
	case len(p.SwitchBoards) == 0:
		return unknown("NoBoards", "spec.management.ons names no switch board")
	case boards.UplinkLink == nil && boards.ServerLink == nil:
		return unknown("NotMeasured", fmt.Sprintf("model %s names no sensors of links", p.model.Name))
	}
	var silent, down []string
	for i := range p.SwitchBoards {
		board := &p.SwitchBoards[i]
		switch {
		case board.AskedAt.IsZero():
			return notYet("NotAsked", "not all switch boards were asked yet")
		case !p.answers(&board.Contact):
			silent = append(silent, board.Name+" ("+board.Address+")")
		case board.SensorsAt.IsZero():
			return notYet("NotRead", "the sensors of switch board "+board.Name+" were not read yet")
		default:
			down = append(down, p.serversDown(board)...)
		}
	}
	if len(silent) > 0 {
		return no("Silent", "controllers of switch boards do not answer: "+listed(silent))
	}
	down = append(p.uplinksDown(), down...)
	if len(down) > 0 {
		return no("Down", fmt.Sprintf("links that are down: %s; see to their cables, or to what is at their other ends", listed(down)))
	}
	return yes("AllUp", "all links of spec.chain.uplinks and of servers that are on are up")
}

// chainSound: the cables between Chassis are as they must be without an external switch.
func (p *planning) chainSound() verdict {
	chain := &p.Layout.Chain
	switch {
	case chain.Reason == "":
		return unknown("NoChain", "spec.chain names no cable to another Chassis")
	case !chain.IsSound:
		return no(chain.Reason, chain.Text)
	}
	return yes(chain.Reason, chain.Text)
}

// uplinksDown names uplinks that no board shows as up.
func (p *planning) uplinksDown() []string {
	link := p.model.SwitchBoards.UplinkLink
	if link == nil || p.Chassis.Spec.Chain == nil {
		return nil
	}
	var down []string
	for _, uplink := range p.Chassis.Spec.Chain.Uplinks {
		name, at, isUp := link.Name(uplink.QSFP), "no switch board", false
		for i := range p.SwitchBoards {
			if value, isThere := p.SwitchBoards[i].read(name); isThere {
				at, isUp = p.SwitchBoards[i].Name, value >= link.UpFrom
			}
		}
		if !isUp {
			text := fmt.Sprintf("QSFP %d at %s", uplink.QSFP, at)
			if uplink.Peer != "" {
				text += ", to " + uplink.Peer
			}
			down = append(down, text)
		}
	}
	return down
}

// serversDown names servers that are on and whose link at a board is down. A server that is off may have none.
func (p *planning) serversDown(board *Manager) []string {
	link := p.model.SwitchBoards.ServerLink
	if link == nil {
		return nil
	}
	var down []string
	for _, m := range p.machines {
		value, isThere := board.read(link.Name(m.layout.Slot))
		if m.isSettledOn() && !m.hasClosedPorts() && (!isThere || value < link.UpFrom) {
			down = append(down, fmt.Sprintf("%s (slot %d) at %s", m.name(), m.layout.Slot, board.Name))
		}
	}
	return down
}

// isSettledOn: it is known to be on, and has had the time to start.
func (m *machine) isSettledOn() bool {
	since := m.next.Power.Since
	return m.power == v1alpha1.PowerOn && since != nil && m.elapsed(since.Time) > m.model.StartTime(m.Times.Start)
}
