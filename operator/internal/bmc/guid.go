package bmc

import (
	"encoding/hex"
	"slices"
	"strings"
)

// sizeGUID is the size of a GUID in bytes.
const sizeGUID = 16

// orders are the orders of bytes in which controllers and firmware store a GUID: for each byte of the text, where it is in the 16 bytes.
var orders = [][sizeGUID]int{
	// SMBIOS: the first three fields have their least significant byte first. Most controllers copy the GUID from there.
	{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15},
	// IPMI 2.0, section 20.8: the whole GUID has its least significant byte first.
	{15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
	// RFC 4122: as written.
	{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
}

// placeholders are GUIDs that boards leave the factory with. They say nothing about which board this is.
var placeholders = map[string]bool{
	"00000000-0000-0000-0000-000000000000": true,
	"ffffffff-ffff-ffff-ffff-ffffffffffff": true,
	"03000200-0400-0500-0006-000700080009": true,
	"00020003-0004-0005-0006-000700080009": true,
	"12345678-1234-5678-90ab-cddeefaabbcc": true,
}

// FormatGUID returns the text of a GUID as a controller stores it, or nothing if the GUID identifies no board. The order of bytes is the
// first that gives a GUID of RFC 4122 (variant 1, version 1 to 8), and SMBIOS' if none does. A wrong guess is possible: compare with
// SameSystem.
func FormatGUID(raw [sizeGUID]byte) string {
	text := arrange(raw, orders[0])
	for _, order := range orders {
		candidate := arrange(raw, order)
		version, variant := candidate[14], candidate[19]
		if version >= '1' && version <= '8' && strings.IndexByte("89ab", variant) >= 0 {
			text = candidate
			break
		}
	}
	for _, order := range orders {
		if placeholders[arrange(raw, order)] {
			return ""
		}
	}
	return text
}

func arrange(raw [sizeGUID]byte, order [sizeGUID]int) string {
	var bytes [sizeGUID]byte
	for to, from := range order {
		bytes[to] = raw[from]
	}
	text := hex.EncodeToString(bytes[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// SameSystem says whether a controller's system GUID and a node's systemUUID mean one machine: whether the texts are equal, or would be if
// controller and firmware had agreed on the order of bytes. No two machines have GUIDs that differ by such an order alone. GUIDs that
// identify no board, and texts that are no GUIDs, are never the same.
func SameSystem(guid, systemUUID string) bool {
	a, okA := parseGUID(guid)
	b, okB := parseGUID(systemUUID)
	if !okA || !okB || FormatGUID(a) == "" || FormatGUID(b) == "" {
		return false
	}
	// Each text came from bytes by one of the orders, and the bytes are those of the same machine.
	for _, storedA := range orders {
		for _, storedB := range orders {
			if rearranged(a, storedA) == rearranged(b, storedB) {
				return true
			}
		}
	}
	return false
}

// rearranged returns the bytes that give text by an order.
func rearranged(text [sizeGUID]byte, order [sizeGUID]int) (raw [sizeGUID]byte) {
	for to, from := range order {
		raw[from] = text[to]
	}
	return raw
}

func parseGUID(text string) (guid [sizeGUID]byte, ok bool) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return guid, false
	}
	decoded, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(decoded) != sizeGUID {
		return guid, false
	}
	return [sizeGUID]byte(decoded), true
}

// SystemKey is the same for any two texts that SameSystem accepts: what has another key is another system. Candidates are found by it, and
// SameSystem decides.
func SystemKey(guid string) string {
	digits, err := hex.DecodeString(strings.ReplaceAll(guid, "-", ""))
	if err != nil {
		return guid
	}
	slices.Sort(digits)
	return string(digits)
}
