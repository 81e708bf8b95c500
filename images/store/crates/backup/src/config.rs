//! The configuration of a backup: sizes, formats, and when it answers.

use wire::format::Formats;

use crate::layout::Layout;

/// When an append is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once it is in the page cache: it survives the process.
    Buffered,
    /// Once it is on stable storage: it survives the loss of power.
    Flushed,
}

/// What a backup is told about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub cluster_id: u64,
    /// The store's segment size, at most 8 MiB.
    pub segment_bytes: u32,
    pub frame_count: u32,
    pub durability: Durability,
    /// Names this run of the kernel: what is in its page cache is gone when it changes. Linux has it in
    /// `/proc/sys/kernel/random/boot_id`. For a storage that dies with its process or machine anyway, any constant.
    pub boot_id: [u8; 16],
    /// What this build reads.
    pub formats: Formats,
    /// The one in force in the store.
    pub format: u32,
}

impl Durability {
    pub(crate) fn is_flushed(self) -> bool {
        self == Durability::Flushed
    }
}

impl Config {
    /// What the storage must have.
    pub fn layout(&self) -> Layout {
        Layout {
            segment_bytes: self.segment_bytes,
            frame_count: self.frame_count,
        }
    }
}
