package history

import (
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Recording is what one process of clients has written down so far.
type Recording struct {
	Operations []Operation
	// Phase is the one that began last.
	Phase string
	// underWay is where a client's operation stands that has begun and not ended.
	underWay map[int]int
}

// Add takes the next line. An operation may have two of them: one when it begins, with an unknown outcome, and one that says what came
// of it.
func (r *Recording) Add(line []byte) error {
	var added struct {
		Operation
		Phase string `json:"phase"`
	}
	if err := json.Unmarshal(line, &added); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	if added.Phase != "" {
		r.Phase = added.Phase
		return nil
	}
	at, isThere := r.underWay[added.Client]
	switch {
	case added.Return == 0:
		if r.underWay == nil {
			r.underWay = map[int]int{}
		}
		r.underWay[added.Client] = len(r.Operations)
		r.Operations = append(r.Operations, added.Operation)
	case isThere && r.Operations[at].Call == added.Call:
		r.Operations[at] = added.Operation
		delete(r.underWay, added.Client)
	default:
		r.Operations = append(r.Operations, added.Operation)
	}
	return nil
}

// Now is the recorders' clock, for whoever shares their kernel.
func Now() (int64, error) {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &time); err != nil {
		return 0, fmt.Errorf("CLOCK_BOOTTIME: %w", err)
	}
	return time.Nano(), nil
}

// SharedKey is a key that all clients use.
func SharedKey(number int) string { return fmt.Sprintf("key-%d", number) }

// CountUnknown is how many operations have an outcome that nobody knows.
func CountUnknown(operations []Operation) int {
	count := 0
	for _, operation := range operations {
		if !operation.IsKnown() {
			count++
		}
	}
	return count
}

// Complete is an error unless the last that is known of each key is that it was read.
func Complete(operations []Operation, keys int) error {
	last := map[string]Operation{}
	for _, operation := range operations {
		if before, isThere := last[operation.Key]; !isThere || operation.Return >= before.Return {
			last[operation.Key] = operation
		}
	}
	for key := range keys {
		if _, isThere := last[SharedKey(key)]; !isThere {
			return fmt.Errorf("nothing was done with %s", SharedKey(key))
		}
	}
	for key, operation := range last {
		if operation.Kind != Read || !operation.IsKnown() {
			return fmt.Errorf("%s was not read back: %v", key, operation)
		}
	}
	return nil
}

// Longest is how long the slowest operation took whose outcome is known.
func Longest(operations []Operation) time.Duration {
	var longest int64
	for _, operation := range operations {
		if operation.IsKnown() {
			longest = max(longest, operation.Return-operation.Call)
		}
	}
	return time.Duration(longest)
}
