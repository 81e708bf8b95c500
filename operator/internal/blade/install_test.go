package blade

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
)

const (
	diskBytes  = 4 << 30
	imageBytes = bootAreaBytes + 3<<20 + 3*sectorBytes
)

var pictures = sync.OnceValue(func() [3][]byte { return [3][]byte{nil, drawn(1), drawn(2)} })

// picture is an image of version 1 or 2: a boot area with code and an empty place for the record, then noise.
func picture(version byte) []byte { return bytes.Clone(pictures()[version]) }

func drawn(version byte) []byte {
	image := make([]byte, 0, imageBytes)
	for random := rand.New(rand.NewPCG(uint64(version), 2)); len(image)+8 <= imageBytes; {
		image = binary.LittleEndian.AppendUint64(image, random.Uint64())
	}
	clear(image[recordOffset:bootAreaBytes])
	copy(image, []byte{0xeb, 0x63, version})
	return image
}

func record(version byte) Record {
	return Record{Version: fmt.Sprintf("v%d", version), Manifest: "abc", Hosts: []string{"192.168.3.254"}, MAC: "52:54:00:03:00:01"}
}

func quiet(Stage, int64) {}

// installs brings a version onto a disk as the program does.
func installs(device Device, version byte) (Layout, error) {
	head, err := Head(device)
	if err != nil {
		return Layout{}, err
	}
	layout, err := PlanLayout(device.Size(), head, Wish{SystemBytes: 1 << 30, ImageBytes: imageBytes})
	if err != nil {
		return Layout{}, err
	}
	image := Image{Content: bytes.NewReader(pictures()[version]), Bytes: imageBytes}
	return layout, Install(context.Background(), device, image, layout, record(version), quiet)
}

// whole says which version is on a disk from its first byte to its last, and 0 if none is.
func whole(disk *fakeDisk) byte {
	found := make([]byte, imageBytes)
	disk.readDurable(found, 0)
	for _, version := range []byte{1, 2} {
		want := pictures()[version]
		label, err := record(version).encode()
		// The table is the installer's, the boot code the image's.
		if err == nil && bytes.Equal(found[:bootCodeBytes], want[:bootCodeBytes]) &&
			bytes.Equal(found[sectorBytes:recordOffset], want[sectorBytes:recordOffset]) &&
			bytes.Equal(found[recordOffset:bootAreaBytes], label) && bytes.Equal(found[bootAreaBytes:], want[bootAreaBytes:]) {
			return version
		}
	}
	return 0
}

// start is what a BIOS does with a disk: true if it starts from it.
func start(disk *fakeDisk) bool {
	sector := make([]byte, sectorBytes)
	disk.readDurable(sector, 0)
	return hasMark(sector) && !bytes.HasPrefix(sector, notInstalled)
}

// bug is an installer that breaks one of its rules, seen from the disk.
type bug struct {
	name string
	// write may change what is written, or do it itself.
	write func(disk *fakeDisk, content []byte, at int64) ([]byte, bool)
	// sync may leave out a flush.
	sync  func(disk *fakeDisk) bool
	syncs int
}

// skips leaves out the nth flush.
func (b *bug) skips(n int) *bug {
	b.sync = func(*fakeDisk) bool {
		b.syncs++
		return b.syncs == n
	}
	return b
}

func plantedBugs() []*bug {
	isMark := func(content []byte, at int64) bool { return at == 0 && len(content) == sectorBytes }
	return []*bug{
		{name: "the disk is not marked as not installed", write: func(_ *fakeDisk, content []byte, at int64) ([]byte, bool) {
			return content, isMark(content, at) && !IsComplete(content)
		}},
		{name: "the disk is marked as installed first", write: func(_ *fakeDisk, content []byte, at int64) ([]byte, bool) {
			if isMark(content, at) {
				copy(content, picture(2)[:bootCodeBytes])
			}
			return content, false
		}},
		(&bug{name: "no flush after the mark that says not installed"}).skips(1),
		(&bug{name: "no flush before the mark that says installed"}).skips(2),
		(&bug{name: "no flush at the end"}).skips(3),
		{name: "the image reaches into the backup partition", write: func(disk *fakeDisk, content []byte, at int64) ([]byte, bool) {
			if !isMark(content, at) {
				disk.keep([]byte("oops"), backupStart)
			}
			return content, false
		}},
		{name: "the last sector is not written", write: func(_ *fakeDisk, content []byte, at int64) ([]byte, bool) {
			if at+int64(len(content)) == imageBytes {
				return content[:len(content)-sectorBytes], false
			}
			return content, false
		}},
	}
}

const backupStart = bootAreaBytes + 1<<30

var treasure = []byte("segments of a store's log")

// tryPowerCuts installs version 2 and cuts the power in the middle of each operation, with several outcomes of each; it gives how many
// points there were, and the first rule that was broken.
func tryPowerCuts(before byte, planted *bug) (points int, err error) {
	for point := 1; ; point++ {
		for seed := range uint64(6) {
			isOver, err := tryPowerCut(before, planted, point, seed)
			if err != nil {
				return point, fmt.Errorf("over version %d, cut at operation %d, outcome %d: %w", before, point, seed, err)
			}
			if isOver {
				return point - 1, nil
			}
		}
	}
}

