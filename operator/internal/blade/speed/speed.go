// Package speed measures for a few seconds how fast the parts of a machine are: processor, memory, and the disk that its system is on. That
// is meant for a moment at which nothing else runs there.
package speed

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"sync"
	"time"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

const (
	// slice is a measurement, of which the best of some counts: programs that start at the same time slow down a few of them.
	slice  = 200 * time.Millisecond
	slices = 5
	// StepBytes is what is done between two looks at the clock.
	StepBytes = 1 << 20
	// checksumBytes fit into the first cache of a processor.
	checksumBytes = 16 << 10
	// maxCopyBytes is what a thread copies from one place to another: far more than caches hold.
	maxCopyBytes = 32 << 20
	// memoryPart of the available memory is what all threads together take at most.
	memoryPart = 4
	// megabyte is that of rates.
	megabyte = 1_000_000
)

// errNothing is wrapped by errors of parts that were not measured.
var errNothing = errors.New("not measured")

// Machine is what is measured.
type Machine struct {
	// Clock is the time since some moment.
	Clock func() time.Duration
	// Threads are the numbers of the processor's threads. Bind has a function run on one of them.
	Threads []int
	Bind    func(thread int, run func()) error
	// AvailableBytes of memory.
	AvailableBytes int64
	// Disk is the name of the disk that the system is on, and Reads reads from it past the kernel's cache, into Buffer of StepBytes.
	Disk   string
	Reads  io.ReaderAt
	Buffer []byte
	// DiskBytes is how much can be read.
	DiskBytes int64
}

// work does a little, and says how many bytes that was.
type work func() (int64, error)

// Measure measures all parts. It takes about three seconds, and says which parts it could not measure.
func Measure(of *Machine) hardware.Measured {
	var measured hardware.Measured
	failed := func(what string, err error) {
		if err != nil {
			measured.Failed = append(measured.Failed, what+": "+err.Error())
		}
	}
	rates, err := of.onAllThreads(checksums)
	failed("processor", err)
	for i, rate := range rates {
		if i == 0 || rate < measured.ChecksumMBps {
			measured.ChecksumMBps = rate
		}
	}
	rates, err = of.onAllThreads(of.copies)
	failed("memory", err)
	for _, rate := range rates {
		measured.CopyMBps += rate
	}
	measured.Disk = of.Disk
	measured.ReadMBps, err = of.rate(of.reads())
	failed(strings.TrimSpace("disk "+of.Disk), err)
	return measured
}

// onAllThreads has all threads do the same at once; it gives the rate of each.
func (of *Machine) onAllThreads(prepare func() work) ([]int64, error) {
	if len(of.Threads) == 0 {
		return nil, fmt.Errorf("%w: the processor has no threads", errNothing)
	}
	var all, ready sync.WaitGroup
	ready.Add(len(of.Threads))
	rates, errs := make([]int64, len(of.Threads)), make([]error, 2*len(of.Threads))
	for i, thread := range of.Threads {
		all.Go(func() {
			isReady := false
			errs[2*i] = of.Bind(thread, func() {
				do := prepare()
				isReady = true
				ready.Done()
				ready.Wait()
				rates[i], errs[2*i+1] = of.rate(do)
			})
			if !isReady { // it could not be bound: the others do not wait for it
				ready.Done()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return rates, nil
}

// rate is that of the best slice, in MB/s; at least 1.
func (of *Machine) rate(do work) (int64, error) {
	best := 1.0
	for range slices {
		var bytes int64
		begin := of.Clock()
		took := time.Duration(0)
		for took < slice {
			n, err := do()
			if err != nil {
				return 0, err
			}
			bytes += n
			took = of.Clock() - begin
		}
		best = max(best, float64(bytes)/took.Seconds()/megabyte)
	}
	return int64(best), nil
}

// checksums computes CRC-32C, as a store does of each object, within the first cache.
func checksums() work {
	table, data, sum := crc32.MakeTable(crc32.Castagnoli), make([]byte, checksumBytes), uint32(0)
	return func() (int64, error) {
		for range StepBytes / checksumBytes {
			sum = crc32.Update(sum, table, data)
		}
		data[0] = byte(sum & 1) // so that nothing of it can be left out
		return StepBytes, nil
	}
}

// copies moves memory from one place to another. Rates are those of bytes that arrive: each is read and written.
func (of *Machine) copies() work {
	const places = 2
	size := of.AvailableBytes / memoryPart / places / int64(len(of.Threads)) / StepBytes * StepBytes
	size = min(max(size, StepBytes), maxCopyBytes)
	from, to := make([]byte, size), make([]byte, size)
	for i := range from { // a page that was never written is not there
		from[i], to[i] = 1, 1
	}
	at := int64(0)
	return func() (int64, error) {
		n := copy(to[at:at+StepBytes], from[at:at+StepBytes])
		at = (at + StepBytes) % size
		return int64(n), nil
	}
}

// reads takes one MiB of the disk after the other, and begins anew at the end.
func (of *Machine) reads() work {
	at := int64(0)
	return func() (int64, error) {
		if of.DiskBytes < StepBytes {
			return 0, fmt.Errorf("%w: it is smaller than 1 MiB", errNothing)
		}
		if at+StepBytes > of.DiskBytes {
			at = 0
		}
		n, err := of.Reads.ReadAt(of.Buffer[:StepBytes], at)
		if err != nil {
			return 0, fmt.Errorf("read at byte %d: %w", at, err)
		}
		at += int64(n)
		return int64(n), nil
	}
}
