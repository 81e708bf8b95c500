//! Where an entry lies, and how far the log has got.

use core::num::NonZeroU64;

/// Where an entry lies in memory. Good until the cleaner moves the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference(NonZeroU64);

impl Reference {
    /// Bits that a reference takes at most: 2 PiB in steps of 8 bytes.
    pub const BITS: u32 = 48;

    /// `offset`: bytes from the start of the log's memory; a multiple of 8, and not 0, where a segment header lies.
    pub(crate) fn of_offset(offset: usize) -> Reference {
        assert!(offset.is_multiple_of(8));
        Reference::from_bits(offset as u64 / 8)
    }

    pub(crate) fn offset(self) -> usize {
        self.0.get() as usize * 8
    }

    pub(crate) fn to_bits(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn from_bits(bits: u64) -> Reference {
        let bits = NonZeroU64::new(bits);
        Reference(bits.expect("the first entry of a log is a segment's header"))
    }
}

/// How far a log has been written, or is durable. Grows with every append at the head of the log; entries that the cleaner
/// copies do not count, for they were durable where they were copied from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(pub u64);

impl LogPosition {
    /// Before anything was written: whoever saw no entry at all waits for this.
    pub const START: LogPosition = LogPosition(0);
    /// Behind everything that will ever be written.
    pub const END: LogPosition = LogPosition(u64::MAX);
}
