package controller

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/plantext"
)

// stepsVariable names a folder. If it is set, each seed writes a file there with all plans and the trace: two versions of the operator that
// write the same files decide the same.
const stepsVariable = "RCBOX_OPERATOR_STEPS"

// tracePlan keeps a plan for the seed's file.
func (s *simulation) tracePlan(plan planner.Plan) {
	if os.Getenv(stepsVariable) != "" {
		s.plans = append(s.plans, s.now.Format("15:04:05 ")+plantext.Of(plan))
	}
}

// writeSteps writes the seed's file.
func (s *simulation) writeSteps(t *testing.T, seed uint64) {
	t.Helper()
	folder := os.Getenv(stepsVariable)
	if folder == "" {
		return
	}
	text := strings.Join(s.plans, "\n") + "\n" + strings.Join(s.lines, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(folder, strconv.FormatUint(seed, 10)), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
