package planner_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/plantext"
)

// stepsVariable names a file. If it is set, every plan of these tests' worlds is appended to it: two versions of the planner that write the
// same file decide the same.
const stepsVariable = "RCBOX_PLANNER_STEPS"

var stepsFile = sync.OnceValue(func() *os.File {
	name := os.Getenv(stepsVariable)
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return file
})

func logPlan(plan planner.Plan) {
	if file := stepsFile(); file != nil {
		mustWrite(fmt.Fprintln(file, plantext.Of(plan)))
	}
}

func logStatus(status v1alpha1.StoreStatus) {
	if file := stepsFile(); file != nil {
		text, err := json.Marshal(status)
		if err != nil {
			panic(err)
		}
		mustWrite(fmt.Fprintf(file, "status %x\n", sha256.Sum256(text)))
	}
}

func mustWrite(_ int, err error) {
	if err != nil {
		panic(err)
	}
}
