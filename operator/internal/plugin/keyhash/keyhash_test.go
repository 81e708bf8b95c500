package keyhash_test

import (
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/plugin/keyhash"
)

// Computed with RAMCloud's own function; crates/wire/src/hash.rs has the same.
func TestEqualsRAMCloudsHash(t *testing.T) {
	for _, vector := range []struct {
		table uint64
		key   string
		hash  uint64
	}{
		{1, "0", 0x360ba730dc0bd1ee},
		{1, "abc", 0x9c88be4e9a8a61f0},
		{2, "abc", 0x95d00d60704bc676},
		{1, "0123456789abcde", 0x2a185268139de169},
		{1, "0123456789abcdef", 0xfdff0577812ebb41},
		{1, "0123456789abcdefg", 0xe96200bd68fbebfd},
		{0x100000001, "abc", 0x9c88be4e9a8a61f0},
		{7, "The quick brown fox jumps over the lazy dog", 0x3f2b223612d89084},
		{1, "\x01\x00\x00\x00" + strings.Repeat("x", 26), 0xe4ef4ad9f73ddde6},
	} {
		if got := keyhash.Of(vector.table, []byte(vector.key)); got != vector.hash {
			t.Errorf("table %#x, key %q: %#x instead of %#x", vector.table, vector.key, got, vector.hash)
		}
	}
}

func TestTablesOfAnotherFunctionAreNotKnown(t *testing.T) {
	for table, known := range map[uint64]bool{1: true, 0x3_7fff_ffff: true, 0x3_8000_0001: false} {
		if keyhash.Known(table) != known {
			t.Errorf("table %#x: known is %v", table, !known)
		}
	}
}
