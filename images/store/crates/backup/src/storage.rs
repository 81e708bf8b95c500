//! What a backup keeps its frames on, as the backup sees it.

use core::fmt;

use crate::layout::HEAD_BYTES;

/// A range of bytes that outlives the process; how well, its driver knows.
///
/// Writes go to the page cache of a file or device, or to memory: they are over when the call returns, and later reads see
/// them. When the process dies in the middle of one, the part of it that lies within one block of
/// [`crate::BLOCK_BYTES`] is written whole or not at all. What survives the loss of power is what was written before a sync that
/// has completed; of the rest, any part.
pub trait Storage {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError>;
    /// Fills `out`.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StorageError>;
    /// These bytes will be read soon: a chance to fetch them from the disk, on Linux with `posix_fadvise`. Must not wait for them.
    fn will_need(&mut self, _offset: u64, _bytes: u64) {}
    /// Makes room for so many bytes in all, more than there are; what is new reads as zeros, or as anything on a device. Nothing is lost if that fails.
    ///
    /// # Errors
    /// There is not so much room.
    fn grow(&mut self, bytes: u64) -> Result<(), StorageError>;
    /// Begins to make durable what was written until now; the driver tells [`crate::Backup::synced`] when it
    /// is, later and not before this returns. At most one of each scope is under way.
    fn begin_sync(&mut self, scope: Scope);
    /// Syncs everything, and waits for it: when a storage is opened, and when it is closed in order.
    fn sync(&mut self) -> Result<(), StorageError>;
}

/// What a sync is to make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    All,
    /// The first [`SUPERBLOCK_BYTES`] alone. It should not wait for what else is in the page cache: on Linux, a write of the
    /// same bytes with `RWF_DSYNC` does not.
    Superblock,
}

/// What [`Scope::Superblock`] is about.
pub const SUPERBLOCK_BYTES: u64 = HEAD_BYTES as u64;

/// The storage failed; the text says where and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageError(pub String);

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for StorageError {}
