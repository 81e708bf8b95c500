//! The hash that places a key in its table.

pub use base::ids::HashFunction;
use base::ids::TableId;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// Where `key` lies in the hash space of table `table_id`.
#[inline]
pub fn key_hash(table_id: TableId, key: &[u8]) -> u64 {
    match table_id.hash_function() {
        HashFunction::Murmur3 => murmur3(table_id, key),
        #[cfg(feature = "next-format")]
        HashFunction::Reversed => murmur3(table_id, key).reverse_bits(),
    }
}

/// The first word of MurmurHash3 x64 128, seeded with the low half of the table id.
fn murmur3(table_id: TableId, key: &[u8]) -> u64 {
    let seed = u64::from(table_id.0 as u32);
    let (mut h1, mut h2) = (seed, seed);

    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        let [k1, k2] = words(block);
        h1 ^= mix1(k1);
        h1 = h1.rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix2(k2);
        h2 = h2.rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }

    // A missing word is zero, and zero mixes to zero: no need to look how long the tail is.
    let mut last = [0; 16];
    last[..tail.len()].copy_from_slice(tail);
    let [k1, k2] = words(&last);
    h1 ^= mix1(k1);
    h2 ^= mix2(k2);

    h1 ^= key.len() as u64;
    h2 ^= key.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2))
}

fn words(block: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*block);
    [both as u64, (both >> 64) as u64]
}

fn mix1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with RAMCloud's own function.
    #[test]
    fn equals_ramclouds_hash() {
        let clusterperf_key = [&[1, 0, 0, 0][..], &[0x78; 26]].concat();
        let vectors: &[(u64, &[u8], u64)] = &[
            (1, b"0", 0x360b_a730_dc0b_d1ee),
            (1, b"abc", 0x9c88_be4e_9a8a_61f0),
            (2, b"abc", 0x95d0_0d60_704b_c676),
            (1, b"0123456789abcde", 0x2a18_5268_139d_e169),
            (1, b"0123456789abcdef", 0xfdff_0577_812e_bb41),
            (1, b"0123456789abcdefg", 0xe962_00bd_68fb_ebfd),
            (0x1_0000_0001, b"abc", 0x9c88_be4e_9a8a_61f0),
            (
                7,
                b"The quick brown fox jumps over the lazy dog",
                0x3f2b_2236_12d8_9084,
            ),
            (1, &clusterperf_key, 0xe4ef_4ad9_f73d_dde6),
        ];
        for &(table, key, hash) in vectors {
            assert_eq!(key_hash(TableId(table), key), hash, "{table} {key:?}");
        }
    }

    #[cfg(feature = "next-format")]
    #[test]
    fn a_table_says_how_its_keys_are_hashed() {
        use base::layout::{CURRENT_FORMAT, NEXT_FORMAT};
        let functions = [CURRENT_FORMAT, NEXT_FORMAT].map(|format| {
            let function = HashFunction::of_new_table(format, b"even");
            let table = TableId::new(3, function, 9);
            assert_eq!((table.cluster_tag(), table.number()), (3, 9));
            assert_eq!(table.hash_function(), function);
            (function, key_hash(table, b"key"))
        });
        assert_eq!(
            functions.map(|(function, _)| function),
            [HashFunction::Murmur3, HashFunction::Reversed]
        );
        assert_ne!(functions[0].1, functions[1].1);
        let newer = TableId::new(3, HashFunction::Reversed, 9);
        assert!(newer.is_of_format(NEXT_FORMAT) && !newer.is_of_format(CURRENT_FORMAT));
        // Those that there are already.
        assert_eq!(
            TableId::new(3, HashFunction::Murmur3, 9),
            TableId(0x3_0000_0009)
        );
    }
}
