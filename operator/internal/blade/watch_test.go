package blade

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// counted has the kernel's files of one port and one disk.
func counted(losses, operations, busyMillis int64) fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	return fstest.MapFS{
		"sys/class/net/eth0/carrier_down_count": file(fmt.Sprintf("%d\n", losses)),
		"sys/block/sda/stat": file(fmt.Sprintf(
			" %d 0 8 99999999 %d 0 8 99999999 0 %d 99999999 0 0 0 0 0 0\n", operations/2, operations-operations/2, busyMillis)),
	}
}

// throttled has the kernel's files of two threads of a processor.
func throttled(cool, hot int64) fstest.MapFS {
	files := fstest.MapFS{}
	for thread, millis := range map[string]int64{"cpu0": cool, "cpu11": hot} {
		name := "sys/devices/system/cpu/" + thread + "/thermal_throttle/core_throttle_total_time_ms"
		files[name] = &fstest.MapFile{Data: []byte(fmt.Sprintf("%d\n", millis))}
	}
	return files
}

// TestWatch: links that are lost count for a day, and a disk is judged by the time that it is busy with one operation.
func TestWatch(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	w := &Watch{}
	take := func(after time.Duration, losses, operations, busyMillis int64) hardware.Inventory {
		now = now.Add(after)
		inventory := hardware.Inventory{Ports: []hardware.Port{{Name: "eth0"}}, Disks: []hardware.Disk{{Name: "sda"}}}
		w.Take(now, counted(losses, operations, busyMillis), &inventory)
		return inventory
	}
	for i, step := range []struct {
		after                          time.Duration
		losses, operations, busyMillis int64
		wantLosses, wantMillis         int
	}{
		{0, 3, 10_000, 900_000, 0, 0},                 // since its start: not since the first look
		{WatchInterval, 4, 10_400, 980_000, 1, 0},     // 400 operations are few
		{WatchInterval, 6, 11_000, 1_000_000, 3, 128}, // 100 ms each
		{WatchInterval, 6, 51_000, 1_040_000, 3, 4},   // 140 s of 41,000 operations
		{time.Hour, 6, 51_000, 1_040_000, 3, 0},       // within an hour: none
		{time.Minute, 9, 9, 9, 3, 0},                  // too soon
		{WatchInterval, 0, 0, 0, 3, 0},                // another card, and another disk
		{WatchInterval, 2, 1000, 500, 5, 0},           // half a millisecond each
		{24 * time.Hour, 2, 1000, 500, 0, 0},
	} {
		got := take(step.after, step.losses, step.operations, step.busyMillis)
		if got.Ports[0].LinkLosses != step.wantLosses || got.Disks[0].ServiceMillis != step.wantMillis {
			t.Errorf("step %d: %+v", i, got)
		}
	}
	for range 3 * maxLooks {
		take(WatchInterval, 2, 1000, 500)
	}
	if len(w.looks) != maxLooks {
		t.Errorf("%d looks are kept", len(w.looks))
	}
	w = &Watch{}
	for i, step := range []struct {
		cool, hot int64
		want      int
	}{
		{5000, 1000, 0}, {5000, 3000, 0}, {5000, 10_000, 2}, {5000, 100_000, 16}, {9_000, 0, 16}, {9_000, 0, 8},
	} {
		now = now.Add(WatchInterval)
		inventory := hardware.Inventory{}
		w.Take(now, throttled(step.cool, step.hot), &inventory)
		if inventory.CPU.ThrottledPercent != step.want {
			t.Errorf("step %d: too hot for %d %%", i, inventory.CPU.ThrottledPercent)
		}
	}
	// Files that are missing, or say nothing that can be understood, count nothing.
	inventory := hardware.Inventory{Ports: []hardware.Port{{Name: "eth0"}}, Disks: []hardware.Disk{{Name: "sda"}}}
	for _, text := range []string{"", "1 2", "1 2 3 4 5 6 7 8 9 x", "-1 0 0 0 0 0 0 0 0 0"} {
		w.Take(now, fstest.MapFS{"sys/block/sda/stat": {Data: []byte(text)}}, &inventory)
	}
	if inventory.Ports[0].LinkLosses != 0 || inventory.Disks[0].ServiceMillis != 0 {
		t.Errorf("%+v", inventory)
	}
}
