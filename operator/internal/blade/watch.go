package blade

import (
	"io/fs"
	"math/bits"
	"path"
	"strconv"
	"strings"
	"time"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

const (
	// WatchInterval is the time between two looks at the kernel's counters.
	WatchInterval = 5 * time.Minute
	// losesFor is how long a lost link counts, and servesFor for how long the time of reads and writes is averaged.
	losesFor  = 24 * time.Hour
	servesFor = time.Hour
	// heatsFor is the time in which it counts for how long processors were too hot.
	heatsFor = time.Hour
	// fewOperations of a disk say nothing about it.
	fewOperations = 500
	// maxLooks bounds what is kept.
	maxLooks = int(losesFor/WatchInterval) + 1
)

// Watch follows counters of the kernel that tell of parts that become worse: how often links are lost, how long disks are busy with a read
// or a write, and for how long processors are too hot. It is pure: it is given the time, and the kernel's files.
type Watch struct{ looks []look }

// look is what the counters were at a time. All of them grow until the system is restarted.
type look struct {
	at     time.Time
	losses map[string]int64
	disks  map[string]diskCounters
	// throttled is for how long each thread of the processor was too hot, in ms.
	throttled map[string]int64
}

type diskCounters struct{ operations, busyMillis int64 }

// Take looks at the counters of the processor, and of the ports and disks of an inventory, and enters there what has come of these.
func (w *Watch) Take(now time.Time, root fs.FS, inventory *hardware.Inventory) {
	next := look{at: now, losses: map[string]int64{}, disks: map[string]diskCounters{}, throttled: throttledMillis(root)}
	for _, port := range inventory.Ports {
		if lost, err := number(root, path.Join(netFolder, port.Name, "carrier_down_count")); err == nil {
			next.losses[port.Name] = int64(lost)
		}
	}
	for _, disk := range inventory.Disks {
		if counters, isThere := countersOf(root, disk.Name); isThere {
			next.disks[disk.Name] = counters
		}
	}
	// A report that has failed is repeated soon: that is no reason to forget what was a day ago.
	if len(w.looks) == 0 || now.Sub(w.looks[len(w.looks)-1].at) >= WatchInterval {
		w.looks = append(w.looks, next)
		w.looks = w.looks[max(0, len(w.looks)-maxLooks):]
	}
	inventory.CPU.ThrottledPercent = w.throttledPercent(now)
	for i := range inventory.Ports {
		inventory.Ports[i].LinkLosses = w.losses(now, inventory.Ports[i].Name)
	}
	for i := range inventory.Disks {
		inventory.Disks[i].ServiceMillis = w.serviceMillis(now, inventory.Disks[i].Name)
	}
}

// countersOf reads /sys/block/NAME/stat: reads and writes that are done, and the time with at least one of them under way.
func countersOf(root fs.FS, disk string) (counters diskCounters, isThere bool) {
	const reads, writes, busy = 0, 4, 9
	fields := strings.Fields(value(root, "sys/block", disk, "stat"))
	if len(fields) <= busy {
		return diskCounters{}, false
	}
	var numbers [busy + 1]int64
	for i := range numbers {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || n < 0 {
			return diskCounters{}, false
		}
		numbers[i] = n
	}
	return diskCounters{operations: numbers[reads] + numbers[writes], busyMillis: numbers[busy]}, true
}

// throttledMillis reads for how long each thread's core was slowed down because it was too hot; Intel's count that.
func throttledMillis(root fs.FS) map[string]int64 {
	all := map[string]int64{}
	found, _ := fs.Glob(root, "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_total_time_ms") // the pattern is right
	for _, name := range found[:min(len(found), maxDevices)] {
		if millis, err := number(root, name); err == nil && millis >= 0 {
			all[name] = int64(millis)
		}
	}
	return all
}

// pairs calls with each two looks that follow one another, both within a time.
func (w *Watch) pairs(now time.Time, within time.Duration, do func(before, after *look)) {
	for i := 1; i < len(w.looks); i++ {
		if before := &w.looks[i-1]; now.Sub(before.at) <= within {
			do(before, &w.looks[i])
		}
	}
}

// losses of a link. A counter that is smaller than before is that of another card under the same name.
func (w *Watch) losses(now time.Time, port string) int {
	var sum int64
	w.pairs(now, losesFor, func(before, after *look) {
		first, isThere := before.losses[port]
		if last, stillThere := after.losses[port]; isThere && stillThere {
			sum += max(0, last-first)
		}
	})
	return int(sum)
}

func (w *Watch) serviceMillis(now time.Time, disk string) int {
	var sum diskCounters
	w.pairs(now, servesFor, func(before, after *look) {
		first, isThere := before.disks[disk]
		last, stillThere := after.disks[disk]
		if isThere && stillThere && last.operations >= first.operations && last.busyMillis >= first.busyMillis {
			sum.operations += last.operations - first.operations
			sum.busyMillis += last.busyMillis - first.busyMillis
		}
	})
	if sum.operations < fewOperations || sum.busyMillis < sum.operations {
		return 0
	}
	return powerAbove((sum.busyMillis + sum.operations - 1) / sum.operations)
}

// throttledPercent is that of the thread that was slowed down for the longest time.
func (w *Watch) throttledPercent(now time.Time) int {
	slow := map[string]int64{}
	var whole int64
	w.pairs(now, heatsFor, func(before, after *look) {
		whole += after.at.Sub(before.at).Milliseconds()
		for thread, last := range after.throttled {
			if first, isThere := before.throttled[thread]; isThere {
				slow[thread] += max(0, last-first)
			}
		}
	})
	var worst int64
	for _, millis := range slow {
		worst = max(worst, millis)
	}
	const percent = 100
	if whole == 0 || worst*percent < whole {
		return 0
	}
	return powerAbove((worst*percent + whole - 1) / whole)
}

// powerAbove rounds a number from 1 up to a power of two: a report changes only with a figure that has changed much.
func powerAbove(n int64) int { return 1 << bits.Len64(uint64(n-1)) } //nolint:gosec // it is not negative
