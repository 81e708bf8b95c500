package planner

// What keeps more than one rule from giving anything. The blockers of a single rule are beside it.
var (
	noAnswer = blocker{"the coordinator does not answer", func(p *planning) bool { return p.observed.Cluster == nil }}

	// What the coordinator cannot write down, it may forget: its word on who may go is not to be had.
	stateStuck = blocker{"the coordinator cannot write its state", func(p *planning) bool {
		return p.observed.Cluster != nil && p.observed.Cluster.StateWait != ""
	}}

	noCopies = blocker{"the Store has no copies", func(p *planning) bool { return p.observed.Store.Copies() == 0 }}

	dryRun = blocker{"spec.recovery.dryRun is set", func(p *planning) bool { return p.observed.Store.Spec.Recovery.DryRun }}

	memberChanges = blocker{"an earlier rule removes or replaces a member", func(p *planning) bool { return p.isChanging }}
)
