package faults

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"rcbox.dev/rcbox/faults/history"
)

// now is the recorder's clock.
func now(t *testing.T) int64 {
	t.Helper()
	time, err := history.Now()
	if err != nil {
		t.Fatal(err)
	}
	return time
}

// workload says what the clients of a recorder do; see `recorder --help`.
type workload struct {
	namespace     string
	clients, keys int
	firstClient   int
	ballast       int
	more          []string
}

// usual is six clients on eight keys, with 6 MiB of other objects.
var usual = workload{clients: 6, keys: 8, ballast: 750}

// recorder is the process in which the clients are.
type recorder struct {
	*process
	stdin     io.Closer
	mutex     sync.Mutex
	recording history.Recording
	broken    error
}

// record starts clients and waits until their ballast is written.
func record(t *testing.T, coordinator string, load workload) *recorder {
	t.Helper()
	r := &recorder{}
	words := []string{
		program(t, "recorder"), "-C", coordinator,
		"--clients", strconv.Itoa(load.clients), "--keys", strconv.Itoa(load.keys),
		"--first-client", strconv.Itoa(load.firstClient), "--ballast", strconv.Itoa(load.ballast),
	}
	cmd := command(append(words, load.more...))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdin = stdin
	r.process = start(t, fmt.Sprintf("recorder %d", load.firstClient), load.namespace, r.take, cmd)
	t.Cleanup(r.kill)
	r.waitPhase("running")
	return r
}

func (r *recorder) take(line string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.broken = errors.Join(r.broken, r.recording.Add([]byte(line)))
}

func (r *recorder) waitPhase(phase string) {
	r.t.Helper()
	waitFor(r.t, "the recorder to be "+phase, func() error {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		if r.recording.Phase != phase {
			return fmt.Errorf("it has recorded %d operations and says: %s", len(r.recording.Operations), r.log())
		}
		return r.broken
	})
}

// seen is what was recorded so far.
func (r *recorder) seen() []history.Operation {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Clone(r.recording.Operations)
}

// waitProgress waits until so many operations on each shared key that began after now have succeeded.
func (r *recorder) waitProgress(keys, each int) {
	r.t.Helper()
	since := now(r.t)
	from := len(r.seen())
	waitFor(r.t, fmt.Sprintf("%d operations on each of %d keys", each, keys), func() error {
		count := map[string]int{}
		r.mutex.Lock()
		defer r.mutex.Unlock()
		for _, operation := range r.recording.Operations[from:] {
			if operation.Call >= since && operation.IsKnown() {
				count[operation.Key]++
			}
		}
		for key := range keys {
			if done := count[history.SharedKey(key)]; done < each {
				return fmt.Errorf("%d on %s", done, history.SharedKey(key))
			}
		}
		return nil
	})
}

// end stops the clients; they read everything back.
func (r *recorder) end() []history.Operation {
	r.t.Helper()
	_ = r.stdin.Close() // It may have ended, and then says why.
	r.waitEnd()
	if !r.cmd.ProcessState.Success() {
		r.t.Fatalf("the recorder: %v: %s", r.cmd.ProcessState, r.log())
	}
	return r.seen()
}

// judge ends the recorders and holds what their clients saw against the model. All that the first of them used must have been read back.
func judge(t *testing.T, keys int, first *recorder, others ...*recorder) {
	t.Helper()
	operations := first.end()
	incomplete := history.Complete(operations, keys)
	for _, recorder := range others {
		operations = append(operations, recorder.end()...)
	}
	t.Logf("%d operations, %d of them with an unknown outcome; the slowest took %v",
		len(operations), history.CountUnknown(operations), history.Longest(operations).Round(time.Millisecond))
	if err := errors.Join(incomplete, history.Check(operations, deadline)); err != nil {
		t.Fatal(err)
	}
}
