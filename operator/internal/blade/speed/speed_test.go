package speed_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rcbox.dev/rcbox/operator/internal/blade/speed"
)

// ticks is a clock by which each look takes a time.
type ticks struct {
	looks atomic.Int64
	each  time.Duration
}

func (c *ticks) now() time.Duration { return time.Duration(c.looks.Add(1)) * c.each }

// disk gives zeros, or an error; it records where it was read.
type disk struct {
	mu    sync.Mutex
	size  int64
	ends  bool
	lasts int64
	again int
}

var errMedium = errors.New("input/output error")

func (d *disk) ReadAt(into []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ends:
		return 0, errMedium
	case at%speed.StepBytes != 0 || at+int64(len(into)) > d.size:
		return 0, io.ErrUnexpectedEOF
	case at < d.lasts:
		d.again++
	}
	d.lasts = at
	return len(into), nil
}

func machineOf(each time.Duration, of *disk) *speed.Machine {
	clock := &ticks{each: each}
	return &speed.Machine{
		Clock: clock.now, Threads: []int{0, 3}, AvailableBytes: 64 << 20,
		Bind: func(_ int, run func()) error { run(); return nil },
		Disk: "sda", Reads: of, Buffer: make([]byte, speed.StepBytes), DiskBytes: of.size,
	}
}

// TestMeasure: rates are what was done by the time that it took.
func TestMeasure(t *testing.T) {
	t.Parallel()
	of := &disk{size: 3<<20 + 512}
	machine := machineOf(time.Millisecond, of)
	got := speed.Measure(machine)
	// A MiB at each look of 1 ms: 1,048 MB/s. Two threads look at one clock, so each has about half of that.
	if got.ReadMBps != 1048 || got.Disk != "sda" || len(got.Failed) > 0 || of.again == 0 {
		t.Errorf("%+v; begun anew %d times", got, of.again)
	}
	if got.ChecksumMBps < 1 || got.ChecksumMBps > 1048 || got.CopyMBps < 1 || got.CopyMBps > 2*1048 {
		t.Errorf("%+v", got)
	}
	machine.Threads = []int{0}
	if got = speed.Measure(machine); got.ChecksumMBps != 1048 || got.CopyMBps != 1048 {
		t.Errorf("one thread: %+v", got)
	}
	machine = machineOf(10*time.Second, of)
	if got = speed.Measure(machine); got.ReadMBps != 1 {
		t.Errorf("slower than 1 MB/s: %+v", got)
	}
}

// TestNotMeasured: what cannot be measured is said, and the rest is measured.
func TestNotMeasured(t *testing.T) {
	t.Parallel()
	errBind := errors.New("no such thread")
	for name, test := range map[string]struct {
		change func(*speed.Machine)
		failed string
	}{
		"a disk that fails":    {func(m *speed.Machine) { m.Reads = &disk{ends: true} }, "disk sda: read at byte 0: input/output error"},
		"a disk of 512 bytes":  {func(m *speed.Machine) { m.DiskBytes = 512 }, "disk sda: not measured: it is smaller than 1 MiB"},
		"a processor of none":  {func(m *speed.Machine) { m.Threads = nil }, "processor: not measured: the processor has no threads"},
		"a thread that is off": {func(m *speed.Machine) { m.Bind = bindOnly(0, errBind) }, "processor: no such thread"},
	} {
		machine := machineOf(time.Millisecond, &disk{size: 8 << 20})
		test.change(machine)
		got := speed.Measure(machine)
		if len(got.Failed) == 0 || !strings.HasPrefix(got.Failed[0], test.failed) {
			t.Errorf("%s: %+v", name, got)
		}
		isDisk := strings.HasPrefix(test.failed, "disk")
		if (got.ChecksumMBps > 0) != isDisk || (got.CopyMBps > 0) != isDisk || (got.ReadMBps > 0) == isDisk {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func bindOnly(thread int, err error) func(int, func()) error {
	return func(of int, run func()) error {
		if of != thread {
			return err
		}
		run()
		return nil
	}
}
