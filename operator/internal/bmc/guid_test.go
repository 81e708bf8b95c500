package bmc_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// TestGUIDInEachOrder reads one GUID as each kind of controller stores it.
func TestGUIDInEachOrder(t *testing.T) {
	const text = "00112233-4455-4677-8899-aabbccddeeff"
	stored := map[string][16]byte{
		"SMBIOS":   {0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x46, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff},
		"IPMI":     {0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88, 0x77, 0x46, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00},
		"RFC 4122": {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x46, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff},
	}
	for name, raw := range stored {
		got := bmc.FormatGUID(raw)
		if name != "RFC 4122" && got != text {
			t.Errorf("%s: got %s, want %s", name, got, text)
		}
		if !bmc.SameSystem(got, text) || !bmc.SameSystem(text, got) {
			t.Errorf("%s: %s is not the same system as %s", name, got, text)
		}
	}
}

// TestNoGUIDIsNoSystem keeps what identifies no board from fencing a node.
func TestNoGUIDIsNoSystem(t *testing.T) {
	for _, text := range []string{
		"", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "03000200-0400-0500-0006-000700080009",
		"not a guid", "00112233445546778899aabbccddeeff", "00112233-4455-4677-8899-aabbccddeefg",
	} {
		if bmc.SameSystem(text, text) {
			t.Errorf("%q is taken for a system", text)
		}
	}
	if bmc.FormatGUID([16]byte{}) != "" {
		t.Error("zeros are taken for a GUID")
	}
}

// TestSameSystem holds for every GUID in every order, and for no two GUIDs.
func TestSameSystem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "guid"))
		text := bmc.FormatGUID(raw)
		if text == "" {
			t.Skip("identifies no board")
		}
		if !bmc.SameSystem(text, strings.ToUpper(text)) {
			t.Fatalf("%s is not itself", text)
		}
		other := raw
		other[rapid.IntRange(0, 15).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		changed := bmc.FormatGUID(other)
		if changed != "" && bmc.SameSystem(text, changed) {
			t.Fatalf("%s and %s are taken for one system", text, changed)
		}
	})
}
