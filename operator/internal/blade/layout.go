package blade

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors that say why a disk is not installed to.
var (
	ErrTooSmall = errors.New("the disk is too small")
	ErrForeign  = errors.New("the disk has somebody else's data")
	ErrNoDisk   = errors.New("there is no disk to install to")
	ErrSeveral  = errors.New("several disks may be meant")
)

// The first sector of a disk has a table of partitions that each BIOS knows. Sizes are in bytes.
const (
	bootAreaBytes  = 1 << 20 // before the first partition: boot loader and install record
	alignment      = 1 << 20
	minBackupBytes = 1 << 30
	// spareBytes is what the system partition has beyond the image, at least: for logs, and what the kubelet writes.
	spareBytes = 256 << 20

	bootCodeBytes  = 440
	diskIDOffset   = 440
	tableOffset    = 446
	entryBytes     = 16
	entries        = 4
	markOffset     = 510
	activeFlag     = 0x80
	typeLinux      = 0x83
	typeRaw        = 0xda // "no file system": the backup partition is written as a device
	mostSectors    = 1<<32 - 1
	diskID         = "RCBX"
	systemNumber   = 1
	backupNumber   = 2
	chsOutOfBounds = "\xfe\xff\xff" // addresses of cylinders are of no use to any disk of today
)

// notInstalled is boot code that hands the start back to the BIOS (INT 18h), which goes on with its next device: the network. A disk with
// it is never started from.
var notInstalled = []byte{0xcd, 0x18, 0xf4, 0xeb, 0xfd}

// Partition is a part of a disk.
type Partition struct {
	Start int64 `json:"start"`
	Bytes int64 `json:"bytes"`
}

func (p Partition) end() int64 { return p.Start + p.Bytes }

// Layout is where a disk has what: sda1 the system, sda2 the backups of a store.
type Layout struct {
	System Partition `json:"system"`
	Backup Partition `json:"backup"`
	// KeepsBackup: the backup partition was there, and stays as it is.
	KeepsBackup bool `json:"keepsBackup"`
	// UnusedBytes are at the end of a disk of more than 2 TiB, beyond what this kind of table can address.
	UnusedBytes int64 `json:"unusedBytes,omitempty"`
}

// Wish is the layout that an installation wants.
type Wish struct {
	// SystemBytes is the size of the system partition of a new layout.
	SystemBytes int64
	// ImageBytes is the size of the image, boot area included.
	ImageBytes int64
	// Wipe gives up what is on the disk, the backup partition included.
	Wipe bool
}

// Kind is what the beginning of a disk shows.
type Kind string

// Kinds of disks.
const (
	Blank     Kind = "Blank"   // zeros
	Ours      Kind = "Ours"    // a layout of rcbox, with or without an image
	Foreign   Kind = "Foreign" // anything else
	headBytes      = bootAreaBytes
)

// KindOf looks at the first headBytes of a disk.
func KindOf(head []byte) Kind {
	if len(head) >= sectorBytes && string(head[diskIDOffset:diskIDOffset+len(diskID)]) == diskID && hasMark(head) {
		return Ours
	}
	if slices.ContainsFunc(head, func(b byte) bool { return b != 0 }) {
		return Foreign
	}
	return Blank
}

func hasMark(sector []byte) bool { return sector[markOffset] == 0x55 && sector[markOffset+1] == 0xaa }

