// Package plantext writes plans as text, by which tests compare what two versions of the planner decide. It is not for users.
package plantext

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/steps"
)

// Of has a line for each step, and a last one with a hash of everything else that is in the plan.
func Of(plan planner.Plan) string {
	var text strings.Builder
	for _, step := range plan.Steps {
		fmt.Fprintf(&text, "%s: %s\n", reflect.TypeOf(step).Name(), steps.Describe(step))
	}
	for _, step := range plan.Withheld {
		fmt.Fprintf(&text, "withheld: %s: %s\n", reflect.TypeOf(step).Name(), steps.Describe(step))
	}
	whole, err := json.Marshal(plan)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(&text, "next in %s, sha256 %x", plan.Next, sha256.Sum256(whole))
	return text.String()
}
