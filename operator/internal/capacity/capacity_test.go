package capacity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/internal/capacity"
)

const mib = 1 << 20

// box is a store of masters that are alike, each with half of its log in use.
func box(masters, copies int, capacityMiB int64) capacity.Input {
	in := capacity.Input{Copies: copies, LeastCopies: max(copies-1, 1), Target: 2 * time.Second}
	for i := range masters {
		in.Members = append(in.Members, capacity.Member{
			Name: fmt.Sprintf("m%d", i), Cores: 1, CapacityBytes: capacityMiB * mib, LogBytes: capacityMiB / 2 * mib,
			LiveBytes: capacityMiB / 4 * mib, RoomBytes: 4 * capacityMiB * mib,
		})
	}
	return in
}

func TestChecks(t *testing.T) {
	for _, test := range []struct {
		name    string
		in      capacity.Input
		change  func(*capacity.Input)
		verdict capacity.Verdict
		want    string
	}{
		{
			"even if full", box(9, 2, 1000), nil, capacity.OnTarget,
			"loss of m0: 500 MiB of log / (8 cores x 150 MiB/s, a default until a recovery of at least 64 MiB is measured) + 250 ms " +
				"= 667 ms; target 2s. With full logs, 1000 MiB: 1084 ms",
		},
		{
			"so far", box(3, 2, 1000), nil, capacity.OnTargetSoFar,
			"loss of m0: 500 MiB of log / (2 cores x 150 MiB/s, a default until a recovery of at least 64 MiB is measured) + 250 ms " +
				"= 1917 ms; target 2s. With full logs, 1000 MiB: 3584 ms, on target up to 525 MiB, or with masters.replicas: 5. " +
				"Until what is lost is back, each object can have copies: 1 of 2",
		},
		{
			"too slow", box(3, 1, 2000), nil, capacity.TooSlow,
			"loss of m0: 1000 MiB of log / (2 cores x 150 MiB/s, a default until a recovery of at least 64 MiB is measured) + 250 ms " +
				"= 3584 ms, more than the target, 2s. On target are masters.replicas: 5, or 525 MiB in the logs of what fails together, " +
				"or recovery.target: 3.6s",
		},
		{
			"as measured", box(4, 2, 1000), func(in *capacity.Input) {
				in.Measured = &capacity.Measured{Member: "m1", Bytes: 496 * mib, Ms: 1805, Cores: 3}
			},
			capacity.OnTargetSoFar,
			"loss of m0: 500 MiB of log / (3 cores x 106 MiB/s, measured: 496 MiB of m1 in 1805 ms by 3 cores) + 250 ms = 1823 ms; " +
				"target 2s. With full logs, 1000 MiB: 3395 ms, on target up to 556 MiB, or with masters.replicas: 7",
		},
		{
			"the fullest is the worst", box(5, 2, 1000), func(in *capacity.Input) { in.Members[3].LogBytes = 600 * mib },
			capacity.OnTarget, "loss of m3: 600 MiB of log / (4 cores x 150 MiB/s",
		},
		{
			"two fail together", box(5, 2, 1000), func(in *capacity.Input) { in.Members[1].Domain, in.Members[4].Domain = "r", "r" },
			capacity.TooSlow, "loss of r: 1000 MiB of log / (3 cores x 150 MiB/s",
		},
		{
			"one that is drained takes nothing", box(4, 1, 800), func(in *capacity.Input) { in.Members[2].Cores = 0 },
			capacity.OnTargetSoFar, "loss of m0: 400 MiB of log / (2 cores x 150 MiB/s",
		},
		{
			"no memory for what was held", box(2, 1, 1000), func(in *capacity.Input) {
				in.Members[0].LiveBytes, in.Members[1].LiveBytes = 500*mib, 401*mib
			},
			capacity.NoRoomForData,
			"without m0 there is no memory for everything: objects take 901 MiB, and the logs of the others hold 900 MiB (90% of their " +
				"size). Set masters.replicas or masters.memory higher",
		},
		{
			"nobody left", box(2, 1, 1000), func(in *capacity.Input) { in.Members[0].Domain, in.Members[1].Domain = "r", "r" },
			capacity.NoRoomForData, "all that could take over is in one failure domain, r: have masters in others",
		},
		{
			"nobody left for copies", box(3, 2, 100), func(in *capacity.Input) { in.LeastCopies = 2 },
			capacity.NoRoomForCopies,
			"without m0 each object can have copies: 1, fewer than replication.min, so that writes would wait. " +
				"Set masters.replicas higher, or replication.min lower",
		},
		{
			"no room for copies", box(4, 2, 100), func(in *capacity.Input) {
				for i := range in.Members {
					in.Members[i].RoomBytes = 133 * mib
				}
			},
			capacity.NoRoomForCopies,
			"without m0 there is no room for the copies: they take 400 MiB, and the others have room for 399 MiB. " +
				"Set masters.replicas or backups.storage.size higher",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.change != nil {
				test.change(&test.in)
			}
			check := capacity.MakeCheck(test.in)
			if got := check.Describe(); check.Verdict != test.verdict || !strings.HasPrefix(got, test.want) {
				t.Errorf("verdict %d:\n  %s\nnot %d:\n  %s", check.Verdict, got, test.verdict, test.want)
			}
		})
	}
}