// PlanLayout decides what becomes of a disk of a size with a head. Nothing is written before it has said yes.
func PlanLayout(size int64, head []byte, wish Wish) (Layout, error) {
	if len(head) != headBytes {
		return Layout{}, fmt.Errorf("%w: it has %d bytes", ErrTooSmall, size)
	}
	if kind := KindOf(head); !wish.Wipe {
		switch kind {
		case Foreign:
			return Layout{}, fmt.Errorf("%w: its first MiB is neither empty nor of rcbox; save what is needed, then install with --wipe "+
				"(from the network: kubectl rcbox pxeboot SERVER --wipe)", ErrForeign)
		case Ours:
			return keptLayout(size, head, wish)
		case Blank:
		}
	}
	system := max(wish.SystemBytes, roundUp(wish.ImageBytes-bootAreaBytes+spareBytes))
	system -= system % alignment
	layout := Layout{System: Partition{Start: bootAreaBytes, Bytes: system}}
	layout.Backup.Start = layout.System.end()
	end := size - size%alignment
	if most := int64(mostSectors) * sectorBytes; end-layout.Backup.Start > most {
		end = layout.Backup.Start + most - most%alignment
		layout.UnusedBytes = size - end
	}
	layout.Backup.Bytes = end - layout.Backup.Start
	if layout.Backup.Bytes < minBackupBytes {
		return Layout{}, fmt.Errorf("%w: it has %d MiB, and %d MiB are needed: %d for the system, %d for backups", ErrTooSmall,
			size>>20, (layout.Backup.Start+minBackupBytes)>>20, system>>20, minBackupBytes>>20)
	}
	return layout, nil
}

func roundUp(bytes int64) int64 { return (bytes + alignment - 1) / alignment * alignment }

// keptLayout takes over the partitions of an earlier installation.
func keptLayout(size int64, head []byte, wish Wish) (Layout, error) {
	system, backup := entry(head, systemNumber), entry(head, backupNumber)
	switch {
	case system.Start != bootAreaBytes, backup.Start != system.end(), backup.Bytes <= 0, system.Bytes <= 0:
		return Layout{}, fmt.Errorf("%w: its table is of rcbox, but its partitions are not where rcbox puts them; "+
			"save what is needed, then install with --wipe", ErrForeign)
	case backup.end() > size:
		return Layout{}, fmt.Errorf("%w: its backup partition ends at byte %d, and the disk at %d; is it a copy of a larger disk? "+
			"Install with --wipe to lay it out anew", ErrTooSmall, backup.end(), size)
	case wish.ImageBytes > system.end():
		return Layout{}, fmt.Errorf("%w: the image has %d MiB, and the system partition of the earlier installation ends at %d MiB; "+
			"install with --wipe to lay the disk out anew, which gives up its backup partition", ErrTooSmall,
			wish.ImageBytes>>20, system.end()>>20)
	}
	return Layout{System: system, Backup: backup, KeepsBackup: true}, nil
}

func entry(sector []byte, number int) Partition {
	at := sector[tableOffset+(number-1)*entryBytes:]
	return Partition{
		Start: int64(binary.LittleEndian.Uint32(at[8:])) * sectorBytes, Bytes: int64(binary.LittleEndian.Uint32(at[12:])) * sectorBytes,
	}
}

// firstSector is the one with the table: with the boot code of an image, or that which goes on to the network.
func firstSector(layout Layout, code []byte) []byte {
	sector := make([]byte, sectorBytes)
	copy(sector[:bootCodeBytes], code)
	copy(sector[diskIDOffset:], diskID)
	put := func(number int, flag, kind byte, p Partition) {
		at := sector[tableOffset+(number-1)*entryBytes:]
		at[0], at[4] = flag, kind
		copy(at[1:4], chsOutOfBounds)
		copy(at[5:8], chsOutOfBounds)
		binary.LittleEndian.PutUint32(at[8:], uint32(p.Start/sectorBytes))  //nolint:gosec // PlanLayout has bounded it
		binary.LittleEndian.PutUint32(at[12:], uint32(p.Bytes/sectorBytes)) //nolint:gosec // PlanLayout has bounded it
	}
	put(systemNumber, activeFlag, typeLinux, layout.System)
	put(backupNumber, 0, typeRaw, layout.Backup)
	sector[markOffset], sector[markOffset+1] = 0x55, 0xaa
	return sector
}

