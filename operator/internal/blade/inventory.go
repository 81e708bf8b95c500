package blade

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// Bounds of files of the kernel that an inventory reads.
const (
	maxKernelFile = 4 << 20
	sectorBytes   = 512
	maxDevices    = 1024
)

// TakeInventory reads the kernel's file systems below root, which has `proc` and `sys`. The inventory names each fact that was not found.
func TakeInventory(root fs.FS) hardware.Inventory {
	var inventory hardware.Inventory
	missing := func(what string, err error) {
		inventory.Missing = append(inventory.Missing, what+": "+err.Error())
	}
	if text, err := readBounded(root, "proc/cpuinfo"); err != nil {
		missing("cpu", err)
	} else {
		inventory.CPU = parseProcessor(string(text))
	}
	if total, err := memoryField(root, "MemTotal"); err != nil {
		missing("memory", err)
	} else {
		inventory.MemoryBytes = total
	}
	if firmware, err := readFirmware(root); err != nil {
		missing("firmware", err)
	} else {
		inventory.UUID, inventory.Manufacturer = firmware.UUID, firmware.Manufacturer
		inventory.Product, inventory.Serial = firmware.Product, firmware.Serial
		inventory.Modules, inventory.Channels = firmware.Memory, channels(firmware.Memory)
	}
	// The kernel's word is what the kubelet reports as systemUUID.
	if text, err := readBounded(root, "sys/class/dmi/id/product_uuid"); err == nil {
		inventory.UUID = strings.ToLower(printable(text))
	}
	inventory.Boot = value(root, "proc/sys/kernel/random/boot_id")
	var err error
	if inventory.Disks, err = readDisks(root); err != nil {
		missing("disks", err)
	}
	if inventory.Ports, err = readPorts(root); err != nil {
		missing("ports", err)
	}
	if inventory.Backups, err = BackupPartition(root); err != nil && !errors.Is(err, ErrNoPartition) {
		missing("backup partition", err)
	}
	return inventory
}

func readFirmware(root fs.FS) (Firmware, error) {
	const folder = "sys/firmware/dmi/tables"
	entry, err := readBounded(root, folder+"/smbios_entry_point")
	if err != nil {
		return Firmware{}, err
	}
	version, err := VersionOf(entry)
	if err != nil {
		return Firmware{}, err
	}
	table, err := readBounded(root, folder+"/DMI")
	if err != nil {
		return Firmware{}, err
	}
	return ParseFirmware(version, table)
}

func readBounded(root fs.FS, name string) ([]byte, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read what the kernel tells: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	text, err := readAtMost(file, maxKernelFile)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

func parseProcessor(cpuinfo string) hardware.Processor {
	var processor hardware.Processor
	sockets, cores := map[string]bool{}, map[string]bool{}
	socket := ""
	for line := range strings.Lines(cpuinfo) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "processor":
			processor.Threads++
			socket = ""
		case "model name":
			processor.Model = printable([]byte(value))
		case "physical id":
			socket = value
			sockets[value] = true
		case "core id":
			cores[socket+"/"+value] = true
		case "flags":
			flags := strings.Fields(value)
			processor.CRC32 = slices.Contains(flags, "sse4_2")
			processor.Pages1G = slices.Contains(flags, "pdpe1gb")
			processor.AES = slices.Contains(flags, "aes")
		}
	}
	processor.Sockets, processor.Cores = max(len(sockets), min(processor.Threads, 1)), len(cores)
	if processor.Cores == 0 {
		processor.Cores = processor.Threads // a kernel that tells no topology
	}
	return processor
}