func tryPowerCut(before byte, planted *bug, point int, seed uint64) (isOver bool, err error) {
	disk := newDisk(uint64(point)<<8 | seed)
	if before != 0 {
		if _, err := installs(disk, before); err != nil {
			return false, err
		}
		disk.put(treasure, backupStart)
	}
	disk.restart()
	disk.failsAt = point
	if disk.bug = planted; planted != nil {
		planted.syncs = 0
	}
	_, err = installs(disk, 2)
	disk.bug = nil
	if err == nil {
		// It was over before this operation came; then the power fails.
		disk.operations, disk.failsAt = 0, 0
		disk.cache = nil
		if isOver = true; whole(disk) != 2 || !start(disk) {
			return true, errors.New("the installation said that it is done, and the disk has no whole image")
		}
	} else if !errors.Is(err, errPower) {
		return false, err
	}
	disk.restart()
	if err := judgeDisk(disk, before); err != nil {
		return isOver, err
	}
	// The next start is from the network, and installs again.
	layout, err := installs(disk, 2)
	if err != nil {
		return isOver, fmt.Errorf("the next installation: %w", err)
	}
	if before != 0 && !layout.KeepsBackup {
		return isOver, errors.New("the next installation did not find the backup partition")
	}
	if whole(disk) != 2 {
		return isOver, errors.New("after the next installation, the image is not whole")
	}
	return isOver, judgeDisk(disk, before)
}

func judgeDisk(disk *fakeDisk, before byte) error {
	if start(disk) && whole(disk) == 0 {
		return errors.New("the blade starts from half an image")
	}
	found := make([]byte, len(treasure))
	if disk.readDurable(found, backupStart); before != 0 && !bytes.Equal(found, treasure) {
		return errors.New("the backup partition was written to")
	}
	return nil
}

func TestPowerCuts(t *testing.T) {
	t.Parallel()
	for _, before := range []byte{0, 1} {
		points, err := tryPowerCuts(before, nil)
		if err != nil {
			t.Error(err)
		}
		if points < 10 {
			t.Errorf("the power was cut at %d points only", points)
		}
	}
}

func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	for _, planted := range plantedBugs() {
		t.Run(planted.name, func(t *testing.T) {
			t.Parallel()
			_, err := tryPowerCuts(1, planted)
			if err == nil {
				t.Fatal("no power cut shows this bug")
			}
			t.Log(err)
		})
	}
}

func TestDisksThatFail(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		break_ func(*fakeDisk)
		want   error
		text   string
	}{
		"full":         {func(d *fakeDisk) { d.fullFrom = 2 << 20 }, ErrFull, "full after byte 2097152"},
		"full at once": {func(d *fakeDisk) { d.fullFrom = 100 }, ErrFull, "full"},
		"short write":  {func(d *fakeDisk) { d.shortens = 2<<20 + 512 }, ErrDisk, "took 512 of"},
		"flips a bit":  {func(d *fakeDisk) { d.flips = 2<<20 + 7 }, ErrDisk, "not what was written"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := newDisk(1)
			test.break_(disk)
			_, err := installs(disk, 1)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("it says: %v", err)
			}
			if disk.Sync(); start(disk) {
				t.Error("the blade starts from a disk that was not installed whole")
			}
		})
	}
}

func TestImagesThatDoNotFit(t *testing.T) {
	t.Parallel()
	layout := Layout{System: Partition{bootAreaBytes, 1 << 30}, Backup: Partition{backupStart, 1 << 30}}
	good := picture(1)
	noCode, overlap := bytes.Clone(good), bytes.Clone(good)
	clear(noCode[:bootCodeBytes])
	overlap[bootAreaBytes-1] = 1
	for name, test := range map[string]struct {
		content []byte
		bytes   int64
		want    error
	}{
		"too short":            {good[:imageBytes-1], imageBytes, ErrCorrupt},
		"too long":             {append(bytes.Clone(good), 0), imageBytes, ErrCorrupt},
		"no boot code":         {noCode, imageBytes, ErrCorrupt},
		"over the record":      {overlap, imageBytes, ErrCorrupt},
		"larger than its part": {good, 2 << 30, ErrTooSmall},
		"nothing but boot":     {good[:bootAreaBytes], bootAreaBytes, ErrTooSmall},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := newDisk(1)
			err := Install(t.Context(), disk, Image{bytes.NewReader(test.content), test.bytes}, layout, record(1), quiet)
			if !errors.Is(err, test.want) {
				t.Errorf("it says: %v", err)
			}
			if disk.Sync(); start(disk) {
				t.Error("the blade starts from it")
			}
		})
	}
}

func TestInstallationIsEndedByItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	disk := newDisk(1)
	layout := Layout{System: Partition{bootAreaBytes, 1 << 30}, Backup: Partition{backupStart, 1 << 30}}
	err := Install(ctx, disk, Image{bytes.NewReader(picture(1)), imageBytes}, layout, record(1), func(stage Stage, bytes int64) {
		if stage == StageWrite && bytes > 1<<20 {
			cancel()
		}
	})
	if disk.Sync(); !errors.Is(err, context.Canceled) || start(disk) {
		t.Errorf("it says: %v", err)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	disk := newDisk(1)
	if _, err := ReadRecord(disk); !errors.Is(err, ErrNoDisk) {
		t.Errorf("a blank disk: %v", err)
	}
	if _, err := installs(disk, 1); err != nil {
		t.Fatal(err)
	}
	if found, err := ReadRecord(disk); err != nil || !reflect.DeepEqual(found, record(1)) {
		t.Errorf("%+v, %v", found, err)
	}
	for _, at := range []int64{0, int64(len(recordMark)), int64(len(recordMark)) + 10, 80} {
		damaged := newDisk(1)
		if _, err := installs(damaged, 1); err != nil {
			t.Fatal(err)
		}
		damaged.chunk(0)[recordOffset+at] ^= 0x80
		if _, err := ReadRecord(damaged); !errors.Is(err, ErrDisk) {
			t.Errorf("with byte %d changed: %v", at, err)
		}
	}
	long := record(1)
	long.MAC = strings.Repeat("x", recordBytes)
	if _, err := long.encode(); err == nil {
		t.Error("a record that is too long was taken")
	}
}
