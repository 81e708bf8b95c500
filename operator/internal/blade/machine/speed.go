package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/blade/speed"
)

// MeasureSpeed measures this machine for about three seconds.
func MeasureSpeed() (measured hardware.Measured, err error) {
	root := os.DirFS("/")
	available, err := blade.AvailableMemory(root)
	if err != nil {
		return hardware.Measured{}, err
	}
	threads, err := ownThreads()
	if err != nil {
		return hardware.Measured{}, err
	}
	begin := time.Now()
	of := &speed.Machine{
		Clock: func() time.Duration { return time.Since(begin) }, Threads: threads, Bind: onThread, AvailableBytes: available,
	}
	// Reads past the kernel's cache need memory that begins with a page.
	if of.Buffer, err = unix.Mmap(-1, 0, speed.StepBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return hardware.Measured{}, fmt.Errorf("get memory for reads: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(of.Buffer)) }()
	file, opened := openSystemDisk(root, of)
	if opened != nil { // the rest is measured all the same
		of.Reads, of.DiskBytes = unreadable{opened}, speed.StepBytes
	} else {
		defer func() { _ = file.Close() }() // read only
	}
	return speed.Measure(of), nil
}

func openSystemDisk(root fs.FS, of *speed.Machine) (file *os.File, err error) {
	if of.Disk, err = blade.SystemDisk(root); err != nil {
		return nil, err
	}
	if file, err = os.OpenFile("/dev/"+of.Disk, os.O_RDONLY|unix.O_DIRECT, 0); err != nil {
		return nil, fmt.Errorf("open the disk: %w", err)
	}
	if of.DiskBytes, err = file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("find the size of the disk: %w", err), file.Close())
	}
	of.Reads = file
	return file, nil
}

// unreadable is a disk that could not be opened.
type unreadable struct{ err error }

func (u unreadable) ReadAt([]byte, int64) (int, error) { return 0, u.err }

// ownThreads are those that this program may run on.
func ownThreads() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("find the processor's threads: %w", err)
	}
	var all []int
	for thread := range len(set) * unix.SizeofPtr * 8 { //nolint:mnd // bits of a byte
		if set.IsSet(thread) {
			all = append(all, thread)
		}
	}
	return all, nil
}

// onThread runs a function on a thread of the processor. The kernel's thread that it had is given up.
func onThread(thread int, run func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the kernel's thread ends with this goroutine
		var set unix.CPUSet
		set.Set(thread)
		err := unix.SchedSetaffinity(0, &set)
		if err == nil {
			run()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("run on thread %d of the processor: %w", thread, err)
	}
	return nil
}
