package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// now is the recorder's clock.
func now(t *testing.T) int64 {
	t.Helper()
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &time); err != nil {
		t.Fatal(err)
	}
	return time.Nano()
}

// workload says what the clients of a recorder do; see `history --help`.
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
	stdin   io.Closer
	mutex   sync.Mutex
	history []Operation
	phase   string
	broken  error
}

// record starts clients and waits until their ballast is written.
func record(t *testing.T, coordinator string, load workload) *recorder {
	t.Helper()
	r := &recorder{}
	words := []string{
		program(t, "examples/history"), "-C", coordinator,
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
	var operation struct {
		Operation
		Phase string `json:"phase"`
	}
	err := json.Unmarshal([]byte(line), &operation)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch {
	case err != nil:
		r.broken = fmt.Errorf("%q: %w", line, err)
	case operation.Phase != "":
		r.phase = operation.Phase
	default:
		r.history = append(r.history, operation.Operation)
	}
}

func (r *recorder) waitPhase(phase string) {
	r.t.Helper()
	waitFor(r.t, "the recorder to be "+phase, func() error {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		if r.phase != phase {
			return fmt.Errorf("it has recorded %d operations and says: %s", len(r.history), r.log())
		}
		return r.broken
	})
}

// seen is what was recorded so far.
func (r *recorder) seen() []Operation {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Clone(r.history)
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
		for _, operation := range r.history[from:] {
			if operation.Call >= since && operation.isKnown() {
				count[operation.Key]++
			}
		}
		for key := range keys {
			if done := count[sharedKey(key)]; done < each {
				return fmt.Errorf("%d on %s", done, sharedKey(key))
			}
		}
		return nil
	})
}

func sharedKey(number int) string { return fmt.Sprintf("key-%d", number) }

// end stops the clients; they read everything back.
func (r *recorder) end() []Operation {
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
	history := first.end()
	incomplete := complete(history, keys)
	for _, recorder := range others {
		history = append(history, recorder.end()...)
	}
	unknown := 0
	for _, operation := range history {
		if !operation.isKnown() {
			unknown++
		}
	}
	t.Logf("%d operations, %d of them with an unknown outcome", len(history), unknown)
	if err := errors.Join(incomplete, Check(history, deadline)); err != nil {
		t.Fatal(err)
	}
}

// complete is an error unless the last that is known of each key is that it was read.
func complete(history []Operation, keys int) error {
	last := map[string]Operation{}
	for _, operation := range history {
		if before, isThere := last[operation.Key]; !isThere || operation.Return >= before.Return {
			last[operation.Key] = operation
		}
	}
	for key := range keys {
		if _, isThere := last[sharedKey(key)]; !isThere {
			return fmt.Errorf("nothing was done with %s", sharedKey(key))
		}
	}
	for key, operation := range last {
		if operation.Kind != Read || !operation.isKnown() {
			return fmt.Errorf("%s was not read back: %v", key, operation)
		}
	}
	return nil
}
