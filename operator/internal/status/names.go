package status

import (
	"fmt"
	"strings"

	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// maxNamed is how many members a message names.
const maxNamed = 3

// bareNames lists members.
func bareNames(views []planner.MemberView) string {
	return listNames(views, func(view planner.MemberView) string { return view.Name })
}

// names lists members, with why they are not up where that is known.
func names(views []planner.MemberView) string {
	return listNames(views, func(view planner.MemberView) string {
		if isTroubled(view) {
			return view.Name + " (" + view.Pod.Trouble + ")"
		}
		return view.Name
	})
}

func listNames(views []planner.MemberView, name func(planner.MemberView) string) string {
	parts := make([]string, 0, maxNamed)
	for i, view := range views {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("%d more", len(views)-maxNamed))
			break
		}
		parts = append(parts, name(view))
	}
	return strings.Join(parts, ", ")
}

func describe(planned []steps.Step) string {
	parts := make([]string, 0, maxNamed)
	for i, step := range planned {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("and %d more steps", len(planned)-maxNamed))
			break
		}
		parts = append(parts, steps.Describe(step))
	}
	return strings.Join(parts, "; ")
}

func filter(views []planner.MemberView, keep func(planner.MemberView) bool) []planner.MemberView {
	var kept []planner.MemberView
	for _, view := range views {
		if keep(view) {
			kept = append(kept, view)
		}
	}
	return kept
}
