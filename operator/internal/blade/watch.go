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
	// fewOperations of a disk say nothing about it.
	fewOperations = 500
	// maxLooks bounds what is kept.
	maxLooks = int(losesFor/WatchInterval) + 1
)

// Watch follows counters of the kernel that tell of ports and disks that become worse: how often links are lost, and how long disks are
// busy with a read or a write. It is pure: it is given the time, and the kernel's files.
type Watch struct{ looks []look }

// look is what the counters were at a time. All of them grow until the system is restarted.
type look struct {
	at     time.Time
	losses map[string]int64
	disks  map[string]diskCounters
}

type diskCounters struct{ operations, busyMillis int64 }

// Take looks at the counters of the ports and disks of an inventory, and enters there what has come of these.
func (w *Watch) Take(now time.Time, root fs.FS, inventory *hardware.Inventory) {
	next := look{at: now, losses: map[string]int64{}, disks: map[string]diskCounters{}}
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
	mean := uint64((sum.busyMillis + sum.operations - 1) / sum.operations) //nolint:gosec // neither is negative
	return 1 << bits.Len64(mean-1)
}
