package planner_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/internal/planner"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// The documentation has all rules, in their order.
func TestRulesInDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operator.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := planner.RuleTable(); !strings.Contains(string(page), table) {
		t.Errorf("docs/operator.md does not have this:\n\n%s", table)
	}
}

// Rules have names of their own, by which tests and documentation speak of them.
func TestRulesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range planner.RuleNames() {
		if name == "" || seen[name] {
			t.Errorf("more than one rule is called %q", name)
		}
		seen[name] = true
	}
}

// These tests' worlds object to rules that are not blocked by what they are to be blocked by.
func TestPlantedRules(t *testing.T) {
	setFlags(t, map[string]string{"rapid.seed": "1", "rapid.checks": "100", "rapid.shrinktime": "0s", "rapid.nofailfile": "true"})
	defer func() { makePlan = planner.Make }()
	for _, test := range []struct {
		rule, blocker string
		world         func(*rapid.T)
		objection     string
	}{
		{"outdated processes that hold something", "copies are missing", anyReplicatedWorld, "ended processes that held data"},
		{"outdated and surplus coordinators", "a coordinator is away", anyStandbyWorld, "rollCoordinators"},
		{"members that the spec has no place for", "the spec has a place for every member", anyWorld, "was not asked about its next pod"},
		{"volume claims", "spec.reclaimPolicy is Retain", anyReplicatedWorld, "is deleted"},
		{"pods of a hibernated Store", "status.hibernatedSince is not set", anyReplicatedWorld, "markOf"},
		{"nothing for a paused Store", "spec.paused is not set", anyWorld, "are asked for"},
	} {
		gone := planner.RuleBlocker{Rule: test.rule, Blocker: test.blocker}
		makePlan = func(o facts.Observed) planner.Plan { return planner.MakeWithout(o, gone) }
		if heard := objection(t, test.world); !strings.Contains(heard, test.objection) {
			t.Errorf("the rule for %q, and not blocked by %q: %.2000s", test.rule, test.blocker, heard)
		}
	}
}

func setFlags(t *testing.T, values map[string]string) {
	t.Helper()
	for name, value := range values {
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := flag.Set(name, before); err != nil {
				t.Error(err)
			}
		})
	}
}

// objection is what a world has against the present makePlan; empty if it has nothing.
func objection(t *testing.T, world func(*rapid.T)) string {
	t.Helper()
	l := &listener{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rapid.Check(l, world)
	}()
	<-done
	return l.heard
}

// listener hears what a failed check says. Like a test, it ends its goroutine then.
type listener struct {
	testing.TB

	heard string
}

func (l *listener) Errorf(format string, arguments ...any) {
	if l.heard == "" {
		l.heard = fmt.Sprintf(format, arguments...)
	}
}

func (l *listener) Fatalf(format string, arguments ...any) {
	l.Errorf(format, arguments...)
	runtime.Goexit()
}

func (*listener) FailNow()            { runtime.Goexit() }
func (l *listener) Failed() bool      { return l.heard != "" }
func (*listener) Log(...any)          {}
func (*listener) Logf(string, ...any) {}
