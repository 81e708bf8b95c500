package blade

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"syscall"
)

// Device is a disk. Bytes that were written are on it, and stay there without power, once Sync has returned.
type Device interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	// Forget has the next reads come from the disk itself, not from memory.
	Forget() error
	Size() int64
}

// Errors of disks.
var (
	ErrFull = errors.New("the disk takes no more bytes")
	ErrDisk = errors.New("the disk is faulty")
)

const (
	chunkBytes   = 1 << 20
	recordBytes  = 4096
	recordOffset = bootAreaBytes - recordBytes
	recordMark   = "rcbox-record-1\n"
)

// Record tells an installed blade where it comes from.
type Record struct {
	Version string `json:"version"`
	// Manifest is the SHA-256 of the manifest that was installed.
	Manifest string `json:"manifest"`
	// Hosts are the box hosts: where to join.
	Hosts []string `json:"hosts"`
	// MAC is the port that the blade was started from.
	MAC string `json:"mac"`
}

// Image is a verified image: the first bytes of a disk.
type Image struct {
	Content io.Reader // decompressed
	Bytes   int64
}

// Stage is a part of an installation.
type Stage string

// Stages of an installation.
const (
	StageInvalidate Stage = "mark as not installed"
	StageWrite      Stage = "write the image"
	StageReadBack   Stage = "read the image back"
	StageComplete   Stage = "mark as installed"
)

// Head reads what decides about a disk; it is shorter for disks that are shorter.
func Head(device Device) ([]byte, error) {
	head := make([]byte, min(device.Size(), headBytes))
	if _, err := device.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: read its first MiB: %w", ErrDisk, err)
	}
	return head, nil
}

// Install brings an image onto a disk. The first sector decides whether a disk is started from: it is made to say no and flushed before
// anything else is written, and says yes in the very last write, after all else was flushed and read back. So the power may fail at any
// point: the next start is from the network again, or from a whole image.
func Install(ctx context.Context, device Device, image Image, layout Layout, record Record, progress func(Stage, int64)) error {
	if image.Bytes <= bootAreaBytes || image.Bytes > layout.System.end() {
		return fmt.Errorf("%w: the image has %d bytes, and the system partition ends at byte %d", ErrTooSmall, image.Bytes,
			layout.System.end())
	}
	label, err := record.encode()
	if err != nil {
		return err
	}
	progress(StageInvalidate, 0)
	if err := write(device, firstSector(layout, notInstalled), 0); err != nil {
		return err
	}
	if err := flush(device); err != nil {
		return err
	}
	code, sum, err := writeImage(ctx, device, image, label, progress)
	if err != nil {
		return err
	}
	if err := flush(device); err != nil {
		return err
	}
	progress(StageReadBack, 0)
	if err := readBack(ctx, device, image.Bytes, sum, progress); err != nil {
		return err
	}
	progress(StageComplete, 0)
	if err := write(device, firstSector(layout, code), 0); err != nil {
		return err
	}
	return flush(device)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeImage writes all but the first sector, whose boot code it returns, with the checksum of what it wrote.
func writeImage(ctx context.Context, device Device, image Image, label []byte, progress func(Stage, int64),
) (code []byte, sum uint32, err error) {
	buffer := make([]byte, chunkBytes)
	for at := int64(0); at < image.Bytes; {
		if err := ctx.Err(); err != nil {
			return nil, 0, fmt.Errorf("the installation was told to end: %w", err)
		}
		chunk := buffer[:min(chunkBytes, image.Bytes-at)]
		if _, err := io.ReadFull(image.Content, chunk); err != nil {
			return nil, 0, fmt.Errorf("%w: it unpacks to fewer than the %d bytes of its manifest: %w", ErrCorrupt, image.Bytes, err)
		}
		skip := int64(0)
		if at == 0 {
			code = bytes.Clone(chunk[:bootCodeBytes])
			if err := checkBootArea(chunk); err != nil {
				return nil, 0, err
			}
			copy(chunk[recordOffset:], label)
			skip = sectorBytes
		}
		if err := write(device, chunk[skip:], at+skip); err != nil {
			return nil, 0, err
		}
		sum = crc32.Update(sum, castagnoli, chunk[skip:])
		at += int64(len(chunk))
		progress(StageWrite, at)
	}
	if n, err := io.CopyN(io.Discard, image.Content, 1); n != 0 || !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("%w: it unpacks to more than the %d bytes of its manifest: %w", ErrCorrupt, image.Bytes, err)
	}
	return code, sum, nil
}

