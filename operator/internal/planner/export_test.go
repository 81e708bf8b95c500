package planner

import (
	"fmt"
	"slices"
	"strings"

	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// RuleBlocker is a rule and one of what it is blocked by.
type RuleBlocker struct{ Rule, Blocker string }

// RuleNames are those of all rules.
func RuleNames() []string {
	var names []string
	for _, rule := range slices.Concat(serving, settled, deleting) {
		names = append(names, rule.name)
	}
	for _, rule := range masterRules {
		names = append(names, rule.name)
	}
	return names
}

// MakeWithout is Make with a rule that one of its blockers is taken from.
func MakeWithout(o facts.Observed, gone RuleBlocker) Plan {
	if !slices.Contains(RuleNames(), gone.Rule) {
		panic("there is no rule " + gone.Rule)
	}
	for _, list := range [][]rule{serving, settled, deleting} {
		i := slices.IndexFunc(list, func(r rule) bool { return r.name == gone.Rule })
		if i < 0 {
			continue
		}
		whole := list[i]
		list[i].blockedBy = slices.DeleteFunc(slices.Clone(whole.blockedBy), func(b blocker) bool { return b.name == gone.Blocker })
		if len(list[i].blockedBy) == len(whole.blockedBy) {
			panic("no such thing blocks the rule: " + gone.Blocker)
		}
		defer func() { list[i] = whole }()
	}
	return Make(o)
}

// RuleTable is a Markdown table of all rules in their order, and of what blocks them.
func RuleTable() string {
	var text strings.Builder
	for _, part := range []struct {
		title string
		rules []rule
	}{
		{"rule for a Store that serves", serving},
		{"rule that follows, whatever those before it gave", settled},
		{"rule for a Store that is being deleted", deleting},
	} {
		fmt.Fprintf(&text, "| %s | blocked if |\n|---|---|\n", part.title)
		for _, rule := range part.rules {
			names := make([]string, 0, len(rule.blockedBy))
			for _, blocker := range rule.blockedBy {
				names = append(names, blocker.name)
			}
			fmt.Fprintf(&text, "| %s | %s |\n", rule.name, strings.Join(names, "; "))
		}
		fmt.Fprintln(&text)
	}
	return text.String()
}
