package rack

import (
	"fmt"
	"math"
)

// Kinds and units of sensors (IPMI 2.0, tables 42-3 and 43-15).
const (
	kindTemperature = 0x01
	kindFan         = 0x04
	kindPowerSupply = 0x08
	kindOther       = 0x0b
	unitNone        = 0
	unitCelsius     = 1
	unitWatts       = 6
)

// sdr is a full sensor record of an analog sensor whose raw value is what it measures (IPMI 2.0, table 43-1).
func sdr(mc, number, kind, unit byte, name string) []byte {
	const headerBytes, nameIsASCII = 5, 0xc0
	record := []byte{
		0, 0, 0x51, 0x01, 0, // its number is given to it; version; full record; length
		mc, 0, number, // owner, and its number there
		0x07, 0x01, // a system board, the first
		0x7f, 0x68, kind, 0x01, // initialized; thresholds; analog
		0, 0, 0, 0, 0, 0, // no events, no thresholds
		0, unit, 0, // unsigned
		0, 1, 0, 0, 0, 0, 0, // linear: 1 * value
		0, 0, 0, 0, math.MaxUint8, 0, // from 0 to 255
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		nameIsASCII | byte(len(name)), //nolint:gosec // names here are short
	}
	record = append(record, name...)
	record[4] = byte(len(record) - headerBytes) //nolint:gosec // as above
	return record
}

const fruBytes = 256

// fru is what a blade says that it is: the product area of IPMI's "Platform Management FRU Information Storage Definition", with the slot
// and the hardware addresses of its ports in fields of the maker's own.
func fru(slot *Slot) []byte {
	const unit, endOfFields, english = 8, 0xc1, 25
	fields := []string{"rcbox", "stand-in blade", "MMS-1", "1.0", slot.Blade.Serial, "", "", fmt.Sprintf("slot=%d", slot.Number)}
	for i, mac := range slot.Blade.MACs {
		fields = append(fields, fmt.Sprintf("mac%d=%s", i+1, mac))
	}
	product := []byte{1, 0, english}
	for _, field := range fields {
		product = append(product, byte(0xc0|len(field))) //nolint:gosec // fields here are short
		product = append(product, field...)
	}
	product = append(product, endOfFields)
	for (len(product)+1)%unit != 0 {
		product = append(product, 0)
	}
	product[1] = byte((len(product) + 1) / unit) //nolint:gosec // less than fruBytes / unit
	product = append(product, checksum(product))
	header := []byte{1, 0, 0, 0, 1, 0, 0}
	all := append(append(header, checksum(header)), product...)
	return append(all, make([]byte, fruBytes-len(all))...)
}

// checksum makes the sum of all bytes zero.
func checksum(of []byte) byte {
	sum := byte(0)
	for _, b := range of {
		sum += b
	}
	return -sum
}
