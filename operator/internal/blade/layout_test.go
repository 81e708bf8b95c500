package blade

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestLayouts(t *testing.T) {
	t.Parallel()
	wish := Wish{SystemBytes: 8 << 30, ImageBytes: 700 << 20}
	blank := make([]byte, headBytes)
	usual := Layout{System: Partition{1 << 20, 8 << 30}, Backup: Partition{8<<30 + 1<<20, 112<<30 - 1<<20}}
	foreign, damaged := make([]byte, headBytes), make([]byte, headBytes)
	foreign[1080] = 0x53 // the magic number of ext4
	ours := Layout{System: Partition{bootAreaBytes, 4 << 30}, Backup: Partition{bootAreaBytes + 4<<30, 90 << 30}}
	again := Layout{System: ours.System, Backup: ours.Backup, KeepsBackup: true}
	kept := append(firstSector(ours, []byte{1}), blank[sectorBytes:]...)
	copy(damaged, firstSector(Layout{System: Partition{1 << 21, 4 << 30}, Backup: Partition{5 << 30, 1 << 30}}, nil))
	for name, test := range map[string]struct {
		size int64
		head []byte
		wish Wish
		want Layout
		err  error
	}{
		"blank":     {120 << 30, blank, wish, usual, nil},
		"too small": {9 << 30, blank, wish, Layout{}, ErrTooSmall},
		"tiny":      {512, blank[:512], wish, Layout{}, ErrTooSmall},
		"foreign":   {120 << 30, foreign, wish, Layout{}, ErrForeign},
		"foreign, wipe": {
			120 << 30, foreign,
			Wish{8 << 30, 700 << 20, true},
			usual,
			nil,
		},
		"kept":                               {120 << 30, kept, wish, again, nil},
		"kept, smaller":                      {60 << 30, kept, wish, Layout{}, ErrTooSmall},
		"kept, image larger than its system": {120 << 30, kept, Wish{8 << 30, 5 << 30, false}, Layout{}, ErrTooSmall},
		"damaged table":                      {120 << 30, damaged, wish, Layout{}, ErrForeign},
		"image larger than the wish": {
			120 << 30, blank,
			Wish{1 << 20, 1<<30 + 512, false},
			Layout{System: Partition{1 << 20, 1<<30 + 256<<20}, Backup: Partition{1<<30 + 257<<20, 120<<30 - 1<<30 - 257<<20}},
			nil,
		},
	} {
		got, err := PlanLayout(test.size, test.head, test.wish)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	large, err := PlanLayout(8<<40, blank, wish)
	if err != nil || large.UnusedBytes == 0 || large.Backup.Bytes/sectorBytes > mostSectors {
		t.Errorf("8 TiB: %+v, %v", large, err)
	}
}

// TestLayoutsAreKept: whatever was laid out is found again, and the parts of a disk neither overlap nor leave it.
func TestLayoutsAreKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 4<<40).Draw(t, "size")
		wish := Wish{
			SystemBytes: rapid.Int64Range(0, 64<<30).Draw(t, "system"),
			ImageBytes:  rapid.Int64Range(bootAreaBytes+1, 32<<30).Draw(t, "image"),
		}
		layout, err := PlanLayout(size, make([]byte, headBytes), wish)
		if err != nil {
			return
		}
		if layout.System.Start != bootAreaBytes || layout.System.end() != layout.Backup.Start || layout.Backup.end() > size ||
			layout.Backup.Bytes < minBackupBytes || layout.System.end() < wish.ImageBytes || layout.Backup.Start%alignment != 0 {
			t.Fatalf("%+v", layout)
		}
		head := append(firstSector(layout, notInstalled), make([]byte, headBytes-sectorBytes)...)
		again, err := PlanLayout(size, head, wish)
		layout.KeepsBackup, layout.UnusedBytes = true, 0
		if err != nil || again != layout {
			t.Fatalf("%+v became %+v, %v", layout, again, err)
		}
		if IsComplete(head) {
			t.Fatal("it counts as complete")
		}
	})
}

func TestChooseDisk(t *testing.T) {
	t.Parallel()
	wish := Wish{SystemBytes: 8 << 30}
	const (
		large, small = 100 << 30, 1 << 30
		mine, other  = "52:54:00:03:00:01", "52:54:00:03:00:02"
	)
	for name, test := range map[string]struct {
		disks []Candidate
		wipe  bool
		want  string
		err   error
	}{
		"none":          {nil, false, "", ErrNoDisk},
		"ours first":    {[]Candidate{{"sda", large, Blank, ""}, {"sdb", large, Ours, ""}}, false, "sdb", nil},
		"first blank":   {[]Candidate{{"sdb", large, Blank, ""}, {"sda", large, Blank, ""}}, false, "sda", nil},
		"large enough":  {[]Candidate{{"sda", small, Blank, ""}, {"sdb", large, Blank, ""}}, false, "sdb", nil},
		"too small":     {[]Candidate{{"sda", small, Blank, ""}}, false, "", ErrTooSmall},
		"foreign":       {[]Candidate{{"sda", large, Foreign, ""}}, false, "", ErrForeign},
		"foreign, wipe": {[]Candidate{{"sda", large, Foreign, ""}}, true, "sda", nil},
		// Installed whole or not, of this blade or of another one: nothing tells which of two disks is meant.
		"ours of two":     {[]Candidate{{"sda", large, Ours, other}, {"sdb", large, Ours, mine}}, false, "sdb", nil},
		"another's":       {[]Candidate{{"sda", large, Ours, other}, {"sdb", large, Blank, ""}}, false, "sda", nil},
		"two others'":     {[]Candidate{{"sda", large, Ours, other}, {"sdb", large, Ours, ""}}, false, "", ErrSeveral},
		"two of ours":     {[]Candidate{{"sda", large, Ours, mine}, {"sdb", large, Ours, mine}}, false, "", ErrSeveral},
		"two, and wipe":   {[]Candidate{{"sda", large, Ours, ""}, {"sdb", large, Ours, ""}}, true, "", ErrSeveral},
		"never a foreign": {[]Candidate{{"sda", large, Foreign, ""}, {"sdb", large, Blank, ""}}, true, "sdb", nil},
	} {
		asked := wish
		asked.Wipe = test.wipe
		got, err := ChooseDisk(test.disks, []string{mine, "52:54:00:03:01:01"}, asked)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestSystemPartition(t *testing.T) {
	t.Parallel()
	for disk, want := range map[string]string{"sda": "/dev/sda1", "vda": "/dev/vda1", "nvme0n1": "/dev/nvme0n1p1"} {
		if got := SystemPartition(disk); got != want {
			t.Errorf("%s: %s", disk, got)
		}
	}
}
