// Package machine is where package blade meets the machine: disks, addresses, files. It decides nothing.
package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// Device is a disk, or a file that stands for one.
type Device struct {
	*os.File
	size    int64
	isBlock bool
}

var _ blade.Device = (*Device)(nil)

// OpenDevice opens a disk by its path. A disk that a file system is mounted from is not opened for writing.
func OpenDevice(path string, forWriting bool) (*Device, error) {
	flags := os.O_RDONLY
	if forWriting {
		// Of a block device, O_EXCL (without O_CREAT) means: not while somebody has it mounted.
		flags = os.O_RDWR | os.O_EXCL
	}
	file, err := os.OpenFile(path, flags, 0) //nolint:gosec // the caller chooses the disk
	if err != nil {
		return nil, fmt.Errorf("open the disk %s: %w", path, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the disk %s: %w", path, err), file.Close())
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the size of the disk %s: %w", path, err), file.Close())
	}
	return &Device{File: file, size: size, isBlock: info.Mode()&fs.ModeDevice != 0}, nil
}

// Size of the disk, in bytes.
func (d *Device) Size() int64 { return d.size }

// Forget has the next reads come from the disk.
func (d *Device) Forget() error {
	if d.isBlock {
		if err := unix.IoctlSetInt(int(d.Fd()), unix.BLKFLSBUF, 0); err != nil {
			return fmt.Errorf("flush the kernel's buffers of %s: %w", d.Name(), err)
		}
		return nil
	}
	if err := unix.Fadvise(int(d.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("drop the kernel's pages of %s: %w", d.Name(), err)
	}
	return nil
}

// DiskOf is the path of the disk that the file system of a folder is on.
func DiskOf(folder string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(folder, &stat); err != nil {
		return "", fmt.Errorf("find the disk of %s: %w", folder, err)
	}
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))
	target, err := os.Readlink(link)
	if err != nil {
		return "", fmt.Errorf("find the disk of %s: %w", folder, err)
	}
	name := filepath.Base(target)
	if parent := filepath.Base(filepath.Dir(target)); strings.HasPrefix(name, parent) { // a partition
		name = parent
	}
	return "/dev/" + name, nil
}

// Candidates are the disks of an inventory, with what is on them. A disk that cannot be read is left out, with a note: the others are as
// good without it.
func Candidates(disks []hardware.Disk, note func(err error)) []blade.Candidate {
	var all []blade.Candidate
	for _, disk := range disks {
		candidate, err := look("/dev/" + disk.Name)
		if err != nil {
			note(err)
			continue
		}
		candidate.Name, candidate.Bytes = disk.Name, disk.Bytes
		all = append(all, candidate)
	}
	return all
}

func look(path string) (blade.Candidate, error) {
	device, err := OpenDevice(path, false)
	if err != nil {
		return blade.Candidate{}, err
	}
	defer func() { _ = device.Close() }() // read only
	head, err := blade.Head(device)
	if err != nil {
		return blade.Candidate{}, fmt.Errorf("%s: %w", path, err)
	}
	candidate := blade.Candidate{Kind: blade.KindOf(head)}
	if record, err := blade.ReadRecord(device); err == nil { // else it is not installed whole
		candidate.MAC = record.MAC
	}
	return candidate, nil
}
