package history

import (
	"slices"
	"testing"
)

// added is what is recorded after these lines.
func added(t *testing.T, lines ...string) []Operation {
	t.Helper()
	var r Recording
	for _, line := range lines {
		if err := r.Add([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	return r.Operations
}

const (
	begin = `{"client":3,"kind":"write","key":"k","argument":5,"given":0,"outcome":"unknown","value":0,"version":0,"call":7,"return":0}`
	end   = `{"client":3,"kind":"write","key":"k","argument":5,"given":0,"outcome":"done","value":0,"version":1,"call":7,"return":9}`
	other = `{"client":4,"kind":"read","key":"k","argument":0,"given":0,"outcome":"done","value":5,"version":1,"call":8,"return":9}`
)

func TestTwoLinesAreOneOperation(t *testing.T) {
	t.Parallel()
	write := Operation{Client: 3, Kind: Write, Key: "k", Argument: 5, Outcome: Done, Version: 1, Call: 7, Return: 9}
	read := Operation{Client: 4, Kind: Read, Key: "k", Outcome: Done, Value: 5, Version: 1, Call: 8, Return: 9}
	if got := added(t, `{"phase":"running"}`, begin, other, end); !slices.Equal(got, []Operation{write, read}) {
		t.Errorf("recorded %v", got)
	}
	if got := added(t, end, other); !slices.Equal(got, []Operation{write, read}) {
		t.Errorf("without a line for the beginning: recorded %v", got)
	}
}

// TestKilledInTheMiddle: a client that ended before it heard of its write leaves one that may have happened, and not one that did not.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	got := added(t, begin, other)
	if len(got) != 2 || got[0].IsKnown() || CountUnknown(got) != 1 {
		t.Fatalf("recorded %v", got)
	}
	if err := Check(got, checkLimit); err != nil {
		t.Error(err)
	}
	if Check(added(t, other), checkLimit) == nil {
		t.Error("a read of what nobody wrote was not found")
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	read := Operation{Kind: Read, Key: SharedKey(0), Outcome: Done, Value: 5, Version: 1, Call: 5, Return: 6}
	write := Operation{Kind: Write, Key: SharedKey(0), Outcome: Done, Argument: 5, Version: 1, Call: 1, Return: 2}
	if err := Complete([]Operation{read, write}, 1); err != nil {
		t.Error(err)
	}
	write.Call, write.Return = 8, 9
	if Complete([]Operation{read, write}, 1) == nil {
		t.Error("a write after the last read was not found")
	}
	if Complete([]Operation{read}, 2) == nil {
		t.Error("a key without operations was not found")
	}
}
