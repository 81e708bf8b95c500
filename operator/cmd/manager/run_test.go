package main

import (
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/box/plan"
	"rcbox.dev/rcbox/operator/internal/box/poll"
)

// A command is with its BMC, or will never be, before the time begins that the BMC may take to carry it out.
func TestCommandsAreGivenInTime(t *testing.T) {
	if longest := plan.DefaultTimes.Step + poll.DefaultIntervals.Timeout; longest > plan.DefaultTimes.Given {
		t.Errorf("a command may be given %s after it was planned, and %s are reckoned with", longest, plan.DefaultTimes.Given)
	}
}

func TestRunNeedsAnImage(t *testing.T) {
	command := runCommand()
	command.SetArgs(nil)
	if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--store-image is required") {
		t.Errorf("it says %v", err)
	}
}
