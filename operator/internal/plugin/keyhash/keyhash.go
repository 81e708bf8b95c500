// Package keyhash says where a key lies in its table: RAMCloud's hash, as the store's crate `wire` has it.
package keyhash

import (
	"encoding/binary"
	"math/bits"
)

const (
	c1 = 0x87c37b91114253d5
	c2 = 0x4cf5ad432745937f

	blockBytes = 16
	wordBytes  = 8
)

// functionBit of a table's id says whether the table's keys are hashed by another function than MurmurHash3.
const functionBit = 1 << 31

// Known says whether Of hashes the keys of this table as the store does.
func Known(tableID uint64) bool { return tableID&functionBit == 0 }

// Of is the hash of a key in a table: the first word of MurmurHash3 x64 128, seeded with the low half of the table's id.
func Of(tableID uint64, key []byte) uint64 {
	seed := tableID & 0xffffffff
	h1, h2 := seed, seed
	rest := key
	for ; len(rest) >= blockBytes; rest = rest[blockBytes:] {
		h1 ^= mix1(binary.LittleEndian.Uint64(rest))
		h1 = bits.RotateLeft64(h1, 27) + h2
		h1 = h1*5 + 0x52dce729
		h2 ^= mix2(binary.LittleEndian.Uint64(rest[wordBytes:]))
		h2 = bits.RotateLeft64(h2, 31) + h1
		h2 = h2*5 + 0x38495ab5
	}
	// A missing word is zero, and zero mixes to zero.
	var last [blockBytes]byte
	copy(last[:], rest)
	h1 ^= mix1(binary.LittleEndian.Uint64(last[:]))
	h2 ^= mix2(binary.LittleEndian.Uint64(last[wordBytes:]))

	h1 ^= uint64(len(key))
	h2 ^= uint64(len(key))
	h1 += h2
	h2 += h1
	return finish(h1) + finish(h2)
}

func mix1(k uint64) uint64 { return bits.RotateLeft64(k*c1, 31) * c2 }

func mix2(k uint64) uint64 { return bits.RotateLeft64(k*c2, 33) * c1 }

func finish(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
