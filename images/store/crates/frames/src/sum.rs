//! The checksum of IPv4 and UDP: the one's complement sum of 16-bit words (RFC 1071).

use std::net::Ipv4Addr;

use crate::PROTOCOL_UDP;

/// The sum of words, of which none is lost: at most 64 KiB of them are ever added.
#[must_use]
pub fn add(sum: u32, bytes: &[u8]) -> u32 {
    // 64 bits at a time: in one's complement, words of any width give the same sum.
    let mut wide: u64 = 0;
    let mut groups = bytes.chunks_exact(4);
    for group in &mut groups {
        wide += u64::from(u32::from_be_bytes([group[0], group[1], group[2], group[3]]));
    }
    let mut last = [0; 4];
    let rest = groups.remainder();
    last[..rest.len()].copy_from_slice(rest);
    wide += u64::from(u32::from_be_bytes(last));
    wide = (wide & 0xffff_ffff) + (wide >> 32);
    wide = (wide & 0xffff_ffff) + (wide >> 32);
    let folded = (wide as u32 & 0xffff) + (wide as u32 >> 16);
    sum + folded
}

/// To 16 bits, not inverted.
#[must_use]
pub fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// What UDP's sum covers beside header and payload.
#[must_use]
pub fn pseudo_header(from: Ipv4Addr, to: Ipv4Addr, udp_bytes: u16) -> u32 {
    add(add(0, &from.octets()), &to.octets()) + u32::from(PROTOCOL_UDP) + u32::from(udp_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the RFC describes it.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum: u32 = 0;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn example_of_the_rfc() {
        assert_eq!(
            fold(add(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])),
            0xddf2
        );
    }

    proptest! {
        #[test]
        fn wide_words_give_the_same_sum(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(fold(add(0, &bytes)), plain(&bytes));
        }

        #[test]
        fn highest_words_do_not_overflow(count in 0usize..65536) {
            let bytes = vec![0xff; count];
            prop_assert_eq!(fold(add(0, &bytes)), plain(&bytes));
        }
    }
}