// IsComplete says whether a BIOS that starts from a disk with this first sector gets the boot loader of an image that was installed whole.
func IsComplete(sector []byte) bool {
	return len(sector) >= sectorBytes && KindOf(sector[:sectorBytes]) == Ours && !bytes.HasPrefix(sector, notInstalled)
}

// Candidate is a disk that could be installed to.
type Candidate struct {
	Name  string
	Bytes int64
	Kind  Kind
	// MAC is that of the install record, and empty while rcbox is not installed whole.
	MAC string
}

// OwnDisk is the disk that this blade, with these MACs, was installed on. Of several disks with rcbox, it is the one whose install record
// names a MAC of this blade: the others may come from other blades, and have their credentials.
func OwnDisk(candidates []Candidate, macs []string) (string, error) {
	var all, own, seen []string
	for _, candidate := range candidates {
		if candidate.Kind != Ours {
			continue
		}
		all = append(all, candidate.Name)
		seen = append(seen, fmt.Sprintf("%s (installed through the port %q)", candidate.Name, candidate.MAC))
		if slices.Contains(macs, candidate.MAC) {
			own = append(own, candidate.Name)
		}
	}
	switch {
	case len(own) == 1:
		return own[0], nil
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return "", fmt.Errorf("%w: rcbox is on none", ErrNoDisk)
	}
	return "", fmt.Errorf("%w: rcbox is on %s, and the ports of this blade are %s; take out the disks that are of other blades, or erase "+
		"their first MiB", ErrSeveral, strings.Join(seen, ", "), strings.Join(macs, ", "))
}

// SystemPartition is the path of the partition that the system of an installed disk is on.
func SystemPartition(disk string) string {
	if last := disk[len(disk)-1]; last >= '0' && last <= '9' {
		disk += "p"
	}
	return fmt.Sprintf("/dev/%s%d", disk, systemNumber)
}

// ChooseDisk takes the disk that rcbox is on already (OwnDisk), else the first blank one that is large enough, else, with wipe, the first
// that is large enough.
func ChooseDisk(candidates []Candidate, macs []string, wish Wish) (string, error) {
	if name, err := OwnDisk(candidates, macs); !errors.Is(err, ErrNoDisk) {
		return name, err
	}
	all := slices.Clone(candidates)
	slices.SortFunc(all, func(a, b Candidate) int { return strings.Compare(a.Name, b.Name) })
	need := bootAreaBytes + max(wish.SystemBytes, wish.ImageBytes-bootAreaBytes+spareBytes) + minBackupBytes
	for _, kind := range []Kind{Blank, Foreign} {
		if kind == Foreign && !wish.Wipe {
			break
		}
		for _, candidate := range all {
			if candidate.Kind == kind && candidate.Bytes >= need {
				return candidate.Name, nil
			}
		}
	}
	seen := make([]string, 0, len(all))
	tooSmall, foreign := true, false
	for _, candidate := range all {
		seen = append(seen, fmt.Sprintf("%s (%d MiB, %s)", candidate.Name, candidate.Bytes>>20, strings.ToLower(string(candidate.Kind))))
		tooSmall = tooSmall && candidate.Bytes < need
		foreign = foreign || candidate.Kind == Foreign
	}
	found := strings.Join(seen, ", ")
	switch {
	case len(all) == 0:
		return "", fmt.Errorf("%w: the kernel shows none; is its driver in the initrd, and the disk in its slot?", ErrNoDisk)
	case tooSmall:
		return "", fmt.Errorf("%w: %d MiB are needed, and there are %s", ErrTooSmall, need>>20, found)
	case foreign:
		return "", fmt.Errorf("%w: there are %s; save what is needed, then install with --wipe "+
			"(from the network: kubectl rcbox pxeboot SERVER --wipe)", ErrForeign, found)
	}
	return "", fmt.Errorf("%w: there are %s", ErrNoDisk, found)
}
