package planner

import (
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

var settings = rule{
	name: "settings",
	blockedBy: []blocker{
		noAnswer, stateStuck,
		{"the coordinator's build takes no settings", func(p *planning) bool {
			return p.observed.Cluster != nil && p.observed.Cluster.Settings == nil
		}},
	},
	gives: (*planning).keepSettings,
}

// keepSettings has the coordinator change what can be changed while the store runs.
func (p *planning) keepSettings() {
	o := p.observed
	wanted := facts.SettingsFor(o)
	if differences := o.Cluster.Settings.Diff(wanted); differences != "" {
		p.add(steps.SetSettings{Settings: wanted, Why: differences})
		p.lookAgainIn(UnsettledInterval)
	}
}