func anyStore(t *rapid.T) capacity.Input {
	in := capacity.Input{
		Copies: rapid.IntRange(1, 4).Draw(t, "copies"), LeastCopies: 1,
		Target: time.Duration(rapid.Int64Range(500, 10_000).Draw(t, "target")) * time.Millisecond,
	}
	for i := range rapid.IntRange(in.Copies+1, 9).Draw(t, "members") {
		in.Members = append(in.Members, anyMember(t, fmt.Sprintf("m%d", i)))
	}
	if rapid.Bool().Draw(t, "is measured") {
		in.Measured = &capacity.Measured{
			Member: "m0", Bytes: rapid.Int64Range(capacity.LeastMeasuredBytes, 1<<34).Draw(t, "bytes"),
			Ms: rapid.Int64Range(1, 60_000).Draw(t, "ms"), Cores: rapid.IntRange(1, 64).Draw(t, "cores"),
		}
	}
	return in
}

func anyMember(t *rapid.T, name string) capacity.Member {
	size := rapid.Int64Range(64, 4096).Draw(t, "capacity") * mib
	log := rapid.Int64Range(0, size).Draw(t, "log")
	return capacity.Member{
		Name: name, Domain: rapid.SampledFrom([]string{"", "", "", "r0", "r1"}).Draw(t, "domain"),
		Cores:         rapid.IntRange(1, 4).Draw(t, "cores"),
		CapacityBytes: size, LogBytes: log, LiveBytes: rapid.Int64Range(0, log).Draw(t, "live"),
		RoomBytes: rapid.Int64Range(0, 4*size).Draw(t, "room"),
	}
}

// One more that holds nothing makes nothing slower, and nothing smaller that was enough.
func TestMoreSurvivorsAreNeverSlower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyStore(t)
		before := capacity.MakeCheck(in)
		more := anyMember(t, "new")
		more.Domain, more.LogBytes, more.LiveBytes = "", 0, 0
		in.Members = append(in.Members, more)
		after := capacity.MakeCheck(in)
		if after.Now.Ms > before.Now.Ms {
			t.Fatalf("%d ms with one more, %d ms without", after.Now.Ms, before.Now.Ms)
		}
		if before.Verdict != capacity.NoRoomForData && after.Verdict == capacity.NoRoomForData {
			t.Fatalf("room for all objects, and with one more there is none: %s", after.Describe())
		}
	})
}

// More in a log, or a slower recovery that was measured, makes nothing faster; another target changes no time.
func TestMoreToDoIsNeverFaster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyStore(t)
		before := capacity.MakeCheck(in)
		which := rapid.IntRange(0, len(in.Members)-1).Draw(t, "member")
		in.Members[which].LogBytes += rapid.Int64Range(0, 1<<30).Draw(t, "more log")
		if in.Measured != nil {
			in.Measured.Ms += rapid.Int64Range(0, 10_000).Draw(t, "more ms")
		}
		in.Target *= 2
		if after := capacity.MakeCheck(in); after.Now.Ms < before.Now.Ms {
			t.Fatalf("%d ms with more to do, %d ms before", after.Now.Ms, before.Now.Ms)
		}
	})
}

// What is held goes on to those that stay, to the last byte; and what is advised is enough.
func TestMembersThatGoLeaveWhatTheyHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyStore(t)
		fewer := capacity.Without(in, func(name string) bool { return name == "m0" })
		var before, after int64
		for _, member := range in.Members {
			before += member.LiveBytes
		}
		for _, member := range fewer.Members {
			after += member.LiveBytes
			if member.Name == "m0" {
				t.Fatal("it is still there")
			}
		}
		if after < before || after > before+int64(len(fewer.Members)) {
			t.Fatalf("%d bytes of objects, %d before", after, before)
		}
	})
}

// With as many masters as are advised, the same loss is on target.
func TestAdviceIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(64, 1<<20).Draw(t, "capacity")
		in := box(rapid.IntRange(3, 9).Draw(t, "masters"), 1, size)
		check := capacity.MakeCheck(in)
		for _, loss := range []capacity.Loss{check.Now, check.Full} {
			advised := box(int(check.MastersFor(loss)), 1, size)
			for i := range advised.Members {
				advised.Members[i].LogBytes = loss.MiB * mib
			}
			if got := capacity.MakeCheck(advised); got.Now.Ms > got.TargetMs {
				t.Fatalf("%d masters are advised, and take %d ms", len(advised.Members), got.Now.Ms)
			}
		}
	})
}
