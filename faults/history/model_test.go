package history

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const checkLimit = time.Minute

// then makes operations follow one another, each between its own two moments.
func then(operations ...Operation) []Operation {
	for at := range operations {
		operations[at].Key = "k"
		if operations[at].Outcome == "" {
			operations[at].Outcome = Done
		}
		operations[at].Call, operations[at].Return = int64(10*at+1), int64(10*at+2)
	}
	return operations
}

func TestWhatIsRight(t *testing.T) {
	t.Parallel()
	histories := map[string][]Operation{
		"a write is read": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Read, Value: 5, Version: 1}),
		"versions grow across a removal": then(
			Operation{Kind: Write, Argument: 5, Version: 7}, Operation{Kind: Remove, Version: 7},
			Operation{Kind: Read, Outcome: Absent}, Operation{Kind: Create, Argument: 6, Version: 8}),
		"an increment of nothing": then(
			Operation{Kind: Increment, Argument: 3, Value: 3, Version: 1}, Operation{Kind: Increment, Argument: 4, Value: 7, Version: 2}),
		"conditions that hold and do not": then(
			Operation{Kind: Create, Argument: 5, Version: 1}, Operation{Kind: Create, Argument: 6, Outcome: Exists, Version: 1},
			Operation{Kind: Replace, Given: 1, Argument: 7, Version: 2},
			Operation{Kind: Replace, Given: 1, Argument: 8, Outcome: Changed, Version: 2},
			Operation{Kind: Remove, Version: 2}, Operation{Kind: Remove}, Operation{Kind: Replace, Given: 2, Outcome: Absent}),
		"an unknown write that took effect late": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Write, Argument: 6, Outcome: Unknown},
			Operation{Kind: Read, Value: 5, Version: 1}, Operation{Kind: Read, Value: 6, Version: 4}),
		"an unknown write that never did": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Write, Argument: 6, Outcome: Unknown},
			Operation{Kind: Read, Value: 5, Version: 1}),
		"an unknown increment, once": then(
			Operation{Kind: Increment, Argument: 1, Outcome: Unknown}, Operation{Kind: Increment, Argument: 1, Value: 2, Version: 2}),
		"an unknown removal": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Remove, Outcome: Unknown},
			Operation{Kind: Read, Outcome: Absent}),
		"an unknown replacement": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Replace, Given: 1, Argument: 6, Outcome: Unknown},
			Operation{Kind: Create, Argument: 7, Outcome: Exists, Version: 3}, Operation{Kind: Read, Value: 6, Version: 3}),
	}
	for name, history := range histories {
		if err := Check(history, checkLimit); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsWrong(t *testing.T) {
	t.Parallel()
	histories := map[string][]Operation{
		"a lost write": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Write, Argument: 6, Version: 2},
			Operation{Kind: Read, Value: 5, Version: 1}),
		"a lost object": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Read, Outcome: Absent}),
		"a stale read": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Increment, Argument: 1, Value: 6, Version: 2},
			Operation{Kind: Read, Value: 6, Version: 2}, Operation{Kind: Read, Value: 5, Version: 1}),
		"an increment that counts twice": then(
			Operation{Kind: Increment, Argument: 1, Value: 1, Version: 1}, Operation{Kind: Increment, Argument: 1, Value: 3, Version: 3}),
		"an unknown increment that counts twice": then(
			Operation{Kind: Increment, Argument: 1, Outcome: Unknown}, Operation{Kind: Read, Value: 2, Version: 2}),
		"a removed object that comes back": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Remove, Version: 1},
			Operation{Kind: Read, Value: 5, Version: 1}),
		"a version that is given again": then(
			Operation{Kind: Write, Argument: 5, Version: 7}, Operation{Kind: Remove, Version: 7},
			Operation{Kind: Write, Argument: 6, Version: 7}),
		"a value with another's version": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Write, Argument: 6, Version: 2},
			Operation{Kind: Read, Value: 6, Version: 3}),
		"a condition that did not hold": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Write, Argument: 6, Version: 2},
			Operation{Kind: Replace, Given: 1, Argument: 7, Version: 3}),
		"a condition that held and was refused": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Replace, Given: 1, Outcome: Changed, Version: 1}),
		"an object that is made twice": then(
			Operation{Kind: Create, Argument: 5, Version: 1}, Operation{Kind: Create, Argument: 6, Version: 2}),
		"a removal of what is gone": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Remove, Version: 1}, Operation{Kind: Remove, Version: 1}),
		"an unknown write that is seen and then not": then(
			Operation{Kind: Write, Argument: 5, Version: 1}, Operation{Kind: Write, Argument: 6, Outcome: Unknown},
			Operation{Kind: Read, Value: 6, Version: 2}, Operation{Kind: Read, Value: 5, Version: 1}),
		"an error": then(Operation{Kind: Read, Outcome: "the store is on fire"}),
	}
	for name, history := range histories {
		err := Check(history, checkLimit)
		if err == nil {
			t.Errorf("%s was not found", name)
			continue
		}
		if !strings.Contains(err.Error(), "no order of its") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOverlap: operations at the same time may have taken effect in either order, others not.
func TestOverlap(t *testing.T) {
	t.Parallel()
	write := Operation{Key: "k", Kind: Write, Argument: 6, Outcome: Done, Version: 2, Call: 10, Return: 30}
	before := Operation{Key: "k", Kind: Write, Argument: 5, Outcome: Done, Version: 1, Call: 1, Return: 2}
	read := Operation{Key: "k", Kind: Read, Value: 5, Outcome: Done, Version: 1, Call: 15, Return: 20}
	if err := Check([]Operation{before, write, read}, checkLimit); err != nil {
		t.Error(err)
	}
	read.Call, read.Return = 31, 32
	if Check([]Operation{before, write, read}, checkLimit) == nil {
		t.Error("a stale read was not found")
	}
}

// TestRandomHistories: what a right register does is right, and what it does with one thing forgotten is found.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		history := simulate(seed, -1)
		if err := Check(history, checkLimit); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		random := rand.New(rand.NewPCG(seed, 2))
		if Check(simulate(seed, random.IntN(len(history)-2)), checkLimit) == nil {
			t.Fatalf("seed %d: an increment that was forgotten was not found", seed)
		}
	}
}

// simulate is what clients see that increment and read in turn; the increment at position lost is acknowledged and forgotten.
func simulate(seed uint64, lost int) []Operation {
	random := rand.New(rand.NewPCG(seed, 1))
	var history []Operation
	var value int64
	version := uint64(1)
	for at := range 60 {
		now := int64(at) * 10
		operation := Operation{
			Client: at % 4, Key: "k", Kind: Increment, Outcome: Done,
			// Each takes effect at now and overlaps with up to three on both sides.
			Call: now - random.Int64N(40), Return: now + random.Int64N(40), Argument: random.Int64N(9) + 1,
		}
		operation.Value, operation.Version = value+operation.Argument, version+1
		if at != lost {
			value, version = operation.Value, operation.Version
		}
		// What nobody knows could stand for what was lost.
		if random.IntN(10) == 0 && (lost < 0 || at < lost) {
			operation.Outcome, operation.Value, operation.Version = Unknown, 0, 0
		}
		history = append(history, operation)
	}
	return append(history, Operation{Key: "k", Kind: Read, Outcome: Done, Value: value, Version: version, Call: 10000, Return: 10001})
}
