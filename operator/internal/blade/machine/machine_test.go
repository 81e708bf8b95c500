package machine

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// TestInstallOnFile installs on a file, twice: the backup partition stays.
func TestInstallOnFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const size = 3 << 30 // a hole
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	device, err := OpenDevice(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	image := bytes.Repeat([]byte{0xeb, 0x5a, 0x00}, 1<<20)
	image = image[:len(image)/512*512]
	clear(image[1<<20-4096 : 1<<20])
	wish := blade.Wish{SystemBytes: 1 << 30, ImageBytes: int64(len(image))}
	record := blade.Record{Version: "v1", Hosts: []string{"192.168.3.254"}, MAC: "52:54:00:03:00:01"}
	backups := []byte("backups")
	for time, isKept := range []bool{false, true} {
		head, err := blade.Head(device)
		if err != nil {
			t.Fatal(err)
		}
		layout, err := blade.PlanLayout(device.Size(), head, wish)
		if err != nil || layout.KeepsBackup != isKept {
			t.Fatalf("time %d: %+v, %v", time, layout, err)
		}
		content := blade.Image{Content: bytes.NewReader(image), Bytes: int64(len(image))}
		if err := blade.Install(t.Context(), device, content, layout, record, func(blade.Stage, int64) {}); err != nil {
			t.Fatal(err)
		}
		if found, err := blade.ReadRecord(device); err != nil || !reflect.DeepEqual(found, record) {
			t.Fatalf("%+v, %v", found, err)
		}
		if !isKept {
			if _, err := device.WriteAt(backups, layout.Backup.Start); err != nil {
				t.Fatal(err)
			}
		}
		found := make([]byte, len(backups))
		if _, err := device.ReadAt(found, layout.Backup.Start); err != nil || !bytes.Equal(found, backups) {
			t.Errorf("time %d: %q, %v", time, found, err)
		}
	}
	if found, err := look(path); err != nil || found.Kind != blade.Ours || found.MAC != record.MAC {
		t.Errorf("%+v, %v", found, err)
	}
	var notes []error
	if found := Candidates([]hardware.Disk{{Name: "no-such-disk"}}, func(err error) { notes = append(notes, err) }); len(found) > 0 ||
		len(notes) != 1 {
		t.Errorf("a disk that cannot be read: %+v, %v", found, notes)
	}
}

func TestWriteFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := blade.File{Path: "/a/b/c", Mode: 0o600, Content: "one"}
	for _, file.Content = range []string{"one", "another"} {
		if err := WriteFiles(root, []blade.File{file}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, "a/b/c"))
		info, statErr := os.Stat(filepath.Join(root, "a/b/c"))
		if err != nil || statErr != nil || string(text) != file.Content || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v", text, err, info.Mode())
		}
	}
	if entries, err := os.ReadDir(filepath.Join(root, "a/b")); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	// A folder in the file's place: nothing is left behind.
	if err := WriteFiles(root, []blade.File{{Path: "/a/b", Mode: 0o600}}); err == nil {
		t.Error("a file took the place of a folder")
	}
	if entries, err := os.ReadDir(filepath.Join(root, "a")); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestRoutesAndResolvers(t *testing.T) {
	t.Parallel()
	const table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n" +
		"eth1\t00000000\t0103A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth0\t00000000\tFE03A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth0\t0003A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
	if got := router(table, "eth0"); got != netip.MustParseAddr("192.168.3.254") {
		t.Error(got)
	}
	for _, text := range []string{"", "eth0 00000000", "eth0 00000000 xyz 0 0 0 0 0"} {
		if got := router(text, "eth0"); got.IsValid() {
			t.Errorf("%q: %s", text, got)
		}
	}
	got := resolvers("# text\nnameserver 192.168.3.254\nnameserver\noptions\nnameserver x\nsearch box.rcbox\nnameserver 192.168.3.253\n")
	if !slices.Equal(got, []netip.Addr{netip.MustParseAddr("192.168.3.254"), netip.MustParseAddr("192.168.3.253")}) {
		t.Error(got)
	}
}

// TestMeasureSpeed measures this machine. Its disk may be one that nobody may read here.
func TestMeasureSpeed(t *testing.T) {
	t.Parallel()
	got, err := MeasureSpeed()
	if err != nil || got.ChecksumMBps < 1 || got.CopyMBps < 1 || (got.ReadMBps < 1) != (len(got.Failed) == 1) {
		t.Errorf("%+v, %v", got, err)
	}
}
