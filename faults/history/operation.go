// Package history is what clients of a store have done and seen, and the check that some order explains it.
package history

import (
	"fmt"
	"math"
)

// Kind is what a client does.
type Kind string

// The kinds of operations; the crate recorder says what each does.
const (
	Read      Kind = "read"
	Write     Kind = "write"
	Create    Kind = "create"
	Replace   Kind = "replace"
	Increment Kind = "increment"
	Remove    Kind = "remove"
)

// Outcomes other than these are texts of errors, and none is expected.
const (
	Done    = "done"
	Absent  = "absent"
	Exists  = "exists"
	Changed = "changed"
	Unknown = "unknown"
)

// Operation is what a client did and saw: a line that the recorder writes.
type Operation struct {
	Client int    `json:"client"`
	Kind   Kind   `json:"kind"`
	Key    string `json:"key"`
	// Argument is what was written or added.
	Argument int64 `json:"argument"`
	// Given is the version that a Replace asked for.
	Given   uint64 `json:"given"`
	Outcome string `json:"outcome"`
	// Value was read, or made by an increment.
	Value int64 `json:"value"`
	// Version was read, written, removed, or in the way; 0 if none.
	Version uint64 `json:"version"`
	// Call and Return are nanoseconds of CLOCK_BOOTTIME; Return is 0 while it is under way.
	Call   int64 `json:"call"`
	Return int64 `json:"return"`
}

// end is when an operation was over, as far as anybody knows: one whose outcome nobody knows may take effect any time later.
func (o Operation) end() int64 {
	if o.Outcome == Unknown {
		return math.MaxInt64
	}
	return o.Return
}

// IsKnown is whether anybody knows what came of it.
func (o Operation) IsKnown() bool { return o.Outcome != Unknown }

func (o Operation) String() string {
	text := fmt.Sprintf("client %d %s %s", o.Client, o.Kind, o.Key)
	switch o.Kind {
	case Write, Create, Increment:
		text += fmt.Sprintf(" %d", o.Argument)
	case Replace:
		text += fmt.Sprintf(" %d if %d", o.Argument, o.Given)
	case Read, Remove:
	}
	return fmt.Sprintf("%s: %s, value %d, version %d", text, o.Outcome, o.Value, o.Version)
}
