package planner

import (
	"slices"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// rule is one of the things that the planner sees to.
type rule struct {
	name string
	// blockedBy is everything that keeps the rule from giving anything.
	blockedBy []blocker
	// gives adds the rule's steps to the plan, and what they wait for.
	gives func(*planning)
}

// blocker is something that keeps rules from giving anything. It is named like an answer to the question why they give nothing.
type blocker struct {
	name  string
	holds func(*planning) bool
}

// follow has each rule give what it has to give, in order.
func (p *planning) follow(rules []rule) {
	for i := range rules {
		if !slices.ContainsFunc(rules[i].blockedBy, func(b blocker) bool { return b.holds(p) }) {
			rules[i].gives(p)
		}
	}
}

// memberRule is one of the things that the planner sees to for each member, whether it is a coordinator or a master.
type memberRule struct {
	name  string
	gives func(*planning, *subject)
}

// subject is a member that member rules are about.
type subject struct {
	*facts.Member
	view      *MemberView
	component string
}

// followForEach has each rule give what it has to give for the first member, then for the next one.
func (p *planning) followForEach(members []*facts.Member, views []MemberView, component string, rules []memberRule) {
	for i, m := range members {
		for j := range rules {
			rules[j].gives(p, &subject{Member: m, view: &views[i], component: component})
		}
	}
}
