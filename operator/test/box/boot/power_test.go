package boot_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"rcbox.dev/rcbox/operator/internal/blade"
	blademachine "rcbox.dev/rcbox/operator/internal/blade/machine"
)

// isInstalled installs a blade, whose power it takes in the middle. The blade then starts from the network by itself, since its disk hands
// the start on, and installs again.
func isInstalled(t *testing.T, m *machine) {
	t.Helper()
	m.start(fromNetworkOnce)
	m.says("write the image: 256 MiB")
	m.cut()
	device := m.open()
	head, err := blade.Head(device)
	if err != nil || blade.KindOf(head) != blade.Ours || blade.IsComplete(head) {
		t.Fatalf("after the power cut, the disk is %s, complete: %t, %v", blade.KindOf(head), blade.IsComplete(head), err)
	}
	if _, err := blade.ReadRecord(device); !errors.Is(err, blade.ErrNoDisk) {
		t.Fatalf("after the power cut, there is a record: %v", err)
	}
	// The blade restarts by itself, and would go on from its disk.
	m.start(fromDisk, "-no-reboot")
	m.ends(" is installed")
	m.isWhole()
}

func (m *machine) open() *blademachine.Device {
	m.Helper()
	device, err := blademachine.OpenDevice(m.disk(), false)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = device.Close() })
	return device
}

// isWhole compares the disk with the image, byte by byte.
func (m *machine) isWhole() {
	m.Helper()
	device := m.open()
	record, err := blade.ReadRecord(device)
	if err != nil || record.MAC != mac(m.number) {
		m.Fatalf("%+v, %v", record, err)
	}
	packed, err := os.ReadFile(filepath.Join(m.host.image, "disk"))
	if err != nil {
		m.Fatal(err)
	}
	image, err := blade.Unpack(packed)
	if err != nil {
		m.Fatal(err)
	}
	defer func() { _ = image.Close() }()
	want, got := make([]byte, mebi), make([]byte, mebi)
	for at := int64(0); ; at += mebi {
		n, err := io.ReadFull(image, want)
		if errors.Is(err, io.EOF) {
			return
		}
		if _, err := device.ReadAt(got[:n], at); err != nil {
			m.Fatal(err)
		}
		if at == 0 { // the first sector and the record are the installer's
			continue
		}
		if !bytes.Equal(got[:n], want[:n]) {
			m.Fatalf("the MiB at byte %d of the disk is not that of the image", at)
		}
	}
}
