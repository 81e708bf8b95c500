package boot_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	"rcbox.dev/rcbox/operator/internal/blade"
	blademachine "rcbox.dev/rcbox/operator/internal/blade/machine"
)

// isInstalled installs a blade, whose power it takes in the middle. The blade then starts from the network by itself, since its disk hands
// the start on, and installs again.
func isInstalled(b *bed) {
	b.Helper()
	b.kubectl("pxeboot", bladeName)
	b.up()
	b.says("write the image: 256 MiB")
	b.cut()
	if told, err := b.rack.Told(chassisName, slot, "boot"); err == nil {
		b.Errorf("the BMC still says that the next start is from %s", told)
	}
	device := b.open()
	head, err := blade.Head(device)
	if err != nil || blade.KindOf(head) != blade.Ours || blade.IsComplete(head) {
		b.Fatalf("after the power cut, the disk is %s, complete: %t, %v", blade.KindOf(head), blade.IsComplete(head), err)
	}
	if _, err := blade.ReadRecord(device); !errors.Is(err, blade.ErrNoDisk) {
		b.Fatalf("after the power cut, there is a record: %v", err)
	}
	b.up()
	b.says(" is installed")
	// It restarts by itself, and would go on from its disk.
	b.cut()
	b.isWhole()
}

func (b *bed) open() *blademachine.Device {
	b.Helper()
	device, err := blademachine.OpenDevice(b.disk(), false)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = device.Close() })
	return device
}

// isWhole compares the disk with the image, byte by byte.
func (b *bed) isWhole() {
	b.Helper()
	device := b.open()
	record, err := blade.ReadRecord(device)
	if err != nil || record.MAC != bladeMAC {
		b.Fatalf("%+v, %v", record, err)
	}
	packed, err := os.ReadFile(filepath.Join(b.image, "disk"))
	if err != nil {
		b.Fatal(err)
	}
	image, err := blade.Unpack(packed)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = image.Close() }()
	want, got := make([]byte, mebi), make([]byte, mebi)
	for at := int64(0); ; at += mebi {
		n, err := io.ReadFull(image, want)
		if errors.Is(err, io.EOF) {
			return
		}
		if _, err := device.ReadAt(got[:n], at); err != nil {
			b.Fatal(err)
		}
		if at == 0 { // the first sector and the record are the installer's
			continue
		}
		if !bytes.Equal(got[:n], want[:n]) {
			b.Fatalf("the MiB at byte %d of the disk is not that of the image", at)
		}
	}
}
