package blade

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// Bounds of SMBIOS tables. Firmware writes them, and firmware has bugs.
const (
	maxTableBytes     = 1 << 20
	maxStructures     = 4096
	maxStringBytes    = 64
	structureHeader   = 4
	typeSystem        = 1
	typeMemoryDevice  = 17
	typeEndOfTable    = 127
	uuidBytes         = 16
	uuidOffset        = 8
	sizeUnknown       = 0xffff
	sizeIsExtended    = 0x7fff
	sizeInKiB         = 0x8000
	speedIsExtended   = 0xffff
	littleEndianSince = 0x0206
)

// ErrFirmware is wrapped by errors about tables that firmware left broken.
var ErrFirmware = errors.New("the firmware's SMBIOS table is broken")

// Firmware is the part of the SMBIOS tables that an inventory has.
type Firmware struct {
	UUID         string
	Manufacturer string
	Product      string
	Serial       string
	Memory       []hardware.Module
}

// structure is one record of the table: its formatted area, and its strings.
type structure struct {
	kind    byte
	data    []byte
	strings []string
}

// VersionOf reads the version of the tables, such as 0x0208, from their entry point.
func VersionOf(entry []byte) (int, error) {
	switch {
	case len(entry) >= 8 && string(entry[:4]) == "_SM_":
		return int(entry[6])<<8 | int(entry[7]), nil
	case len(entry) >= 9 && string(entry[:5]) == "_SM3_":
		return int(entry[7])<<8 | int(entry[8]), nil
	}
	return 0, fmt.Errorf("%w: its entry point of %d bytes has neither of the known marks", ErrFirmware, len(entry))
}

// ParseFirmware reads the tables of a version.
func ParseFirmware(version int, table []byte) (Firmware, error) {
	if len(table) > maxTableBytes {
		return Firmware{}, fmt.Errorf("%w: it has %d bytes, more than %d", ErrFirmware, len(table), maxTableBytes)
	}
	var firmware Firmware
	for count := 0; len(table) > 0; count++ {
		if count == maxStructures {
			return Firmware{}, fmt.Errorf("%w: it has more than %d structures", ErrFirmware, maxStructures)
		}
		next, rest, err := cutStructure(table)
		if err != nil {
			return Firmware{}, err
		}
		table = rest
		switch next.kind {
		case typeSystem:
			firmware.system(version, next)
		case typeMemoryDevice:
			firmware.module(next)
		case typeEndOfTable:
			return firmware, nil
		}
	}
	return firmware, nil
}

// cutStructure takes the first structure off a table: header, formatted area, strings that each end in a zero, and one more zero.
func cutStructure(table []byte) (structure, []byte, error) {
	if len(table) < structureHeader {
		return structure{}, nil, fmt.Errorf("%w: a structure of %d bytes has no header", ErrFirmware, len(table))
	}
	length := int(table[1])
	if length < structureHeader || length > len(table) {
		return structure{}, nil, fmt.Errorf("%w: a structure of type %d says %d bytes, and %d are left", ErrFirmware, table[0], length,
			len(table))
	}
	found := structure{kind: table[0], data: table[:length]}
	rest := table[length:]
	for {
		end := strings.IndexByte(string(rest[:min(len(rest), maxTableBytes)]), 0)
		if end < 0 {
			return structure{}, nil, fmt.Errorf("%w: the strings of a structure of type %d have no end", ErrFirmware, found.kind)
		}
		text := rest[:end]
		rest = rest[end+1:]
		if len(text) > 0 {
			found.strings = append(found.strings, printable(text))
			continue
		}
		if len(found.strings) == 0 { // no strings at all: two zeros
			if len(rest) == 0 || rest[0] != 0 {
				return structure{}, nil, fmt.Errorf("%w: a structure of type %d ends in one zero", ErrFirmware, found.kind)
			}
			rest = rest[1:]
		}
		return found, rest, nil
	}
}

// printable makes a text of firmware fit for logs, terminals and labels of people.
func printable(text []byte) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, string(text[:min(len(text), maxStringBytes)]))
	return strings.TrimSpace(clean)
}

func (s structure) text(offset int) string {
	if offset >= len(s.data) {
		return ""
	}
	if n := int(s.data[offset]); n > 0 && n <= len(s.strings) {
		return s.strings[n-1]
	}
	return ""
}

func (s structure) word(offset int) int {
	if offset+2 > len(s.data) {
		return 0
	}
	return int(binary.LittleEndian.Uint16(s.data[offset:]))
}

func (s structure) double(offset int) int64 {
	if offset+4 > len(s.data) {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(s.data[offset:]) &^ (1 << 31))
}

func (f *Firmware) system(version int, s structure) {
	f.Manufacturer, f.Product, f.Serial = s.text(4), s.text(5), s.text(7)
	if len(s.data) >= uuidOffset+uuidBytes {
		f.UUID = formatUUID(version, s.data[uuidOffset:uuidOffset+uuidBytes])
	}
}

// formatUUID prints a UUID as Linux does, and so the kubelet: since version 2.6, the first three fields are little-endian.
func formatUUID(version int, raw []byte) string {
	text := string(raw)
	if text == strings.Repeat("\x00", uuidBytes) || text == strings.Repeat("\xff", uuidBytes) {
		return "" // not set
	}
	u := append([]byte(nil), raw...)
	if version >= littleEndianSince {
		u[0], u[1], u[2], u[3] = u[3], u[2], u[1], u[0]
		u[4], u[5] = u[5], u[4]
		u[6], u[7] = u[7], u[6]
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func (f *Firmware) module(s structure) {
	const kib, mib = 1 << 10, 1 << 20
	var bytes int64
	switch size := s.word(0x0c); {
	case size == 0, size == sizeUnknown:
		return // an empty slot
	case size == sizeIsExtended:
		bytes = s.double(0x1c) * mib
	case size&sizeInKiB != 0:
		bytes = int64(size&^sizeInKiB) * kib
	default:
		bytes = int64(size) * mib
	}
	clock := s.word(0x20)
	if clock == 0 || clock == speedIsExtended {
		clock = s.word(0x15)
	}
	if clock == speedIsExtended {
		clock = 0
	}
	slot := s.text(0x10)
	f.Memory = append(f.Memory, hardware.Module{
		Slot: slot, Channel: channelOf(slot, s.text(0x11)), Bytes: bytes, MHz: clock, Serial: s.text(0x18), Part: s.text(0x1a),
	})
}

// Vendors name channels in several ways: "ChannelA-DIMM0", "P0_Node0_Channel1_Dimm0", "DIMM_B1", "CPU1_DIMM_C2".
var (
	namedChannel  = regexp.MustCompile(`(?i)channel[ _-]?([a-z]|\d+)`)
	letterChannel = regexp.MustCompile(`(?i)dimm[ _-]?([a-z])\d*\b`)
)

// channelOf finds the memory channel in the names that firmware gives a slot and its bank; empty if it is in neither.
func channelOf(slot, bank string) string {
	for _, text := range []string{slot, bank} {
		for _, pattern := range []*regexp.Regexp{namedChannel, letterChannel} {
			if match := pattern.FindStringSubmatch(text); match != nil {
				return strings.ToUpper(match[1])
			}
		}
	}
	return ""
}