// checkBootArea refuses an image that a BIOS could not start, or that has something where the record goes.
func checkBootArea(area []byte) error {
	if bytes.Equal(area[:bootCodeBytes], make([]byte, bootCodeBytes)) || bytes.HasPrefix(area, notInstalled) {
		return fmt.Errorf("%w: it has no boot code", ErrCorrupt)
	}
	if !bytes.Equal(area[recordOffset:bootAreaBytes], make([]byte, recordBytes)) {
		return fmt.Errorf("%w: its boot loader reaches into the last %d bytes before the first partition", ErrCorrupt, recordBytes)
	}
	return nil
}

func readBack(ctx context.Context, device Device, size int64, want uint32, progress func(Stage, int64)) error {
	if err := device.Forget(); err != nil {
		return fmt.Errorf("%w: have the kernel forget what it keeps of it: %w", ErrDisk, err)
	}
	buffer := make([]byte, chunkBytes)
	var sum uint32
	for at := int64(sectorBytes); at < size; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the installation was told to end: %w", err)
		}
		chunk := buffer[:min(chunkBytes-at%chunkBytes, size-at)]
		if n, err := device.ReadAt(chunk, at); n < len(chunk) {
			return fmt.Errorf("%w: read back byte %d: %w; replace the disk", ErrDisk, at, err)
		}
		sum = crc32.Update(sum, castagnoli, chunk)
		at += int64(len(chunk))
		progress(StageReadBack, at)
	}
	if sum != want {
		return fmt.Errorf("%w: what it reads back is not what was written; replace the disk", ErrDisk)
	}
	return nil
}

func write(device Device, content []byte, at int64) error {
	n, err := device.WriteAt(content, at)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: it was full after byte %d; is it a file or a thin volume whose pool is full? %w", ErrFull, at+int64(n), err)
	case err != nil:
		return fmt.Errorf("%w: write %d bytes at byte %d: %w; replace the disk", ErrDisk, len(content), at, err)
	case n != len(content):
		return fmt.Errorf("%w: it took %d of %d bytes at byte %d", ErrDisk, n, len(content), at)
	}
	return nil
}

func flush(device Device) error {
	switch err := device.Sync(); {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: it was full when it was flushed: %w", ErrFull, err)
	case err != nil:
		return fmt.Errorf("%w: flush it: %w; replace the disk", ErrDisk, err)
	}
	return nil
}

func (r Record) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("print the install record: %w", err)
	}
	label := make([]byte, 0, recordBytes)
	label = append(label, recordMark...)
	label = binary.LittleEndian.AppendUint32(label, uint32(len(text))) //nolint:gosec // compared with recordBytes below
	sum := sha256.Sum256(text)
	label = append(append(label, sum[:]...), text...)
	if len(label) > recordBytes {
		return nil, fmt.Errorf("the install record has %d bytes, more than %d; are there that many box hosts?", len(label), recordBytes)
	}
	return append(label, make([]byte, recordBytes-len(label))...), nil
}

// ReadRecord finds the install record of a disk that was installed whole.
func ReadRecord(device Device) (Record, error) {
	head, err := Head(device)
	if err != nil {
		return Record{}, err
	}
	if len(head) != headBytes || !IsComplete(head) {
		return Record{}, fmt.Errorf("%w: rcbox is not installed on it", ErrNoDisk)
	}
	const fixed = len(recordMark) + 4 + sha256.Size
	label := head[recordOffset:]
	if string(label[:len(recordMark)]) != recordMark {
		return Record{}, fmt.Errorf("%w: it has no install record", ErrDisk)
	}
	size := int64(binary.LittleEndian.Uint32(label[len(recordMark):]))
	if size > recordBytes-int64(fixed) {
		return Record{}, fmt.Errorf("%w: its install record says that it has %d bytes", ErrDisk, size)
	}
	text := label[fixed : int64(fixed)+size]
	if sum := sha256.Sum256(text); !bytes.Equal(sum[:], label[len(recordMark)+4:fixed]) {
		return Record{}, fmt.Errorf("%w: the checksum of its install record is wrong", ErrDisk)
	}
	var record Record
	if err := json.Unmarshal(text, &record); err != nil {
		return Record{}, fmt.Errorf("%w: decode its install record: %w", ErrDisk, err)
	}
	return record, nil
}