// memoryField is a line of /proc/meminfo, in bytes.
func memoryField(root fs.FS, field string) (int64, error) {
	text, err := readBounded(root, "proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != field {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		const mostKiB = 1 << 50
		if err != nil || kib < 0 || kib > mostKiB {
			return 0, fmt.Errorf("line %q of /proc/meminfo is no size", strings.TrimSpace(line))
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("/proc/meminfo has no line %s", field)
}

// AvailableMemory is how much memory programs may take before the kernel runs out of it.
func AvailableMemory(root fs.FS) (int64, error) { return memoryField(root, "MemAvailable") }

func channels(modules []hardware.Module) []hardware.Channel {
	var all []hardware.Channel
	for _, module := range modules {
		if module.Channel == "" {
			continue
		}
		at := slices.IndexFunc(all, func(c hardware.Channel) bool { return c.Name == module.Channel })
		if at < 0 {
			all = append(all, hardware.Channel{Name: module.Channel, MHz: module.MHz})
			at = len(all) - 1
		}
		all[at].Modules++
		all[at].Bytes += module.Bytes
		all[at].MHz = min(all[at].MHz, module.MHz)
	}
	slices.SortFunc(all, func(a, b hardware.Channel) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// names lists a folder of sysfs; none if the kernel has no devices of the kind.
func names(root fs.FS, folder string) ([]string, error) {
	entries, err := fs.ReadDir(root, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	if len(entries) > maxDevices {
		return nil, fmt.Errorf("%s has %d entries, more than %d", folder, len(entries), maxDevices)
	}
	all := make([]string, 0, len(entries))
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	slices.Sort(all)
	return all, nil
}

// value is the text of a small file of sysfs; empty if there is none.
func value(root fs.FS, elements ...string) string {
	text, err := readBounded(root, path.Join(elements...))
	if err != nil {
		return ""
	}
	return printable(text)
}

// readDisks leaves out what has no hardware behind it (loop, ram, dm), what is removable, and optical drives.
func readDisks(root fs.FS) ([]hardware.Disk, error) {
	const folder = "sys/block"
	all, err := names(root, folder)
	if err != nil {
		return nil, err
	}
	var disks []hardware.Disk
	for _, name := range all {
		if _, err := fs.Stat(root, path.Join(folder, name, "device")); err != nil {
			continue
		}
		if value(root, folder, name, "removable") == "1" || isOfNetwork(root, path.Join(folder, name)) {
			continue
		}
		sectors, err := strconv.ParseInt(value(root, folder, name, "size"), 10, 64)
		if err != nil || sectors <= 0 || sectors > 1<<50 {
			continue // a drive without a medium
		}
		disks = append(disks, hardware.Disk{
			Name: name, Bytes: sectors * sectorBytes,
			Model: value(root, folder, name, "device/model"), Serial: value(root, folder, name, "device/serial"),
			Spins: value(root, folder, name, "queue/rotational") == "1",
		})
	}
	return disks, nil
}

// ErrNoPartition means that the system has not started from a disk with a partition for backups.
var ErrNoPartition = errors.New("the system has not started from a disk with a partition for backups")

// backupsPartition is its number in the table of the disk.
const backupsPartition = "2"

// BackupPartition finds the partition for backups: on the disk that the file system at / is on. Another disk may have one too, with the
// data of another blade.
func BackupPartition(root fs.FS) (*hardware.Partition, error) {
	_, parts, err := systemDisk(root)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		sectors, err := strconv.ParseInt(value(root, part, "", "size"), 10, 64)
		if value(root, part, "", "partition") == backupsPartition && err == nil && sectors > 0 && sectors < 1<<50 {
			return &hardware.Partition{Name: path.Base(part), Bytes: sectors * sectorBytes}, nil
		}
	}
	return nil, ErrNoPartition
}

// SystemDisk is the name of the disk that the file system at / is on, such as sda.
func SystemDisk(root fs.FS) (string, error) {
	disk, _, err := systemDisk(root)
	return disk, err
}

// systemDisk is the disk that the file system at / is on, as a whole or in a partition, with the folders of both.
func systemDisk(root fs.FS) (disk string, parts []string, err error) {
	device, err := deviceOfRoot(root)
	if err != nil {
		return "", nil, err
	}
	const folder = "sys/block"
	all, err := names(root, folder)
	if err != nil {
		return "", nil, err
	}
	for _, disk := range all {
		parts, err := fs.Glob(root, path.Join(folder, disk, disk+"*"))
		parts = append(parts, path.Join(folder, disk))
		if err == nil && slices.ContainsFunc(parts, func(part string) bool { return value(root, part, "", "dev") == device }) {
			return disk, parts, nil
		}
	}
	return "", nil, ErrNoPartition
}

// deviceOfRoot is the number of the device that the file system at / is on, such as 254:1.
func deviceOfRoot(root fs.FS) (string, error) {
	const device, mountPoint = 2, 4
	mounts, err := readBounded(root, "proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > mountPoint && fields[mountPoint] == "/" {
			return fields[device], nil
		}
	}
	return "", ErrNoPartition
}

// isOfNetwork says whether a disk is reached over a network: NVMe over fabrics, iSCSI, Fibre Channel, or Ceph.
func isOfNetwork(root fs.FS, disk string) bool {
	controllers, _ := fs.Glob(root, path.Join(disk, "device/nvme*")) // the pattern is right; with several paths, each has a controller
	for _, controller := range append(controllers, path.Join(disk, "device")) {
		if transport := value(root, controller, "transport"); transport != "" && transport != "pcie" {
			return true
		}
	}
	target, err := fs.ReadLink(root, disk)
	if err != nil {
		return false // not as a link, such as in a test
	}
	return slices.ContainsFunc(strings.Split(target, "/"), func(element string) bool {
		return strings.HasPrefix(element, "session") || strings.HasPrefix(element, "rport-") || element == "rbd"
	})
}

func readPorts(root fs.FS) ([]hardware.Port, error) {
	const folder = "sys/class/net"
	all, err := names(root, folder)
	if err != nil {
		return nil, err
	}
	var ports []hardware.Port
	for _, name := range all {
		if _, err := fs.Stat(root, path.Join(folder, name, "device")); err != nil {
			continue // a port of software
		}
		port := hardware.Port{Name: name, MAC: strings.ToLower(value(root, folder, name, "address"))}
		for line := range strings.Lines(valueOfLines(root, folder, name, "device/uevent")) {
			if driver, found := strings.CutPrefix(strings.TrimSpace(line), "DRIVER="); found {
				port.Driver = driver
			}
		}
		if functions, err := number(root, path.Join(folder, name, "device/sriov_numvfs")); err == nil {
			port.VirtualFunctions = functions
		}
		if rate, err := number(root, path.Join(folder, name, "speed")); err == nil { // -1: it is not known
			port.Mbps = max(rate, 0)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// valueOfLines is a file of several lines; empty if there is none.
func valueOfLines(root fs.FS, elements ...string) string {
	text, err := readBounded(root, path.Join(elements...))
	if err != nil {
		return ""
	}
	return string(text)
}
