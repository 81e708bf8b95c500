package planner

import (
	"rcbox.dev/rcbox/operator/internal/planner/facts"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// keepSettings has the coordinator change what can be changed while the store runs.
func (p *planning) keepSettings() {
	o := p.observed
	if o.Cluster == nil || o.Cluster.StateWait != "" || o.Cluster.Settings == nil {
		return
	}
	wanted := facts.SettingsFor(o)
	if differences := o.Cluster.Settings.Diff(wanted); differences != "" {
		p.add(steps.SetSettings{Settings: wanted, Why: differences})
		p.lookAgainIn(UnsettledInterval)
	}
}

// outdated is how a pod differs from the spec by more than its process can be told while it runs.
func (p *planning) outdated(have, want resources.Inputs) string {
	cluster := p.observed.Cluster
	if takesSettings := cluster == nil || cluster.Settings != nil; takesSettings && have.Replication != nil && want.Replication != nil {
		told := *have.Replication
		told.Factor, told.Min = want.Replication.Factor, want.Replication.Min
		have.Replication = &told
	}
	return resources.Diff(have, want)
}
