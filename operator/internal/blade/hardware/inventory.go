// Package hardware is what a blade finds in itself: how that is reported to the blade's node, and how reports are compared with what BMCs
// report. It is pure; package blade reads the kernel's files.
package hardware

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Annotation of a node is the Inventory of its blade, as JSON. The blade writes it with the certificate of its kubelet, which may
// change no other node.
const Annotation = "rcbox.dev/inventory"

// MaxBytes bounds the annotation: an API server keeps at most 256 KiB of annotations for an object, of all who write some.
const MaxBytes = 16 << 10

// ErrUnusable is wrapped by errors of reports that cannot be made or read.
var ErrUnusable = errors.New("the inventory is not usable")

// Inventory is what a blade finds in itself.
type Inventory struct {
	UUID string `json:"uuid,omitempty"`
	// Boot is the start of the system that has found this: the kernel's boot_id.
	Boot         string    `json:"boot,omitempty"`
	Manufacturer string    `json:"manufacturer,omitempty"`
	Product      string    `json:"product,omitempty"`
	Serial       string    `json:"serial,omitempty"`
	CPU          Processor `json:"cpu"`
	MemoryBytes  int64     `json:"memoryBytes"`
	Modules      []Module  `json:"modules,omitempty"`
	Channels     []Channel `json:"channels,omitempty"`
	Disks        []Disk    `json:"disks,omitempty"`
	Ports        []Port    `json:"ports,omitempty"`
	// Backups is the partition for backups of Stores, on the disk that the blade has started from.
	Backups *Partition `json:"backups,omitempty"`
	// Missing says what could not be found out, and why.
	Missing []string `json:"missing,omitempty"`
	// Unapplied says which settings of its image the blade does not have, and why.
	Unapplied []string `json:"unapplied,omitempty"`
	// Measured is how fast the blade was when its system has started; nil: that was not measured.
	Measured *Measured `json:"measured,omitempty"`
}

// Measured is how fast the parts of a blade are: the best of a second, while nothing else runs there. 0: not measured.
type Measured struct {
	// ChecksumMBps is the rate at which each thread of the processor computes CRC-32C while all of them do, of the slowest one, in MB/s.
	ChecksumMBps int64 `json:"checksumMBps,omitempty"`
	// CopyMBps is the rate at which all threads together copy memory, in MB/s.
	CopyMBps int64 `json:"copyMBps,omitempty"`
	// Disk is that of the system, and ReadMBps the rate at which it is read in order, in MB/s.
	Disk     string `json:"disk,omitempty"`
	ReadMBps int64  `json:"readMBps,omitempty"`
	// Failed says which part could not be measured, and why.
	Failed []string `json:"failed,omitempty"`
}

// Processor is what all processors of a blade have in common.
type Processor struct {
	Model   string `json:"model,omitempty"`
	Sockets int    `json:"sockets"`
	Cores   int    `json:"cores"`
	Threads int    `json:"threads"`
	// CRC32 (instructions of SSE 4.2), Pages1G and AES are the flags that a store gains most from.
	CRC32   bool `json:"crc32"`
	Pages1G bool `json:"pages1g"`
	AES     bool `json:"aes"`
	// ThrottledPercent is for how much of the last hour a thread ran slower because it was too hot, that of the worst one, rounded up to a
	// power of two; 0: less than 1 %.
	ThrottledPercent int `json:"throttledPercent,omitempty"`
}

// Channel is the memory of one channel, at the clock of its slowest module.
type Channel struct {
	Name    string `json:"name"`
	Modules int    `json:"modules"`
	Bytes   int64  `json:"bytes"`
	MHz     int    `json:"mhz,omitempty"`
}

// Disk is a disk of the blade, not of the network and not removable.
type Disk struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Model  string `json:"model,omitempty"`
	Serial string `json:"serial,omitempty"`
	Spins  bool   `json:"spins,omitempty"`
	// ServiceMillis is for how long the disk was busy with one read or write, on average of the last hour, rounded up to a power of two;
	// 0: less than 1 ms, or too few of them. It does not depend on how many of them wait.
	ServiceMillis int `json:"serviceMillis,omitempty"`
}

// Partition is a part of a disk.
type Partition struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// BackupsDevice is a link to the partition for backups, which a blade makes at each start.
const BackupsDevice = "/dev/rcbox/backups"

// Port is a network port.
type Port struct {
	Name   string `json:"name"`
	MAC    string `json:"mac"`
	Driver string `json:"driver,omitempty"`
	// VirtualFunctions is how many the port is divided into (SR-IOV).
	VirtualFunctions int `json:"virtualFunctions,omitempty"`
	// LinkLosses is how often its link was lost, of the last 24 hours, since the system has started.
	LinkLosses int `json:"linkLosses,omitempty"`
	// Mbps is the rate of its link, in Mbit/s; 0: it has none, or its driver does not say.
	Mbps int `json:"mbps,omitempty"`
}

// Module is a memory module.
type Module struct {
	Slot    string `json:"slot"`
	Channel string `json:"channel,omitempty"`
	Bytes   int64  `json:"bytes"`
	// MHz is the clock at which the module is run, in million transfers a second as firmware reports it.
	MHz    int    `json:"mhz,omitempty"`
	Serial string `json:"serial,omitempty"`
	Part   string `json:"part,omitempty"`
}

// Encode is the inventory as it is reported. If it is too long, lists that are usually the longest are left out, and Missing says so.
func (i Inventory) Encode() (string, error) {
	leaveOut := []struct {
		what string
		out  func(*Inventory)
	}{
		{"memory modules", func(i *Inventory) { i.Modules = nil }},
		{"disks", func(i *Inventory) { i.Disks = nil }},
		{"ports", func(i *Inventory) { i.Ports = nil }},
	}
	i.Missing = slices.Clone(i.Missing)
	for next := 0; ; next++ {
		text, err := json.Marshal(i)
		if err != nil {
			return "", fmt.Errorf("print the inventory: %w", err)
		}
		if len(text) <= MaxBytes {
			return string(text), nil
		}
		if next == len(leaveOut) {
			return "", fmt.Errorf("%w: it has %d bytes, more than %d", ErrUnusable, len(text), MaxBytes)
		}
		leaveOut[next].out(&i)
		i.Missing = append(i.Missing, leaveOut[next].what+": left out, since the report would be too long")
	}
}

// Parse reads a report. Its texts are those that the blade chose: make them plain before they are shown.
func Parse(text string) (Inventory, error) {
	if len(text) > MaxBytes {
		return Inventory{}, fmt.Errorf("%w: it has %d bytes, more than %d", ErrUnusable, len(text), MaxBytes)
	}
	var inventory Inventory
	if err := json.Unmarshal([]byte(text), &inventory); err != nil {
		return Inventory{}, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return inventory, nil
}
